#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "engine/planner/plan_slice.h"
#include "engine/planner/planner.h"

// A gang that waits at the head is promised the earliest time at which all its members fit, as the expected
// ends of what runs allow, and what it needs of each node is kept for it from then on.
namespace gpusched {
namespace {

using policy::PoolAmounts;

/// A gang's start is looked for again at most so often, while its nodes are there: that looks at all nodes.
constexpr Duration kGangLookAgain = seconds(1);
/// A gang stays with the nodes that are kept for it while others are not earlier by more than this part of
/// its wait. Where any earlier start counted its wait on 16 nodes was 1.6 times as long; from a tenth of the
/// wait to four times it was the same (bench/quality/islands_bench.cc).
constexpr int64_t kStaysForPart = 4;
/// Later times that are tried when the parts of a gang fit one by one, but not together.
constexpr std::size_t kLaterTries = 6;

/// How many times `wanted` fits into `room`, at most `most`.
int32_t times(const PoolAmounts& room, const PoolAmounts& wanted, int32_t most) {
  int64_t count = most;
  for (std::size_t i = 0; i < policy::kPoolResourcesMax; ++i) {
    if (wanted.value[i] > 0) count = std::min(count, room.value[i] / wanted.value[i]);
  }
  return static_cast<int32_t>(std::max<int64_t>(count, 0));
}

PoolAmounts multiple(const PoolAmounts& one, int32_t count) {
  PoolAmounts sum;
  for (std::size_t i = 0; i < policy::kPoolResourcesMax; ++i) sum.value[i] = one.value[i] * count;
  return sum;
}

/// The earliest time by which the steps come to so many members; kNever: they do not.
Time reached(std::vector<std::pair<Time, int32_t>>& steps, int64_t members) {
  int64_t sum = 0;
  for (const auto& [at, more] : steps) sum += more;
  if (sum < members) return kNever;
  auto begin = steps.begin();
  auto end = steps.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end);
    int64_t before = 0;
    for (auto at = begin; at != middle; ++at) before += at->second;
    if (before >= members) {
      end = middle;
    } else {
      members -= before;
      begin = middle;
    }
  }
  return begin->first;
}

/// The first level is below the second one; kAny is the cluster.
bool is_narrower(DomainLevel level, DomainLevel than) {
  if (level == DomainLevel::kAny) return false;
  return than == DomainLevel::kAny || level < than;
}

}  // namespace

void Planner::find_steps(const State& state, Shape& shape, uint32_t slot) {
  Gang& gang = *shape.gang;
  if (slot >= gang.steps.size()) gang.steps.resize(nodes_.size());
  std::vector<std::pair<Time, int32_t>>& steps = gang.steps[slot];
  steps.clear();
  NodeInfo& node = nodes_[slot];
  if (!node.ready) return;
  if (node.first_release <= now_) refresh_releases(state, slot);
  const Part& part = shape.parts[gang.main];
  const auto look = [&](uint32_t device_class, uint64_t mask) {
    if (!could_run(state, slot, device_class, mask, part)) return;
    const PoolAmounts wanted = amounts_on(slot, part, device_class);
    const int32_t most = part.one_member_per_node ? 1 : part.members_most();
    PoolAmounts free = node.room - node.releases.held_after(now_);
    int32_t count = times(free, wanted, most);
    if (count > 0) steps.emplace_back(now_, count);
    node.releases.for_each_after(now_, [&](const policy::Release& release) {
      free += release.amounts;
      const int32_t then = times(free, wanted, most);
      if (then > count) steps.emplace_back(release.end, then - std::exchange(count, then));
    });
  };
  if (part.gpu_count == 0) return look(FreeIndex::kNoDevices, 0);
  for (const auto& [kind, mask] : node.class_masks) {
    if (((gang.device_classes[gang.main] >> kind) & 1) != 0) look(kind, mask);
  }
}

