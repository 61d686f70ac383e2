#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

/// Multi-Instance GPU: which slices a model of GPU can be cut into, and where on it they may lie. Pure; data
/// and arithmetic. A GPU in MIG mode has slots of memory, 8 or 4; an instance lies on neighbouring ones from
/// one of the starts that its profile allows.
namespace gpusched::mig {

/// A kind of slice of one model of GPU.
struct Profile {
  std::string_view name;  ///< "1g.10gb", as the driver calls it; "+me": with the media engines.
  int32_t id = 0;         ///< Of the GPU instance profile, as `nvidia-smi mig -lgip` numbers them.
  int32_t compute = 0;    ///< Slices of compute.
  int32_t slots = 0;      ///< Of memory.
  uint32_t starts = 0;    ///< The slots that it may begin at, one bit each.
  int32_t most = 0;       ///< At most so many on one GPU.
};

/// What one model of GPU can be cut into, largest first. Source of the figures: NVIDIA, Multi-Instance GPU
/// User Guide, "Supported MIG Profiles", and the placements that `nvidia-smi mig -lgipp` prints.
struct Table {
  std::string_view model;      ///< A word of its name: "A100".
  int64_t memory_mb_from = 0;  ///< Of the whole GPU; tells A100 of 40 GB from those of 80 GB.
  int64_t memory_mb_to = 0;
  int32_t compute = 0;  ///< Slices of compute of the whole GPU.
  int32_t slots = 0;    ///< Of memory.
  std::span<const Profile> profiles;

  const Profile* profile(std::string_view name) const;
};

/// All tables.
std::span<const Table> tables();
/// Of the GPU of this model with so much memory; null: it has none.
const Table* table_of(std::string_view model, int64_t memory_mb);
/// Any model has a profile of this name.
bool is_profile(std::string_view name);
/// A slice of this profile as thousandths of a GPU, for quotas: its part of the compute, rounded down. 0: no
/// model has such a profile. The same for all models that have it.
int32_t milli_of(std::string_view name);

/// An instance that is there, or shall be.
struct Instance {
  const Profile* profile = nullptr;
  int32_t start = 0;  ///< Its first slot.

  /// Its slots, one bit each.
  uint32_t mask() const {
    return ((1U << static_cast<uint32_t>(profile->slots)) - 1) << static_cast<uint32_t>(start);
  }
};

/// The profile may begin there, its slots are free, and neither compute nor the profile's count is used up.
bool fits(const Table& table, std::span<const Instance> present, const Profile& profile, int32_t start);
/// The start at which the least is lost for what may come: most placements of all profiles of the table
/// remain, each weighed with its compute; of equal ones the highest start, so that wide ones find the low
/// slots. None: it fits nowhere.
std::optional<int32_t> best_start(const Table& table, std::span<const Instance> present,
                                  const Profile& profile);
/// The memory of an instance of the profile on a GPU of so much.
int64_t memory_mb_of(const Table& table, const Profile& profile, int64_t memory_mb);

}  // namespace gpusched::mig
