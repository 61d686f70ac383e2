#include "predict/run_times.h"

#include <algorithm>

#include "base/check.h"
#include "predict/fixed_log.h"

namespace gpusched::predict {
namespace {

__extension__ using Wide = unsigned __int128;

bool shorter(const RunTimes::Sample& a, const RunTimes::Sample& b) { return a.run_ms < b.run_ms; }

// The least weight that is at least `per_mille` of `total`.
uint64_t share_of(uint64_t total, int32_t per_mille) {
  CHECK(per_mille >= 0);
  CHECK(per_mille <= 1000);
  return static_cast<uint64_t>((static_cast<Wide>(total) * static_cast<uint64_t>(per_mille) + 999) / 1000);
}

}  // namespace

RunTimes RunTimes::exactly(int64_t run_ms) { return of({{.run_ms = run_ms, .weight = 1}}); }

RunTimes RunTimes::of(std::vector<Sample> samples) {
  CHECK(samples.size() <= 1024);
  RunTimes made;
  std::erase_if(samples, [](const Sample& sample) { return sample.weight == 0; });
  if (!std::is_sorted(samples.begin(), samples.end(), shorter)) {
    std::sort(samples.begin(), samples.end(), shorter);
  }
  for (const Sample& sample : samples) {
    CHECK(sample.run_ms >= 0);
    CHECK(sample.weight < uint64_t{1} << 44);
    made.total_ += sample.weight;
  }
  made.samples_ = std::move(samples);
  return made;
}

int64_t RunTimes::quantile_ms(int32_t per_mille) const {
  return quantile_after_ms(-1, per_mille).value_or(0);
}

std::optional<int64_t> RunTimes::quantile_after_ms(int64_t elapsed_ms, int32_t per_mille) const {
  const auto first =
      std::upper_bound(samples_.begin(), samples_.end(), Sample{.run_ms = elapsed_ms}, shorter);
  uint64_t total = total_;
  for (auto gone = samples_.begin(); gone != first; ++gone) total -= gone->weight;
  if (total == 0) return std::nullopt;
  const uint64_t wanted = std::max<uint64_t>(share_of(total, per_mille), 1);
  uint64_t sum = 0;
  for (auto at = first; at != samples_.end(); ++at) {
    sum += at->weight;
    if (sum >= wanted) return at->run_ms;
  }
  UNREACHABLE();  // No share is more than the whole.
}

int64_t RunTimes::typical_ms(int64_t floor_ms) const {
  CHECK(floor_ms >= 1);
  if (total_ == 0) return 0;
  Wide sum = 0;
  for (const Sample& sample : samples_) {
    const int32_t log = log2_q8(static_cast<uint64_t>(sample.run_ms + floor_ms));
    sum += static_cast<Wide>(sample.weight) * static_cast<uint32_t>(log);
  }
  const int64_t typical = static_cast<int64_t>(exp2_q8(static_cast<int32_t>(sum / total_)));
  return std::max<int64_t>(typical - floor_ms, 0);
}

int64_t RunTimes::mean_ms() const {
  if (total_ == 0) return 0;
  Wide sum = 0;
  for (const Sample& sample : samples_)
    sum += static_cast<Wide>(sample.weight) * static_cast<uint64_t>(sample.run_ms);
  return static_cast<int64_t>(sum / total_);
}

int32_t RunTimes::per_mille_longer_than(int64_t run_ms) const {
  if (total_ == 0) return 0;
  uint64_t longer = 0;
  for (const Sample& sample : samples_) {
    if (sample.run_ms > run_ms) longer += sample.weight;
  }
  return static_cast<int32_t>(static_cast<Wide>(longer) * 1000 / total_);
}

}  // namespace gpusched::predict
