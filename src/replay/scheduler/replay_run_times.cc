#include "replay/scheduler/replay_run_times.h"

#include <algorithm>

#include "engine/policy/policies.h"
#include "predict/questions.h"
#include "replay/scheduler/job_facts.h"

namespace gpusched::replay {

void ReplayRunTimes::submitted(JobId id, uint32_t index) {
  if (id.value >= index_.size()) index_.resize(id.value + 1 + id.value / 2);
  index_[id.value] = index;
}

uint32_t ReplayRunTimes::index_of(JobId id) const {
  CHECK(id.value < index_.size());
  return index_[id.value];
}

predict::RunTimes ReplayRunTimes::expected(uint32_t index, Time now) const {
  if (knows_ == ReplayPolicy::Knows::kOracle) return predict::RunTimes::exactly(jobs_[index].run.ms());
  if (knows_ == ReplayPolicy::Knows::kLimits) return {};
  return predictor_.predict(facts_of(index, jobs_[index]), now.ms());
}

Duration ReplayRunTimes::unknown(const TraceJob& job) const {
  return job.requested.ns > 0 ? job.requested : policy::LimitRunTimes::kUnlimitedRunTime;
}

Duration ReplayRunTimes::to_pass(const State& /*state*/, const Job& job, Time now) const {
  const uint32_t index = index_of(job.id);
  const TraceJob& what = jobs_[index];
  Known& known = known_[index];
  if (knows_ == ReplayPolicy::Knows::kOracle) return known.left.ns > 0 ? known.left : what.run;
  if (knows_ == ReplayPolicy::Knows::kLimits) return unknown(what);
  if (known.pass_ms < 0) {
    const predict::RunTimes expected = predictor_.predict(facts_of(index, what), now.ms());
    known.pass_ms = expected.empty() ? unknown(what).ms()
                                     : expected.quantile_ms(predict::to_pass_per_mille(what.requested));
  }
  return milliseconds(known.pass_ms);
}

Duration ReplayRunTimes::of_running(const State& /*state*/, const Job& job, Duration elapsed,
                                    Time now) const {
  const uint32_t index = index_of(job.id);
  const TraceJob& what = jobs_[index];
  Known& known = known_[index];
  if (knows_ == ReplayPolicy::Knows::kOracle) return known.left.ns > 0 ? known.left : what.run;
  if (knows_ == ReplayPolicy::Knows::kLimits) return unknown(what);
  // Asked again only when what was said is over: a prediction costs more than a whole cycle.
  if (known.running_ms <= elapsed.ms()) {
    const predict::RunTimes expected = predictor_.predict(facts_of(index, what), now.ms());
    const std::optional<int64_t> run_ms = expected.quantile_after_ms(elapsed.ms(), predict::kOfRunning);
    if (!run_ms.has_value()) return unknown(what);
    known.running_ms = *run_ms;
  }
  return milliseconds(known.running_ms);
}

Duration ReplayRunTimes::to_order(const State& /*state*/, const Job& job, Duration attained, Time now) const {
  const uint32_t index = index_of(job.id);
  const TraceJob& what = jobs_[index];
  if (knows_ == ReplayPolicy::Knows::kOracle) return what.run;
  if (knows_ == ReplayPolicy::Knows::kLimits) return unknown(what);
  const predict::RunTimes expected = predictor_.predict(facts_of(index, what), now.ms());
  const std::optional<int64_t> run_ms = expected.quantile_after_ms(attained.ms(), predict::kToOrder);
  return run_ms.has_value() ? milliseconds(*run_ms) : unknown(what);
}

void ReplayRunTimes::started(uint32_t index, Duration left, Time now) {
  known_[index].left = left;
  known_[index].running_ms = -1;
  if (knows_ == ReplayPolicy::Knows::kLearned) predictor_.started(facts_of(index, jobs_[index]), now.ms());
}

void ReplayRunTimes::finished(uint32_t index, Duration run, Time now) {
  if (knows_ == ReplayPolicy::Knows::kLearned)
    predictor_.finished(facts_of(index, jobs_[index]), run.ms(), now.ms());
}

void ReplayRunTimes::stopped(uint32_t index) {
  if (knows_ == ReplayPolicy::Knows::kLearned) predictor_.left(facts_of(index, jobs_[index]));
}

}  // namespace gpusched::replay
