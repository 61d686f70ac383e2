#include <gtest/gtest.h>

#include <algorithm>

#include "node/testing/node_core_fakes.h"

namespace gpusched {
namespace {

using Call = testing::FakeSlices::Call;
using What = v1::Report::WhatCase;

AttemptKey key_of(uint64_t job) { return {JobId{job}, 1, 0}; }

HeldDevice slice_of(uint64_t job, int32_t start, const std::string& profile = "1g.10gb") {
  return {.index = 1,
          .generation = 3,
          .share_of = key_of(job),
          .milli = 142,
          .memory_mb = 10'240,
          .mig_profile = profile,
          .mig_start = start};
}

/// A node whose GPU 1 is in MIG mode.
class NodeSlices : public ::testing::Test {
 protected:
  NodeSlices() {
    node_.use_slices = true;
    node_.begin("boot-1");
    node_.connect();
  }
  void answer_made(int32_t start, const std::string& problem = {}, const std::string& profile = "1g.10gb") {
    MadeSlice made;
    if (problem.empty()) {
      made = {.uuid = "MIG-" + std::to_string(start), .gpu_instance = 7 + start, .compute_instance = 0};
      there(start, {}, profile);
    }
    node_.core->on_slice_made(1, profile, start, made, problem);
    node_.core->settle();
  }
  void answer_destroyed(int32_t start, const std::string& problem = {}) {
    if (problem.empty()) {
      std::erase_if(node_.devices.readings[1].slices,
                    [&](const SliceReading& slice) { return slice.start == start; });
    }
    node_.core->on_slice_destroyed(1, "1g.10gb", start, problem);
    node_.core->settle();
  }
  void there(int32_t start, std::vector<int64_t> processes, const std::string& profile = "1g.10gb") {
    std::vector<SliceReading>& slices = node_.devices.readings[1].slices;
    std::erase_if(slices, [&](const SliceReading& slice) { return slice.start == start; });
    slices.push_back({.profile = profile, .start = start, .processes = std::move(processes)});
  }
  void start_and_run(uint64_t job, int32_t start) {
    node_.order_start(key_of(job), {slice_of(job, start)});
    answer_made(start);
    node_.core->on_shim_started(key_of(job), 1000 + static_cast<int64_t>(job), 1);
    node_.core->settle();
  }
  void end_and_sync(uint64_t job) {
    node_.end(key_of(job));
    node_.sync();
  }
  static std::string variable(const SpawnRequest& request, const std::string& name) {
    for (const std::string& entry : request.environment) {
      if (entry.starts_with(name + '=')) return entry.substr(name.size() + 1);
    }
    return "(none)";
  }

