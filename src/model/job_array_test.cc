#include "model/job_array.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "model/job_table.h"

namespace gpusched {
namespace {

TEST(JobArray, PositionsAndIndexesLeadToEachOther) {
  JobArray array{.id = JobId{10}, .ranges = {{.first = 2, .last = 8, .step = 3}, {.first = 20, .last = 21}}};
  array.count = count_of(array.ranges);
  ASSERT_EQ(array.count, 5);
  const int64_t indexes[] = {2, 5, 8, 20, 21};
  for (int64_t position = 0; position < array.count; ++position) {
    EXPECT_EQ(array.index_at(position), indexes[position]);
    EXPECT_EQ(array.position_of_index(indexes[position]), position);
    EXPECT_TRUE(array.has(array.element(position)));
    EXPECT_EQ(array.position_of(array.element(position)), position);
  }
  for (const int64_t index : {0, 3, 9, 19, 22}) EXPECT_FALSE(array.position_of_index(index).has_value());
  EXPECT_FALSE(array.has(JobId{10}));
  EXPECT_FALSE(array.has(JobId{16}));
}

TEST(JobArray, ElementsOutOfTurnAreSkippedLater) {
  JobArray array{.id = JobId{10}, .ranges = {{.first = 0, .last = 5}}, .count = 6};
  array.note_expanded(2);
  array.note_expanded(1);
  EXPECT_EQ(array.unexpanded(), 4);
  EXPECT_FALSE(array.is_expanded(0));
  array.note_expanded(array.next);
  EXPECT_EQ(array.next, 3);
  EXPECT_TRUE(array.early.empty());
  EXPECT_EQ(array.unexpanded(), 3);
  array.closed = JobReason::kCancelled;
  EXPECT_EQ(array.unexpanded(), 0);
}

TEST(IndexRanges, MustAscendAndNotMeet) {
  EXPECT_TRUE(well_formed({{.first = 0, .last = 3}, {.first = 4, .last = 4}}));
  EXPECT_FALSE(well_formed({{.first = 0, .last = 3}, {.first = 3, .last = 4}}));
  EXPECT_FALSE(well_formed({{.first = 3, .last = 2}}));
  EXPECT_FALSE(well_formed({{.first = -1, .last = 2}}));
  EXPECT_FALSE(well_formed({{.first = 0, .last = 2, .step = 0}}));
  EXPECT_FALSE(well_formed({{.first = 0, .last = 1'000'000}}));
}

TEST(JobTable, WalksInOrderHoweverJobsCame) {
  Prng prng(3);
  JobTable table;
  std::set<uint64_t> kept;
  for (int i = 0; i < 30'000; ++i) {
    const uint64_t id = 1 + prng.below(60'000);
    if (kept.contains(id)) {
      table.erase(JobId{id});
      kept.erase(id);
    } else {
      table.insert(Job{.id = JobId{id}});
      kept.insert(id);
    }
  }
  const JobTable copy = table.clone();
  for (const JobTable* walked : {static_cast<const JobTable*>(&table), &copy}) {
    std::vector<uint64_t> up;
    walked->for_each([&](const Job& job) { return up.push_back(job.id.value), true; });
    EXPECT_TRUE(std::equal(up.begin(), up.end(), kept.begin(), kept.end()));
    std::vector<uint64_t> down;
    walked->for_each_newest_first(JobId{30'000},
                                  [&](const Job& job) { return down.push_back(job.id.value), true; });
    EXPECT_TRUE(std::equal(down.rbegin(), down.rend(), kept.begin(), kept.lower_bound(30'000)));
  }
}

}  // namespace
}  // namespace gpusched
