#include "engine/decide/feasible.h"

#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "base/text.h"
#include "engine/policy/devices/device_choice.h"
#include "model/topology.h"

namespace gpusched {
namespace {

/// The node's devices of each kind for which `fits(kind)` holds: the most of one kind, as a mask.
template <typename Fits>
uint64_t most_of_one_kind(const State& state, const Node& node, Fits&& fits) {
  uint64_t most = 0;
  for (uint32_t kind = 0; kind < state.device_classes.size(); ++kind) {
    if (!fits(state.device_classes[kind])) continue;
    uint64_t mask = 0;
    for (std::size_t i = 0; i < node.devices.size(); ++i) {
      if (node.devices[i].device_class == kind) mask |= uint64_t{1} << i;
    }
    if (std::popcount(mask) > std::popcount(most)) most = mask;
  }
  return most;
}

bool could_satisfy_layout(const State& state, const Node& node, const Part& part) {
  if (!part.is_arranged()) return true;
  const PlaceRequest& wishes = *part.wishes();
  policy::DeviceWish wish{
      .count = part.gpu_count, .layout = wishes.layout, .bandwidth_min = wishes.bandwidth_min};
  if (wishes.names_devices()) {
    wish.named = named_devices(node, wishes);
    if (wish.named == 0) return false;
  }
  const LinkMap links(node);
  for (uint32_t kind = 0; kind < state.device_classes.size(); ++kind) {
    if (!state.device_classes[kind].serves(part)) continue;
    const uint64_t mask = most_of_one_kind(
        state, node, [&](const DeviceClass& other) { return &other == &state.device_classes[kind]; });
    if (policy::choose_devices(links, mask, wish).mask != 0) return true;
  }
  return false;
}

std::string text_of(const LabelTerm& term) {
  return term.any_value ? term.name : term.name + "=" + term.value;
}

/// Why none of the node's GPUs can be cut into such a slice.
std::string lacks_slices(const State& state, const Node& node) {
  std::string offered;
  bool mode_on = false;
  for (const Device& device : node.devices) {
    const DeviceClass& kind = state.device_classes[device.device_class];
    mode_on = mode_on || kind.mig;
    if (kind.table() != nullptr && offered.empty()) offered = mig::names_of(*kind.table());
  }
  if (node.devices.empty()) return "it has no GPU";
  if (!mode_on) return "none of its GPUs is in MIG mode";
  if (offered.empty()) return "the MIG profiles of its GPUs are not known";
  return "its GPUs in MIG mode offer " + offered;
}

/// The list of what the node lacks, each in a few words.
std::vector<std::string> lacks_of(const State& state, const Node& node, const Part& part) {
  std::vector<std::string> lacks;
  if ((part.features & ~node.feature_bits & kFeatureContainer) != 0)
    lacks.emplace_back("it cannot run container images");
  if (((part.features ^ node.feature_bits) & kFeatureExternal) != 0)
    lacks.emplace_back((part.features & kFeatureExternal) != 0
                           ? "it is not external"
                           : "it is external and takes only external jobs");
  if (const PlaceRequest* wishes = part.wishes()) {
    for (const LabelTerm& term : wishes->labels) {
      if (!has_label(node, term)) lacks.push_back("it has no label " + text_of(term));
    }
    for (const LabelTerm& term : wishes->without_labels) {
      if (has_label(node, term)) lacks.push_back("it has the label " + text_of(term));
    }
    for (const AvoidedNode& one : wishes->avoided) {
      if (one.until.valid() && one.node == node.name) lacks.emplace_back("it did not start the job");
    }
  }
  if (part.gpu_count > 0) {
    const uint64_t all = most_of_one_kind(state, node, [](const DeviceClass&) { return true; });
    const uint64_t serving =
        most_of_one_kind(state, node, [&](const DeviceClass& kind) { return kind.serves(part); });
    const std::string of =
        " of the " + std::to_string(part.gpu_count) + (part.gpu_count == 1 ? " GPU" : " GPUs");
    if (part.is_slice()) {
      if (serving == 0) lacks.push_back(lacks_slices(state, node));
    } else if (std::popcount(all) < part.gpu_count) {
      lacks.push_back("it has " + std::to_string(std::popcount(all)) + of);
    } else if (std::popcount(serving) < part.gpu_count) {
      const auto first = static_cast<std::size_t>(std::countr_zero(all));
      const Device& device = node.devices[first];
      lacks.push_back("its GPUs are " + state.device_classes[device.device_class].model + " with " +
                      std::to_string(device.memory_mb) + " MB");
    } else if (!could_satisfy_layout(state, node, part)) {
      lacks.emplace_back(part.wishes()->names_devices()
                             ? "it does not have the requested GPU ids"
                             : "its GPUs do not have the requested layout or bandwidth");
    }
  }
  if (node.cpu_milli < part.cpu_milli)
    lacks.push_back("it has " + cores_text(node.cpu_milli) + " of the " + cores_text(part.cpu_milli) +
                    " CPU cores");
  if (node.memory_mb < part.memory_mb) {
    lacks.push_back("it has " + std::to_string(node.memory_mb) + " of the " + std::to_string(part.memory_mb) +
                    " MB of memory");
  }
  return lacks;
}

int64_t gpus_of(const Node& node) { return std::ssize(node.devices); }

}  // namespace

bool node_could_run(const State& state, const Node& node, const Part& part) {
  if (node.removed || !node.offers_features(part)) return false;
  if (node.cpu_milli < part.cpu_milli || node.memory_mb < part.memory_mb) return false;
  if (part.wishes() != nullptr && !place_allows(node, *part.wishes())) return false;
  if (part.gpu_count == 0) return true;
  const uint64_t serving =
      most_of_one_kind(state, node, [&](const DeviceClass& kind) { return kind.serves(part); });
  return std::popcount(serving) >= part.gpu_count && could_satisfy_layout(state, node, part);
}

bool feasible(const State& state, const Part& part) {
  return std::any_of(state.nodes.begin(), state.nodes.end(),
                     [&](const Node& node) { return node_could_run(state, node, part); });
}

std::string nearest_node(const State& state, const Part& part) {
  const Node* best = nullptr;
  std::vector<std::string> best_lacks;
  std::size_t looked_at = 0;
  for (const Node& node : state.nodes) {
    if (node.removed) continue;
    if (++looked_at > limits::kNearestNodesMax) break;
    std::vector<std::string> lacks = lacks_of(state, node, part);
    const bool better = best == nullptr || lacks.size() < best_lacks.size() ||
                        (lacks.size() == best_lacks.size() && gpus_of(node) > gpus_of(*best));
    if (!better) continue;
    best = &node;
    best_lacks = std::move(lacks);
  }
  if (best == nullptr || best_lacks.empty()) return {};
  std::string text = "node " + best->name + " is the closest match: ";
  for (std::size_t i = 0; i < best_lacks.size(); ++i) {
    if (i > 0) text += i + 1 == best_lacks.size() ? ", and " : ", ";
    text += best_lacks[i];
  }
  return text;
}

}  // namespace gpusched
