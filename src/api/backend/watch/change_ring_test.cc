#include "api/backend/watch/change_ring.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

ChangeNotice notice(uint64_t sequence, std::vector<uint64_t> jobs, std::vector<uint64_t> nodes = {}) {
  ChangeNotice made{.sequence = sequence};
  for (const uint64_t job : jobs) made.jobs.push_back(JobId{job});
  for (const uint64_t node : nodes) made.nodes.push_back(NodeId{node});
  return made;
}

TEST(ChangeRings, TellWhatChangedBehindANumberOnce) {
  ChangeRing ring;
  ring.begin(10);
  ring.add(notice(12, {3, 5}));
  ring.add(notice(13, {}, {7}));
  ring.add(notice(15, {1, 5}));
  const auto all = ring.since(10);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->sequence, 15U);
  EXPECT_EQ(all->jobs, (std::vector{JobId{1}, JobId{3}, JobId{5}}));
  EXPECT_EQ(all->nodes, std::vector{NodeId{7}});
  // Within a group of commands: all of the group is told again.
  EXPECT_EQ(ring.since(11)->jobs.size(), 3U);
  EXPECT_EQ(ring.since(12)->jobs, (std::vector{JobId{1}, JobId{5}}));
  EXPECT_TRUE(ring.since(15)->jobs.empty());
}

TEST(ChangeRings, KnowNothingOfWhatWasBeforeThemOrIsNotYet) {
  ChangeRing ring;
  ring.begin(10);
  EXPECT_FALSE(ring.since(9).has_value());
  EXPECT_TRUE(ring.since(10).has_value());
  EXPECT_FALSE(ring.since(11).has_value());  // A number of another cluster, or of one that was restored.
}

TEST(ChangeRings, GiveUpTheOldestAndSaySo) {
  ChangeRing ring(3);
  ring.begin(0);
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) ring.add(notice(sequence, {100 + sequence}));
  EXPECT_FALSE(ring.since(1).has_value());
  EXPECT_EQ(ring.since(2)->jobs.size(), 3U);
  ring.add(notice(6, {1, 2}));  // The rest of 4 goes too: all of a number is known or nothing.
  EXPECT_FALSE(ring.since(3).has_value());
  EXPECT_EQ(ring.since(4)->jobs, (std::vector{JobId{1}, JobId{2}, JobId{105}}));
}

TEST(ChangeRings, NodesThatChangeOftenDoNotDriveJobsOut) {
  ChangeRing ring(2);
  ring.begin(0);
  ring.add(notice(1, {9}));
  ring.add(notice(2, {}, {1}));
  ring.add(notice(3, {}, {1}));
  EXPECT_EQ(ring.since(0)->jobs, std::vector{JobId{9}});
  ring.add(notice(4, {}, {1}));
  EXPECT_FALSE(ring.since(1).has_value());
}

}  // namespace
}  // namespace gpusched::api
