#include "node/attempts/attempt_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "node/testing/attempt_key.h"

namespace gpusched::agent {
namespace {

using enum AttemptState;

AttemptState state_at(std::size_t number) { return static_cast<AttemptState>(number); }

/// Followers of each state, by hand: the moves that the code allows are compared with them.
const std::map<AttemptState, std::set<AttemptState>> kFollowers = {
    {kAdopted, {kGated, kRunning, kExamined, kEnded}},
    {kOrdered, {kSlicing, kPreparing, kStarting, kGated, kRunning, kExamined, kEnded}},
    {kSlicing, {kOrdered, kGated, kRunning, kExamined, kEnded}},
    {kPreparing, {kStarting, kGated, kRunning, kExamined, kEnded}},
    {kStarting, {kGated, kRunning, kExamined, kEnded}},
    {kGated, {kRunning, kExamined, kEnded}},
    {kRunning, {kExamined, kEnded}},
    {kExamined, {kEnded}},
    {kEnded, {kCleaning, kReleasing}},
    {kCleaning, {kReleasing}},
    {kReleasing, {kClosed}},
    {kClosed, {}}};

TEST(AttemptTable, AllowsTheTransitionsOfTheDecisionAndNoOther) {
  for (std::size_t from = 0; from < kAttemptStates; ++from) {
    for (std::size_t to = 0; to < kAttemptStates; ++to) {
      EXPECT_EQ(may_become(state_at(from), state_at(to)),
                kFollowers.at(state_at(from)).contains(state_at(to)))
          << to_string(state_at(from)) << " to " << to_string(state_at(to));
    }
  }
}

TEST(AttemptTable, ARefusedTransitionChangesNothing) {
  AttemptTable table;
  AttemptRow& row = table.add(kKey, kRunning);
  table.set_due(row, Deadline::kEnd, Time{5});
  EXPECT_FALSE(table.advance(row, kStarting));
  EXPECT_EQ(row.state(), kRunning);
  EXPECT_EQ(row.due(Deadline::kEnd), Time{5});
  EXPECT_EQ(table.in(kRunning).size(), 1u);
  EXPECT_DEATH(table.move(row, kClosed), "CHECK failed");
}

TEST(AttemptTable, ListsWhoIsInAStateInTheOrderOfTheirKeys) {
  AttemptTable table;
  for (const uint64_t job : {3u, 1u, 2u}) table.add({JobId{job}, 1, 0}, kOrdered);
  std::string jobs;
  for (const AttemptRow* row : table.in(kOrdered)) jobs += std::to_string(row->key.job.value);
  EXPECT_EQ(jobs, "123");
  table.move(*table.find({JobId{2}, 1, 0}), kStarting);
  EXPECT_EQ(table.in(kOrdered).size(), 2u);
  EXPECT_EQ(table.in(kStarting).size(), 1u);
}

TEST(AttemptTable, CountsWhatIsNotOver) {
  AttemptTable table;
  AttemptRow& row = table.add(kKey, kAdopted);
  table.note_found(row);
  table.add({JobId{8}, 1, 0}, kEnded);
  EXPECT_EQ(table.running_count(), 1u);
  EXPECT_EQ(table.found_count(), 1u);
  table.move(row, kRunning);
  EXPECT_EQ(table.running_count(), 1u);
  table.move(row, kEnded);
  EXPECT_EQ(table.running_count(), 0u);
  EXPECT_EQ(table.found_count(), 0u);
  EXPECT_EQ(table.size(), 2u);
}

TEST(AttemptTable, NamesThoseThatAreLateByKeyAndTheNextDeadline) {
  AttemptTable table;
  EXPECT_EQ(table.next_due(), kNever);
  AttemptRow& second = table.add({JobId{2}, 1, 0}, kRunning);
  AttemptRow& first = table.add({JobId{1}, 1, 0}, kRunning);
  table.set_due(second, Deadline::kEnd, Time{10});
  table.set_due(first, Deadline::kEnd, Time{20});
  table.set_due(first, Deadline::kStart, Time{5});
  EXPECT_EQ(table.next_due(), Time{5});
  EXPECT_TRUE(table.late(Deadline::kEnd, Time{9}).empty());
  EXPECT_EQ(table.late(Deadline::kEnd, Time{10}), std::vector<AttemptRow*>{&second});
  EXPECT_EQ(table.late(Deadline::kEnd, Time{20}), (std::vector<AttemptRow*>{&first, &second}));
  table.set_due(first, Deadline::kStart, kNever);
  EXPECT_EQ(table.next_due(), Time{10});
}

TEST(AttemptTable, WhatBelongsToAStateGoesWithIt) {
  AttemptTable table;
  AttemptRow& row = table.add(kKey, kOrdered);
  table.move(row, kSlicing);
  row.slicing = std::make_unique<AttemptRow::Slicing>();
  table.set_due(row, Deadline::kSlices, Time{1});
  table.move(row, kOrdered);
  EXPECT_EQ(row.slicing, nullptr);
  table.move(row, kStarting);
  table.set_due(row, Deadline::kStart, Time{2});
  row.run_limit = AttemptRow::RunLimit{};
  table.move(row, kRunning);
  table.set_due(row, Deadline::kEnd, Time{3});
  table.move(row, kExamined);
  row.examination = std::make_unique<AttemptRow::Examination>();
  table.set_due(row, Deadline::kExamination, Time{4});
  EXPECT_EQ(table.next_due(), Time{3});
  table.move(row, kEnded);
  EXPECT_EQ(row.examination, nullptr);
  EXPECT_FALSE(row.run_limit.has_value());
  EXPECT_EQ(table.next_due(), kNever);
}

TEST(AttemptTable, OnlyAClosedOneIsForgotten) {
  AttemptTable table;
  AttemptRow& row = table.add(kKey, kEnded);
  EXPECT_DEATH(table.erase(row), "CHECK failed");
  table.move(row, kReleasing);
  table.move(row, kClosed);
  table.erase(row);
  EXPECT_EQ(table.find(kKey), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace gpusched::agent
