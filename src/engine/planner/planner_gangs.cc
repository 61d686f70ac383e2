#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "engine/planner/planner.h"
#include "model/topology.h"

// Jobs of several members: all are placed in one group of the plan, or none. The room of each node is kept up
// with what changes there; where the members go is `gang_fit.h`'s to say.
namespace gpusched {
namespace {

using policy::NodeView;
using policy::Refusal;

/// Cost of a look at all nodes, in looks at a node: they are numbers side by side.
constexpr uint64_t kNodesPerVisit = 16;

std::vector<int32_t> other_counts(const std::vector<Part>& parts, uint32_t main) {
  std::vector<int32_t> counts;
  for (uint32_t i = 0; i < parts.size(); ++i) {
    if (i != main) counts.push_back(parts[i].member_count);
  }
  return counts;
}

/// The part that the i-th other one is.
uint32_t part_of_other(uint32_t index, uint32_t main) { return index < main ? index : index + 1; }

/// Members of each part that a node gets.
struct Take {
  uint32_t slot = 0;
  std::vector<int32_t> counts;
  std::vector<std::vector<uint64_t>> masks;  ///< Devices of each part's members there.
};

/// By slot, from what was chosen for each part.
std::vector<Take> takes_of(const std::vector<const std::vector<GangSpot>*>& spots) {
  std::vector<Take> takes;
  for (const std::vector<GangSpot>* list : spots) {
    for (const GangSpot& spot : *list) takes.push_back({.slot = spot.slot, .counts = {}, .masks = {}});
  }
  std::sort(takes.begin(), takes.end(), [](const Take& a, const Take& b) { return a.slot < b.slot; });
  takes.erase(
      std::unique(takes.begin(), takes.end(), [](const Take& a, const Take& b) { return a.slot == b.slot; }),
      takes.end());
  for (Take& take : takes) {
    take.counts.resize(spots.size(), 0);
    take.masks.resize(spots.size());
  }
  for (std::size_t part = 0; part < spots.size(); ++part) {
    for (const GangSpot& spot : *spots[part]) {
      const auto at = std::lower_bound(takes.begin(), takes.end(), spot.slot,
                                       [](const Take& take, uint32_t slot) { return take.slot < slot; });
      at->counts[part] += spot.members;
    }
  }
  return takes;
}

/// The most members of a part that could run at once on the nodes that the job may use, if these were empty.
int64_t members_when_all_empty(const State& state, const DomainTree& domains, const GangRoom& empty,
                               DomainLevel widest, const Booking* booking) {
  if (booking == nullptr) return empty.most_of(domains, widest);
  int64_t most = 0;
  // From the widest domain on; a node of no named one is a domain by itself.
  for (auto level = static_cast<int>(widest);; --level) {
    std::map<std::string, int64_t> sums;
    for (const NodeId id : booking->nodes) {
      const Node* node = state.find_node(id);
      if (node == nullptr) continue;
      const std::string domain = domain_of(state.config.policy, *node, static_cast<DomainLevel>(level));
      if (domain.empty() && widest != DomainLevel::kAny) continue;
      most = std::max(most, sums[domain] += empty.of_node(node->slot));
    }
    if (level <= static_cast<int>(DomainLevel::kNode)) return most;
  }
}

/// Nodes that may each have one member of any part; of `booking` alone, if there is one.
int64_t nodes_for_any(const State& state, const std::vector<GangRoom>& empty, const Booking* booking) {
  const auto takes_one = [&](uint32_t slot) {
    return std::any_of(empty.begin(), empty.end(),
                       [&](const GangRoom& room) { return room.of_node(slot) > 0; });
  };
  int64_t nodes = 0;
  for (const Node& node : state.nodes) {
    const bool usable = booking == nullptr || std::ranges::binary_search(booking->nodes, node.id);
    if (usable && takes_one(node.slot)) ++nodes;
  }
  return nodes;
}

/// Whether the nodes that the job may use could never hold all members at once; of `booking` alone, if there
/// is one. `reason` is then that. `empty` has the room of empty nodes for each part.
bool outgrows(const State& state, const DomainTree& domains, const std::vector<Part>& parts,
              const std::vector<GangRoom>& empty, uint32_t main, const Booking* booking, WaitReason& reason) {
  const DomainLevel widest = widest_of(parts.front());
  const auto note = [&](WaitCode code, const Part& wanted, int64_t members, int64_t most) {
    reason.code = code;
    reason.domain = widest;
    reason.of_booking = booking != nullptr;
    reason.wanted = wanted;
    reason.members_wanted = members;
    reason.members_fitting = most;
    return true;
  };
  int64_t members = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int64_t most = members_when_all_empty(state, domains, empty[i], widest, booking);
    members += parts[i].member_count;
    if (most >= parts[i].member_count) continue;
    const bool none = most == 0 && booking == nullptr;
    return note(none ? WaitCode::kNoMatchingGpu : WaitCode::kGangTooLarge, parts[i], parts[i].member_count,
                most);
  }
  if (parts.size() == 1 || !parts.front().one_member_per_node || widest != DomainLevel::kAny) return false;
  const int64_t nodes = nodes_for_any(state, empty, booking);
  return nodes < members && note(WaitCode::kGangTooLarge, parts[main], members, nodes);
}

}  // namespace