// How many members of the main part, at most so many, the node has room for at that time beside so many of
// the others; negative: not even those. Their sum is added to `taken`.
int32_t Planner::room_at(const Shape& shape, uint32_t slot, Time at, const std::vector<int32_t>& others,
                         int32_t members_most, PoolAmounts& taken) const {
  const Gang& gang = *shape.gang;
  const NodeInfo& node = nodes_[slot];
  PoolAmounts free = node.room - node.releases.held_after(at);
  const auto take = [&](uint32_t index, int32_t most) {
    int32_t count = 0;
    const auto from = [&](uint32_t kind) {
      const PoolAmounts one = amounts_on(slot, shape.parts[index], kind);
      const int32_t here = times(free, one, most - count);
      free -= multiple(one, here);
      taken += multiple(one, here);
      count += here;
    };
    if (shape.parts[index].gpu_count == 0) from(FreeIndex::kNoDevices);
    for (const auto& [kind, mask] : node.class_masks) {
      const bool serves = ((gang.device_classes[index] >> kind) & 1) != 0;
      if (shape.parts[index].gpu_count > 0 && serves) from(kind);
    }
    return count;
  };
  int32_t members = 0;
  for (uint32_t i = 0; i < others.size(); ++i) {
    members += others[i];
    if (take(i < gang.main ? i : i + 1, others[i]) < others[i]) return -1;
  }
  const bool alone = shape.parts[gang.main].one_member_per_node;
  if (alone && members > 1) return -1;
  return take(gang.main, alone ? std::min(members_most, 1 - members) : members_most);
}

// Nodes on which the class's head may wait for room: no other reservation is there, and no booking before it
// would be over.
std::vector<bool> Planner::open_nodes(const State& state, uint32_t job_class) {
  const Reservation* own = reservation_of(job_class);
  Candidate head{.job = info(job_class).head.job, .job_class = job_class};
  std::vector<bool> open(nodes_.size());
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    if (!nodes_[slot].ready) continue;
    if (is_reserved(slot) && (own == nullptr || own->on(slot) == nullptr)) continue;
    open[slot] = !nodes_[slot].booked || !meets_booking(state, head, slot);
  }
  return open;
}

// When the open nodes of one domain that the gang may be in have room for the main part alone.
Time Planner::earliest_gang_time(const Shape& shape, const std::vector<bool>& open) const {
  const Gang& gang = *shape.gang;
  const int64_t members = shape.parts[gang.main].member_count;
  const DomainLevel widest = widest_of(shape.parts[gang.main]);
  std::vector<std::pair<Time, int32_t>> steps;
  const auto add = [&](uint32_t slot) {
    if (slot < open.size() && open[slot])
      steps.insert(steps.end(), gang.steps[slot].begin(), gang.steps[slot].end());
  };
  Time earliest = kNever;
  const auto settle = [&] {
    earliest = std::min(earliest, reached(steps, members));
    steps.clear();
  };
  if (widest == DomainLevel::kAny) {
    for (uint32_t slot = 0; slot < open.size(); ++slot) add(slot);
    settle();
    return earliest;
  }
  for (uint32_t slot = 0; slot < open.size(); ++slot) {
    add(slot);
    settle();
  }
  for (uint32_t index = 1; index < domains_.domains().size(); ++index) {
    if (!domains_[index].named || domains_[index].level > widest) continue;
    for (const uint32_t slot : domains_.nodes_of(index)) add(slot);
    settle();
  }
  return earliest;
}