  testing::Node node_;
};

TEST_F(NodeSlices, ADeviceInMigModeIsRegisteredAsOne) {
  const v1::Register& told = node_.link.sent.front().register_();
  EXPECT_FALSE(told.devices(0).mig());
  EXPECT_TRUE(told.devices(1).mig());
}

TEST_F(NodeSlices, TheSliceIsMadeBeforeTheAttemptStarts) {
  node_.order_start(key_of(7), {slice_of(7, 5)});
  EXPECT_EQ(node_.slices.made, (std::vector<Call>{{1, "1g.10gb", 5}}));
  EXPECT_TRUE(node_.spawner.started.empty());
  answer_made(5);
  ASSERT_EQ(node_.spawner.started.size(), 1u);
  const SpawnRequest& request = node_.spawner.started[0];
  EXPECT_EQ(variable(request, "CUDA_VISIBLE_DEVICES"), "MIG-5");
  EXPECT_EQ(variable(request, "NVIDIA_VISIBLE_DEVICES"), "MIG-5");
  EXPECT_EQ(variable(request, "GPU_SCHEDULER_MIG_PROFILE"), "1g.10gb");
  EXPECT_EQ(variable(request, "GPU_SCHEDULER_GPU_MEMORY_MB"), "10240");
  EXPECT_EQ(variable(request, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "(none)");
  EXPECT_EQ(variable(request, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "(none)");
}

TEST_F(NodeSlices, NothingIsMadeBeforeTheIntentIsOnRecord) {
  node_.store.full = true;
  node_.order_start(key_of(7), {slice_of(7, 5)});
  EXPECT_TRUE(node_.slices.made.empty());
  node_.store.full = false;
  node_.pass(seconds(1));
  EXPECT_EQ(node_.slices.made.size(), 1u);
}

TEST_F(NodeSlices, AnOrderThatCanNeverRunMakesNone) {
  node_.order_start(key_of(7), v1::JobSpec{}, {slice_of(7, 5)});
  EXPECT_TRUE(node_.slices.made.empty());
  node_.sync();
  EXPECT_EQ(node_.last_outcome().cause(), v1::Outcome::START_FAILED);
  EXPECT_EQ(node_.count(What::kReleased), 1u);
}

TEST_F(NodeSlices, OneThatCannotBeMadeIsTheDevicesFaultAndBarsIt) {
  node_.order_start(key_of(7), {slice_of(7, 5)});
  answer_made(5, "Unknown Error");
  EXPECT_TRUE(node_.spawner.started.empty());
  node_.sync();
  EXPECT_EQ(node_.last_outcome().cause(), v1::Outcome::DEVICE_FAULT);
  EXPECT_EQ(node_.last_outcome().detail(),
            "the MIG slice 1g.10gb at slot 5 of GPU-1 cannot be created: Unknown Error");
  EXPECT_EQ(node_.count(What::kReleased), 1u);  // There is nothing to destroy.
  EXPECT_TRUE(node_.slices.destroyed.empty());
  ASSERT_GE(node_.count(What::kCondition), 1u);
  EXPECT_EQ(node_.reports(What::kCondition).back().condition().condition(), v1::DEVICE_CONDITION_UNHEALTHY);
  node_.pass(seconds(70));
  EXPECT_EQ(node_.reports(What::kCondition).back().condition().condition(), v1::DEVICE_CONDITION_OK);
}

TEST_F(NodeSlices, ADriverThatDoesNotAnswerIsNotWaitedForForEver) {
  node_.order_start(key_of(7), {slice_of(7, 5)});
  node_.pass(seconds(61));
  node_.sync();
  EXPECT_EQ(node_.last_outcome().cause(), v1::Outcome::DEVICE_FAULT);
  node_.acknowledge_all();
  // It comes at last, and nobody has it.
  answer_made(5);
  node_.pass(seconds(20));
  EXPECT_TRUE(node_.spawner.started.empty());
  EXPECT_EQ(node_.slices.destroyed, (std::vector<Call>{{1, "1g.10gb", 5}}));
}

TEST_F(NodeSlices, ManySlicesAreMadeOneAfterTheOther) {
  for (uint64_t job = 1; job <= 3; ++job)
    node_.order_start(key_of(job), {slice_of(job, static_cast<int>(job))});
  node_.devices.slow = true;
  for (int start = 1; start <= 3; ++start) {
    node_.pass(seconds(25));
    answer_made(start);
  }
  EXPECT_EQ(node_.spawner.started.size(), 3u);
  EXPECT_EQ(node_.count(What::kCondition), 0u);  // No word of a driver that does not answer.
}

TEST_F(NodeSlices, StoppedWhileItIsMadeItNeverStarts) {
  node_.order_start(key_of(7), {slice_of(7, 5)});
  node_.order_stop(key_of(7));
  answer_made(5);
  EXPECT_TRUE(node_.spawner.started.empty());
  node_.sync();
  EXPECT_EQ(node_.last_outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(node_.count(What::kReleased), 0u);
  EXPECT_EQ(node_.slices.destroyed.size(), 1u);
  answer_destroyed(5);
  EXPECT_EQ(node_.count(What::kReleased), 1u);
}

TEST_F(NodeSlices, ItIsReleasedWhenItIsDestroyed) {
  start_and_run(7, 5);
  there(5, {1007});
  end_and_sync(7);
  ASSERT_EQ(node_.count(What::kDraining), 1u);
  EXPECT_EQ(node_.reports(What::kDraining)[0].draining().evidence(),
            "in its MIG slice still: pid 1007; memory used 0 MB");
  EXPECT_TRUE(node_.slices.destroyed.empty());
  there(5, {});
  node_.pass(seconds(2));
  EXPECT_EQ(node_.slices.destroyed, (std::vector<Call>{{1, "1g.10gb", 5}}));
  EXPECT_EQ(node_.count(What::kReleased), 0u);
  answer_destroyed(5);
  ASSERT_EQ(node_.count(What::kReleased), 1u);
  EXPECT_EQ(node_.reports(What::kReleased)[0].released().share_of().job(), 7u);
  node_.acknowledge_all();
  node_.pass(seconds(20));
  EXPECT_EQ(node_.slices.destroyed.size(), 1u);
}

TEST_F(NodeSlices, AProcessInAnothersSliceKeepsNobodyElses) {
  start_and_run(7, 5);
  start_and_run(8, 6);
  there(6, {1008, 555});
  end_and_sync(7);
  answer_destroyed(5);
  EXPECT_EQ(node_.count(What::kReleased), 1u);
  end_and_sync(8);
  EXPECT_EQ(node_.count(What::kReleased), 1u);
  EXPECT_NE(node_.reports(What::kDraining).back().draining().evidence().find("pid 555"), std::string::npos);
}

TEST_F(NodeSlices, WhatCannotBeDestroyedDrainsAndIsTriedAgain) {
  start_and_run(7, 5);
  end_and_sync(7);
  ASSERT_EQ(node_.slices.destroyed.size(), 1u);
  answer_destroyed(5, "In use by another client");
  EXPECT_EQ(node_.reports(What::kDraining).back().draining().evidence(),
            "its MIG slice could not be destroyed: In use by another client");
  node_.pass(seconds(1));
  ASSERT_EQ(node_.slices.destroyed.size(), 2u);
  EXPECT_EQ(node_.count(What::kReleased), 0u);
  answer_destroyed(5);
  EXPECT_EQ(node_.count(What::kReleased), 1u);
}

TEST_F(NodeSlices, TheNextAgentDestroysWhatWasMadeForAnAttemptThatNeverBegan) {
  node_.order_start(key_of(7), {slice_of(7, 5)});
  there(5, {});
  node_.begin("boot-1");
  node_.connect();
  ASSERT_EQ(node_.link.sent.front().register_().attempts_size(), 1);
  EXPECT_EQ(node_.link.sent.front().register_().attempts(0).devices(0).mig_profile(), "1g.10gb");
  EXPECT_EQ(node_.link.sent.front().register_().attempts(0).devices(0).mig_start(), 5);
  node_.core->on_shim_lost(key_of(7), "its shim is gone");
  node_.core->settle();
  node_.sync();
  EXPECT_EQ(node_.slices.destroyed, (std::vector<Call>{{1, "1g.10gb", 5}}));
  answer_destroyed(5);
  EXPECT_EQ(node_.count(What::kReleased), 1u);
}

TEST_F(NodeSlices, TheSliceOfARunningAttemptStaysAcrossAgents) {
  start_and_run(7, 5);
  node_.begin("boot-1");
  node_.connect();
  node_.core->on_shim_started(key_of(7), 1007, 1);
  node_.core->settle();
  node_.pass(seconds(40));
  EXPECT_TRUE(node_.slices.destroyed.empty());
}

TEST_F(NodeSlices, AnOrphanIsDestroyedAndNobodyElsesSlice) {
  there(2, {});
  there(3, {77});
  there(4, {});
  node_.devices.readings[1].slices.back().ours = false;
  node_.pass(seconds(5));
  EXPECT_TRUE(node_.slices.destroyed.empty());  // An attempt may still be found that has it.
  node_.pass(seconds(10));
  EXPECT_EQ(node_.slices.destroyed, (std::vector<Call>{{1, "1g.10gb", 2}}));
}

TEST_F(NodeSlices, AnAttemptWhoseRecordIsLostKeepsItsSlice) {
  there(2, {});
  node_.core->on_shim_found(key_of(7), 1007, 1);
  node_.core->settle();
  node_.pass(seconds(30));
  EXPECT_TRUE(node_.slices.destroyed.empty());
  node_.end(key_of(7));
  node_.pass(seconds(10));
  EXPECT_EQ(node_.slices.destroyed.size(), 1u);
}

TEST_F(NodeSlices, TheSchedulerMayAskForTheSliceOfAnUnknownAttempt) {
  there(5, {});
  v1::SchedulerMessage message;
  v1::GrantedDevice& asked = *message.mutable_check_release()->add_devices();
  asked.set_index(1);
  asked.set_generation(3);
  *asked.mutable_share_of() = to_wire(key_of(9));
  asked.set_mig_profile("1g.10gb");
  asked.set_mig_start(5);
  node_.receive(message);
  EXPECT_EQ(node_.slices.destroyed, (std::vector<Call>{{1, "1g.10gb", 5}}));
  answer_destroyed(5);
  EXPECT_EQ(node_.count(What::kReleased), 1u);
}

TEST_F(NodeSlices, WhatStandsAgainstMigKeepsNoReleaseBack) {
  start_and_run(7, 5);
  node_.devices.readings[1].mig_problem = "it has others";
  end_and_sync(7);
  answer_destroyed(5);
  EXPECT_EQ(node_.count(What::kReleased), 1u);
  node_.pass(seconds(10));
  EXPECT_EQ(node_.reports(What::kCondition).back().condition().detail(), "it has others");
}

TEST_F(NodeSlices, ANodeThatMakesNoneRefuses) {
  testing::Node other;
  other.connect();
  other.order_start(key_of(7), {slice_of(7, 5)});
  other.sync();
  EXPECT_EQ(other.last_outcome().detail(), "this node does not create MIG slices");
}

TEST_F(NodeSlices, WithoutAProcessInItItIsIdleAndWithOneNobodyKnows) {
  start_and_run(7, 5);
  there(5, {});
  node_.pass(seconds(30));
  const auto idle_ms = [&] {
    const auto last = std::find_if(node_.link.sent.rbegin(), node_.link.sent.rend(),
                                   [](const v1::AgentMessage& message) { return message.has_heartbeat(); });
    return last->heartbeat().activity(0).idle_ms();
  };
  EXPECT_GT(idle_ms(), 10'000);
  there(5, {1007});
  node_.pass(seconds(10));
  EXPECT_EQ(idle_ms(), 0);
}

}  // namespace
}  // namespace gpusched
