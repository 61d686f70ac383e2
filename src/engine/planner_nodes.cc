#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "engine/planner.h"

namespace gpusched {
namespace {

using policy::NodeView;
using policy::Refusal;

uint64_t lowest_bits(uint64_t mask, int count) {
  uint64_t chosen = 0;
  for (; count > 0; --count) {
    CHECK(mask != 0);
    const uint64_t bit = mask & (~mask + 1);
    chosen |= bit;
    mask ^= bit;
  }
  return chosen;
}

/// Thousandths of a device in one bucket of the index of shared ones.
constexpr int64_t kMilliPerBucket = 16;
static_assert(kMilliPerGpu / kMilliPerBucket <= limits::kDevicesPerNodeMax);

uint32_t bucket_of(int64_t milli) { return static_cast<uint32_t>(milli / kMilliPerBucket); }

}  // namespace

// By what the least used of its shared devices of each class has left.
void Planner::index_shared(uint32_t slot) {
  const NodeInfo& node = nodes_[slot];
  for (const auto& [device_class, mask] : node.class_masks) {
    int64_t most = -1;
    for (const SharedRoom& room : node.shared) {
      if (((mask >> room.device) & 1) != 0) most = std::max(most, room.milli);
    }
    if (most >= 0 && node.ready) {
      shared_index_.put(slot, device_class, bucket_of(most));
    } else {
      shared_index_.remove(slot, device_class);
    }
  }
}

void Planner::index_node(uint32_t slot) {
  note_node(slot);
  index_shared(slot);
  const NodeInfo& node = nodes_[slot];
  for (const auto& [device_class, mask] : node.class_masks) {
    if (node.ready) {
      index_.put(slot, device_class, static_cast<uint32_t>(std::popcount(mask & node.free_mask)));
    } else {
      index_.remove(slot, device_class);
    }
  }
  if (node.ready) {
    index_.put(slot, FreeIndex::kNoDevices, static_cast<uint32_t>(std::popcount(node.free_mask)));
  } else {
    index_.remove(slot, FreeIndex::kNoDevices);
  }
}

void Planner::count_capacity(const Node& node, NodeInfo& copy) {
  Amount now;
  if (copy.ready) {
    now = {.gpus = static_cast<int64_t>(node.devices.size()),
           .cpu_milli = node.cpu_milli,
           .memory_mb = node.memory_mb};
    for (const Device& device : node.devices) now.gpu_memory_mb += device.memory_mb;
  }
  capacity_.subtract(copy.capacity_counted);
  capacity_.add(now);
  copy.capacity_counted = now;
}

void Planner::refresh_node(const State& state, uint32_t slot) {
  const Node& node = state.nodes[slot];
  NodeInfo& copy = nodes_[slot];
  if (std::exchange(copy.relabelled, false)) domains_.put(state.config.policy, node);
  copy.dirty = false;
  copy.refreshed = cycle_;
  copy.cpu_milli_free = node.cpu_milli - node.cpu_milli_used;
  copy.memory_mb_free = node.memory_mb - node.memory_mb_used;
  copy.free_mask = node.free_mask;
  copy.attempt_count = static_cast<uint32_t>(node.attempts.size());
  copy.ready = node.in_service() && copy.present;
  const bool booked = node.booked_from != kNever;
  if (booked && !copy.booked) booked_nodes_.push_back(slot);
  if (!booked && copy.booked) std::erase(booked_nodes_, slot);
  copy.booked = booked;
  for (const auto& [device_class, mask] : copy.class_masks) {
    index_.remove(slot, device_class);
    shared_index_.remove(slot, device_class);
  }
  copy.class_masks.clear();
  copy.shared.clear();
  copy.sound_mask = 0;
  copy.healthy_mask = 0;
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    const Device& device = node.devices[i];
    const bool sound = device.sound() && device.state != DeviceState::kQuarantined;
    copy.sound_mask |= uint64_t{sound} << i;
    copy.healthy_mask |= uint64_t{sound && !device.hot} << i;
    if (device.state == DeviceState::kShared && device.fit() && !device.promised_to.valid()) {
      copy.shared.push_back({.device = static_cast<uint32_t>(i),
                             .milli = device.milli_left(),
                             .memory_mb = device.memory_mb_left()});
    }
    const uint32_t device_class = device.device_class;
    auto it = std::find_if(copy.class_masks.begin(), copy.class_masks.end(),
                           [&](const auto& entry) { return entry.first == device_class; });
    if (it == copy.class_masks.end()) it = copy.class_masks.insert(it, {device_class, 0});
    it->second |= uint64_t{1} << i;
  }
  index_node(slot);
  count_capacity(node, copy);
  copy.first_release = {};
  refresh_weakest(state, slot);
}

