#include "predict/baselines.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::predict {

RunTimes Requested::predict(const JobFacts& facts, int64_t /*at_ms*/) const {
  return facts.limit_ms > 0 ? RunTimes::exactly(facts.limit_ms) : RunTimes();
}

LastTwo::LastTwo(int64_t grain_ms) : grain_ms_(grain_ms) { CHECK(grain_ms > 0); }

RunTimes LastTwo::predict(const JobFacts& facts, int64_t at_ms) const {
  const auto found = last_.find(facts.user);
  if (found == last_.end() || found->second[1] < 0) return Requested().predict(facts, at_ms);
  const int64_t mean = (found->second[0] + found->second[1]) / 2 / grain_ms_ * grain_ms_;
  return RunTimes::exactly(facts.limit_ms > 0 ? std::min(mean, facts.limit_ms) : mean);
}

void LastTwo::finished(const JobFacts& facts, int64_t run_ms, int64_t /*at_ms*/) {
  const auto [found, inserted] = last_.try_emplace(facts.user, std::array<int64_t, 2>{run_ms, -1});
  if (!inserted) found->second = {run_ms, found->second[0]};
}

RunTimes Clairvoyant::predict(const JobFacts& facts, int64_t /*at_ms*/) const {
  const auto found = truth_.find(facts.job);
  CHECK(found != truth_.end());
  return RunTimes::exactly(found->second);
}

}  // namespace gpusched::predict
