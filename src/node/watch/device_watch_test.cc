#include "node/watch/device_watch.h"

#include <gtest/gtest.h>

#include <set>

namespace gpusched {
namespace {

AttemptKey key_of(uint64_t job) { return {.job = JobId{job}, .attempt = 1, .member = 0}; }

HeldDevice share_of(uint64_t job, uint32_t generation = 3) {
  return {.index = 0, .generation = generation, .share_of = key_of(job), .milli = 500, .memory_mb = 1'000};
}

class FakeReader final : public DeviceReader {
 public:
  std::optional<DeviceReading> read(uint32_t) override { return reading; }
  DeviceReading reading;
};

/// One device with shares, and whose processes are known.
class ShareWatch : public ::testing::Test {
 protected:
  ShareWatch()
      : watch_(
            {{.uuid = "GPU-0", .model = "A100", .memory_mb = 80'000}}, reader_,
            [this](uint32_t, int64_t pid) { return accounted_.contains(pid); },
            [this](int64_t pid) { return kept_.contains(pid); }) {}

  /// The result of the check, looking once now.
  std::optional<bool> verdict_of(uint64_t job, std::string* evidence = nullptr) {
    now_ = now_ + seconds(2);
    watch_.tick(now_);
    std::optional<bool> said;
    for (const ReleaseVerdict& verdict : watch_.take_verdicts()) {
      if (verdict.device.share_of != key_of(job)) continue;
      said = verdict.released;
      if (evidence != nullptr) *evidence = verdict.evidence;
    }
    return said;
  }

  FakeReader reader_;
  std::set<int64_t> accounted_;
  std::set<int64_t> kept_;
  DeviceWatch watch_;
  Time now_ = Time{seconds(1).ns};
};

TEST_F(ShareWatch, AShareIsBackWhileOthersRunBesideIt) {
  watch_.hold(share_of(1));
  watch_.hold(share_of(2));
  accounted_ = {22};
  reader_.reading = {.memory_used_mb = 9'000, .processes = {22}};
  watch_.let_go(share_of(1));
  watch_.begin_release(share_of(1), now_);
  EXPECT_EQ(verdict_of(1), true);
}

TEST_F(ShareWatch, AProcessOfNobodysKeepsIt) {
  watch_.hold(share_of(1));
  watch_.hold(share_of(2));
  accounted_ = {22};
  reader_.reading = {.memory_used_mb = 9'000, .processes = {22, 11}};
  watch_.let_go(share_of(1));
  watch_.begin_release(share_of(1), now_);
  std::string evidence;
  EXPECT_EQ(verdict_of(1, &evidence), false);
  EXPECT_NE(evidence.find("pid 11"), std::string::npos);
  EXPECT_EQ(evidence.find("22"), std::string::npos);
  reader_.reading.processes = {22};
  EXPECT_EQ(verdict_of(1), true);
}

TEST_F(ShareWatch, WhatIsKeptHoldsNobodysShare) {
  watch_.hold(share_of(1));
  reader_.reading = {.memory_used_mb = 9'000, .processes = {33}};
  watch_.let_go(share_of(1));
  watch_.begin_release(share_of(1), now_);
  EXPECT_EQ(verdict_of(1), false);
  kept_ = {33};
  EXPECT_EQ(verdict_of(1), true);
  // The device is not unfit for its memory either.
  watch_.on_reading(0, reader_.reading, now_);
  EXPECT_EQ(watch_.told(0).condition, v1::DEVICE_CONDITION_OK);
  kept_.clear();  // It is told to end: what is not gone yet is anybody's.
  watch_.hold(share_of(2));
  watch_.let_go(share_of(2));
  watch_.begin_release(share_of(2), now_);
  EXPECT_EQ(verdict_of(2), false);
}

TEST_F(ShareWatch, TheLastOneIsJudgedAsTheWholeDevice) {
  watch_.hold(share_of(1));
  watch_.let_go(share_of(1));
  reader_.reading = {.memory_used_mb = 9'000, .processes = {}};
  watch_.begin_release(share_of(1), now_);
  EXPECT_EQ(verdict_of(1), false);  // Memory without a process.
  reader_.reading.memory_used_mb = 5;
  EXPECT_EQ(verdict_of(1), true);
}

TEST_F(ShareWatch, TwoAreCheckedAtOnceAndANewOneEndsNeither) {
  for (const uint64_t job : {1, 2, 3}) watch_.hold(share_of(job));
  accounted_ = {33};
  reader_.reading = {.processes = {33, 77}};
  for (const uint64_t job : {1, 2}) {
    watch_.let_go(share_of(job));
    watch_.begin_release(share_of(job), now_);
  }
  watch_.hold(share_of(4));
  EXPECT_TRUE(watch_.releasing(share_of(1)));
  EXPECT_TRUE(watch_.releasing(share_of(2)));
  // A whole holder, of a later generation, says that the scheduler knows of all that was before.
  watch_.hold({.index = 0, .generation = 4});
  EXPECT_FALSE(watch_.releasing(share_of(1)));
  EXPECT_FALSE(watch_.releasing(share_of(2)));
}

/// One device that nobody has, looked at when the test says.
class IdleWatch : public ShareWatch {
 protected:
  ConditionNews look() {
    now_ = now_ + seconds(5);
    watch_.look_at_all(now_);
    return watch_.told(0);
  }
};

TEST_F(IdleWatch, MuchMemoryThatNobodyIsSeenToUseIsNeverTakenForIdle) {
  reader_.reading = {.memory_used_mb = 79'000};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(look().condition, v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_NE(look().detail.find("77 GB of its memory are in use although no job has it"), std::string::npos);
  EXPECT_FALSE(watch_.memory_is_idle(0));
  reader_.reading = {.memory_used_mb = 700};
  EXPECT_EQ(look().condition, v1::DEVICE_CONDITION_OK);
  EXPECT_TRUE(watch_.memory_is_idle(0));
}

TEST_F(IdleWatch, WhoUsesTheMemoryIsNamedAndJobsMayUseAll) {
  reader_.reading = {.memory_used_mb = 9'000, .processes = {4711}};
  EXPECT_NE(look().detail.find("pid 4711"), std::string::npos);
  watch_.hold({.index = 0, .generation = 1});
  EXPECT_EQ(look().condition, v1::DEVICE_CONDITION_OK);
}

TEST_F(IdleWatch, DaemonsKeepNoDeviceAndTheirMemoryIsTheirs) {
  reader_.reading = {.memory_used_mb = 1'900,
                     .daemons = {{.pid = 7, .program = "nvidia-cuda-mps-server", .memory_mb = 1'800}}};
  EXPECT_EQ(look().condition, v1::DEVICE_CONDITION_OK);
  watch_.hold({.index = 0, .generation = 1});
  watch_.let_go({.index = 0, .generation = 1});
  watch_.begin_release({.index = 0, .generation = 1}, now_);
  std::vector<ReleaseVerdict> verdicts = watch_.take_verdicts();
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_TRUE(verdicts[0].released) << verdicts[0].evidence;
}

TEST_F(IdleWatch, OnlyAFreshAndGoodReadingIsCurrent) {
  EXPECT_FALSE(watch_.is_current(0, now_));
  look();
  EXPECT_TRUE(watch_.is_current(0, now_ + seconds(10)));
  EXPECT_FALSE(watch_.is_current(0, now_ + seconds(20)));
  reader_.reading.condition = v1::DEVICE_CONDITION_UNHEALTHY;
  look();
  EXPECT_FALSE(watch_.is_current(0, now_));
}

}  // namespace
}  // namespace gpusched
