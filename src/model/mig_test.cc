#include "model/mig.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "model/types.h"

namespace gpusched::mig {
namespace {

const Table& a100() { return *table_of("NVIDIA A100-SXM4-80GB", 81'920); }

/// The most slices of the profile that one GPU takes, tried in every order of starts.
int most_of(const Table& table, const Profile& profile, std::vector<Instance>& present) {
  int most = 0;
  for (int32_t start = 0; start < table.slots; ++start) {
    if (!fits(table, present, profile, start)) continue;
    present.push_back({.profile = &profile, .start = start});
    most = std::max(most, 1 + most_of(table, profile, present));
    present.pop_back();
  }
  return most;
}

TEST(MigTables, FollowTheModelAndItsMemory) {
  EXPECT_NE(table_of("NVIDIA A100-SXM4-40GB", 40'960)->profile("1g.5gb"), nullptr);
  EXPECT_EQ(table_of("NVIDIA A100-SXM4-40GB", 40'960)->profile("7g.80gb"), nullptr);
  EXPECT_NE(table_of("NVIDIA H100 80GB HBM3", 81'559)->profile("1g.10gb"), nullptr);
  EXPECT_NE(table_of("NVIDIA H100 NVL", 95'830)->profile("3g.47gb"), nullptr);
  EXPECT_NE(table_of("NVIDIA H200", 143'771)->profile("1g.18gb"), nullptr);
  EXPECT_NE(table_of("NVIDIA B200", 183'359)->profile("1g.23gb"), nullptr);
  EXPECT_NE(table_of("NVIDIA A30", 24'576)->profile("2g.12gb+me"), nullptr);
  EXPECT_EQ(table_of("Tesla V100-SXM2-32GB", 32'510), nullptr);
}

TEST(MigTables, TakeAsManyOfAProfileAsTheirMakerSays) {
  for (const Table& table : tables()) {
    for (const Profile& profile : table.profiles) {
      std::vector<Instance> none;
      EXPECT_EQ(most_of(table, profile, none), profile.most) << table.model << " " << profile.name;
    }
  }
}

TEST(MigTables, AProfileIsAsMuchOfAnyModelThatHasIt) {
  std::map<std::string_view, int32_t> seen;
  for (const Table& table : tables()) {
    for (const Profile& profile : table.profiles) {
      const int32_t milli = 1000 * profile.compute / table.compute;
      EXPECT_EQ(seen.try_emplace(profile.name, milli).first->second, milli) << profile.name;
      EXPECT_EQ(milli_of(profile.name), milli);
    }
  }
  EXPECT_FALSE(is_profile("9g.90gb"));
}

TEST(MigFits, SlicesThatDoNotOverlap) {
  const Profile& four = *a100().profile("4g.40gb");
  const Profile& three = *a100().profile("3g.40gb");
  const std::vector<Instance> left{{.profile = &three, .start = 0}};
  EXPECT_FALSE(fits(a100(), left, four, 0));
  EXPECT_TRUE(fits(a100(), left, three, 4));
  EXPECT_FALSE(fits(a100(), left, three, 2));
  EXPECT_FALSE(fits(a100(), left, three, -1));
  EXPECT_FALSE(fits(a100(), left, three, 8));
}

TEST(MigFits, OneSliceWithMediaEngines) {
  const Profile& media = *a100().profile("1g.10gb+me");
  const std::vector<Instance> one{{.profile = &media, .start = 0}};
  EXPECT_FALSE(fits(a100(), one, media, 1));
  EXPECT_TRUE(fits(a100(), one, *a100().profile("1g.10gb"), 1));
}

// The narrow one goes where the one of four slices cannot: that keeps its place.
TEST(MigBestStart, LeavesTheWideOnesTheirPlaces) {
  const auto start = best_start(a100(), {}, *a100().profile("1g.10gb"));
  ASSERT_TRUE(start.has_value());
  EXPECT_EQ(*start, 6);
  EXPECT_EQ(best_start(a100(), {}, *a100().profile("3g.40gb")), 4);
}

TEST(MigBestStart, OfNoneIsNone) {
  const std::vector<Instance> whole{{.profile = a100().profile("7g.80gb"), .start = 0}};
  EXPECT_EQ(best_start(a100(), whole, *a100().profile("1g.10gb")), std::nullopt);
}

// From any state that can come about, a slice that fits somewhere gets a start, and one that is allowed.
TEST(MigBestStart, FindsAPlaceWheneverThereIsOne) {
  for (const Table& table : tables()) {
    std::vector<std::vector<Instance>> states{{}};
    for (std::size_t at = 0; at < states.size() && states.size() < 3'000; ++at) {
      for (const Profile& profile : table.profiles) {
        bool any = false;
        for (int32_t start = 0; start < table.slots; ++start) {
          if (!fits(table, states[at], profile, start)) continue;
          any = true;
          std::vector<Instance> next = states[at];
          next.push_back({.profile = &profile, .start = start});
          states.push_back(std::move(next));
        }
        const auto best = best_start(table, states[at], profile);
        EXPECT_EQ(best.has_value(), any);
        if (best) {
          EXPECT_TRUE(fits(table, states[at], profile, *best));
        }
      }
    }
  }
}

}  // namespace
}  // namespace gpusched::mig
