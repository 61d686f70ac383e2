#include "api/doors/agent_tasks/task_admission.h"

#include <gtest/gtest.h>

#include "api/doors/agent_tasks/refused_tasks.h"

namespace gpusched::api {
namespace {

constexpr TenantId kLab{7}, kOther{8};

/// An admission with a clock that the test moves.
class TaskAdmissionTest : public ::testing::Test {
 protected:
  std::string admit(TaskKind kind, const std::string& user = "ana", int64_t waiting = 0,
                    TenantId tenant = kLab) {
    return std::string(admission_->admit(tenant, user, kind, waiting, now_, wall_).value_or("let in"));
  }
  void limit(TaskLimits limits) { admission_.emplace(limits); }

  std::optional<TaskAdmission> admission_;
  Time now_ = Time{0} + hours(1), wall_ = Time{0} + hours(24 * 1'000);
};

TEST_F(TaskAdmissionTest, ABucketHoldsABurstAndIsFilledEachSecond) {
  limit({.tokens_per_second = 10, .tokens_burst = 20});
  EXPECT_EQ(admit(TaskKind::kDiffusion), "let in");
  EXPECT_EQ(admit(TaskKind::kLlm), "let in");
  EXPECT_EQ(admit(TaskKind::kDiffusion), "insufficient token");
  EXPECT_EQ(admit(TaskKind::kLlm), "let in");  // The refused one cost nothing.
  EXPECT_EQ(admit(TaskKind::kEmbedding), "insufficient token");
  EXPECT_EQ(admit(TaskKind::kOther), "insufficient token");
  EXPECT_EQ(admit(TaskKind::kUnspecified), "insufficient token");
  EXPECT_EQ(admit(TaskKind::kEmbedding, "bob"), "let in");
  EXPECT_EQ(admit(TaskKind::kEmbedding, "ana", 0, kOther), "let in");  // Another tenant's of that name.
  now_ = now_ + milliseconds(100);
  EXPECT_EQ(admit(TaskKind::kEmbedding), "let in");
  EXPECT_EQ(admit(TaskKind::kUnspecified), "insufficient token");
  now_ = now_ + hours(1);  // No more than a burst is kept.
  EXPECT_EQ(admit(TaskKind::kDiffusion), "let in");
  EXPECT_EQ(admit(TaskKind::kDiffusion), "let in");
  EXPECT_EQ(admit(TaskKind::kEmbedding), "insufficient token");
}

TEST_F(TaskAdmissionTest, ATaskThatCostsMoreThanABucketHoldsPassesWhenThatIsFull) {
  limit({.tokens_per_second = 1, .tokens_burst = 3});
  EXPECT_EQ(admit(TaskKind::kDiffusion), "let in");
  now_ = now_ + seconds(9);
  EXPECT_EQ(admit(TaskKind::kDiffusion), "insufficient token");
  now_ = now_ + seconds(1);
  EXPECT_EQ(admit(TaskKind::kDiffusion), "let in");
}

TEST_F(TaskAdmissionTest, ADayHasItsOwnLimit) {
  limit({.tokens_per_second = 1'000, .tokens_daily = 12});
  EXPECT_EQ(admit(TaskKind::kDiffusion), "let in");
  EXPECT_EQ(admit(TaskKind::kLlm), "insufficient token");
  EXPECT_EQ(admit(TaskKind::kOther), "let in");
  EXPECT_EQ(admit(TaskKind::kOther), "let in");
  EXPECT_EQ(admit(TaskKind::kOther), "insufficient token");
  wall_ = wall_ + hours(24);
  EXPECT_EQ(admit(TaskKind::kDiffusion), "let in");
}

TEST_F(TaskAdmissionTest, WithoutLimitsNothingIsRefused) {
  limit({.tokens_per_second = 0, .tokens_burst = 1, .tokens_daily = 0});
  for (int i = 0; i < 5'000; ++i) ASSERT_EQ(admit(TaskKind::kDiffusion), "let in");
}

TEST_F(TaskAdmissionTest, TheQueueIsLookedAtFirst) {
  limit({.queue_size = 2, .tokens_per_second = 1, .tokens_burst = 1});
  EXPECT_EQ(admit(TaskKind::kOther, "ana", 1), "let in");
  EXPECT_EQ(admit(TaskKind::kOther, "ana", 2), "queue is full");
  EXPECT_EQ(admit(TaskKind::kOther, "bob", 2), "queue is full");  // It costs nothing.
  EXPECT_EQ(admit(TaskKind::kOther, "bob", 1), "let in");
  EXPECT_EQ(admit(TaskKind::kOther, "bob", 1), "insufficient token");
}

TEST_F(TaskAdmissionTest, WhatIsGivenBackIsSpentAgain) {
  limit({.tokens_per_second = 1, .tokens_burst = 5, .tokens_daily = 5});
  EXPECT_EQ(admit(TaskKind::kLlm), "let in");
  EXPECT_EQ(admit(TaskKind::kLlm), "insufficient token");
  admission_->give_back(kLab, "ana", TaskKind::kLlm);
  EXPECT_EQ(admit(TaskKind::kLlm), "let in");
  admission_->give_back(kLab, "nobody", TaskKind::kLlm);
  EXPECT_EQ(admission_->users(), 1U);
}

TEST_F(TaskAdmissionTest, UsersOfATenantWithManyWashAwayTheirOwnAlone) {
  limit({.tokens_per_second = 1, .tokens_burst = 10, .tokens_daily = 0, .users_max = 10});
  EXPECT_EQ(admit(TaskKind::kDiffusion, "ana", 0, kOther), "let in");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(admit(TaskKind::kDiffusion, "user-" + std::to_string(i)), "let in");
  EXPECT_EQ(admission_->users(), 10U);
  EXPECT_EQ(admit(TaskKind::kDiffusion, "ana", 0, kOther), "insufficient token");
  EXPECT_EQ(admit(TaskKind::kDiffusion, "user-99"), "insufficient token");
  EXPECT_EQ(admit(TaskKind::kDiffusion, "user-0"), "let in");  // Forgotten: its bucket is a new one.
}

TEST(RefusedTasksTest, KeepTheLastOnes) {
  const auto of_ana = [](TenantId tenant, const std::string& id) {
    return TaskName{.tenant = tenant, .owner = "person ana", .id = id};
  };
  RefusedTasks refused(2);
  refused.note(of_ana(kLab, "a"), {.message = "queue is full", .at = Time{1}});
  refused.note(of_ana(kLab, "b"), {.message = "queue is full", .at = Time{2}});
  refused.note(of_ana(kLab, "a"), {.message = "insufficient token", .at = Time{3}});
  ASSERT_NE(refused.find(of_ana(kLab, "a")), nullptr);
  EXPECT_EQ(refused.find(of_ana(kLab, "a"))->message, "insufficient token");
  EXPECT_EQ(refused.find(of_ana(kOther, "a")), nullptr);
  EXPECT_EQ(refused.find({.tenant = kLab, .owner = "person bob", .id = "a"}), nullptr);
  refused.note(of_ana(kOther, "a"), {.message = "queue is full", .at = Time{4}});
  EXPECT_EQ(refused.find(of_ana(kLab, "b")), nullptr);  // The oldest.
  EXPECT_EQ(refused.size(), 2U);
  refused.forget(of_ana(kLab, "a"));
  refused.forget(of_ana(kLab, "never"));
  EXPECT_EQ(refused.find(of_ana(kLab, "a")), nullptr);
  EXPECT_NE(refused.find(of_ana(kOther, "a")), nullptr);
}

}  // namespace
}  // namespace gpusched::api
