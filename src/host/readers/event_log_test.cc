#include "host/readers/event_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "log/log.h"

namespace gpusched {
namespace {

class EventLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "event_log_" + std::to_string(::getpid()) + ".jsonl";
    ASSERT_TRUE(log_set_up({.path = path_}));
  }
  void TearDown() override {
    log_shut_down();
    ::unlink(path_.c_str());
  }

  /// Shows the log these events, all of one moment.
  void see(std::vector<Event> events) {
    const State state;
    const std::vector<WaitReason> reasons;
    log_.on_changes({.state = state, .reasons = reasons},
                    {.events = std::move(events), .last = {.sequence = 1, .at = Time{1}}, .reasons = {}});
  }
  /// How many lines of this name were written.
  int count(const std::string& name) const {
    log_flush();
    std::ifstream file(path_);
    int found = 0;
    for (std::string line; std::getline(file, line);)
      found += line.find("\"event\":\"" + name + "\"") != std::string::npos ? 1 : 0;
    return found;
  }

  EventLog log_;
  std::string path_;
};

TEST_F(EventLogTest, TellsOfPreemptionAndWhatItIsFor) {
  Promise promise{.job = JobId{2}};
  promise.members.emplace_back();
  see({DevicesPromised{.promise = promise},
       StopRequested{.job = JobId{1}, .attempt = 1, .reason = StopReason::kPreempt},
       PromiseEnded{.job = JobId{2}, .why = PromiseEnd::kTime, .at = {}, .asked_at = {}}});
  EXPECT_EQ(count("task_preempting"), 1);
  EXPECT_EQ(count("task_preempted"), 1);
  EXPECT_EQ(count("task_promise_over"), 1);
}

TEST_F(EventLogTest, SaysNothingOfAPromiseThatWasKept) {
  see({PromiseEnded{.job = JobId{2}, .why = PromiseEnd::kPlaced, .at = {}, .asked_at = {}}});
  EXPECT_EQ(count("task_promise_over"), 0);
}

TEST_F(EventLogTest, TellsOfAGangThatBroke) {
  see({StopRequested{.job = JobId{1}, .attempt = 1, .reason = StopReason::kGang}});
  EXPECT_EQ(count("gang_broken"), 1);
}

TEST_F(EventLogTest, WritesLinesOfJobsUpToALimitAndAllOfNodes) {
  std::vector<Event> events;
  for (uint32_t i = 0; i < EventLog::kLinesPerSecond + 5; ++i) {
    events.emplace_back(MemberStarted{.job = JobId{i + 1}, .attempt = 1, .at = {}, .image_digest = {}});
    events.emplace_back(NodeRemoved{.node = NodeId{i + 1}, .by = {}, .at = {}});
  }
  see(events);
  EXPECT_EQ(count("task_started"), static_cast<int>(EventLog::kLinesPerSecond));
  EXPECT_EQ(count("node_removed"), static_cast<int>(EventLog::kLinesPerSecond) + 5);
}

}  // namespace
}  // namespace gpusched