std::optional<Planner::Reservation> Planner::gang_start_at(const Shape& shape, const std::vector<bool>& open,
                                                           Time at) const {
  const Gang& gang = *shape.gang;
  const Part& main = shape.parts[gang.main];
  std::vector<int32_t> others;
  for (uint32_t i = 0; i < shape.parts.size(); ++i) {
    if (i != gang.main) others.push_back(shape.parts[i].member_count);
  }
  const std::vector<int32_t> none(others.size(), 0);
  PoolAmounts taken;
  GangRoom room;
  for (uint32_t slot = 0; slot < open.size(); ++slot) {
    if (open[slot] && !gang.steps[slot].empty())
      room.set(domains_, slot, room_at(shape, slot, at, none, main.member_count, taken));
  }
  const GangWish wish{.members_min = main.member_count,
                      .members_max = main.member_count,
                      .domain = main.domain,
                      .required = widest_of(main) != DomainLevel::kAny};
  const RoomBeside beside = [&](uint32_t slot, const std::vector<int32_t>& counts) {
    PoolAmounts ignored;
    if (!open[slot] || gang.steps[slot].empty())  // As in `room`.
      return std::any_of(counts.begin(), counts.end(), [](int32_t one) { return one > 0; }) ? -1 : 0;
    return room_at(shape, slot, at, counts, main.member_count, ignored);
  };
  const std::optional<GangFit> fit =
      others.empty() ? fit_gang(domains_, room, wish) : fit_parts(domains_, room, wish, others, beside);
  if (!fit.has_value()) return std::nullopt;
  std::vector<std::pair<uint32_t, std::vector<int32_t>>> parts;  // By slot; the main part's number last.
  const auto add = [&](uint32_t slot, std::size_t index, int32_t members) {
    auto found = std::lower_bound(parts.begin(), parts.end(), slot,
                                  [](const auto& one, uint32_t other) { return one.first < other; });
    if (found == parts.end() || found->first != slot)
      found = parts.insert(found, {slot, std::vector<int32_t>(others.size() + 1, 0)});
    found->second[index] += members;
  };
  for (const GangSpot& spot : fit->spots) add(spot.slot, others.size(), spot.members);
  for (std::size_t i = 0; i < fit->other_spots.size(); ++i) {
    for (const GangSpot& spot : fit->other_spots[i]) add(spot.slot, i, spot.members);
  }
  Reservation found{
      .job_class = 0, .job = {}, .key = {}, .start = at, .holds = {}, .looked_at = now_, .level = fit->level};
  for (auto& [slot, counts] : parts) {
    const int32_t members = counts.back();
    counts.pop_back();
    Hold hold{.node = slot, .wanted = {}, .extra = {}};
    room_at(shape, slot, at, counts, members, hold.wanted);
    hold.extra = nodes_[slot].room - nodes_[slot].releases.held_after(at) - hold.wanted;
    found.holds.push_back(hold);
  }
  return found;
}

// On the nodes that are kept for it already, when that is not much later than at the earliest. A gang whose
// nodes are now these and now those waits for ever: on what is given up others begin at once.
std::optional<Planner::Reservation> Planner::gang_start_on_the_same(const Shape& shape,
                                                                    const std::vector<bool>& open,
                                                                    Time earliest,
                                                                    const Reservation& before) const {
  std::vector<bool> same(open.size());
  for (const Hold& hold : before.holds) same[hold.node] = open[hold.node];
  const Time at = std::max(earliest_gang_time(shape, same), earliest);
  const Duration wait = earliest - now_;
  if (at == kNever || at - now_ > wait + Duration{wait.ns / kStaysForPart}) return std::nullopt;
  return gang_start_at(shape, same, at);
}

// At that time, on the nodes that are kept for it and of others only so many as those are too few; unless
// another choice is of a smaller domain.
std::optional<Planner::Reservation> Planner::gang_start_keeping(const Shape& shape,
                                                                const std::vector<bool>& open, Time at,
                                                                const Reservation& before) const {
  std::optional<Reservation> any = gang_start_at(shape, open, at);
  if (!any.has_value()) return any;
  const Part& main = shape.parts[shape.gang->main];
  const std::vector<int32_t> none(shape.parts.size() - 1, 0);
  std::vector<bool> few(open.size());
  int64_t members = 0;
  const auto add = [&](uint32_t slot) {
    if (slot >= open.size() || !open[slot] || few[slot] || shape.gang->steps[slot].empty()) return;
    PoolAmounts taken;
    const int32_t room = room_at(shape, slot, at, none, main.member_count, taken);
    if (room <= 0) return;
    few[slot] = true;
    members += room;
  };
  for (const Hold& hold : before.holds) add(hold.node);
  for (uint32_t slot = 0; slot < open.size() && members < main.member_count; ++slot) add(slot);
  std::optional<Reservation> kept = gang_start_at(shape, few, at);
  return kept.has_value() && !is_narrower(any->level, kept->level) ? kept : any;
}