Planner::Gang Planner::gang_of(const std::vector<Part>& parts) {
  Gang gang;
  for (uint32_t i = 1; i < parts.size(); ++i) {
    if (parts[i].member_count >= parts[gang.main].member_count) gang.main = i;
  }
  if (parts.back().is_elastic()) gang.main = static_cast<uint32_t>(parts.size()) - 1;
  gang.device_classes.resize(parts.size(), 0);
  gang.rooms.resize(parts.size());
  gang.empty.resize(parts.size());
  return gang;
}

Planner::NodeTrial Planner::trial_on(uint32_t slot) const {
  const NodeInfo& node = nodes_[slot];
  return {.slot = slot,
          .cpu_milli = node.cpu_milli_free,
          .memory_mb = node.memory_mb_free,
          .free_mask = node.free_mask,
          .taken_mask = 0,
          .attempt_count = node.attempt_count,
          .amounts = {}};
}

// One more member, on devices that none of the others has; which ones.
std::optional<uint64_t> Planner::put(const State& state, const Shape& shape, uint32_t index, NodeTrial& at) {
  const Part& part = shape.parts[index];
  if (part.wishes() != nullptr && !place_allows(state.nodes[at.slot], *part.wishes())) return std::nullopt;
  const auto attempt = [&](uint32_t device_class) -> std::optional<uint64_t> {
    NodeView view = view_of(state, at.slot, device_class, part);
    view.cpu_milli_free = at.cpu_milli;
    view.memory_mb_free = at.memory_mb;
    view.free_mask &= ~at.taken_mask;
    view.usable_mask &= ~at.taken_mask;
    view.shared_mask &= ~at.taken_mask;
    view.attempt_count = at.attempt_count;
    const bool passes =
        std::all_of(policies_.filters.begin(), policies_.filters.end(),
                    [&](const auto& filter) { return filter->check(part, view) == Refusal::kNone; });
    if (!passes) return std::nullopt;
    const uint64_t mask = part.gpu_count == 0 ? 0 : pick_devices(view, at.slot, part).mask;
    if (part.gpu_count > 0 && mask == 0) return std::nullopt;  // Enough are free, and none lie as asked.
    at.taken_mask |= mask;
    at.cpu_milli -= part.cpu_milli;
    at.memory_mb -= part.memory_mb;
    ++at.attempt_count;
    // An exclusive member takes the whole node.
    at.amounts += part.is_exclusive() ? nodes_[at.slot].room : amounts_on(at.slot, part, device_class);
    return mask;
  };
  if (part.gpu_count == 0) return attempt(FreeIndex::kNoDevices);
  // The kind that serves fewest of the other parts first.
  const auto& masks = nodes_[at.slot].class_masks;
  const auto served = [&](uint32_t kind) {
    return std::count_if(shape.gang->device_classes.begin(), shape.gang->device_classes.end(),
                         [&](uint64_t classes) { return ((classes >> kind) & 1) != 0; });
  };
  for (std::ptrdiff_t count = 1; count <= static_cast<std::ptrdiff_t>(shape.parts.size()); ++count) {
    for (const auto& [kind, mask] : masks) {
      if (((shape.gang->device_classes[index] >> kind) & 1) == 0 || served(kind) != count) continue;
      if (const std::optional<uint64_t> chosen = attempt(kind)) return chosen;
    }
  }
  return std::nullopt;
}

