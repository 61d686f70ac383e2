#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "base/bits.h"
#include "base/check.h"
#include "base/limits.h"
#include "engine/planner/planner.h"
#include "model/topology.h"

namespace gpusched {
namespace {

using policy::NodeView;
using policy::Refusal;

/// How long the log of relabeled nodes gets before its older half is forgotten.
constexpr std::size_t kRelabeledMin = 4096;
/// Thousandths of a device in one bucket of the index of shared ones.
constexpr int64_t kMilliPerBucket = 16;
static_assert(kMilliPerGpu / kMilliPerBucket <= limits::kDevicesPerNodeMax);

uint64_t hash_of_kinds(const std::vector<std::pair<uint32_t, uint64_t>>& class_masks) {
  Digest digest;
  for (const auto& [kind, mask] : class_masks) {
    digest.mix(uint64_t{kind});
    digest.mix(mask);
  }
  return digest.value();
}

uint32_t bucket_of(int64_t milli) { return static_cast<uint32_t>(milli / kMilliPerBucket); }

}  // namespace

// By what the least used of its shared devices of each class has left.
void Planner::index_shared(uint32_t slot) {
  const NodeInfo& node = nodes_[slot];
  for (const auto& [device_class, mask] : node.class_masks) {
    if (slices_.chart(device_class) != nullptr) {
      std::vector<uint32_t> occupancies;
      for (const SharedRoom& room : node.shared) {
        if (node.ready && ((mask >> room.device) & 1) != 0) occupancies.push_back(room.occupancy);
      }
      slices_.put(slot, device_class, occupancies);
      continue;
    }
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

void Planner::index_node(const State& state, uint32_t slot) {
  note_node(slot);
  index_shared(slot);
  put_spaces(state, slot);
  put_task_spaces(state, slot);
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
  copy.exclusive = node.exclusive_count > 0;
  if (copy.build == UINT32_MAX) copy.build = chooser_.add(node);
  for (const auto& [device_class, mask] : copy.class_masks) {
    index_.remove(slot, device_class);
    shared_index_.remove(slot, device_class);
    slices_.put(slot, device_class, {});
  }
  const uint64_t kinds_before = hash_of_kinds(copy.class_masks);
  const bool was_known = !copy.class_masks.empty();
  copy.class_masks.clear();
  slices_.learn(state.device_classes);
  copy.shared.clear();
  copy.sound_mask = 0;
  copy.healthy_mask = 0;
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    const Device& device = node.devices[i];
    const bool sound = device.sound() && device.state != DeviceState::kQuarantined;
    copy.sound_mask |= uint64_t{sound} << i;
    copy.healthy_mask |= uint64_t{sound && !device.hot} << i;
    const uint32_t device_class = device.device_class;
    if (device.state == DeviceState::kShared && device.takes_shares() && !device.promised_to.valid()) {
      const mig::Chart* chart = slices_.chart(device_class);
      copy.shared.push_back(
          {.device = static_cast<uint32_t>(i),
           .milli = device.milli_left(),
           .memory_mb = device.memory_mb_left(),
           .occupancy = chart == nullptr ? 0 : mig::occupancy_of(device.slices(chart->table()))});
    }
    auto it = std::find_if(copy.class_masks.begin(), copy.class_masks.end(),
                           [&](const auto& entry) { return entry.first == device_class; });
    if (it == copy.class_masks.end()) it = copy.class_masks.insert(it, {device_class, 0});
    it->second |= uint64_t{1} << i;
  }
  // A device that was switched to MIG mode, or out of it, became another one when it was free.
  if (was_known && kinds_before != hash_of_kinds(copy.class_masks)) relabeled_log_.push_back(slot);
  index_node(state, slot);
  count_capacity(node, copy);
  copy.first_release = {};
  refresh_weakest(state, slot);
}

void Planner::refresh_device_classes(const State& state, Shape& entry) {
  const Part& part = entry.parts.front();
  for (; entry.device_classes_known < state.device_classes.size(); ++entry.device_classes_known) {
    if (entry.device_classes_known == 0) entry.device_classes = 0;
    const DeviceClass& kind = state.device_classes[entry.device_classes_known];
    if (!kind.serves(part)) continue;
    const uint64_t bit = uint64_t{1} << entry.device_classes_known;
    entry.device_classes |= bit;
    if (part.wishes() == nullptr || part.wishes()->gpu_models.empty()) continue;
    entry.by_model.resize(part.wishes()->gpu_models.size());
    entry.by_model[kind.rank_for(part)] |= bit;
  }
  refresh_excluded(state, entry);
}

void Planner::note_relabeled(uint32_t slot) {
  if (slot < nodes_.size()) nodes_[slot].build = UINT32_MAX;  // To be looked at again.
  relabeled_log_.push_back(slot);
  if (relabeled_log_.size() < std::max<std::size_t>(kRelabeledMin, 8 * nodes_.size())) return;
  const std::size_t half = relabeled_log_.size() / 2;
  relabeled_log_.erase(relabeled_log_.begin(), relabeled_log_.begin() + static_cast<std::ptrdiff_t>(half));
  relabeled_begin_ += half;
}

// Facts that change only with a node's labels or devices are kept for each shape, one bit a node: no name is
// compared when nodes are looked at for a job.
void Planner::refresh_excluded(const State& state, Shape& shape) {
  const Part& part = shape.parts.front();
  const PlaceRequest* wishes = part.wishes();
  const bool chooses = wishes != nullptr && (!wishes->labels.empty() || !wishes->without_labels.empty() ||
                                             !wishes->device_uuids.empty() || !wishes->avoided.empty());
  const bool linked = part.gpu_count > 1 && chooser_.knows_any();
  const uint64_t end = relabeled_begin_ + relabeled_log_.size();
  if ((!chooses && !linked) || shape.excluded_known == end) return;
  const auto look = [&](uint32_t slot) {
    const Node& node = state.nodes[slot];
    const bool never = chooses && (!place_allows(node, *wishes) ||
                                   (!wishes->device_uuids.empty() && named_devices(node, *wishes) == 0));
    if (never) {
      shape.excluded.set(slot);
    } else {
      shape.excluded.clear(slot);
    }
    if (linked) count_links(state, shape, slot);
  };
  const bool all = shape.excluded_known < relabeled_begin_ || end - shape.excluded_known > nodes_.size();
  slice_.visits += all ? nodes_.size() : end - shape.excluded_known;
  if (all) {
    for (uint32_t slot = 0; slot < nodes_.size(); ++slot) look(slot);
  } else {
    for (uint64_t at = shape.excluded_known; at < end; ++at) look(relabeled_log_[at - relabeled_begin_]);
  }
  shape.excluded_known = end;
}

void Planner::count_links(const State& state, Shape& shape, uint32_t slot) {
  const NodeInfo& copy = nodes_[slot];
  const Part& part = shape.parts.front();
  int64_t best = 0;
  const bool known = copy.build != 0 && copy.build != UINT32_MAX && !shape.excluded.test(slot);
  for (const auto& [kind, mask] : copy.class_masks) {
    if (!known || ((shape.device_classes >> kind) & 1) == 0) continue;
    best = std::max(best, chooser_.choose(copy.build, mask, wish_of(state.nodes[slot], part)).weakest);
  }
  shape.links_of.resize(nodes_.size(), 0);
  int64_t& now = shape.links_of[slot];
  if (now == best) return;
  if (const auto before = shape.links_count.find(now); before != shape.links_count.end()) {
    if (--before->second == 0) shape.links_count.erase(before);
  }
  if (best > 0) ++shape.links_count[best];
  now = best;
}

policy::DeviceWish Planner::wish_of(const Node& node, const Part& part) {
  policy::DeviceWish wish{.count = part.gpu_count};
  const PlaceRequest* wishes = part.wishes();
  if (wishes == nullptr) return wish;
  wish.layout = wishes->layout;
  wish.bandwidth_min = wishes->bandwidth_min;
  if (!wishes->names_devices()) return wish;
  wish.named = named_devices(node, *wishes);
  if (wish.named == 0) wish.count = 0;  // It does not have them.
  return wish;
}

bool Planner::satisfy_layout(const State& state, uint32_t slot, const Part& part, uint64_t mask) {
  if (!part.is_arranged()) return true;
  const uint32_t build = nodes_[slot].build == UINT32_MAX ? 0 : nodes_[slot].build;
  return chooser_.choose(build, mask, wish_of(state.nodes[slot], part)).mask != 0;
}

uint64_t Planner::shared_with_room(const State& state, uint32_t slot, const Part& part, uint64_t mask) const {
  uint64_t with_room = 0;
  for (const SharedRoom& room : nodes_[slot].shared) {
    if (((mask >> room.device) & 1) == 0 || room.milli < part.gpu_milli) continue;
    if (part.is_slice()) {
      const mig::Chart& chart = *slices_.chart(state.nodes[slot].devices[room.device].device_class);
      const bool fits = chart.spot(chart.index_of(part.mig_profile), room.occupancy).start >= 0;
      with_room |= uint64_t{fits} << room.device;
      continue;
    }
    const int64_t memory_mb = part.share_mb_of(state.nodes[slot].devices[room.device].memory_mb);
    if (room.memory_mb >= memory_mb) with_room |= uint64_t{1} << room.device;
  }
  return with_room;
}

// The tightest of the shared devices, else of the free ones those that lie best.
policy::DeviceChoice Planner::pick_devices(const NodeView& view, uint32_t slot, const Part& part) {
  if (view.shared_mask == 0) {
    const uint32_t build = nodes_[slot].build;
    const bool plain = build == 0 && part.place.empty();
    if (plain || part.gpu_count == 0) {
      CHECK(std::popcount(view.usable_mask) >= part.gpu_count);
      return {.mask = lowest_bits(view.usable_mask, part.gpu_count)};
    }
    return chooser_.choose(build, view.usable_mask, wish_of(view.node, part));
  }
  const SharedRoom* best = nullptr;
  for (const SharedRoom& room : nodes_[slot].shared) {
    if (((view.shared_mask >> room.device) & 1) == 0) continue;
    const bool tighter =
        best == nullptr ||
        (part.is_slice() ? slice_rank(view.node, room, part) < slice_rank(view.node, *best, part)
                         : std::pair(room.milli, room.memory_mb) < std::pair(best->milli, best->memory_mb));
    if (tighter) best = &room;
  }
  return {.mask = uint64_t{1} << best->device};
}

int64_t Planner::slice_rank(const Node& node, const SharedRoom& room, const Part& part) const {
  const mig::Chart& chart = *slices_.chart(node.devices[room.device].device_class);
  return chart.rank(chart.index_of(part.mig_profile), room.occupancy);
}

int32_t Planner::slice_start(const State& state, uint32_t slot, const Part& part, uint64_t mask) const {
  if (!part.is_slice()) return 0;
  const auto device = static_cast<uint32_t>(std::countr_zero(mask));
  const std::vector<SharedRoom>& rooms = nodes_[slot].shared;
  const auto room = std::find_if(rooms.begin(), rooms.end(),
                                 [&](const SharedRoom& other) { return other.device == device; });
  const mig::Chart& chart = *slices_.chart(state.nodes[slot].devices[device].device_class);
  const uint32_t occupancy = room == rooms.end() ? 0 : room->occupancy;
  const int32_t start = chart.spot(chart.index_of(part.mig_profile), occupancy).start;
  CHECK(start >= 0);
  return start;
}

// Devices that a placement takes are gone for the rest of the slice.
void Planner::take_devices(const State& state, uint32_t slot, const Part& part, uint64_t mask,
                           int32_t start) {
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
  at->memory_mb -= state.device_classes[device.device_class].share_mb_of(part, device.memory_mb);
  if (const mig::Chart* chart = slices_.chart(device.device_class)) {
    const mig::Profile& profile = chart->table().profiles[chart->index_of(part.mig_profile)];
    at->occupancy = mig::occupancy_with(at->occupancy, {.profile = &profile, .start = start});
  }
}

NodeView Planner::view_of(const State& state, uint32_t slot, uint32_t device_class, const Part& part) const {
  const NodeInfo& node = nodes_[slot];
  NodeView view{.node = state.nodes[slot],
                .cpu_milli_free = node.cpu_milli_free,
                .memory_mb_free = node.memory_mb_free,
                .free_mask = node.free_mask,
                .usable_mask = 0,
                .shared_mask = 0,
                .attempt_count = node.attempt_count,
                .exclusive = node.exclusive,
                .busy = part.is_exclusive() && is_busy(state, slot)};
  for (const auto& [kind, mask] : node.class_masks) {
    if (kind != device_class) continue;
    if (part.is_share()) view.shared_mask = shared_with_room(state, slot, part, mask);
    view.usable_mask = view.shared_mask | (mask & node.free_mask);
  }
  return view;
}

bool Planner::is_busy(const State& state, uint32_t slot) const {
  return nodes_[slot].attempt_count > 0 || !runs_nothing_but(state.nodes[slot], 0);
}

bool Planner::passes(const State& state, uint32_t slot, uint32_t device_class, const Part& part) {
  const NodeView view = view_of(state, slot, device_class, part);
  return std::all_of(policies_.filters.begin(), policies_.filters.end(),
                     [&](const auto& filter) { return filter->check(part, view) == Refusal::kNone; }) &&
         (part.place.empty() || satisfy_layout(state, slot, part, view.usable_mask));
}

// By its limit, not by what it is expected to need: nobody is ended when a booking begins.
bool Planner::meets_booking(const State& state, Candidate& candidate, uint32_t slot) const {
  const Node& node = state.nodes[slot];
  const Job* job = state.jobs.find(candidate.job);
  CHECK(job != nullptr);
  const BookingId own{state.class_of(*job).parts.front().booking};
  const Time next = state.next_booking_of_others(node, own);
  if (next == kNever) return false;
  const Duration longest = job->max_runtime.ns > 0
                               ? job->max_runtime + limits::kRuntimeSlack
                               : policies_.run_times->of_running(state, *job, Duration{}, now_);
  if (longest < next - now_) return false;
  candidate.booked_from = candidate.booked_from.valid() ? std::min(candidate.booked_from, next) : next;
  return true;
}

// True if the shape fits the node, without regard to reservations: these are for each job to see.
bool Planner::fits_node(const State& state, uint32_t index, uint32_t slot) {
  if (!nodes_[slot].ready) return false;
  Shape& shape = shapes_[index];
  if (shape.gang.has_value()) return any_member_fits(state, shape, slot);
  const Part& part = shape.parts.front();
  refresh_device_classes(state, shape);
  if (shape.excluded.test(slot)) return false;
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
    ++slice_.visits;
    NodeView view = view_of(state, slot, index_class, part);
    if (shared && view.shared_mask == 0) continue;
    const bool fits =
        std::all_of(policies_.filters.begin(), policies_.filters.end(),
                    [&](const auto& filter) { return filter->check(part, view) == Refusal::kNone; }) &&
        (part.place.empty() || satisfy_layout(state, slot, part, view.usable_mask));
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
    if (part.gpu_count > 1 && nodes_[slot].build != 0) view.link_gbs = pick_devices(view, slot, part).weakest;
    int32_t total = 0;
    for (const auto& score : policies_.scores) total += score->score(part, view).value;
    if (best.node == Bitmap::kNone || total > best.score.value) {
      best = Choice{.node = slot,
                    .device_mask = pick_devices(view, slot, part).mask,
                    .device_class = index_class,
                    .score = {total},
                    .link_gbs = view.link_gbs};
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
  if (!nodes_[slot].ready || entry.excluded.test(slot)) return best;
  const auto look = [&](uint32_t device_class) {
    if (best.node != Bitmap::kNone || !passes(state, slot, device_class, part)) return;
    if (delayed_by(state, candidate, slot, part, device_class) != nullptr) return;
    if (nodes_[slot].booked && meets_booking(state, candidate, slot)) return;
    const NodeView view = view_of(state, slot, device_class, part);
    best = Choice{.node = slot,
                  .device_mask = pick_devices(view, slot, part).mask,
                  .device_class = device_class,
                  .score = {}};
  };
  ++slice_.visits;
  if (part.gpu_count == 0) look(FreeIndex::kNoDevices);
  const auto look_among = [&](uint64_t device_classes) {
    for (const auto& [kind, mask] : nodes_[slot].class_masks) {
      if (part.gpu_count > 0 && ((device_classes >> kind) & 1) != 0) look(kind);
    }
  };
  const uint64_t within = part.gpu_count > 0 ? affordable(state, candidate) : 0;
  for (const uint64_t liked : entry.by_model) look_among(liked & within);
  look_among(entry.device_classes & within);
  return best;
}

// The least that is left of a shared device that is still enough.
Planner::Choice Planner::choose_shared(const State& state, Candidate& candidate, uint64_t device_classes) {
  const Part& part = shape_of(candidate.job_class).parts.front();
  uint32_t most = 0;
  for (uint64_t rest = device_classes; rest != 0; rest &= rest - 1) {
    most = std::max(most, shared_index_.free_max(static_cast<uint32_t>(std::countr_zero(rest))));
  }
  Choice best;
  for (uint32_t left = bucket_of(part.gpu_milli); left <= most; ++left) {
    uint32_t rated = 0;
    for (uint64_t rest = device_classes; rest != 0; rest &= rest - 1) {
      const auto device_class = static_cast<uint32_t>(std::countr_zero(rest));
      rated +=
          scan_bucket(state, candidate, device_class, shared_index_.bucket(device_class, left), true, best);
    }
    if (rated > 0) return best;
  }
  return best;
}

// Chooses the slice on the cut GPU where least is lost; several kinds are treated as one.
Planner::Choice Planner::choose_slice(const State& state, Candidate& candidate, uint64_t device_classes) {
  const Part& part = shape_of(candidate.job_class).parts.front();
  struct Next {
    int64_t rank = 0;
    std::size_t place = 0;  ///< Among equal ones the first wins.
    uint32_t device_class = 0;
    uint32_t occupancy = 0;
  };
  std::vector<Next> order;
  for (uint64_t rest = device_classes; rest != 0; rest &= rest - 1) {
    const auto device_class = static_cast<uint32_t>(std::countr_zero(rest));
    const mig::Chart* chart = slices_.chart(device_class);
    if (chart == nullptr) continue;  // No node that was looked at has one.
    const uint32_t profile = chart->index_of(part.mig_profile);
    for (const uint16_t occupancy : chart->open_ones(profile)) {
      if (!slices_.any(device_class, occupancy)) continue;
      order.push_back({chart->rank(profile, occupancy), order.size(), device_class, occupancy});
    }
  }
  const bool several = (device_classes & (device_classes - 1)) != 0;
  if (several)
    std::sort(order.begin(), order.end(), [](const Next& a, const Next& b) {
      return std::tie(a.rank, a.place) < std::tie(b.rank, b.place);
    });
  Choice best;
  for (const Next& next : order) {
    const Bitmap& bucket = slices_.nodes(next.device_class, next.occupancy);
    if (scan_bucket(state, candidate, next.device_class, bucket, true, best) > 0) break;
  }
  return best;
}

// Best fit: the tightest bucket that holds a node which passes, the best score within it. Where devices are
// known to be linked better elsewhere, looser buckets are looked at too.
Planner::Choice Planner::choose_among(const State& state, Candidate& candidate, uint64_t device_classes) {
  const Shape& entry = shape_of(candidate.job_class);
  const Part& part = entry.parts.front();
  Choice best;
  if (part.is_slice()) {
    best = choose_slice(state, candidate, device_classes);
  } else if (part.is_share()) {
    best = choose_shared(state, candidate, device_classes);
  }
  if (best.node != Bitmap::kNone) return best;
  uint32_t free_max = 0;
  for (uint64_t rest = device_classes; rest != 0; rest &= rest - 1) {
    free_max = std::max(free_max, index_.free_max(static_cast<uint32_t>(std::countr_zero(rest))));
  }
  for (auto free = static_cast<uint32_t>(part.gpu_count); free <= free_max; ++free) {
    for (uint64_t rest = device_classes; rest != 0; rest &= rest - 1) {
      const auto device_class = static_cast<uint32_t>(std::countr_zero(rest));
      scan_bucket(state, candidate, device_class, index_.bucket(device_class, free), false, best);
    }
    if (best.node != Bitmap::kNone && best.link_gbs >= entry.links_best()) return best;
  }
  return best;
}

Planner::Choice Planner::choose(const State& state, Candidate& candidate) {
  Shape& entry = shape_of(candidate.job_class);
  const Part& part = entry.parts.front();
  refresh_device_classes(state, entry);
  if (entry.refused_cycle != cycle_) {
    entry.refused = entry.excluded;
    entry.refused_cycle = cycle_;
  }
  const uint64_t within = affordable(state, candidate);
  Choice best;
  if (is_packed(state, candidate, part)) best = choose_packed(state, candidate, within);
  if (best.node != Bitmap::kNone) return best;
  if (fragments_ && within == ~uint64_t{0} && goes_by_fragments(entry))
    best = choose_by_fragments(state, candidate);
  if (best.node != Bitmap::kNone) return best;
  if (part.gpu_count == 0) {
    for (uint32_t free = 0; free <= index_.free_max(FreeIndex::kNoDevices); ++free) {
      const Bitmap& bucket = index_.bucket(FreeIndex::kNoDevices, free);
      if (scan_bucket(state, candidate, FreeIndex::kNoDevices, bucket, false, best) > 0) return best;
    }
    return best;
  }
  if (part.gpu_count > static_cast<int32_t>(limits::kDevicesPerNodeMax)) return best;
  if (entry.by_model.empty()) return choose_among(state, candidate, entry.device_classes & within);
  for (const uint64_t liked : entry.by_model) {
    best = choose_among(state, candidate, liked & within);
    if (best.node != Bitmap::kNone) break;
  }
  return best;
}

}  // namespace gpusched
