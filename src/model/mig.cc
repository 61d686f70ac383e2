#include "model/mig.h"

#include <algorithm>
#include <array>
#include <bit>

#include "model/types.h"

namespace gpusched::mig {
namespace {

constexpr uint32_t kAnyOfSeven = 0b1111111;
constexpr uint32_t kEvenOfEight = 0b1010101;
constexpr uint32_t kFirstThreePairs = 0b10101;
constexpr uint32_t kHalves = 0b10001;
constexpr uint32_t kFirst = 1;

/// The cards of seven slices of compute and eight of memory differ in the names alone.
constexpr std::array<Profile, 7> sevenths(std::string_view whole, std::string_view four,
                                          std::string_view three, std::string_view two,
                                          std::string_view one_double, std::string_view one,
                                          std::string_view one_media) {
  return {{
      {.name = whole, .id = 0, .compute = 7, .slots = 8, .starts = kFirst, .most = 1},
      {.name = four, .id = 5, .compute = 4, .slots = 4, .starts = kFirst, .most = 1},
      {.name = three, .id = 9, .compute = 3, .slots = 4, .starts = kHalves, .most = 2},
      {.name = two, .id = 14, .compute = 2, .slots = 2, .starts = kFirstThreePairs, .most = 3},
      {.name = one_double, .id = 15, .compute = 1, .slots = 2, .starts = kEvenOfEight, .most = 4},
      {.name = one, .id = 19, .compute = 1, .slots = 1, .starts = kAnyOfSeven, .most = 7},
      {.name = one_media, .id = 20, .compute = 1, .slots = 1, .starts = kAnyOfSeven, .most = 1},
  }};
}

constexpr auto kA100Of40 =
    sevenths("7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.10gb", "1g.5gb", "1g.5gb+me");
constexpr auto kOf80 =
    sevenths("7g.80gb", "4g.40gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb", "1g.10gb+me");
constexpr auto kH100Of94 =
    sevenths("7g.94gb", "4g.47gb", "3g.47gb", "2g.24gb", "1g.24gb", "1g.12gb", "1g.12gb+me");
constexpr auto kOf96 =
    sevenths("7g.96gb", "4g.48gb", "3g.48gb", "2g.24gb", "1g.24gb", "1g.12gb", "1g.12gb+me");
constexpr auto kOf141 =
    sevenths("7g.141gb", "4g.71gb", "3g.71gb", "2g.35gb", "1g.35gb", "1g.18gb", "1g.18gb+me");
constexpr auto kB200 =
    sevenths("7g.180gb", "4g.90gb", "3g.90gb", "2g.45gb", "1g.45gb", "1g.23gb", "1g.23gb+me");
constexpr std::array<Profile, 5> kA30 = {{
    {.name = "4g.24gb", .id = 0, .compute = 4, .slots = 4, .starts = kFirst, .most = 1},
    {.name = "2g.12gb", .id = 5, .compute = 2, .slots = 2, .starts = 0b101, .most = 2},
    {.name = "2g.12gb+me", .id = 6, .compute = 2, .slots = 2, .starts = 0b101, .most = 1},
    {.name = "1g.6gb", .id = 14, .compute = 1, .slots = 1, .starts = 0b1111, .most = 4},
    {.name = "1g.6gb+me", .id = 21, .compute = 1, .slots = 1, .starts = 0b1111, .most = 1},
}};

constexpr Table of_sevenths(std::string_view model, int64_t gb_from, int64_t gb_to,
                            std::span<const Profile> profiles) {
  return {.model = model,
          .memory_mb_from = gb_from * 1024,
          .memory_mb_to = gb_to * 1024,
          .compute = 7,
          .slots = 8,
          .profiles = profiles};
}

// What drivers tell of a GPU's memory is somewhat below the figure of its name, or, in GiB, the figure
// itself.
constexpr std::array<Table, 11> kTables = {{
    of_sevenths("A100", 36, 41, kA100Of40),
    of_sevenths("A100", 72, 81, kOf80),
    of_sevenths("A800", 36, 41, kA100Of40),
    of_sevenths("A800", 72, 81, kOf80),
    of_sevenths("H100", 72, 81, kOf80),
    of_sevenths("H100", 88, 95, kH100Of94),
    of_sevenths("GH200", 90, 97, kOf96),
    of_sevenths("H200", 130, 145, kOf141),
    of_sevenths("GH200", 130, 145, kOf141),
    of_sevenths("B200", 170, 193, kB200),
    {.model = "A30",
     .memory_mb_from = 22 * 1024,
     .memory_mb_to = 25 * 1024,
     .compute = 4,
     .slots = 4,
     .profiles = kA30},
}};

uint32_t taken_by(std::span<const Instance> present) {
  uint32_t taken = 0;
  for (const Instance& one : present) taken |= one.mask();
  return taken;
}

/// How many placements of the table's profiles the free slots leave, each counted as often as it has compute.
int64_t worth_of(const Table& table, uint32_t taken) {
  int64_t worth = 0;
  for (const Profile& profile : table.profiles) {
    for (uint32_t rest = profile.starts; rest != 0; rest &= rest - 1) {
      const Instance placed{.profile = &profile, .start = std::countr_zero(rest)};
      if ((placed.mask() & taken) == 0) worth += profile.compute;
    }
  }
  return worth;
}

}  // namespace

const Profile* Table::profile(std::string_view name) const {
  const auto found =
      std::find_if(profiles.begin(), profiles.end(), [&](const Profile& one) { return one.name == name; });
  return found == profiles.end() ? nullptr : &*found;
}

std::span<const Table> tables() { return kTables; }

const Table* table_of(std::string_view model, int64_t memory_mb) {
  const auto found = std::find_if(kTables.begin(), kTables.end(), [&](const Table& table) {
    return table.memory_mb_from <= memory_mb && memory_mb <= table.memory_mb_to &&
           gpu_model_matches(model, table.model);
  });
  return found == kTables.end() ? nullptr : &*found;
}

bool is_profile(std::string_view name) { return milli_of(name) > 0; }

int32_t milli_of(std::string_view name) {
  for (const Table& table : kTables) {
    if (const Profile* profile = table.profile(name); profile != nullptr)
      return static_cast<int32_t>(kMilliPerGpu) * profile->compute / table.compute;
  }
  return 0;
}

bool fits(const Table& table, std::span<const Instance> present, const Profile& profile, int32_t start) {
  if (start < 0 || start >= table.slots || ((profile.starts >> static_cast<uint32_t>(start)) & 1) == 0)
    return false;
  if ((Instance{.profile = &profile, .start = start}.mask() & taken_by(present)) != 0) return false;
  int32_t compute = profile.compute;
  int32_t alike = 1;
  for (const Instance& one : present) {
    compute += one.profile->compute;
    if (one.profile->name == profile.name) ++alike;
  }
  return compute <= table.compute && alike <= profile.most;
}

std::optional<int32_t> best_start(const Table& table, std::span<const Instance> present,
                                  const Profile& profile) {
  std::optional<int32_t> best;
  int64_t best_worth = -1;
  const uint32_t taken = taken_by(present);
  for (int32_t start = 0; start < table.slots; ++start) {
    if (!fits(table, present, profile, start)) continue;
    const int64_t worth = worth_of(table, taken | Instance{.profile = &profile, .start = start}.mask());
    if (worth < best_worth) continue;
    best_worth = worth;
    best = start;
  }
  return best;
}

int64_t memory_mb_of(const Table& table, const Profile& profile, int64_t memory_mb) {
  return memory_mb * profile.slots / table.slots;
}

}  // namespace gpusched::mig
