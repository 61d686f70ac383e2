#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "api/contract/errors.h"

namespace gpusched::api {

/// So many requests a second for each client address, with a second's worth at once: one budget for all doors
/// that share it. Thread-safe.
class RateLimit {
 public:
  /// `rps` 0: no limit.
  explicit RateLimit(double rps) : rps_(rps) {}

  /// Takes one request from the address's budget, or says why not (kRateLimited).
  std::optional<ApiError> take(const std::string& address);

 private:
  struct Bucket {
    double tokens = 0;
    int64_t filled_at_ns = 0;
  };

  const double rps_;
  std::mutex mutex_;
  std::map<std::string, Bucket, std::less<>> buckets_;
};

}  // namespace gpusched::api
