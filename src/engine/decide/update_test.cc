#include <gtest/gtest.h>

#include <string>

#include "base/prng.h"
#include "engine/testing/test_engine.h"

// A change of a waiting job is allowed exactly where a new job that is so would be, and it is that job then.
namespace gpusched {
namespace {

using testing::TestEngine;
using testing::Want;

Want some_job(Prng& prng, TenantId tenant) {
  Want want{.gpus = static_cast<int32_t>(prng.between(-1, 9)),
            .cpu_milli = static_cast<int32_t>(prng.between(-1, 12)) * 1'000,
            .memory_mb = prng.between(-1, 12) * 1'000,
            .model = prng.chance(200) ? "NVIDIA H100" : "",
            .gpu_memory_mb = prng.chance(200) ? prng.between(1, 100'000) : 0,
            .priority = static_cast<int32_t>(prng.between(0, 1'100)),
            .tenant = tenant,
            .max_runtime = minutes(prng.between(0, 90))};
  if (want.gpus == 1 && prng.chance(400)) want.gpu_milli = static_cast<int32_t>(prng.between(1, 10)) * 100;
  if (want.gpu_milli > 0) want.gpu_memory_mb = 0;
  if (prng.chance(200)) want.members = static_cast<int32_t>(prng.between(0, 4));
  if (prng.chance(100)) want.members_max = static_cast<int32_t>(prng.between(1, 6));
  if (prng.chance(100)) want.leader_gpus = static_cast<int32_t>(prng.between(0, 2));
  if (prng.chance(100)) want.place = {{.labels = {{.name = "zone", .value = "eu"}}}};
  if (prng.chance(100)) want.place = {{.exclusive = true, .bandwidth_min = prng.between(0, 50)}};
  if (prng.chance(200)) want.work = prng.chance(500) ? WorkClass::kOnline : WorkClass::kBatch;
  return want;
}

JobFlow some_times(Prng& prng, Time now) {
  JobFlow flow;
  if (prng.chance(400)) flow.begin_after = seconds(prng.between(1, 600));
  if (prng.chance(100)) flow.begin_at = now + seconds(prng.between(-10, 600));
  if (prng.chance(400)) flow.deadline_after = seconds(prng.between(1, 1'200));
  if (prng.chance(100)) flow.deadline = now + seconds(prng.between(-10, 1'200));
  if (flow.begin_after.ns > 0) flow.begin_at = {};
  if (flow.deadline_after.ns > 0) flow.deadline = {};
  return flow;
}

/// The answer in a word.
std::string answer(const Applied& applied) {
  if (!applied.rejection) return "accepted";
  return std::string(to_string(applied.rejection->code));
}

class Changed {
 public:
  explicit Changed(uint64_t seed) : prng_(seed) {
    EngineConfig config{.feature_level = kFeatureLevel};
    config.interactive_wait = seconds(5);
    config.interactive_gpus_max = 1;
    config.interactive_runtime_max = hours(1);
    if (prng_.chance(300)) config.pools = {.online_milli = 500, .batch_milli = 500};
    engine_.apply(Configure{.config = config});
    Limits limits;
    if (prng_.chance(400)) limits.set(Resource::kGpus, prng_.between(0, 8));
    if (prng_.chance(300)) limits.set(Resource::kCpu, prng_.between(0, 12) * 1'000);
    if (prng_.chance(300)) limits.set(Resource::kGpuMemory, prng_.between(0, 400'000));
    lab_ = engine_.add_tenant("lab", {}, limits);
    const NodeId node = engine_.add_node("n1", {.gpus = 4, .cpu_milli = 8'000, .memory_mb = 8'000});
    engine_.apply(MakeBooking{
        .name = "class", .tenant = lab_, .nodes = {node}, .begin_after = hours(2), .length = hours(1)});
  }

  /// True: it was accepted, in both ways.
  bool check() {
    Want first{.priority = static_cast<int32_t>(prng_.between(0, 1'100)),
               .tenant = lab_,
               .max_runtime = minutes(1),
               .require_feasible = prng_.chance(400),
               .interactive = prng_.chance(200)};
    if (!first.interactive && prng_.chance(300)) first.flow = {some_times(prng_, engine_.now())};
    if (prng_.chance(200)) first.booking = "class";
    const bool array = !first.interactive && prng_.chance(300);
    if (array && first.flow.empty()) first.flow.emplace_back();
    if (array) first.flow.front().array = {{.first = 0, .last = 3}};
    const Applied made = engine_.try_submit(first);
    if (made.rejection) return false;
    engine_.settle();
    // An element stands for itself.
    JobRequest asked = testing::request_of(first);
    JobId job{made.first_id};
    if (array && prng_.chance(300)) {
      job = JobId{made.first_id + 1 + prng_.below(4)};
      asked.flow.front().array.clear();
    }
    const UpdateJob change = some_change(job, asked);
    const Applied changed = engine_.apply(change);
    const Applied anew = engine_.apply(SubmitJobs{.tenant = lab_, .jobs = {asked}});
    EXPECT_EQ(answer(changed), answer(anew));
    if (changed.rejection || anew.rejection) return false;
    engine_.settle();
    expect_same(job, JobId{anew.first_id});
    return true;
  }

 private:
  /// Some of it, of which the new request says the same.
  UpdateJob some_change(JobId job, JobRequest& asked) {
    const Want wanted = some_job(prng_, lab_);
    const JobFlow times = some_times(prng_, engine_.now());
    UpdateJob change{.job = job,
                     .given = static_cast<uint32_t>(prng_.below(64)) & ~uint32_t{kJobSpec},
                     .priority = wanted.priority,
                     .max_runtime = wanted.max_runtime,
                     .begin_at = times.begin_at,
                     .begin_after = times.begin_after,
                     .deadline = times.deadline,
                     .deadline_after = times.deadline_after,
                     .parts = testing::request_of(wanted).parts};
    const auto is_given = [&](JobField field) { return (change.given & field) != 0; };
    if (is_given(kJobPriority)) asked.priority = change.priority;
    if (is_given(kJobMaxRuntime)) asked.max_runtime = change.max_runtime;
    if (is_given(kJobParts)) asked.parts = change.parts;
    if (asked.flow.empty() && is_given(kJobBegin)) asked.flow.emplace_back();
    if (asked.flow.empty() && is_given(kJobDeadline)) asked.flow.emplace_back();
    if (is_given(kJobBegin)) {
      asked.flow.front().begin_at = change.begin_at;
      asked.flow.front().begin_after = change.begin_after;
    }
    if (is_given(kJobDeadline)) {
      asked.flow.front().deadline = change.deadline;
      asked.flow.front().deadline_after = change.deadline_after;
    }

    // The kind of work was found when it was submitted, and stays.
    const State& state = engine_.state();
    const Job* known = state.jobs.find(job);
    const WorkClass work = work_of(
        state.class_of(known != nullptr ? *known : state.job_at(state.array_of_element(job)->id)).parts);
    for (Part& part : asked.parts)
      if (part.work == WorkClass::kUnset) part.work = work;
    return change;
  }
  void expect_same(JobId changed, JobId anew) const {
    const Job& one = engine_.job(changed);
    const Job& other = engine_.job(anew);
    EXPECT_EQ(engine_.state().class_of(one).parts, engine_.state().class_of(other).parts);
    EXPECT_EQ(one.priority, other.priority);
    EXPECT_EQ(one.max_runtime, other.max_runtime);
    EXPECT_EQ(one.deadline, other.deadline);
    EXPECT_EQ(one.order_key, other.order_key);
    EXPECT_EQ(one.interactive, other.interactive);
    EXPECT_EQ(one.require_feasible, other.require_feasible);
    if (!one.array.valid() && !other.array.valid()) {
      EXPECT_EQ(one.not_before, other.not_before);
    }
    if (!one.is_array() || !other.is_array()) return;
    const std::set<JobId>& live = engine_.state().array_at(changed).live;
    const std::set<JobId>& theirs = engine_.state().array_at(anew).live;
    if (!live.empty() && !theirs.empty()) expect_same(*live.begin(), *theirs.begin());
  }

  Prng prng_;
  TestEngine engine_;
  TenantId lab_;
};

TEST(Update, IsAllowedWhereTheSameJobSubmittedAnewWouldBe) {
  int accepted = 0;
  constexpr int kChanges = 2'500;
  for (uint64_t seed = 1; seed <= kChanges && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    accepted += Changed(seed).check() ? 1 : 0;
  }
  EXPECT_GT(accepted, kChanges / 10);
  EXPECT_LT(accepted, kChanges * 9 / 10);
}

}  // namespace
}  // namespace gpusched
