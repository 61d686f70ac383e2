#include "forecast/move_places.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "base/bits.h"
#include "base/check.h"
#include "base/limits.h"
#include "engine/policy/devices/device_choice.h"
#include "model/topology.h"

namespace gpusched::forecast {

Places::Places(const World& world) : world_(world) {
  const State& state = world.state();
  rooms_.resize(state.nodes.size());
  for (const Node& node : state.nodes) {
    Room& room = rooms_[node.slot];
    room.open = node.in_service() && node.exclusive_count == 0;
    room.cpu_milli = node.cpu_milli - node.cpu_milli_used;
    room.memory_mb = node.memory_mb - node.memory_mb_used;
    room.attempts = static_cast<int64_t>(limits::kAttemptsPerNodeMax) -
                    static_cast<int64_t>(node.attempts.size()) - node.promised_count;
    for (std::size_t i = 0; i < node.devices.size(); ++i) {
      const uint32_t kind = node.devices[i].device_class;
      const uint64_t bit = node.free_mask & (uint64_t{1} << i);
      const auto at = std::find_if(room.free.begin(), room.free.end(),
                                   [&](const auto& entry) { return entry.first == kind; });
      if (at == room.free.end()) {
        room.free.emplace_back(kind, bit);
      } else {
        at->second |= bit;
      }
    }
    if (room.free.empty()) room.free.emplace_back(0, 0);  // For jobs without GPUs.
  }
}

bool Places::allows(const Job& job, uint32_t slot) const {
  const State& state = world_.state();
  const Node& node = state.nodes[slot];
  const Part& part = state.class_of(job).parts.front();
  if (!rooms_[slot].open || rooms_[slot].taken) return false;
  if (!node.offers_features(part) || part.booking != node.booked_by) return false;
  const Time booked_from = state.next_booking_of_others(node, BookingId{part.booking});
  if (booked_from != kNever) {
    const bool gone =
        job.max_runtime.ns > 0 && job.max_runtime + limits::kRuntimeSlack < booked_from - world_.now();
    if (!gone) return false;
  }
  if (part.wishes() != nullptr && !place_allows(node, *part.wishes())) return false;
  return !world_.planner().is_kept_from(slot, gains_);
}

bool Places::fits(const Part& part, const Room& room, std::size_t kind) const {
  if (room.attempts < 1 || room.cpu_milli < part.cpu_milli || room.memory_mb < part.memory_mb) return false;
  if (part.gpu_count == 0) return kind == 0;
  const auto& [device_class, mask] = room.free[kind];
  return std::popcount(mask) >= part.gpu_count && world_.state().device_classes[device_class].serves(part);
}

std::vector<Place> Places::others(const Job& job, uint32_t but, Work& work) const {
  const Part& part = world_.state().class_of(job).parts.front();
  std::vector<std::tuple<int, uint32_t, Place>> found;
  if (!work.take(rooms_.size())) return {};
  for (uint32_t slot = 0; slot < rooms_.size(); ++slot) {
    const Room& room = rooms_[slot];
    if (slot == but || !room.open || room.taken) continue;
    for (std::size_t kind = 0; kind < room.free.size(); ++kind) {
      if (!fits(part, room, kind) || !allows(job, slot)) continue;
      const Place place{.slot = slot, .kind = kind};
      int left = 0;
      for (const auto& [device_class, mask] : room.free) left += std::popcount(mask);
      found.emplace_back(left, slot, place);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(std::get<0>(a), std::get<1>(a)) < std::pair(std::get<0>(b), std::get<1>(b));
  });
  std::vector<Place> places;
  for (const auto& [left, slot, place] : found) places.push_back(place);
  return places;
}

uint64_t Places::devices_at(const Part& part, const Place& place) const {
  if (part.gpu_count == 0) return 0;
  const uint64_t free = rooms_[place.slot].free[place.kind].second;
  if (part.gpu_count == 1) return lowest_bits(free, 1);
  const LinkMap links(world_.state().nodes[place.slot]);
  if (links.empty()) return lowest_bits(free, part.gpu_count);
  const uint64_t best = policy::choose_devices(links, free, {.count = part.gpu_count}).mask;
  return best != 0 ? best : lowest_bits(free, part.gpu_count);
}

bool Places::anywhere_else(const Job& job, uint32_t but, Work& work) const {
  return !others(job, but, work).empty();
}

void Places::count(const Part& part, const Place& place, int64_t sign) {
  Room& room = rooms_[place.slot];
  room.cpu_milli += sign * part.cpu_milli;
  room.memory_mb += sign * part.memory_mb;
  room.attempts += sign;
  if (part.gpu_count == 0) return;
  uint64_t& mask = room.free[place.kind].second;
  CHECK(sign < 0 ? (mask & place.mask) == place.mask : (mask & place.mask) == 0);
  mask ^= place.mask;
}

}  // namespace gpusched::forecast