// How many members of the main part fit on the node beside so many of the others; negative: not even those.
// With a candidate, only as many as delay no reservation and are gone when a booking begins.
int32_t Planner::room_beside(const State& state, const Shape& shape, uint32_t slot,
                             const std::vector<int32_t>& others, Candidate* candidate) {
  const bool none = std::all_of(others.begin(), others.end(), [](int32_t count) { return count == 0; });
  const int32_t nothing = none ? 0 : -1;
  const NodeInfo& node = nodes_[slot];
  if (!node.ready) return nothing;
  if (candidate != nullptr && node.booked && meets_booking(state, *candidate, slot)) return nothing;
  const bool watched = candidate != nullptr && is_reserved(slot);
  const auto delays = [&](const policy::PoolAmounts& amounts) {
    const Reservation* held = watched ? delayed_by(state, *candidate, slot, amounts) : nullptr;
    if (held != nullptr) candidate->refused_by = held;
    return held != nullptr;
  };
  const uint32_t main = shape.gang->main;
  NodeTrial at = trial_on(slot);
  int32_t members = 0;
  for (uint32_t i = 0; i < others.size(); ++i) {
    for (int32_t count = 0; count < others[i]; ++count, ++members) {
      if (shape.parts.front().one_member_per_node && members > 0) return -1;
      if (!put(state, shape, part_of_other(i, main), at).has_value() || delays(at.amounts)) return -1;
    }
  }
  const Part& part = shape.parts[main];
  if (part.one_member_per_node && members > 0) return 0;
  const int32_t most = part.one_member_per_node ? 1 : part.members_most();
  int32_t room = 0;
  while (room < most && put(state, shape, main, at).has_value() && !delays(at.amounts)) {
    ++room;
    if (watched || part.gpu_count > 0) continue;
    // Without devices the rest is a division.
    int64_t more = std::min<int64_t>(most - room, int64_t{limits::kAttemptsPerNodeMax} - at.attempt_count);
    if (part.cpu_milli > 0) more = std::min(more, at.cpu_milli / part.cpu_milli);
    if (part.memory_mb > 0) more = std::min(more, at.memory_mb / part.memory_mb);
    return room + static_cast<int32_t>(std::max<int64_t>(more, 0));
  }
  return room;
}

void Planner::refresh_gang(const State& state, Shape& shape) {
  Gang& gang = *shape.gang;
  for (; gang.device_classes_known < state.device_classes.size(); ++gang.device_classes_known) {
    for (std::size_t i = 0; i < shape.parts.size(); ++i) {
      if (state.device_classes[gang.device_classes_known].serves(shape.parts[i]))
        gang.device_classes[i] |= uint64_t{1} << gang.device_classes_known;
    }
  }
  for (std::size_t i = 0; i < shape.parts.size(); ++i) {
    gang.rooms[i].follow(domains_);
    gang.empty[i].follow(domains_);
  }
  const uint32_t main = gang.main;
  const std::vector<int32_t> none(shape.parts.size() - 1, 0);
  catch_up(gang.known, [&](uint32_t slot) {
    for (uint32_t i = 0; i < shape.parts.size(); ++i) {
      gang.main = i;
      gang.rooms[i].set(domains_, slot, room_beside(state, shape, slot, none, nullptr));
      const int64_t empty = members_when_empty(state.device_classes, state.nodes[slot], shape.parts[i]);
      gang.empty[i].set(domains_, slot, static_cast<int32_t>(empty));
    }
    gang.main = main;
  });
}

bool Planner::any_member_fits(const State& state, Shape& shape, uint32_t slot) {
  refresh_gang(state, shape);
  return std::any_of(shape.gang->rooms.begin(), shape.gang->rooms.end(),
                     [&](const GangRoom& room) { return room.of_node(slot) > 0; });
}