void Planner::refresh_device_classes(const State& state, Shape& entry) {
  const Part& part = entry.parts.front();
  for (; entry.device_classes_known < state.device_classes.size(); ++entry.device_classes_known) {
    if (entry.device_classes_known == 0) entry.device_classes = 0;
    if (state.device_classes[entry.device_classes_known].serves(part))
      entry.device_classes |= uint64_t{1} << entry.device_classes_known;
  }
}

uint64_t Planner::shared_with_room(const State& state, uint32_t slot, const Part& part, uint64_t mask) const {
  uint64_t with_room = 0;
  for (const SharedRoom& room : nodes_[slot].shared) {
    if (((mask >> room.device) & 1) == 0 || room.milli < part.gpu_milli) continue;
    const int64_t memory_mb = part.share_mb_of(state.nodes[slot].devices[room.device].memory_mb);
    if (room.memory_mb >= memory_mb) with_room |= uint64_t{1} << room.device;
  }
  return with_room;
}

// The tightest of the shared devices, else the first free ones.
uint64_t Planner::pick_devices(const NodeView& view, uint32_t slot, const Part& part) const {
  if (view.shared_mask == 0) return lowest_bits(view.usable_mask, part.gpu_count);
  const SharedRoom* best = nullptr;
  for (const SharedRoom& room : nodes_[slot].shared) {
    if (((view.shared_mask >> room.device) & 1) == 0) continue;
    const bool tighter =
        best == nullptr || std::pair(room.milli, room.memory_mb) < std::pair(best->milli, best->memory_mb);
    if (tighter) best = &room;
  }
  return uint64_t{1} << best->device;
}

// What a placement takes of them is gone for the rest of the slice.
void Planner::take_devices(const State& state, uint32_t slot, const Part& part, uint64_t mask) {
  NodeInfo& node = nodes_[slot];
  if (!part.is_share()) {
    node.free_mask &= ~mask;
    return;
  }
  const auto index = static_cast<uint32_t>(std::countr_zero(mask));
  const Device& device = state.nodes[slot].devices[index];
  auto at = std::lower_bound(node.shared.begin(), node.shared.end(), index,
                             [](const SharedRoom& room, uint32_t other) { return room.device < other; });
  if (at == node.shared.end() || at->device != index) {
    node.free_mask &= ~mask;
    at = node.shared.insert(at,
                            {.device = index, .milli = device.milli_capacity, .memory_mb = device.memory_mb});
  }
  at->milli -= part.gpu_milli;
  at->memory_mb -= part.share_mb_of(device.memory_mb);
}

NodeView Planner::view_of(const State& state, uint32_t slot, uint32_t device_class, const Part& part) const {
  const NodeInfo& node = nodes_[slot];
  NodeView view{.node = state.nodes[slot],
                .cpu_milli_free = node.cpu_milli_free,
                .memory_mb_free = node.memory_mb_free,
                .free_mask = node.free_mask,
                .usable_mask = 0,
                .shared_mask = 0,
                .attempt_count = node.attempt_count};
  for (const auto& [kind, mask] : node.class_masks) {
    if (kind != device_class) continue;
    if (part.is_share()) view.shared_mask = shared_with_room(state, slot, part, mask);
    view.usable_mask = view.shared_mask | (mask & node.free_mask);
  }
  return view;
}

