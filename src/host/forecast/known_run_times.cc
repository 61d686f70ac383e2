#include "host/forecast/known_run_times.h"

#include "base/digest.h"
#include "host/forecast/learned_run_times.h"

namespace gpusched {

KnownRunTimes::KnownRunTimes(LookUp look_up) : KnownRunTimes(std::move(look_up), facts_of) {}

KnownRunTimes::KnownRunTimes(LookUp look_up, FactsOf facts_of)
    : look_up_(std::move(look_up)), facts_of_(std::move(facts_of)) {}

const predict::RunTimes& KnownRunTimes::known(const State& state, const Job& job) const {
  const int64_t limit_ms = job.max_runtime.ms();
  const auto found = kind_of_job_.find(job.id.value);
  if (found != kind_of_job_.end() && found->second.limit_ms == limit_ms &&
      found->second.job_class == job.job_class)
    return kinds_[found->second.index];
  if (kinds_.size() >= kKindsMax) {
    kinds_.clear();
    kind_of_job_.clear();
    kind_of_facts_.clear();
  }
  const predict::JobFacts facts = facts_of_(state, job);
  Digest digest;
  for (const uint64_t word : {facts.user, facts.name, facts.shape, static_cast<uint64_t>(facts.size),
                              static_cast<uint64_t>(facts.limit_ms)}) {
    digest.mix(word);
  }
  const auto [kind, is_new] =
      kind_of_facts_.try_emplace(digest.value(), static_cast<uint32_t>(kinds_.size()));
  if (is_new) kinds_.push_back(look_up_(facts));
  kind_of_job_[job.id.value] = {.limit_ms = limit_ms, .job_class = job.job_class, .index = kind->second};
  return kinds_[kind->second];
}

Duration KnownRunTimes::to_pass(const State& state, const Job& job, Time now) const {
  return expected_to_pass(known(state, job), state, job, now);
}

Duration KnownRunTimes::of_running(const State& state, const Job& job, Duration elapsed, Time now) const {
  return expected_of_running(known(state, job), state, job, elapsed, now);
}

Duration KnownRunTimes::to_order(const State& state, const Job& job, Duration attained, Time now) const {
  return expected_to_order(known(state, job), state, job, attained, now);
}

Duration KnownRunTimes::whole_run(const State& state, const Job& job, Duration elapsed, int32_t per_mille) {
  return forecast::sampled_run(known(state, job), job.max_runtime, elapsed, per_mille);
}

}  // namespace gpusched
