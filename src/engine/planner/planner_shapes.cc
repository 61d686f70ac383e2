#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "engine/planner/plan_slice.h"
#include "engine/planner/planner.h"
#include "model/topology.h"

// Classes that want the same are blocked together, whoever asks: when something is freed, the first in the
// queue's order of those that it fits is looked at, then the next while there is room. So a change costs the
// same however many wait, and the facts about nodes are kept up with what changed on them.
namespace gpusched {
namespace {

/// Shapes without users that are kept in case somebody wants the same again.
constexpr std::size_t kUnusedShapesMax = 64;
/// How long the log of changed nodes gets before its older half is forgotten.
constexpr std::size_t kLogMin = 4096;
/// Missed changes after which the facts about nodes are brought up to date, though nobody asks for them yet.
constexpr uint64_t kBehindMax = 128;
/// More freed nodes than this, and trying every shape once is cheaper than asking each node.
constexpr std::size_t kFreedNodesMax = 64;

/// Checks of a node by their number, which is the stage in the census of a node that fails there first.
constexpr std::size_t kReadyCheck = 5;
constexpr std::size_t kServiceCheck = 6;
constexpr std::size_t kBookedCheck = 7;
constexpr std::size_t kSoundCheck = 8;
constexpr std::size_t kCoolCheck = 9;

/// Puts the obstacle that alone keeps the job from some node in the place of another one. The first check
/// that a node does not pass need not be the only one: a hot GPU on a busy node hides a drained node with
/// room. `count_but_for` gives the nodes on which the job could start if only that check were passed.
void name_only_obstacle(WaitReason& reason, const std::function<int64_t(std::size_t check)>& count_but_for) {
  constexpr std::pair<WaitCode, std::size_t> kObstacles[] = {{WaitCode::kDevicesHot, kCoolCheck},
                                                             {WaitCode::kNodesHeld, kServiceCheck},
                                                             {WaitCode::kGpusUnhealthy, kSoundCheck},
                                                             {WaitCode::kNodesUnreachable, kReadyCheck}};
  const auto* const named =
      std::ranges::find(kObstacles, reason.code, [](const auto& one) { return one.first; });
  const int64_t held = count_but_for(kServiceCheck);
  if (reason.code != WaitCode::kNodesHeld) reason.nodes_held = held;
  if (named == std::end(kObstacles) || count_but_for(named->second) > 0) return;
  for (const auto& [code, check] : kObstacles) {
    const int64_t nodes = count_but_for(check);
    if (nodes == 0) continue;
    reason.code = code;
    reason.nodes_held = held;
    if (code == WaitCode::kNodesUnreachable) reason.nodes_away = nodes;
    return;
  }
}

/// Why no node of the job's reservation could run it, whatever else ends; nothing: one could. `stages` has
/// for each node, by its slot, how many checks it passes.
std::optional<WaitCode> outgrown_booking(const State& state, const Part& part,
                                         const std::vector<uint8_t>& stages) {
  const Booking* own = state.find_booking(BookingId{part.booking});
  if (own == nullptr) return std::nullopt;
  std::size_t most = 0;
  for (const NodeId id : own->nodes) {
    const Node* node = state.find_node(id);
    if (node != nullptr && node->slot < stages.size()) most = std::max<std::size_t>(most, stages[node->slot]);
  }
  constexpr WaitCode kCodes[] = {WaitCode::kNoFeature, WaitCode::kNoLabels, WaitCode::kNoMatchingGpu,
                                 WaitCode::kNoSuchLayout, WaitCode::kTooLarge};
  if (most >= std::size(kCodes)) return std::nullopt;
  return kCodes[most];
}

uint64_t hash_of(const std::vector<Part>& parts) {
  Digest digest;
  for (const Part& part : parts) mix_fields(digest, part);
  return digest.value();
}

}  // namespace

void Planner::reset_shapes() {
  shapes_.clear();
  shape_by_hash_.clear();
  free_shapes_.clear();
  unused_shapes_.clear();
  changed_log_.clear();
  changed_begin_ = 1;
  relabeled_log_.clear();
  relabeled_begin_ = 1;
}

uint32_t Planner::acquire_shape(const State& state, uint32_t job_class) {
  const std::vector<Part>& parts = state.classes[job_class].parts;
  const uint64_t hash = hash_of(parts);
  const auto known = shape_by_hash_.find(hash);
  if (known != shape_by_hash_.end() && shapes_[known->second].parts == parts) {
    const uint32_t index = known->second;
    if (shapes_[index].users++ == 0) std::erase(unused_shapes_, index);
    return index;
  }
  uint32_t index = static_cast<uint32_t>(shapes_.size());
  if (free_shapes_.empty()) {
    shapes_.emplace_back();
  } else {
    index = free_shapes_.back();
    free_shapes_.pop_back();
  }
  Shape& shape = shapes_[index];
  shape.parts = parts;
  if (is_gang(parts)) shape.gang = gang_of(parts);
  shape.hash = hash;
  shape.users = 1;
  shape_by_hash_[hash] = index;
  return index;
}

void Planner::release_shape(uint32_t index) {
  Shape& shape = shapes_[index];
  CHECK(shape.users > 0);
  if (--shape.users > 0) return;
  CHECK(shape.blocked.empty());
  CHECK(shape.kept.empty());
  unused_shapes_.push_back(index);
  if (unused_shapes_.size() <= kUnusedShapesMax) return;
  const uint32_t oldest = unused_shapes_.front();
  unused_shapes_.erase(unused_shapes_.begin());
  const auto known = shape_by_hash_.find(shapes_[oldest].hash);
  if (known != shape_by_hash_.end() && known->second == oldest) shape_by_hash_.erase(known);
  shapes_[oldest] = Shape();
  free_shapes_.push_back(oldest);
}

void Planner::note_node(uint32_t slot) {
  changed_log_.push_back(slot);
  if (changed_log_.size() < std::max(kLogMin, 8 * nodes_.size())) return;
  const std::size_t half = changed_log_.size() / 2;
  changed_log_.erase(changed_log_.begin(), changed_log_.begin() + static_cast<std::ptrdiff_t>(half));
  changed_begin_ += half;
}

// Whether catching up is work that is better done in pieces.
bool Planner::is_far_behind(uint64_t known) const {
  return changed_begin_ + changed_log_.size() - known > kBehindMax;
}

void Planner::count_node(const State& state, Shape& shape, uint32_t slot) {
  const Part& part = shape.parts.front();
  const Node& node = state.nodes[slot];
  const NodeInfo& now = nodes_[slot];
  int count_all = 0;
  int count_sound = 0;
  int count_healthy = 0;
  int count_free = 0;
  const bool excluded = shape.excluded.test(slot);
  bool could_satisfy_layout = !part.is_arranged();
  bool lies_free = could_satisfy_layout;
  for (const auto& [kind, mask] : now.class_masks) {
    if (((shape.device_classes >> kind) & 1) == 0) continue;
    count_all = std::max(count_all, std::popcount(mask));
    uint64_t usable = mask & now.free_mask;
    if (part.is_share()) usable |= shared_with_room(state, slot, part, mask);
    count_free = std::max(count_free, std::popcount(usable));
    count_sound = std::max(count_sound, std::popcount(mask & now.sound_mask));
    count_healthy = std::max(count_healthy, std::popcount(mask & now.healthy_mask));
    could_satisfy_layout = could_satisfy_layout || satisfy_layout(state, slot, part, mask);
    lies_free = lies_free || satisfy_layout(state, slot, part, usable);
  }
  const bool passes[Census::kStages - 1] = {
      node.offers_features(part),
      !excluded || (!part.wishes()->device_uuids.empty() && place_allows(node, *part.wishes())),
      count_all >= part.gpu_count,
      could_satisfy_layout,
      node.cpu_milli >= part.cpu_milli && node.memory_mb >= part.memory_mb,
      node.state == NodeState::kReady && now.present,
      node.availability == Availability::kInService,
      node.booked_by == part.booking,
      count_sound >= part.gpu_count,
      count_healthy >= part.gpu_count,
      !now.exclusive && !(part.is_exclusive() && is_busy(state, slot)),
      count_free >= part.gpu_count,
      lies_free,
      now.cpu_milli_free >= part.cpu_milli,
      now.memory_mb_free >= part.memory_mb};
  const auto stage = static_cast<uint8_t>(std::find(std::begin(passes), std::end(passes), false) - passes);
  Census& census = shape.census;
  if (slot < census.stage.size() && census.stage[slot] != UINT8_MAX) {
    --census.count[census.stage[slot]];
    --census.free_count[census.free[slot]];
  }
  // Free devices are evidence on healthy nodes only.
  const auto free = static_cast<uint8_t>(stage >= 11 ? count_free : 0);
  census.stage[slot] = stage;
  census.free[slot] = free;
  ++census.count[stage];
  ++census.free_count[free];
}

void Planner::refresh_census(const State& state, Shape& shape) {
  refresh_device_classes(state, shape);
  shape.census.stage.resize(nodes_.size(), UINT8_MAX);
  shape.census.free.resize(nodes_.size(), 0);
  catch_up(shape.census.known, [&](uint32_t slot) { count_node(state, shape, slot); });
}

// Each node's, whatever is reserved there.
void Planner::refresh_starts(const State& state, Shape& shape) {
  refresh_device_classes(state, shape);
  shape.starts.of_node.resize(nodes_.size(), kNever);
  catch_up(shape.starts.known, [&](uint32_t slot) {
    const std::optional<Reservation> found = start_of_shape(state, shape, slot);
    const Time start = found.has_value() ? found->start : kNever;
    Time& known = shape.starts.of_node[slot];
    if (start == known) return;
    if (known != kNever) shape.starts.order.erase({known, slot});
    if (start != kNever) shape.starts.order.insert({start, slot});
    known = start;
  });
}

// The earliest start of the class's first job, on a node that no other reservation is on. A start that was
// found for a node holds until something on it changes or was to end by now.
std::optional<Planner::Reservation> Planner::earliest_start(const State& state, uint32_t job_class) {
  Shape& shape = shape_of(job_class);
  refresh_starts(state, shape);
  Starts& starts = shape.starts;
  std::size_t looks = 0;
  for (auto at = starts.order.begin(); at != starts.order.end() && looks <= nodes_.size(); ++looks) {
    const auto [start, slot] = *at;
    ++slice_.visits;
    const Reservation* own = reservation_of(job_class);
    if (is_reserved(slot) && (own == nullptr || own->on(slot) == nullptr)) {
      ++at;
      continue;
    }
    Candidate head{.job = info(job_class).head.job, .job_class = job_class};
    if (nodes_[slot].booked && meets_booking(state, head, slot)) {
      ++at;
      continue;
    }
    std::optional<Reservation> found = start_of_shape(state, shape, slot);
    const Time now_found = found.has_value() ? found->start : kNever;
    if (now_found == start) {
      begin_by_limits(*found, job_class);
      if (nodes_[slot].booked &&
          runs_into_booking(*policies_.run_times, state, state.job_at(head.job), slot, found->start, now_)) {
        ++at;
        continue;
      }
      found->job_class = job_class;
      return found;
    }
    starts.order.erase(at);
    if (now_found != kNever) starts.order.insert({now_found, slot});
    starts.of_node[slot] = now_found;
    at = starts.order.begin();
  }
  return std::nullopt;
}

void Planner::lift(const State& state, uint32_t index) {
  Shape& shape = shapes_[index];
  shape.tries = limits::kPassTriesMax;
  for (const auto& [key, job_class] : shape.kept) {
    info(job_class).kept = false;
    shape.blocked.insert({key, job_class});
  }
  shape.kept.clear();
  lift_next(state, index);
}

// While the shape's round lasts, its first blocked class is among those that are ready.
void Planner::lift_next(const State& state, uint32_t index) {
  const Shape& shape = shapes_[index];
  if (shape.tries == 0 || shape.blocked.empty()) return;
  make_ready(state, shape.blocked.begin()->second);
}

void Planner::unblock_shapes(const State& state) {
  const bool all = unblock_all_ || freed_nodes_.size() > kFreedNodesMax;
  for (uint32_t index = 0; index < shapes_.size(); ++index) {
    const Shape& shape = shapes_[index];
    if (shape.blocked.empty() && shape.kept.empty()) continue;
    const bool fits = all || std::any_of(freed_nodes_.begin(), freed_nodes_.end(),
                                         [&](uint32_t slot) { return fits_node(state, index, slot); });
    if (fits) lift(state, index);
  }
}

// Gives a class's reason to all others of its shape, which the same keeps from all nodes. The number of free
// devices may change with every end, and is told only to those that are looked at.
void Planner::share_reason(uint32_t index, const WaitReason& reason) {
  Shape& shape = shapes_[index];
  const bool same = shape.reason.code == reason.code && shape.reason.nodes_fitting == reason.nodes_fitting &&
                    shape.reason.nodes_held == reason.nodes_held &&
                    shape.reason.nodes_away == reason.nodes_away;
  shape.tries = 0;
  if (same && !shape.mixed) return;
  shape.reason = reason;
  shape.mixed = false;
  const auto tell = [&](const Waiting& waiting) {
    for (const auto& [key, job_class] : waiting) {
      WaitReason own = reason;
      own.start = info(job_class).reason.start;
      set_reason(job_class, own);
    }
  };
  tell(shape.blocked);
  tell(shape.kept);
}

// Nodes on which a job of the shape could start now if only the check `stage`, the first that they do not
// pass, were passed. Not for gangs.
int64_t Planner::count_but_for(const State& state, const Shape& shape, std::size_t stage) {
  if (shape.census.count[stage] == 0 || shape.gang.has_value()) return 0;
  const Part& part = shape.parts.front();
  const auto starts_on = [&](uint32_t slot, const Node& node) {
    if (stage < kServiceCheck && node.availability != Availability::kInService) return false;
    if (stage < kBookedCheck && node.booked_by != part.booking) return false;
    if (node.cpu_milli - node.cpu_milli_used < part.cpu_milli) return false;
    if (node.memory_mb - node.memory_mb_used < part.memory_mb) return false;
    if (node.exclusive_count > 0 || (part.is_exclusive() && is_busy(state, slot))) return false;
    if (node.attempts.size() >= limits::kAttemptsPerNodeMax) return false;
    if (part.gpu_count == 0) return true;
    for (const auto& [kind, mask] : nodes_[slot].class_masks) {
      if (((shape.device_classes >> kind) & 1) == 0) continue;
      uint64_t usable = part.is_share() ? shared_with_room(state, slot, part, mask) : 0;
      for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
        const Device& device = node.devices[static_cast<std::size_t>(std::countr_zero(rest))];
        const bool fit = (device.sound() || stage == kSoundCheck) && (!device.hot || stage == kCoolCheck);
        const bool free = device.state == DeviceState::kFree && !device.promised_to.valid();
        if (fit && free) usable |= rest & (~rest + 1);
      }
      if (std::popcount(usable) >= part.gpu_count && satisfy_layout(state, slot, part, usable)) return true;
    }
    return false;
  };
  int64_t found = 0;
  for (uint32_t slot = 0; slot < shape.census.stage.size(); ++slot) {
    if (shape.census.stage[slot] == stage && starts_on(slot, state.nodes[slot])) ++found;
  }
  return found;
}

