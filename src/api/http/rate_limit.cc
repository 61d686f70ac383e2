#include "api/http/rate_limit.h"

#include <algorithm>
#include <chrono>

namespace gpusched::api {
namespace {

constexpr std::size_t kBucketsMax = 10'000;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::optional<ApiError> RateLimit::take(const std::string& address) {
  if (rps_ <= 0) return std::nullopt;
  const int64_t now = now_ns();
  const double burst = std::max(1.0, rps_);
  const std::lock_guard lock(mutex_);
  auto found = buckets_.find(address);
  if (found == buckets_.end()) {
    // A full bucket and no bucket are the same: those that had time to fill up go.
    if (buckets_.size() >= kBucketsMax) {
      std::erase_if(buckets_,
                    [&](const auto& entry) { return now - entry.second.filled_at_ns > 2'000'000'000; });
    }
    if (buckets_.size() >= kBucketsMax) buckets_.erase(buckets_.begin());
    found = buckets_.emplace(address, Bucket{burst, now}).first;
  }
  Bucket& bucket = found->second;
  const double gained = static_cast<double>(now - bucket.filled_at_ns) * 1e-9 * rps_;
  bucket.tokens = std::min(burst, bucket.tokens + gained);
  bucket.filled_at_ns = now;
  if (bucket.tokens >= 1.0) {
    bucket.tokens -= 1.0;
    return std::nullopt;
  }
  const auto wait = Duration{static_cast<int64_t>((1.0 - bucket.tokens) / rps_ * 1e9)};
  return ApiError{ErrorKind::kRateLimited,
                  "too many requests from this address; send fewer requests, or submit jobs in batches", "",
                  std::max(wait, seconds(1))};
}

}  // namespace gpusched::api
