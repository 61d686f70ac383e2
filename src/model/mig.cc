#include "model/mig.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

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

// Drivers report somewhat less memory than the figure in a GPU's name, or, in GiB, the figure
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

constexpr uint32_t kMediaTaken = kOccupancies / 2;

/// How many placements of the table's profiles are left, each counted as often as it has compute.
int32_t worth_of(const Table& table, uint32_t occupancy) {
  int32_t worth = 0;
  for (const Profile& profile : table.profiles) {
    for (int32_t start = 0; start < table.slots; ++start) {
      if (fits(table, occupancy, profile, start)) worth += profile.compute;
    }
  }
  return worth;
}

void add_name(std::string& text, std::string_view name) {
  if (!text.empty()) text += ", ";
  text += name;
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

int64_t named_mb_of(std::string_view name) {
  const std::size_t dot = name.find('.');
  int64_t gigabytes = 0;
  for (std::size_t i = dot == name.npos ? name.size() : dot + 1; i < name.size(); ++i) {
    if (name[i] < '0' || name[i] > '9') break;
    gigabytes = std::min<int64_t>(gigabytes * 10 + (name[i] - '0'), 1'000'000);
  }
  return gigabytes * 1024;
}

std::string names_of(const Table& table) {
  std::string text;
  for (const Profile& profile : table.profiles) add_name(text, profile.name);
  return text;
}

std::string all_names() { return names_of_model({}); }

bool may_have(std::string_view gpu_model, std::string_view profile) {
  bool known = false;
  for (const Table& table : kTables) {
    if (!gpu_model_matches(gpu_model, table.model)) continue;
    known = true;
    if (table.profile(profile) != nullptr) return true;
  }
  return !known;
}

std::string names_of_model(std::string_view gpu_model) {
  std::vector<std::string_view> names;
  for (const Table& table : kTables) {
    if (!gpu_model.empty() && !gpu_model_matches(gpu_model, table.model)) continue;
    for (const Profile& profile : table.profiles) {
      if (std::find(names.begin(), names.end(), profile.name) == names.end()) names.push_back(profile.name);
    }
  }
  std::string text;
  for (const std::string_view name : names) add_name(text, name);
  return text;
}

uint32_t occupancy_with(uint32_t occupancy, const Instance& added) {
  return occupancy | added.mask() | (added.profile->has_media() ? kMediaTaken : 0);
}

uint32_t occupancy_of(std::span<const Instance> present) {
  uint32_t occupancy = 0;
  for (const Instance& one : present) occupancy = occupancy_with(occupancy, one);
  return occupancy;
}

bool fits(const Table& table, uint32_t occupancy, const Profile& profile, int32_t start) {
  if (start < 0 || start >= table.slots || ((profile.starts >> static_cast<uint32_t>(start)) & 1) == 0)
    return false;
  if (profile.has_media() && (occupancy & kMediaTaken) != 0) return false;
  return (Instance{.profile = &profile, .start = start}.mask() & occupancy) == 0;
}

int32_t room_for(const Table& table, uint32_t occupancy, const Profile& profile) {
  int32_t count = 0;
  for (int32_t start = 0; start < table.slots; ++start) {
    if (!fits(table, occupancy, profile, start)) continue;
    occupancy = occupancy_with(occupancy, {.profile = &profile, .start = start});
    ++count;
  }
  return count;
}

std::string room_text(const Table& table, uint32_t occupancy) {
  std::string text;
  for (const Profile& profile : table.profiles) {
    const int32_t count = profile.has_media() ? 0 : room_for(table, occupancy, profile);
    if (count > 0) add_name(text, std::to_string(count) + "x " + std::string(profile.name));
  }
  return text;
}

bool fits(const Table& table, std::span<const Instance> present, const Profile& profile, int32_t start) {
  if (!fits(table, occupancy_of(present), profile, start)) return false;
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
  const uint32_t taken = occupancy_of(present);
  for (int32_t start = 0; start < table.slots; ++start) {
    if (!fits(table, present, profile, start)) continue;
    const int64_t worth = worth_of(table, occupancy_with(taken, {.profile = &profile, .start = start}));
    if (worth < best_worth) continue;
    best_worth = worth;
    best = start;
  }
  return best;
}

Chart::Chart(const Table& table)
    : table_(&table),
      worth_(kOccupancies),
      spots_(table.profiles.size() * kOccupancies),
      open_(table.profiles.size()) {
  const uint32_t all = (1U << static_cast<uint32_t>(table.slots)) - 1;
  const auto exists = [&](uint32_t occupancy) { return (occupancy & ~kMediaTaken & ~all) == 0; };
  for (uint32_t occupancy = 0; occupancy < kOccupancies; ++occupancy) {
    if (exists(occupancy)) worth_[occupancy] = worth_of(table, occupancy);
  }
  for (uint32_t index = 0; index < count(); ++index) {
    const Profile& profile = table.profiles[index];
    for (uint32_t occupancy = 0; occupancy < kOccupancies; ++occupancy) {
      Spot& best = spots_[std::size_t{index} * kOccupancies + occupancy];
      for (int32_t start = 0; exists(occupancy) && start < table.slots; ++start) {
        if (!fits(table, occupancy, profile, start)) continue;
        const uint32_t then = occupancy_with(occupancy, {.profile = &profile, .start = start});
        const int32_t loss = worth_[occupancy] - worth_[then];
        if (best.start < 0 || loss <= best.loss) best = {.start = start, .loss = loss};
      }
      if (best.start >= 0 && occupancy != 0) open_[index].push_back(static_cast<uint16_t>(occupancy));
    }
    std::sort(open_[index].begin(), open_[index].end(), [&](uint16_t a, uint16_t b) {
      return std::pair(rank(index, a), a) < std::pair(rank(index, b), b);
    });
  }
}

uint32_t Chart::index_of(std::string_view profile) const {
  const Profile* found = table_->profile(profile);
  return found == nullptr ? count() : static_cast<uint32_t>(found - table_->profiles.data());
}

int64_t Chart::rank(uint32_t profile, uint32_t occupancy) const {
  constexpr int64_t kWorthMax = 1 << 20;
  return spot(profile, occupancy).loss * kWorthMax + worth_[occupancy];
}

int64_t memory_mb_of(const Table& table, const Profile& profile, int64_t memory_mb) {
  return memory_mb * profile.slots / table.slots;
}

}  // namespace gpusched::mig
