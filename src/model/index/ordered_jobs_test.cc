#include "model/index/ordered_jobs.h"

#include <gtest/gtest.h>

#include <set>

#include "base/prng.h"

namespace gpusched {
namespace {

TEST(OrderedJobs, HigherKeyStandsFirstThenTheOlderJob) {
  OrderedJobs jobs;
  jobs.insert({.key = 1, .job = JobId{7}});
  jobs.insert({.key = 5, .job = JobId{9}});
  jobs.insert({.key = 5, .job = JobId{8}});
  EXPECT_EQ(jobs.front().job, JobId{8});
  EXPECT_EQ(jobs.rank({.key = 1, .job = JobId{7}}), 2u);
}

TEST(OrderedJobs, AgreesWithASortedSetUnderRandomChanges) {
  Prng prng(7);
  OrderedJobs jobs;
  std::set<OrderKey> reference;
  for (uint64_t id = 2; id < 20'000; ++id) {
    if (prng.chance(600) || reference.empty()) {
      const OrderKey key{.key = prng.between(-50, 50), .job = JobId{id}};
      jobs.insert(key);
      reference.insert(key);
    } else {
      auto victim = reference.begin();
      std::advance(victim,
                   static_cast<std::ptrdiff_t>(prng.below(std::min<std::size_t>(reference.size(), 64))));
      jobs.erase(*victim);
      reference.erase(victim);
    }
    ASSERT_EQ(jobs.size(), reference.size());
    if (!reference.empty()) {
      ASSERT_EQ(jobs.front(), *reference.begin());
    }
  }
  std::size_t rank = 0;
  OrderedJobs::Cursor cursor = jobs.begin();
  for (const OrderKey& key : reference) {
    ASSERT_EQ(*cursor, key);
    ASSERT_EQ(jobs.rank(key), rank++);
    cursor.next();
  }
  EXPECT_TRUE(cursor.at_end());
}

}  // namespace
}  // namespace gpusched