bool Planner::passes(const State& state, uint32_t slot, uint32_t device_class, const Part& part) const {
  const NodeView view = view_of(state, slot, device_class, part);
  return std::all_of(policies_.filters.begin(), policies_.filters.end(),
                     [&](const auto& filter) { return filter->check(part, view) == Refusal::kNone; });
}

// By its limit, not by what it is expected to need: nobody is ended when a booking begins.
bool Planner::meets_booking(const State& state, Candidate& candidate, uint32_t slot) const {
  const Node& node = state.nodes[slot];
  const Job* job = state.jobs.find(candidate.job);
  CHECK(job != nullptr);
  if (state.class_of(*job).parts.front().booking != 0 || node.booked_from == kNever) return false;
  const Duration longest = job->max_runtime.ns > 0
                               ? job->max_runtime + limits::kRuntimeSlack
                               : policies_.run_times->of_running(state, *job, Duration{}, now_);
  if (longest < node.booked_from - now_) return false;
  candidate.booked_from =
      candidate.booked_from.valid() ? std::min(candidate.booked_from, node.booked_from) : node.booked_from;
  return true;
}

// Whatever is reserved there: that is for each job to see.
bool Planner::fits_node(const State& state, uint32_t index, uint32_t slot) {
  if (!nodes_[slot].ready) return false;
  Shape& shape = shapes_[index];
  if (shape.gang.has_value()) return any_member_fits(state, shape, slot);
  const Part& part = shape.parts.front();
  refresh_device_classes(state, shape);
  if (part.gpu_count == 0) return passes(state, slot, FreeIndex::kNoDevices, part);
  for (const auto& [kind, mask] : nodes_[slot].class_masks) {
    if (((shape.device_classes >> kind) & 1) != 0 && passes(state, slot, kind, part)) return true;
  }
  return false;
}

// Looks through one bucket for better nodes than `best`; how many were rated. Where shares of devices are
// looked for that have some already, `shared`, a node that has only free ones is passed by.
uint32_t Planner::scan_bucket(const State& state, Candidate& candidate, uint32_t index_class,
                              const Bitmap& bucket, bool shared, Choice& best) {
  Shape& entry = shape_of(candidate.job_class);
  const Part& part = entry.parts.front();
  uint32_t rated = 0;
  for (uint32_t slot = bucket.next_not_in(entry.refused, 0); slot != Bitmap::kNone;
       slot = bucket.next_not_in(entry.refused, slot + 1)) {
    ++visits_;
    const NodeView view = view_of(state, slot, index_class, part);
    if (shared && view.shared_mask == 0) continue;
    const bool fits =
        std::all_of(policies_.filters.begin(), policies_.filters.end(),
                    [&](const auto& filter) { return filter->check(part, view) == Refusal::kNone; });
    if (!fits) {
      // Within a slice a node only loses. A node of two fitting kinds may still serve with the other.
      if (nodes_[slot].class_masks.size() <= 1 || part.gpu_count == 0) entry.refused.set(slot);
      continue;
    }
    if (nodes_[slot].booked && meets_booking(state, candidate, slot)) continue;
    if (is_reserved(slot)) {
      const Reservation* delayed = delayed_by(state, candidate, slot, part, index_class);
      if (delayed != nullptr) {
        candidate.refused_by = delayed;
        continue;
      }
    }
    int32_t total = 0;
    for (const auto& score : policies_.scores) total += score->score(part, view).value;
    if (best.node == Bitmap::kNone || total > best.score.value) {
      best = Choice{.node = slot,
                    .device_mask = pick_devices(view, slot, part),
                    .device_class = index_class,
                    .score = {total}};
    }
    if (++rated >= limits::kCandidatesMax) break;
  }
  return rated;
}

