#include "host/nodes/attempt_table.h"

#include <gtest/gtest.h>

namespace gpusched::hub {
namespace {

Attempt attempt_of(uint64_t job, StopReason stop = StopReason::kNone) {
  Attempt attempt{.job = JobId{job}, .number = 1};
  attempt.stop = stop;
  return attempt;
}

TEST(AttemptTable, OrdersNeverGoBack) {
  constexpr AttemptState kAll[] = {AttemptState::kStarting, AttemptState::kReleased, AttemptState::kStopping};
  for (const AttemptState from : kAll) {
    for (const AttemptState to : kAll) {
      const bool stopped_again = from == AttemptState::kStopping && to == AttemptState::kStopping;
      AttemptRow row{.state = from};
      EXPECT_EQ(AttemptTable::advance(row, to), to > from || stopped_again);
      EXPECT_EQ(row.state, to > from ? to : from);
    }
  }
}

TEST(AttemptTable, AnAttemptFromBeforeThisProcessStandsWhereTheStateSays) {
  AttemptTable table;
  EXPECT_EQ(table.row_of(attempt_of(1)).state, AttemptState::kStarting);
  EXPECT_EQ(table.row_of(attempt_of(2, StopReason::kCancel)).state, AttemptState::kStopping);
}

TEST(AttemptTable, HasOneRowForAnAttemptUntilItIsOver) {
  AttemptTable table;
  AttemptRow& row = table.row_of(attempt_of(1));
  EXPECT_EQ(&table.row_of(attempt_of(1)), &row);
  EXPECT_EQ(table.find(JobId{1}, 1), &row);
  EXPECT_EQ(table.find(JobId{1}, 2), nullptr);
  table.erase(JobId{1}, 1);
  EXPECT_EQ(table.find(JobId{1}, 1), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace gpusched::hub