// The earliest start of the class's first job, as far as the nodes that no other reservation is on give it.
std::optional<Planner::Reservation> Planner::gang_start(const State& state, uint32_t job_class) {
  Shape& shape = shape_of(job_class);
  refresh_gang(state, shape);
  Gang& gang = *shape.gang;
  const DomainLevel widest = widest_of(shape.parts.front());
  for (std::size_t i = 0; i < shape.parts.size(); ++i) {
    if (gang.empty[i].most_of(domains_, widest) < shape.parts[i].member_count) return std::nullopt;
  }
  gang.steps.resize(nodes_.size());
  catch_up(gang.steps_known, [&](uint32_t slot) { find_steps(state, shape, slot); });
  // Work that should have ended by now is expected to end later.
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    if (nodes_[slot].ready && nodes_[slot].first_release <= now_) find_steps(state, shape, slot);
  }
  slice_.visits += nodes_.size();
  std::vector<bool> open = open_nodes(state, job_class);
  const Reservation* before = reservation_of(job_class);
  const auto start_in_open = [&]() -> std::optional<Reservation> {
    const Time at = std::max({earliest_gang_time(shape, open), now_, info(job_class).limits_from});
    if (at == kNever) return std::nullopt;
    std::optional<Reservation> found;
    if (before != nullptr) found = gang_start_on_the_same(shape, open, at, *before);
    if (!found.has_value()) {
      found =
          before == nullptr ? gang_start_at(shape, open, at) : gang_start_keeping(shape, open, at, *before);
    }
    if (found.has_value()) return found;
    std::vector<Time> later;
    for (uint32_t slot = 0; slot < open.size(); ++slot) {
      for (const auto& [time, more] : gang.steps[slot]) {
        if (open[slot] && time > at) later.push_back(time);
      }
    }
    std::sort(later.begin(), later.end());
    for (std::size_t i = 0; i < kLaterTries && !found.has_value() && !later.empty(); ++i)
      found = gang_start_at(shape, open, later[(later.size() - 1) >> (kLaterTries - 1 - i)]);
    return found;
  };
  const Job& head = state.job_at(info(job_class).head.job);
  for (std::optional<Reservation> found = start_in_open(); found.has_value(); found = start_in_open()) {
    // Nodes on which it would not be over when a reservation begins there are no place for it then.
    const auto meets = [&](const Hold& hold) {
      return nodes_[hold.node].booked &&
             runs_into_booking(*policies_.run_times, state, head, hold.node, found->start, now_);
    };
    const auto first = std::ranges::find_if(found->holds, meets);
    found->job_class = job_class;
    if (first == found->holds.end()) return found;
    for (const Hold& hold : found->holds)
      if (meets(hold)) open[hold.node] = false;
  }
  return std::nullopt;
}

// Keeps a gang's reservation true to what is known now; false when it is over.
bool Planner::refresh_gang_reservation(const State& state, Reservation& held) {
  bool changed = held.start <= now_ || !freed_nodes_.empty();
  bool broken = false;
  for (const Hold& hold : held.holds) {
    NodeInfo& node = nodes_[hold.node];
    broken = broken || !node.ready;
    if (node.refreshed != cycle_) continue;
    changed = true;
    // A job before it may have taken what was to be there: the start that it was told would be untrue.
    if (node.first_release <= now_) refresh_releases(state, hold.node);
    broken = broken || !hold.wanted.fits(node.room - node.releases.held_after(held.start));
  }
  if (!broken && (!changed || now_ < held.looked_at + kGangLookAgain)) return true;
  held.looked_at = now_;
  std::optional<Reservation> best = gang_start(state, held.job_class);
  if (!best.has_value()) return false;
  const std::vector<Hold> before = std::exchange(held.holds, std::move(best->holds));
  const bool later = best->start > held.start;
  const bool moved = std::exchange(held.start, best->start) != best->start;
  for (const Hold& hold : before) update_reserved(hold.node);
  for (const Hold& hold : held.holds) {
    update_reserved(hold.node);
    if (later) freed_nodes_.push_back(hold.node);  // More may be over before it now.
  }
  if (moved) set_start(held.job_class, held.start);
  return true;
}

}  // namespace gpusched
