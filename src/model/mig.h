#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Multi-Instance GPU: which slices a model of GPU can be cut into, and where on it they may lie. Pure; data
/// and arithmetic. A GPU in MIG mode has slots of memory, 8 or 4; an instance lies on neighbouring ones from
/// one of the starts that its profile allows.
namespace gpusched::mig {

/// A kind of slice of one model of GPU.
struct Profile {
  std::string_view name;  ///< "1g.10gb", as the driver calls it; "+me": with the media engines.
  int32_t id = 0;         ///< Id of the GPU instance profile, as `nvidia-smi mig -lgip` numbers them.
  int32_t compute = 0;    ///< Slices of compute.
  int32_t slots = 0;      ///< Memory slots.
  uint32_t starts = 0;    ///< The slots that it may begin at, one bit each.
  int32_t most = 0;       ///< Maximum number on one GPU.

  /// Returns whether it includes the media engines, which a GPU has only once.
  bool has_media() const { return name.ends_with("+me"); }
};

/// MIG profiles of one model of GPU, largest first. Source of the figures: NVIDIA, Multi-Instance GPU
/// User Guide, "Supported MIG Profiles", and the placements that `nvidia-smi mig -lgipp` prints.
struct Table {
  std::string_view model;      ///< A word of its name: "A100".
  int64_t memory_mb_from = 0;  ///< Minimum memory of the whole GPU; tells an A100 40 GB from an A100 80 GB.
  int64_t memory_mb_to = 0;
  int32_t compute = 0;  ///< Slices of compute of the whole GPU.
  int32_t slots = 0;    ///< Memory slots.
  std::span<const Profile> profiles;

  const Profile* profile(std::string_view name) const;
};

/// All tables.
std::span<const Table> tables();
/// Returns the table of this model with `memory_mb`; null: none.
const Table* table_of(std::string_view model, int64_t memory_mb);
/// Any model has a profile of this name.
bool is_profile(std::string_view name);
/// A slice of this profile as thousandths of a GPU, for quotas: its part of the compute, rounded down. 0: no
/// model has such a profile. The same for all models that have it.
int32_t milli_of(std::string_view name);
/// The memory that the profile's name says, for quotas: "1g.10gb" is 10,240 MB. 0: it says none.
int64_t named_mb_of(std::string_view name);
/// Some model of GPU that the word names, as in "A100" or "NVIDIA A30", has the profile; or the word names
/// none that is known, so that nobody can say.
bool may_have(std::string_view gpu_model, std::string_view profile);
/// The names of the profiles of the models that the word names: see names_of.
std::string names_of_model(std::string_view gpu_model);
/// The names of all profiles of the model, and of all models, with ", " between them, largest first; each
/// once.
std::string names_of(const Table& table);
std::string all_names();

/// An instance that is there, or shall be.
struct Instance {
  const Profile* profile = nullptr;
  int32_t start = 0;  ///< First memory slot.

  /// Returns its slots, one bit each.
  uint32_t mask() const {
    return ((1U << static_cast<uint32_t>(profile->slots)) - 1) << static_cast<uint32_t>(start);
  }
};

/// Taken part of a GPU as one small number below kOccupancies: its slots, one bit each, and a bit for the
/// media engines. Another slice depends on nothing else: where slots are free, compute is too.
uint32_t occupancy_of(std::span<const Instance> present);
inline constexpr uint32_t kOccupancies = 512;
uint32_t occupancy_with(uint32_t occupancy, const Instance& added);
bool fits(const Table& table, uint32_t occupancy, const Profile& profile, int32_t start);
/// Returns how many more slices of the profile such a GPU can take.
int32_t room_for(const Table& table, uint32_t occupancy, const Profile& profile);
/// The same of all profiles, for people: "1x 3g.40gb, 2x 2g.20gb, 4x 1g.10gb", each without the others, and
/// without those that have media engines. Empty: nothing fits.
std::string room_text(const Table& table, uint32_t occupancy);

/// The profile may begin there, its slots are free, and neither compute nor the profile's count is used up.
/// Nor are the media engines, if it has those.
bool fits(const Table& table, std::span<const Instance> present, const Profile& profile, int32_t start);
/// The start at which the least is lost for what may come: most placements of all profiles of the table
/// remain, each weighed with its compute; of equal ones the highest start, so that wide ones find the low
/// slots. None: it fits nowhere.
std::optional<int32_t> best_start(const Table& table, std::span<const Instance> present,
                                  const Profile& profile);
/// Best place of the next slice for every occupancy and profile of a table, computed once.
class Chart {
 public:
  /// Place of a slice on one GPU.
  struct Spot {
    int32_t start = -1;  ///< First slot, as from `best_start`; negative: does not fit.
    int32_t loss = 0;    ///< Decrease in the value of what remains.
  };
  explicit Chart(const Table& table);

  const Table& table() const { return *table_; }
  /// Returns its index in the table; the table's size if there is none of this name.
  uint32_t index_of(std::string_view profile) const;
  uint32_t count() const { return static_cast<uint32_t>(table_->profiles.size()); }
  const Spot& spot(uint32_t profile, uint32_t occupancy) const {
    return spots_[std::size_t{profile} * kOccupancies + occupancy];
  }
  /// Rank of a GPU of this occupancy for a slice of the profile, where it fits; less is better. By what is
  /// lost, then by what is there: the fullest of equal ones first.
  int64_t rank(uint32_t profile, uint32_t occupancy) const;
  /// Occupancies of GPUs that have slices and take one more, the best first.
  std::span<const uint16_t> open_ones(uint32_t profile) const { return open_[profile]; }

 private:
  const Table* table_;
  std::vector<int32_t> worth_;
  std::vector<Spot> spots_;
  std::vector<std::vector<uint16_t>> open_;
};

/// The memory of an instance of the profile on a GPU of so much.
int64_t memory_mb_of(const Table& table, const Profile& profile, int64_t memory_mb);

}  // namespace gpusched::mig