WaitReason Planner::explain_refusal(const State& state, uint32_t job_class) {
  Shape& shape = shape_of(job_class);
  refresh_census(state, shape);
  WaitReason reason{.wanted = shape.parts.front()};
  // How many nodes pass so many checks or more.
  int64_t at_least[Census::kStages] = {};
  int64_t sum = 0;
  for (std::size_t stage = Census::kStages; stage-- > 0;) at_least[stage] = sum += shape.census.count[stage];
  const int64_t with_labels = at_least[2];
  const int64_t with_devices = at_least[3];
  const int64_t with_layout = at_least[4];
  const int64_t ready = at_least[6];
  const int64_t in_service = at_least[7];
  const int64_t booked = in_service - at_least[8];
  const int64_t sound = at_least[9];
  const int64_t healthy = at_least[10];
  const int64_t not_taken = at_least[11];
  const int64_t with_free = at_least[12];
  const int64_t with_free_layout = at_least[13];
  const int64_t with_cpu = at_least[14];
  const int64_t with_memory = at_least[15];
  reason.nodes_fitting = at_least[5];
  for (std::size_t free = shape.census.free_count.size(); free-- > 1;) {
    if (shape.census.free_count[free] == 0) continue;
    reason.gpus_free_max = static_cast<int64_t>(free);
    break;
  }
  if (state.node_count() == 0) {
    reason.code = WaitCode::kNoNode;
  } else if (at_least[1] == 0) {
    reason.code = WaitCode::kNoFeature;
  } else if (with_labels == 0) {
    reason.code = WaitCode::kNoLabels;
  } else if (with_devices == 0) {
    reason.code = WaitCode::kNoMatchingGpu;
  } else if (with_layout == 0) {
    reason.code = WaitCode::kNoSuchLayout;
  } else if (reason.nodes_fitting == 0) {
    reason.code = WaitCode::kTooLarge;
  } else if (ready == 0) {
    reason.code = WaitCode::kNodesUnreachable;
  } else if (in_service == 0) {
    reason.code = WaitCode::kNodesHeld;
  } else if (in_service == booked) {
    reason.code = WaitCode::kReservedForOthers;
    const Booking* own = state.find_booking(BookingId{shape.parts.front().booking});
    if (own != nullptr) reason.reserved_start = own->begin;
    reason.booking = shape.parts.front().booking;
    reason.booking_over = reason.booking != 0 && own == nullptr;
  } else if (sound == 0) {
    reason.code = WaitCode::kGpusUnhealthy;
  } else if (healthy == 0) {
    reason.code = WaitCode::kDevicesHot;
  } else if (not_taken == 0) {
    reason.code = WaitCode::kNodesTaken;
  } else if (with_free == 0) {
    reason.code = WaitCode::kGpusBusy;
  } else if (with_free_layout == 0) {
    reason.code = WaitCode::kLayoutUnavailable;
  } else if (with_cpu == 0) {
    reason.code = WaitCode::kCpuBusy;
  } else if (with_memory == 0) {
    reason.code = WaitCode::kMemoryBusy;
  } else {
    reason.code = WaitCode::kNodeFull;
  }
  if (is_short_of_room(reason.code)) reason.nodes_fitting = in_service - booked;
  if (const std::optional<WaitCode> never =
          outgrown_booking(state, shape.parts.front(), shape.census.stage)) {
    reason.code = *never;
    reason.of_booking = true;
    return reason;
  }
  name_only_obstacle(reason, [&](std::size_t stage) { return count_but_for(state, shape, stage); });
  return reason;
}

}  // namespace gpusched
