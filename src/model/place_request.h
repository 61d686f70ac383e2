#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "base/time.h"

namespace gpusched {

struct Part;

/// Arrangement of the devices of one member on its node.
enum class Layout : uint8_t {
  kPack = 0,    ///< Best linked: the weakest link among them as strong as it can be, few domains.
  kSpread,      ///< Over as many islands and NUMA nodes as there are, evenly.
  kContiguous,  ///< Neighbours by their index, without a gap.
};
inline constexpr Layout kLayoutLast = Layout::kContiguous;
std::string_view to_string(Layout layout);

/// Condition on a node's labels: this name with this value, or the name with any value.
struct LabelTerm {
  std::string name;
  std::string value;
  bool any_value = false;

  friend bool operator==(const LabelTerm&, const LabelTerm&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "name", self.name);
    visit(2, "value", self.value);
    visit(3, "any_value", self.any_value);
  }
};

/// Node that would not start the job: an external node, which said so.
struct AvoidedNode {
  std::string node;      ///< Its name.
  Time until;            ///< The job is not placed there before; not valid: it may be again.
  int32_t refusals = 0;  ///< Attempts that the node did not start.

  friend bool operator==(const AvoidedNode&, const AvoidedNode&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "until", self.until);
    visit(3, "refusals", self.refusals);
  }
};

/// Constraints on the node of a member, beyond its resources. Most jobs have none.
struct PlaceRequest {
  std::vector<LabelTerm> labels;          ///< Labels that the node must have.
  std::vector<LabelTerm> without_labels;  ///< Labels that the node must not have.
  std::vector<std::string>
      gpu_models;          ///< Any of them, as `Part::gpu_model` is written; the first is liked best.
  bool exclusive = false;  ///< No other job runs on the node meanwhile.
  Layout layout = Layout::kPack;
  uint64_t device_mask = 0;               ///< Given: exactly the devices with these indexes.
  std::vector<std::string> device_uuids;  ///< Given: exactly these devices.
  int64_t bandwidth_min = 0;  ///< Minimum link bandwidth in GB/s between any two of its devices. 0: any.
  std::vector<AvoidedNode> avoided;  ///< The engine's own word, of no command. Since feature level 12.

  bool names_devices() const { return device_mask != 0 || !device_uuids.empty(); }
  friend bool operator==(const PlaceRequest&, const PlaceRequest&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "labels", self.labels);
    visit(2, "without_labels", self.without_labels);
    visit(3, "gpu_models", self.gpu_models);
    visit(4, "exclusive", self.exclusive);
    visit(5, "layout", self.layout);
    visit(6, "device_mask", self.device_mask);
    visit(7, "device_uuids", self.device_uuids);
    visit(8, "bandwidth_min", self.bandwidth_min);
    visit(9, "avoided", self.avoided);
  }
};

/// Why a request contradicts itself: no node of any cluster could ever meet it.
enum class RequestFlaw : uint8_t {
  kNone = 0,
  kLabelBothWays,   ///< A label is required and forbidden.
  kLabelTwoValues,  ///< A label is required with two values.
  kEmptyName,       ///< A label, model or id without a name.
  kTooMany,         ///< More terms, models or ids than a request may have.
  kModelsWithoutGpus,
  kModelTwice,
  kIdsOtherCount,  ///< Another number of ids than of GPUs.
  kIdTwice,
  kIdsBothWays,  ///< Indexes and UUIDs.
  kIdsWithLayout,
  kLayoutOfOne,  ///< A layout of fewer than two GPUs.
  kBandwidthOfOne,
  kOfShare,       ///< Ids, a layout, a bandwidth or a whole node for a share of a GPU.
  kSeveralTimes,  ///< `Part::place` has more than one entry.
  kOutOfRange,
};
/// The first that is found; of a part as it stands in a command.
RequestFlaw flaw_of(const Part& part);
/// Describes in one sentence what to change.
std::string_view describe(RequestFlaw flaw);

/// True when a device of `model` satisfies a request for `wanted`: the request's words (split at blank, '-'
/// and '_', case ignored) appear in the model's words, in order and side by side. "A100" fits
/// "NVIDIA A100-SXM4-80GB"; an empty request fits all.
bool gpu_model_matches(std::string_view model, std::string_view wanted);

}  // namespace gpusched
