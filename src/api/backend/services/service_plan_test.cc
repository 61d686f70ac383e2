#include "api/backend/services/service_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace gpusched::api {
namespace {

constexpr Time kNow{1'000'000'000'000};

class ServicePlan : public ::testing::Test {
 protected:
  ServicePlan() {
    service_.record = JobId{1};
    service_.settings = {.replicas = 3, .generation = 1, .ready_after = seconds(5)};
  }

  /// A replica in that state; one that runs is ready, one that ended ran for a moment.
  ReplicaRow& put(int64_t index, JobState state, int64_t generation = 1) {
    const JobId job{next_++};
    ReplicaRow row{.job = job, .mark = {.index = index, .generation = generation}, .state = state};
    if (state == JobState::kRunning) row.started_at = kNow - seconds(5);
    if (is_final(state)) {
      row.started_at = kNow - seconds(2);
      row.ended_at = kNow - seconds(1);
    }
    return service_.replicas[job] = row;
  }
  ServiceSteps plan() const { return plan_service(service_, kNow); }
  static std::vector<int64_t> indexes(const ServiceSteps& steps) {
    std::vector<int64_t> out;
    for (const ReplicaStart& start : steps.starts) out.push_back(start.mark.index);
    return out;
  }

  ServiceRow service_;
  uint64_t next_ = 2;
};

using Indexes = std::vector<int64_t>;
using Jobs = std::vector<JobId>;

TEST_F(ServicePlan, MakesAllThatAreMissingAtOnce) {
  put(1, JobState::kPending);
  const ServiceSteps steps = plan();
  EXPECT_EQ(indexes(steps), (Indexes{0, 2}));
  EXPECT_EQ(steps.starts[0].mark.generation, 1);
  EXPECT_EQ(steps.starts[0].after, Duration{});
  EXPECT_FALSE(steps.starts[0].before.valid());
  EXPECT_TRUE(steps.stops.empty());
}

TEST_F(ServicePlan, EndsTheHighestNumbersWhenItIsScaledDown) {
  put(0, JobState::kRunning);
  const JobId one = put(1, JobState::kRunning).job;
  const JobId two = put(2, JobState::kPending).job;
  service_.settings.replicas = 1;
  EXPECT_EQ(plan().stops, (Jobs{one, two}));
  service_.replicas.at(one).ending = true;
  EXPECT_EQ(plan().stops, (Jobs{two}));
  service_.settings.replicas = 0;
  EXPECT_EQ(plan().stops.size(), 2U);
}

TEST_F(ServicePlan, WaitsLongerAfterEachEndInARow) {
  service_.settings.replicas = 1;
  ReplicaRow& row = put(0, JobState::kFailed);
  for (const auto& [failures, pause] : {std::pair{0, 1}, {1, 2}, {2, 4}, {8, 256}, {9, 300}, {60, 300}}) {
    row.mark.failures = failures;
    const ServiceSteps steps = plan();
    ASSERT_EQ(steps.starts.size(), 1U);
    EXPECT_EQ(steps.starts[0].after, seconds(pause)) << failures;
    EXPECT_EQ(steps.starts[0].mark.failures, failures + 1);
    EXPECT_EQ(steps.starts[0].mark.restarts, 1);
    EXPECT_EQ(steps.starts[0].before, row.job);
  }
  row.started_at = row.ended_at - minutes(10);  // It worked for long: another matter.
  EXPECT_EQ(plan().starts[0].after, seconds(1));
  EXPECT_EQ(plan().starts[0].mark.failures, 1);
}

TEST_F(ServicePlan, LooksAgainOnlyForWhatWillBeReady) {
  service_.settings.replicas = 1;
  ReplicaRow& row = put(0, JobState::kRunning);
  row.started_at = kNow - seconds(2);
  EXPECT_EQ(plan().look_again, kNow + seconds(3));
  row.started_at = kNow - seconds(60);
  row.ending = true;  // For as long as its grace lasts, or its node is silent.
  EXPECT_EQ(plan().look_again, kNever);
  EXPECT_TRUE(plan().starts.empty());
}

TEST_F(ServicePlan, TakesACancelledOneForNoFailure) {
  service_.settings.replicas = 1;
  put(0, JobState::kCancelled).mark.failures = 7;
  ASSERT_EQ(plan().starts.size(), 1U);
  EXPECT_EQ(plan().starts[0].after, seconds(1));
  EXPECT_EQ(plan().starts[0].mark.failures, 7);
}

TEST_F(ServicePlan, StartsAgainAsItsPolicySays) {
  service_.settings.replicas = 1;
  const auto restarts = [this](JobState state, RestartPolicy policy) {
    service_.replicas.clear();
    put(0, state);
    service_.settings.restart = policy;
    return !plan().starts.empty();
  };
  EXPECT_TRUE(restarts(JobState::kCompleted, RestartPolicy::kAlways));
  EXPECT_TRUE(restarts(JobState::kFailed, RestartPolicy::kAlways));
  EXPECT_FALSE(restarts(JobState::kCompleted, RestartPolicy::kOnFailure));
  EXPECT_TRUE(restarts(JobState::kFailed, RestartPolicy::kOnFailure));
  EXPECT_FALSE(restarts(JobState::kCompleted, RestartPolicy::kNever));
  EXPECT_FALSE(restarts(JobState::kFailed, RestartPolicy::kNever));
  EXPECT_TRUE(restarts(JobState::kCancelled, RestartPolicy::kNever));  // Somebody's word about one job.
}

TEST_F(ServicePlan, RemembersWhatIsDoneForGood) {
  service_.settings.restart = RestartPolicy::kNever;
  put(0, JobState::kCompleted);
  put(1, JobState::kFailed);
  const ServiceSteps steps = plan();
  EXPECT_EQ(steps.done, (DoneIndexes{{0, JobState::kCompleted}, {1, JobState::kFailed}}));
  EXPECT_EQ(indexes(steps), Indexes{2});
  EXPECT_EQ(count_done(service_), 2);
  // The record says it now, and the jobs were forgotten.
  service_.done = steps.done;
  service_.replicas.clear();
  EXPECT_EQ(indexes(plan()), Indexes{2});
  EXPECT_TRUE(plan().done.empty());
  EXPECT_EQ(count_done(service_), 2);
}

TEST(ServiceLabels, ARecordSaysWhatIsDoneUntilTheNextGeneration) {
  const std::string spec = record_spec("", {.replicas = 70, .generation = 1});
  EXPECT_TRUE(read_done(spec).empty());
  const DoneIndexes done{{0, JobState::kCompleted}, {5, JobState::kFailed}, {69, JobState::kCompleted}};
  EXPECT_EQ(read_done(with_done(spec, done)), done);
  const std::string more = with_done(with_done(spec, done), {{1, JobState::kFailed}});
  EXPECT_EQ(read_done(more).size(), 4U);
  EXPECT_EQ(read_settings(more, {})->replicas, 70);
  EXPECT_TRUE(read_done(record_spec(more, {.replicas = 70, .generation = 2})).empty());
}

TEST_F(ServicePlan, ReplacesOneByOneAndOnlyWhenTheNewOneIsReady) {
  const JobId old[] = {put(0, JobState::kRunning).job, put(1, JobState::kRunning).job,
                       put(2, JobState::kRunning).job};
  service_.settings.generation = 2;
  ServiceSteps steps = plan();
  EXPECT_EQ(indexes(steps), Indexes{0});
  EXPECT_EQ(steps.starts[0].mark.generation, 2);
  EXPECT_TRUE(steps.stops.empty());
  ReplicaRow& fresh = put(0, JobState::kPending, 2);
  EXPECT_TRUE(plan().starts.empty());
  fresh.state = JobState::kRunning;
  fresh.started_at = kNow - seconds(3);
  EXPECT_TRUE(plan().stops.empty());
  EXPECT_EQ(plan().look_again, kNow + seconds(2));
  fresh.started_at = kNow - seconds(5);
  steps = plan();
  EXPECT_EQ(steps.stops, Jobs{old[0]});
  EXPECT_EQ(indexes(steps), Indexes{1});
}

TEST_F(ServicePlan, AProbeAloneSaysWhetherAReplicaIsReady) {
  service_.settings.replicas = 1;
  const JobId old = put(0, JobState::kRunning).job;
  service_.settings.generation = 2;
  ReplicaRow& fresh = put(0, JobState::kRunning, 2);
  fresh.probed = true;  // It has run for as long as ready_after.
  EXPECT_TRUE(plan().stops.empty());
  EXPECT_GT(plan().look_again, kNow);
  EXPECT_LT(plan().look_again, kNow + seconds(2));
  fresh.endpoint = ReplicaEndpoint{.port = 12'000};
  EXPECT_TRUE(plan().stops.empty());
  fresh.endpoint->ready = false;
  EXPECT_TRUE(plan().stops.empty());
  fresh.endpoint->ready = true;
  EXPECT_EQ(plan().stops, Jobs{old});
  fresh.started_at = kNow;  // It is ready at once.
  EXPECT_EQ(plan().stops, Jobs{old});
  // Nothing waits for it: nobody looks.
  service_.replicas.erase(old);
  fresh.endpoint->ready = false;
  EXPECT_EQ(plan().look_again, kNever);
}

TEST_F(ServicePlan, ARolloutIsStalledByTheReplicaThatItWaitsForTooLong) {
  service_.settings.rollout_deadline = minutes(10);
  for (int64_t index = 0; index < 3; ++index) put(index, JobState::kRunning);
  EXPECT_FALSE(find_stall(service_, kNow));
  service_.settings.generation = 2;
  service_.record_at = kNow - minutes(9);
  EXPECT_FALSE(find_stall(service_, kNow));
  service_.record_at = kNow - minutes(11);  // No replica came of it.
  ASSERT_TRUE(find_stall(service_, kNow));
  EXPECT_EQ(find_stall(service_, kNow)->replica, nullptr);
  ReplicaRow& ready = put(0, JobState::kRunning, 2);
  ready.submitted_at = kNow - minutes(11);
  EXPECT_FALSE(find_stall(service_, kNow));
  ReplicaRow& fresh = put(1, JobState::kPending, 2);
  fresh.submitted_at = kNow - minutes(9);
  EXPECT_FALSE(find_stall(service_, kNow));
  fresh.mark.since = kNow - minutes(12);  // It is not the first of its index.
  ASSERT_TRUE(find_stall(service_, kNow));
  EXPECT_EQ(find_stall(service_, kNow)->replica, &fresh);
  EXPECT_EQ(find_stall(service_, kNow)->waited, minutes(11));  // The other one came after it.
  EXPECT_EQ(plan().stops.size(), 1U);  // The old one of the index that is ready, and no other.
  service_.settings.rollout_deadline = {};
  EXPECT_FALSE(find_stall(service_, kNow));
}

TEST_F(ServicePlan, ALongRolloutIsNotStalledByAReplicaThatIsUnreadyForAWhile) {
  service_.settings.rollout_deadline = minutes(10);
  service_.settings.generation = 2;
  put(2, JobState::kRunning, 1);
  ReplicaRow& first = put(0, JobState::kFailed, 2);  // Was ready, and is to be started again.
  first.submitted_at = kNow - minutes(25);
  ReplicaRow& second = put(1, JobState::kRunning, 2);
  second.submitted_at = kNow - minutes(3);
  EXPECT_FALSE(find_stall(service_, kNow));
  first.mark.restarts = 4;
  first.mark.since = kNow - minutes(25);
  EXPECT_FALSE(find_stall(service_, kNow));
  second.submitted_at = kNow - minutes(12);  // Nothing came after it.
  ASSERT_TRUE(find_stall(service_, kNow));
  EXPECT_EQ(find_stall(service_, kNow)->replica, &first);
  EXPECT_EQ(find_stall(service_, kNow)->waited, minutes(12));
  put(1, JobState::kCancelled, 1).ended_at = kNow - minutes(2);  // But an old one went.
  EXPECT_FALSE(find_stall(service_, kNow));
}

TEST_F(ServicePlan, OneThatFollowsAnotherHasWaitedSinceTheFirst) {
  service_.settings.replicas = 1;
  ReplicaRow& row = put(0, JobState::kFailed);
  row.submitted_at = kNow - seconds(30);
  EXPECT_EQ(plan().starts[0].mark.since, kNow - seconds(30));
  row.mark.since = kNow - seconds(90);
  EXPECT_EQ(plan().starts[0].mark.since, kNow - seconds(90));
}

TEST(ServiceLabels, APortAProbeAndADeadlineAreReadAsTheyWereWritten) {
  const ServiceSettings settings{
      .has_port = true,
      .probe = ReadyProbe{.path = "/up", .period = seconds(5), .timeout = seconds(3), .failures = 7},
      .rollout_deadline = seconds(90)};
  const std::string spec = record_spec("", settings);
  EXPECT_EQ(*read_settings(spec, {}), settings);
  EXPECT_EQ(*read_settings("", settings), settings);  // They stay.
  const std::string replica =
      replica_spec(spec, "web-0", {.index = 0, .generation = 1, .since = Time{} + seconds(1'000)});
  EXPECT_EQ(replica_mark(replica)->since, Time{} + seconds(1'000));
  EXPECT_FALSE(replica_mark(replica_spec(spec, "web-0", {}))->since.valid());
  EXPECT_EQ(read_settings(replica, {})->probe, settings.probe);  // For its node.
  EXPECT_EQ(read_settings(replica, {})->rollout_deadline, minutes(10));

  using Labels = std::map<std::string, std::string>;
  const auto read = [](const Labels& labels, const ServiceSettings& before) {
    return read_settings(with_labels("", labels), before);
  };
  EXPECT_TRUE(read({{"gpusched.service-probe", "tcp"}}, {})->has_port);
  EXPECT_EQ(read({{"gpusched.service-probe", "tcp"}}, settings)->probe->failures, 7);
  const auto without = read({{"gpusched.service-probe", "none"}, {"gpusched.service-port", "0"}}, settings);
  EXPECT_FALSE(without->probe || without->has_port);
  const auto probed = [](const std::string& label, const std::string& value) {
    return Labels{{"gpusched.service-probe", "tcp"}, {label, value}};
  };
  for (const Labels& bad :
       {Labels{{"gpusched.service-probe", "udp"}}, Labels{{"gpusched.service-port", "8080"}},
        Labels{{"gpusched.service-probe-failures", "3"}}, probed("gpusched.service-port", "0"),
        probed("gpusched.service-probe-failures", "0"), probed("gpusched.service-probe-period-ms", "99"),
        Labels{{"gpusched.service-rollout-deadline-ms", "-1"}}})
    EXPECT_FALSE(read(bad, {}).ok()) << bad.begin()->first << " " << bad.begin()->second;
}

TEST_F(ServicePlan, LeavesWhatIsOldAloneWhileWhatIsNewFails) {
  for (int64_t index = 0; index < 3; ++index) put(index, JobState::kRunning);
  service_.settings.generation = 2;
  const JobId broken = put(0, JobState::kFailed, 2).job;
  ServiceSteps steps = plan();
  EXPECT_EQ(indexes(steps), Indexes{0});
  EXPECT_EQ(steps.starts[0].before, broken);
  EXPECT_TRUE(steps.stops.empty());
  service_.settings.restart = RestartPolicy::kNever;
  steps = plan();
  EXPECT_TRUE(steps.starts.empty());
  EXPECT_TRUE(steps.stops.empty());
  // Going back is another generation: the first one is new again, the others are still what they were.
  service_.settings.generation = 3;
  EXPECT_EQ(indexes(plan()), Indexes{0});
}

TEST_F(ServicePlan, GivesUpWhatOnlyWaitsAtOnce) {
  const JobId waits = put(0, JobState::kPending).job;
  put(1, JobState::kRunning);
  put(2, JobState::kFailed);
  service_.settings.generation = 2;
  const ServiceSteps steps = plan();
  EXPECT_EQ(steps.stops, Jobs{waits});
  EXPECT_EQ(indexes(steps), (Indexes{0, 2}));
}

TEST_F(ServicePlan, EndsEverythingOfADeletedService) {
  const JobId one = put(0, JobState::kRunning).job;
  const JobId two = put(1, JobState::kPending, 2).job;
  put(2, JobState::kFailed);
  service_.deleted = true;
  EXPECT_EQ(plan().stops, (Jobs{one, two}));
  EXPECT_TRUE(plan().starts.empty());
}

TEST_F(ServicePlan, EndsRecordsThatNewerOnesReplaced) {
  service_.older_records = {JobId{77}};
  EXPECT_EQ(plan().stops, Jobs{JobId{77}});
}

/// A rollout in which everything goes well, whenever it is looked at: never fewer ready than wanted, and
/// never more than one beside them.
TEST_F(ServicePlan, ARolloutKeepsAllReady) {
  for (int64_t index = 0; index < 3; ++index) put(index, JobState::kRunning);
  service_.settings.generation = 2;
  Time now = kNow;
  int rounds = 0;
  const auto live = [this] {
    return std::ranges::count_if(service_.replicas, [](const auto& one) { return one.second.is_live(); });
  };
  for (; rounds < 100; ++rounds) {
    const ServiceSteps steps = plan_service(service_, now);
    if (steps.starts.empty() && steps.stops.empty() && steps.look_again == kNever) break;
    for (const JobId job : steps.stops) {
      service_.replicas.at(job).state = JobState::kCancelled;
      service_.replicas.at(job).ended_at = now;
    }
    for (const ReplicaStart& start : steps.starts) {
      ReplicaRow& row = put(start.mark.index, JobState::kRunning);
      row.mark = start.mark;
      row.started_at = now;
    }
    const auto ready = std::ranges::count_if(
        service_.replicas, [&](const auto& one) { return is_ready(one.second, service_.settings, now); });
    EXPECT_GE(ready, 3);
    EXPECT_LE(live(), 4);
    now = now + seconds(1);
  }
  EXPECT_LT(rounds, 100);
  EXPECT_EQ(live(), 3);
  for (const auto& [job, row] : service_.replicas) {
    if (row.is_live()) {
      EXPECT_EQ(row.mark.generation, 2);
    }
  }
}

}  // namespace
}  // namespace gpusched::api