// The same on one node alone, whatever was refused there before.
Planner::Choice Planner::choose_on(const State& state, Candidate& candidate, uint32_t slot) {
  Shape& entry = shape_of(candidate.job_class);
  const Part& part = entry.parts.front();
  refresh_device_classes(state, entry);
  Choice best;
  if (!nodes_[slot].ready) return best;
  const auto look = [&](uint32_t device_class) {
    if (best.node != Bitmap::kNone || !passes(state, slot, device_class, part)) return;
    if (delayed_by(state, candidate, slot, part, device_class) != nullptr) return;
    if (nodes_[slot].booked && meets_booking(state, candidate, slot)) return;
    const NodeView view = view_of(state, slot, device_class, part);
    best = Choice{.node = slot,
                  .device_mask = pick_devices(view, slot, part),
                  .device_class = device_class,
                  .score = {}};
  };
  ++visits_;
  if (part.gpu_count == 0) look(FreeIndex::kNoDevices);
  for (const auto& [kind, mask] : nodes_[slot].class_masks) {
    if (part.gpu_count > 0 && ((entry.device_classes >> kind) & 1) != 0) look(kind);
  }
  return best;
}

// The least that is left of a shared device that is still enough.
Planner::Choice Planner::choose_shared(const State& state, Candidate& candidate) {
  const Shape& entry = shape_of(candidate.job_class);
  const Part& part = entry.parts.front();
  uint32_t most = 0;
  for (uint64_t rest = entry.device_classes; rest != 0; rest &= rest - 1) {
    most = std::max(most, shared_index_.free_max(static_cast<uint32_t>(std::countr_zero(rest))));
  }
  Choice best;
  for (uint32_t left = bucket_of(part.gpu_milli); left <= most; ++left) {
    uint32_t rated = 0;
    for (uint64_t rest = entry.device_classes; rest != 0; rest &= rest - 1) {
      const auto device_class = static_cast<uint32_t>(std::countr_zero(rest));
      rated +=
          scan_bucket(state, candidate, device_class, shared_index_.bucket(device_class, left), true, best);
    }
    if (rated > 0) return best;
  }
  return best;
}

// Best fit: the tightest bucket that holds a node which passes, the best score within it.
Planner::Choice Planner::choose(const State& state, Candidate& candidate) {
  Shape& entry = shape_of(candidate.job_class);
  if (entry.refused_cycle != cycle_) {
    entry.refused.clear_all();
    entry.refused_cycle = cycle_;
  }
  const Part& part = entry.parts.front();
  refresh_device_classes(state, entry);
  Choice best;
  if (part.gpu_count == 0) {
    for (uint32_t free = 0; free <= index_.free_max(FreeIndex::kNoDevices); ++free) {
      const Bitmap& bucket = index_.bucket(FreeIndex::kNoDevices, free);
      if (scan_bucket(state, candidate, FreeIndex::kNoDevices, bucket, false, best) > 0) return best;
    }
    return best;
  }
  if (part.gpu_count > static_cast<int32_t>(limits::kDevicesPerNodeMax)) return best;
  if (part.is_share()) best = choose_shared(state, candidate);
  if (best.node != Bitmap::kNone) return best;
  uint32_t free_max = 0;
  for (uint64_t rest = entry.device_classes; rest != 0; rest &= rest - 1) {
    free_max = std::max(free_max, index_.free_max(static_cast<uint32_t>(std::countr_zero(rest))));
  }
  for (auto free = static_cast<uint32_t>(part.gpu_count); free <= free_max; ++free) {
    uint32_t rated = 0;
    for (uint64_t rest = entry.device_classes; rest != 0; rest &= rest - 1) {
      const auto device_class = static_cast<uint32_t>(std::countr_zero(rest));
      rated += scan_bucket(state, candidate, device_class, index_.bucket(device_class, free), false, best);
    }
    if (rated > 0) return best;
  }
  return best;
}

}  // namespace gpusched