// Nodes on which it depends on the job how much it may have.
std::vector<uint32_t> Planner::restricted_nodes() const {
  std::vector<uint32_t> slots = booked_nodes_;
  for (const Reservation& held : reservations_) {
    for (const Hold& hold : held.holds) slots.push_back(hold.node);
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

// Thousandths of GPUs up to which an elastic job of the class may grow: what is its tenant's own, or nobody
// else's who waits. More could not be taken back: one job is ended whole, or not at all.
int64_t Planner::gpus_unowed(const State& state, uint32_t job_class) const {
  const JobClass& own = state.classes[job_class];
  const bool online = work_of(own.parts) == WorkClass::kOnline;
  const auto idle_of = [&](const Tenant& tenant) {
    Amount held = tenant.usage;
    held.add(negated(tenant.going));
    held.add(planned_held_.of(tenant.id));
    return std::max<int64_t>(tenant.guarantee.gpus * kMilliPerGpu - held.gpu_thousandths(), 0);
  };
  std::map<TenantId, int64_t>
      owed;  // By the topmost tenant with a guarantee, whose idle part covers those below.
  bool other_waits = false;
  for (const ClassInfo& entry : classes_) {
    if (entry.state == ClassState::kIdle) continue;
    const std::vector<Part>& parts = shapes_[entry.shape].parts;
    if (!total_of(parts).has_gpus()) continue;
    other_waits = other_waits || (work_of(parts) == WorkClass::kOnline) != online;
    const Tenant* top = nullptr;
    for (const Tenant* at = state.find_tenant(entry.tenant); at != nullptr;
         at = state.find_tenant(at->parent)) {
      if (at->guarantee.gpus > 0) top = at;
    }
    if (top != nullptr) owed[top->id] = idle_of(*top);
  }
  int64_t mine = 0;
  for (const Tenant* at = state.find_tenant(own.tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    owed.erase(at->id);
    mine = std::max(mine, idle_of(*at));
  }
  int64_t free = capacity_.gpus * kMilliPerGpu - pool_held(state, true) - pool_held(state, false);
  for (const auto& [id, idle] : owed) free -= idle;
  int64_t most = std::max(mine, free);
  if (!pools_.lends() || !other_waits) return most;
  const PoolRooms rooms = pool_rooms(state);
  return std::min(most, std::max(rooms[online ? 1 : 0], free - rooms[online ? 0 : 1]));
}

// How many members of an elastic part the quotas leave room for.
int32_t Planner::members_affordable(const State& state, Candidate& candidate) {
  const std::vector<Part>& parts = state.classes[candidate.job_class].parts;
  int32_t low = parts.back().member_count;  // Found to be within the quotas.
  int32_t high = parts.back().members_most();
  const int64_t growth_max = can_reclaim() ? gpus_unowed(state, candidate.job_class) : INT64_MAX;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    const Amount amount = expected_amount(state, parts, middle);
    if (quota_block(state, candidate.job_class, amount).has_value() ||
        limit_kept_from(state, candidate, amount).has_value() || amount.gpu_thousandths() > growth_max) {
      high = middle - 1;
    } else {
      low = middle;
    }
  }
  return low;
}

std::optional<GangFit> Planner::choose_gang(const State& state, Candidate& candidate) {
  Shape& shape = shape_of(candidate.job_class);
  refresh_gang(state, shape);
  const Gang& gang = *shape.gang;
  const Part& main = shape.parts[gang.main];
  slice_.visits += nodes_.size() / kNodesPerVisit;
  for (std::size_t i = 0; i < shape.parts.size(); ++i) {
    if (gang.rooms[i].most_of(domains_, widest_of(main)) < shape.parts[i].member_count) return std::nullopt;
  }
  GangWish wish{.members_min = main.member_count,
                .members_max = main.member_count,
                .domain = main.domain,
                .required = widest_of(main) != DomainLevel::kAny};
  if (main.is_elastic()) wish.members_max = members_affordable(state, candidate);
  const std::vector<int32_t> others = other_counts(shape.parts, gang.main);
  const auto search = [&](const GangRoom& room, Candidate* asking) {
    if (others.empty()) return fit_gang(domains_, room, wish);
    return fit_parts(domains_, room, wish, others, [&](uint32_t slot, const std::vector<int32_t>& counts) {
      ++slice_.visits;
      return room_beside(state, shape, slot, counts, asking);
    });
  };
  const std::vector<uint32_t> restricted = restricted_nodes();
  if (restricted.empty()) return search(gang.rooms[gang.main], nullptr);
  GangRoom room = gang.rooms[gang.main];
  for (const uint32_t slot : restricted) {
    const std::vector<int32_t> none(others.size(), 0);
    if (room.of_node(slot) > 0) room.set(domains_, slot, room_beside(state, shape, slot, none, &candidate));
  }
  std::optional<GangFit> fit = search(room, &candidate);
  if (fit.has_value()) return fit;
  // Whether it is they that keep it waiting, and not that there is no room anyway.
  if (!search(gang.rooms[gang.main], nullptr).has_value()) {
    candidate.refused_by = nullptr;
    candidate.booked_from = {};
  }
  return std::nullopt;
}

bool Planner::place_gang(const State& state, const Job& job, Candidate& candidate, CommitPlan& plan) {
  const std::optional<GangFit> fit = choose_gang(state, candidate);
  if (!fit.has_value()) return false;
  place_members(state, job, candidate, *fit, plan);
  return true;
}

// The ranks of a gang are its members' places in the group: part by part, domain by domain, node by node.
void Planner::place_members(const State& state, const Job& job, Candidate& candidate, const GangFit& fit,
                            CommitPlan& plan) {
  const Shape& shape = shape_of(candidate.job_class);
  const uint32_t main = shape.gang->main;
  std::vector<const std::vector<GangSpot>*> spots(shape.parts.size(), &fit.spots);
  for (uint32_t i = 0; i + 1 < shape.parts.size(); ++i) spots[part_of_other(i, main)] = &fit.other_spots[i];
  std::vector<Take> takes = takes_of(spots);
  const uint32_t attempt = job.attempt_count + 1;
  for (Take& take : takes) {
    NodeTrial at = trial_on(take.slot);
    for (uint32_t i = 0; i < shape.parts.size(); ++i) {
      // The main part's members come last, as they were counted.
      const uint32_t part = i + 1 == shape.parts.size() ? main : part_of_other(i, main);
      for (int32_t count = 0; count < take.counts[part]; ++count) {
        const std::optional<uint64_t> mask = put(state, shape, part, at);
        CHECK(mask.has_value());
        take.masks[part].push_back(*mask);
      }
    }
    NodeInfo& node = nodes_[take.slot];
    node.cpu_milli_free = at.cpu_milli;
    node.memory_mb_free = at.memory_mb;
    node.attempt_count = at.attempt_count;
    for (std::size_t part = 0; part < take.masks.size(); ++part) {
      for (const uint64_t mask : take.masks[part]) {
        if (mask != 0) take_devices(state, take.slot, shape.parts[part], mask, 0);
      }
    }
    for (std::size_t part = 0; part < take.counts.size(); ++part)
      node.exclusive = node.exclusive || (take.counts[part] > 0 && shape.parts[part].is_exclusive());
    index_node(state, take.slot);
    if (policies_.reservations > 0) {
      if (node.exclusive) at.amounts = node.room;
      take_extra(state, candidate, take.slot, at.amounts);
      node.first_release = {};
    }
    planned_.push_back({.job = job.id, .attempt = attempt, .node = take.slot, .amounts = at.amounts});
  }
  PlanGroup group{.job = job.id, .attempt = attempt, .members = {}, .preemptions = {}};
  for (uint32_t part = 0; part < shape.parts.size(); ++part) {
    for (const GangSpot& spot : *spots[part]) {
      const auto take = std::lower_bound(takes.begin(), takes.end(), spot.slot,
                                         [](const Take& one, uint32_t slot) { return one.slot < slot; });
      const Node& node = state.nodes[spot.slot];
      for (const uint64_t mask : take->masks[part]) {
        MemberPlacement member{.node = node.id, .part = part, .device_mask = mask, .generations = {}};
        for (uint64_t rest = mask; rest != 0; rest &= rest - 1)
          member.generations.push_back(
              node.devices[static_cast<std::size_t>(std::countr_zero(rest))].generation);
        group.members.push_back(std::move(member));
      }
    }
  }
  plan.groups.push_back(std::move(group));
  const int32_t last = main + 1 == shape.parts.size() ? fit.members : 0;
  add_planned_usage(state, job, expected_amount(state, shape.parts, last));
}

// Wants that no node meets even for one member come first, by part, then those that more nodes could lift.
WaitReason Planner::explain_gang(const State& state, uint32_t job_class) {
  Shape& shape = shape_of(job_class);
  refresh_gang(state, shape);
  const Gang& gang = *shape.gang;
  WaitReason reason = explain_refusal(state, job_class);
  if (reason.of_booking) return reason;
  const Booking* booking = state.find_booking(BookingId{shape.parts.front().booking});
  const auto exceeds = [&](const Booking* nodes_of) {
    return outgrows(state, domains_, shape.parts, gang.empty, gang.main, nodes_of, reason);
  };
  if (booking != nullptr && exceeds(booking)) return reason;
  switch (reason.code) {
    case WaitCode::kNoNode:
    case WaitCode::kNoFeature:
    case WaitCode::kNoMatchingGpu:
    case WaitCode::kNoLabels:
    case WaitCode::kNoSuchLayout:
    case WaitCode::kTooLarge:
    case WaitCode::kNodesUnreachable:
    case WaitCode::kNodesHeld:
    case WaitCode::kReservedForOthers:
    case WaitCode::kGpusUnhealthy:
    case WaitCode::kDevicesHot:
      return reason;
    default:
      break;
  }
  const DomainLevel widest = widest_of(shape.parts.front());
  reason.domain = widest;
  if (widest != DomainLevel::kAny && !domains_.has_named(widest)) {
    reason.code = WaitCode::kNoDomain;
    return reason;
  }
  if (exceeds(nullptr)) return reason;
  reason.code = WaitCode::kGangPartiallyFits;
  reason.wanted = shape.parts[gang.main];
  for (std::size_t i = 0; i < shape.parts.size(); ++i) {
    const int64_t wanted = shape.parts[i].member_count;
    reason.members_wanted += wanted;
    reason.members_fitting += std::min(wanted, gang.rooms[i].most_of(domains_, widest));
  }
  return reason;
}

}  // namespace gpusched
