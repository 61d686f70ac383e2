#include "engine/policy/fragmentation/placement.h"

#include <algorithm>
#include <utility>

namespace gpusched::policy {
namespace {

/// The commonest shapes up to so much of all arrivals are looked at, as in the published comparison.
constexpr uint32_t kCoverPerMille = 950;

}  // namespace

std::optional<FragmentationPlacement> FragmentationPlacement::make(std::string_view name) {
  if (name == "fgd") return FragmentationPlacement(Rule::kGradient);
  if (name == "least_value_lost") return FragmentationPlacement(Rule::kLeastValueLost);
  return std::nullopt;
}

FragmentationPlacement::FragmentationPlacement(Rule rule)
    : rule_(rule), tables_(make_rule()), index_(*tables_) {}

std::shared_ptr<const PlacementRule> FragmentationPlacement::make_rule() const {
  const std::vector<PopularShape> popular = popularity_.commonest(kCoverPerMille);
  if (rule_ == Rule::kGradient) return std::make_shared<FragmentationGradient>(popular);
  return std::make_shared<LeastValueLost>(popular, LeastValueLost::Params{});
}

void FragmentationPlacement::arrived(const TaskShape& shape) {
  popularity_.arrived(shape);
  if (!popularity_.is_due(made_at_)) return;
  std::shared_ptr<const PlacementRule> made = make_rule();
  index_.use(*made);
  tables_ = std::move(made);
  made_at_ = popularity_.arrivals();
}

void FragmentationPlacement::forget_arrivals() {
  popularity_ = ShapePopularity();
  made_at_ = 0;
}

uint32_t FragmentationPlacement::place_of(uint32_t node, uint32_t device_class) {
  if (node >= slots_of_node_.size()) slots_of_node_.resize(node + 1);
  for (const uint32_t slot : slots_of_node_[node]) {
    if (places_[slot].device_class == device_class) return slot;
  }
  const auto slot = static_cast<uint32_t>(places_.size());
  places_.push_back({.node = node, .device_class = device_class});
  slots_of_node_[node].push_back(slot);
  return slot;
}

void FragmentationPlacement::put(uint32_t node, const std::vector<NodeSpace>& spaces) {
  if (node < slots_of_node_.size()) {
    for (const uint32_t slot : slots_of_node_[node]) {
      const bool stays = std::any_of(spaces.begin(), spaces.end(), [&](const NodeSpace& space) {
        return space.device_class == places_[slot].device_class;
      });
      if (stays || !std::exchange(places_[slot].present, false)) continue;
      index_.remove(slot);
    }
  }
  for (const NodeSpace& space : spaces) {
    const uint32_t slot = place_of(node, space.device_class);
    if (std::exchange(places_[slot].present, true) && index_.node(slot) == space) continue;
    index_.put(slot, space);
  }
}

std::optional<FragmentationPlacement::Found> FragmentationPlacement::best(const TaskShape& shape,
                                                                          const Accept& accept) {
  const auto found_at = [&](const FragmentationIndex::Found& found) {
    return Found{.node = places_[found.slot].node,
                 .device_class = places_[found.slot].device_class,
                 .devices = found.devices};
  };
  const auto found = index_.best(
      shape, [&](const FragmentationIndex::Found& candidate) { return accept(found_at(candidate)); });
  if (!found) return std::nullopt;
  return found_at(*found);
}

}  // namespace gpusched::policy
