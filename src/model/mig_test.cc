#include "model/mig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
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

TEST(MigFits, TheMediaEnginesOfAGpuAreOneSlices) {
  const Table& a30 = *table_of("NVIDIA A30", 24'576);
  const std::vector<Instance> one{{.profile = a30.profile("2g.12gb+me"), .start = 0}};
  EXPECT_FALSE(fits(a30, one, *a30.profile("1g.6gb+me"), 2));
  EXPECT_TRUE(fits(a30, one, *a30.profile("1g.6gb"), 2));
}

TEST(MigRoom, IsHowManyOfEachProfileAloneAreLeft) {
  EXPECT_EQ(room_text(a100(), 0), "1x 7g.80gb, 1x 4g.40gb, 2x 3g.40gb, 3x 2g.20gb, 4x 1g.20gb, 7x 1g.10gb");
  const std::vector<Instance> three{{.profile = a100().profile("3g.40gb"), .start = 4}};
  EXPECT_EQ(room_text(a100(), occupancy_of(three)),
            "1x 4g.40gb, 1x 3g.40gb, 2x 2g.20gb, 2x 1g.20gb, 4x 1g.10gb");
  const std::vector<Instance> whole{{.profile = a100().profile("7g.80gb"), .start = 0}};
  EXPECT_EQ(room_text(a100(), occupancy_of(whole)), "");
}

TEST(MigNames, SayTheirMemory) {
  EXPECT_EQ(named_mb_of("1g.10gb"), 10'240);
  EXPECT_EQ(named_mb_of("1g.10gb+me"), 10'240);
  EXPECT_EQ(named_mb_of("7g.141gb"), 141 * 1024);
  EXPECT_EQ(named_mb_of("whole"), 0);
  EXPECT_EQ(names_of(a100()), "7g.80gb, 4g.40gb, 3g.40gb, 2g.20gb, 1g.20gb, 1g.10gb, 1g.10gb+me");
  EXPECT_NE(all_names().find("1g.18gb"), std::string::npos);
}

TEST(MigNames, AModelMayHaveOnlyWhatItsTablesHave) {
  EXPECT_TRUE(may_have("A100", "1g.5gb"));
  EXPECT_TRUE(may_have("NVIDIA A100-SXM4-80GB", "1g.10gb"));
  EXPECT_FALSE(may_have("A30", "1g.10gb"));
  EXPECT_TRUE(may_have("X9000", "1g.10gb"));
  EXPECT_EQ(names_of_model("A30"), "4g.24gb, 2g.12gb, 2g.12gb+me, 1g.6gb, 1g.6gb+me");
}

TEST(MigChart, SaysWhatBestStartSays) {
  for (const Table& table : tables()) {
    const Chart chart(table);
    std::vector<std::vector<Instance>> states{{}};
    for (std::size_t at = 0; at < states.size() && states.size() < 2'000; ++at) {
      const uint32_t occupancy = occupancy_of(states[at]);
      for (uint32_t index = 0; index < chart.count(); ++index) {
        const Profile& profile = table.profiles[index];
        EXPECT_EQ(chart.spot(index, occupancy).start, best_start(table, states[at], profile).value_or(-1));
        const auto open = chart.open_ones(index);
        const bool listed = std::find(open.begin(), open.end(), occupancy) != open.end();
        EXPECT_EQ(listed, occupancy != 0 && chart.spot(index, occupancy).start >= 0);
        for (int32_t start = 0; start < table.slots; ++start) {
          if (!fits(table, states[at], profile, start)) continue;
          states.push_back(states[at]);
          states.back().push_back({.profile = &profile, .start = start});
        }
      }
    }
  }
}

// All that fit by their slots fit by their compute and counts too: an occupancy says enough.
TEST(MigOccupancy, IsAllThatTheNextSliceDependsOn) {
  for (const Table& table : tables()) {
    std::vector<std::vector<Instance>> states{{}};
    for (std::size_t at = 0; at < states.size() && states.size() < 20'000; ++at) {
      for (const Profile& profile : table.profiles) {
        for (int32_t start = 0; start < table.slots; ++start) {
          const bool fit = fits(table, states[at], profile, start);
          ASSERT_EQ(fit, fits(table, occupancy_of(states[at]), profile, start)) << profile.name;
          if (!fit) continue;
          states.push_back(states[at]);
          states.back().push_back({.profile = &profile, .start = start});
        }
      }
    }
  }
}

/// A stream of slices on eight GPUs, each for a while; how much of the compute that was asked for found a
/// place. Ours: where least is lost. Else the first place on the first GPU.
double part_placed(bool ours, uint32_t seed) {
  const Table& table = a100();
  const Chart chart(table);
  std::mt19937 random(seed);
  struct Slice {
    int until = 0;
    std::size_t gpu = 0;
    Instance instance;
  };
  std::vector<Slice> live;
  std::vector<std::vector<Instance>> gpus(8);
  int asked = 0;
  int placed = 0;
  for (int now = 0; now < 2'000; ++now) {
    std::erase_if(live, [&](const Slice& one) { return one.until <= now; });
    for (auto& gpu : gpus) gpu.clear();
    for (const Slice& one : live) gpus[one.gpu].push_back(one.instance);
    const auto index = static_cast<uint32_t>(random() % 6);
    const Profile& profile = table.profiles[index];
    const int until = now + 1 + static_cast<int>(random() % 40);
    asked += profile.compute;
    std::optional<Slice> chosen;
    int64_t best = 0;
    for (std::size_t gpu = 0; gpu < gpus.size() && (ours || !chosen); ++gpu) {
      const uint32_t occupancy = occupancy_of(gpus[gpu]);
      for (int32_t start = 0; start < table.slots && !ours && !chosen; ++start) {
        if (fits(table, occupancy, profile, start)) chosen = {until, gpu, {&profile, start}};
      }
      const int32_t start = chart.spot(index, occupancy).start;
      if (!ours || start < 0) continue;
      const int64_t rank = occupancy == 0 ? INT64_MAX : chart.rank(index, occupancy);
      if (chosen && rank >= best) continue;
      best = rank;
      chosen = {until, gpu, {&profile, start}};
    }
    if (!chosen) continue;
    placed += profile.compute;
    live.push_back(*chosen);
  }
  return static_cast<double>(placed) / asked;
}

// 69.3 against 66.0 % of what was asked for.
TEST(MigChart, PlacesMoreThanTheFirstPlaceThatFits) {
  double ours = 0;
  double first = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    ours += part_placed(true, seed) / 40;
    first += part_placed(false, seed) / 40;
  }
  RecordProperty("ours", std::to_string(ours));
  RecordProperty("first_fit", std::to_string(first));
  EXPECT_GT(ours, first + 0.01) << ours << " against " << first;
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
