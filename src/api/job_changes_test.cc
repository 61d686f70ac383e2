// Changes of one job at the same time: what one of them was told no other takes back.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

#include "api/backend/job_turns.h"
#include "api/fields/job_message.h"
#include "api/testing/tenants_test.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

TEST(JobTurnsTest, GiveTurnsOfAJobOneAfterTheOtherAndOfOthersAtOnce) {
  JobTurns turns;
  std::vector<int> begun;
  const auto note = [&begun](int number) { return [&begun, number] { begun.push_back(number); }; };
  turns.begin(JobId{1}, note(1));
  turns.begin(JobId{1}, note(2));
  turns.begin(JobId{1}, note(3));
  turns.begin(JobId{2}, note(4));
  EXPECT_EQ(begun, (std::vector{1, 4}));
  turns.end(JobId{1});
  EXPECT_EQ(begun, (std::vector{1, 4, 2}));
  turns.end(JobId{1});
  turns.end(JobId{1});
  turns.begin(JobId{1}, note(5));
  EXPECT_EQ(begun, (std::vector{1, 4, 2, 3, 5}));
}

class JobChanges : public TenantsTest {
 protected:
  /// Asks for all updates before any is answered, and returns the job as it is behind them.
  JobView change(JobId job, std::vector<JobUpdate> updates) {
    std::vector<std::promise<bool>> made(updates.size());
    for (std::size_t i = 0; i < updates.size(); ++i) {
      backend_.update_job(admin(), job, "", std::move(updates[i]),
                          [&made, i](const Answer<JobView>& answer) { made[i].set_value(answer.ok()); });
    }
    for (std::promise<bool>& one : made) EXPECT_TRUE(one.get_future().get());
    return answer<JobView>([&](auto done) { backend_.get_job(admin(), job, "", std::move(done)); });
  }
  static JobUpdate text(int number, std::string value) {
    JobUpdate update;
    update.texts.push_back({.number = number, .text = std::move(value)});
    return update;
  }
  static v1::JobSpec spec_of(const JobView& job) {
    v1::JobSpec spec;
    EXPECT_TRUE(spec.ParseFromString(std::string(job.spec.view())));
    return spec;
  }
};

TEST_F(JobChanges, OfDifferentTextsAreAllKept) {
  const JobId job = submit_as(admin(), R"({"name":"before","script":"true","held":true})");
  for (int i = 0; i < 20; ++i) {
    const std::string mark = std::to_string(i);
    const v1::JobSpec spec =
        spec_of(change(job, {text(v1::JobSpec::kNameFieldNumber, "name " + mark),
                             text(v1::JobSpec::kCommentFieldNumber, "comment " + mark)}));
    EXPECT_EQ(spec.name(), "name " + mark);
    EXPECT_EQ(spec.comment(), "comment " + mark);
    EXPECT_EQ(spec.script(), "true");
  }
}

TEST_F(JobChanges, OfDifferentNeedsAreAllKept) {
  const JobId job = submit_as(admin(), R"({"script":"true","held":true,"gpu_count":1})");
  std::vector<JobUpdate> updates(4);
  updates[0].gpu_count = 2;
  updates[1].cpu_milli = 3'000;
  updates[2].memory_mb = 4'096;
  updates[3].gpu_model = "H100";
  const JobView changed = change(job, std::move(updates));
  EXPECT_EQ(changed.gpu_count, 2);
  EXPECT_EQ(changed.cpu_milli, 3'000);
  EXPECT_EQ(changed.memory_mb, 4'096);
  EXPECT_EQ(changed.gpu_model, "H100");
}

TEST_F(JobChanges, OfAnArrayAndAnElementAreBothKept) {
  const JobId array = submit_as(admin(), R"({"name":"all","script":"true","held":true,"array":"0-3"})");
  const JobId element{array.value + 2};
  for (int i = 0; i < 10; ++i) {
    const std::string mark = std::to_string(i);
    std::promise<bool> first, second;
    backend_.update_job(admin(), array, "", text(v1::JobSpec::kCommentFieldNumber, "comment " + mark),
                        [&](const Answer<JobView>& answer) { first.set_value(answer.ok()); });
    backend_.update_job(admin(), element, "", text(v1::JobSpec::kNameFieldNumber, "element " + mark),
                        [&](const Answer<JobView>& answer) { second.set_value(answer.ok()); });
    EXPECT_TRUE(first.get_future().get());
    EXPECT_TRUE(second.get_future().get());
    const JobView shown =
        answer<JobView>([&](auto done) { backend_.get_job(admin(), element, "", std::move(done)); });
    EXPECT_EQ(spec_of(shown).name(), "element " + mark);
    EXPECT_EQ(spec_of(shown).comment(), "comment " + mark);
  }
}

TEST_F(JobChanges, RenewalsNeverShortenWhatAnotherHasGiven) {
  const JobId job = submit_as(admin(), R"({"script":"true","held":true,"max_runtime_seconds":60})");
  const auto at_least = [](Duration limit) {
    JobUpdate update;
    update.max_runtime_at_least = limit;
    return update;
  };
  const auto exactly = [](Duration limit) {
    JobUpdate update;
    update.max_runtime = limit;
    return update;
  };
  EXPECT_EQ(change(job, {at_least(minutes(30)), at_least(minutes(5)), at_least(minutes(20))}).max_runtime,
            minutes(30));
  EXPECT_EQ(change(job, {exactly(minutes(40)), at_least(minutes(10))}).max_runtime, minutes(40));
  EXPECT_EQ(change(job, {exactly(minutes(7)), at_least(minutes(10))}).max_runtime, minutes(10));
  EXPECT_EQ(change(job, {exactly(Duration{}), at_least(minutes(10))}).max_runtime, Duration{});  // None.
}

}  // namespace
}  // namespace gpusched::api
