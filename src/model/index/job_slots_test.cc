#include "model/index/job_slots.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace gpusched {
namespace {

TEST(JobSlots, FindsWhatIsThereAndNothingElse) {
  JobSlots slots;
  EXPECT_EQ(slots.find(JobId{7}), std::nullopt);
  slots.insert(JobId{7}, 0);
  slots.insert(JobId{8}, 3);
  slots.insert(JobId{1'000'000'007}, 5);
  EXPECT_EQ(slots.find(JobId{7}), 0U);
  EXPECT_EQ(slots.find(JobId{8}), 3U);
  EXPECT_EQ(slots.find(JobId{1'000'000'007}), 5U);
  EXPECT_FALSE(slots.contains(JobId{9}));  // Beside them.
  EXPECT_EQ(slots.size(), 3U);
  slots.erase(JobId{7});
  EXPECT_FALSE(slots.contains(JobId{7}));
  EXPECT_TRUE(slots.contains(JobId{8}));
  slots.insert(JobId{7}, 9);
  EXPECT_EQ(slots.find(JobId{7}), 9U);
}

TEST(JobSlots, AgreesWithAMapWhateverComesAndGoes) {
  Prng prng(20'261'128);
  JobSlots slots;
  std::map<uint64_t, uint32_t> expected;
  for (uint32_t turn = 0; turn < 20'000; ++turn) {
    const uint64_t id = prng.chance(900) ? 1 + prng.below(500) : 1 + prng.below(UINT64_MAX - 1);
    const auto known = expected.find(id);
    if (known == expected.end()) {
      slots.insert(JobId{id}, turn);
      expected.emplace(id, turn);
    } else {
      ASSERT_EQ(slots.find(JobId{id}), known->second);
      slots.erase(JobId{id});
      expected.erase(known);
    }
    ASSERT_EQ(slots.size(), expected.size());
  }
  for (uint64_t id = 1; id <= 500; ++id) ASSERT_EQ(slots.contains(JobId{id}), expected.contains(id)) << id;
}

}  // namespace
}  // namespace gpusched
