#include "engine/planner.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {
namespace {

using policy::NodeView;
using policy::Refusal;

/// More freed nodes than this, and trying every blocked class once is cheaper than asking each node.
constexpr std::size_t kFreedNodesMax = 64;

const Part& part_of(const State& state, uint32_t job_class) { return state.classes[job_class].parts.front(); }

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

}  // namespace

Planner::Planner(policy::PolicySet policies) : policies_(std::move(policies)) {
  CHECK(policies_.queue_order != nullptr);
  CHECK(!policies_.filters.empty());
  CHECK(!policies_.scores.empty());
}

void Planner::reset(const State& state, bool nodes_present) {
  classes_.clear();
  ready_.clear();
  blocked_.clear();
  nodes_.clear();
  index_ = FreeIndex();
  dirty_nodes_.clear();
  freed_nodes_.clear();
  freed_tenants_.clear();
  unblock_all_ = false;
  changed_reasons_.clear();
  planned_.clear();
  planned_classes_.clear();
  planned_usage_.clear();
  for (uint32_t slot = 0; slot < state.nodes.size(); ++slot) {
    mark_dirty(slot);
    nodes_[slot].present = nodes_present;
  }
  for (uint32_t i = 0; i < state.classes.size(); ++i) {
    if (!state.classes[i].waiting.empty()) make_ready(state, i);
  }
}

Planner::ClassInfo& Planner::info(uint32_t job_class) {
  if (job_class >= classes_.size()) classes_.resize(job_class + 1);
  return classes_[job_class];
}

const WaitReason& Planner::reason(uint32_t job_class) const {
  static const WaitReason kUnknown;
  return job_class < classes_.size() ? classes_[job_class].reason : kUnknown;
}

void Planner::mark_dirty(uint32_t slot) {
  if (slot >= nodes_.size()) nodes_.resize(slot + 1);
  if (nodes_[slot].dirty) return;
  nodes_[slot].dirty = true;
  dirty_nodes_.push_back(slot);
}

void Planner::node_gained(const State& state, NodeId node) {
  const Node* gained = state.find_node(node);
  CHECK(gained != nullptr);
  mark_dirty(gained->slot);
  if (freed_nodes_.empty() || freed_nodes_.back() != gained->slot) freed_nodes_.push_back(gained->slot);
}

// What the node has at all is different: every reason may be another one now.
void Planner::node_changed(const State& state, NodeId node) {
  const Node* changed = state.find_node(node);
  CHECK(changed != nullptr);
  mark_dirty(changed->slot);
  unblock_all_ = true;
}

void Planner::tenant_gained(const State& state, TenantId tenant) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    freed_tenants_.insert(at->id);
  }
}

void Planner::take_from_ready(uint32_t job_class) { ready_.erase({info(job_class).head, job_class}); }

void Planner::make_ready(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  if (entry.state == ClassState::kReady) take_from_ready(job_class);
  if (entry.state == ClassState::kBlocked) blocked_.erase(job_class);
  if (entry.state == ClassState::kIdle) {
    // The slot may have had another class before.
    entry.device_classes_known = 0;
    set_reason(job_class, WaitReason{});
  }
  const OrderedJobs& waiting = state.classes[job_class].waiting;
  CHECK(!waiting.empty());
  const Job* head = state.jobs.find(waiting.front().job);
  CHECK(head != nullptr);
  entry.state = ClassState::kReady;
  entry.head =
      policies_.queue_order->key({.state = state, .job_class = state.classes[job_class], .head = *head});
  ready_.insert({entry.head, job_class});
}

void Planner::set_reason(uint32_t job_class, const WaitReason& reason) {
  ClassInfo& entry = info(job_class);
  if (entry.reason == reason) return;
  entry.reason = reason;
  if (entry.reason_changed) return;
  entry.reason_changed = true;
  changed_reasons_.push_back(job_class);
}

void Planner::block(uint32_t job_class, const WaitReason& reason) {
  take_from_ready(job_class);
  info(job_class).state = ClassState::kBlocked;
  blocked_.insert(job_class);
  set_reason(job_class, reason);
}

std::vector<uint32_t> Planner::take_changed_reasons() {
  for (const uint32_t job_class : changed_reasons_) classes_[job_class].reason_changed = false;
  return std::exchange(changed_reasons_, {});
}

// A class's line changed at `job`: idle when nobody waits, and in `ready_` under its present head.
void Planner::touch_class(const State& state, JobId job) {
  const Job* touched = state.jobs.find(job);
  if (touched == nullptr) return;  // It ended, out of line already, and was forgotten by the same command.
  const uint32_t job_class = touched->job_class;
  ClassInfo& entry = info(job_class);
  const OrderedJobs& waiting = state.classes[job_class].waiting;
  if (waiting.empty()) {
    if (entry.state == ClassState::kReady) take_from_ready(job_class);
    if (entry.state == ClassState::kBlocked) blocked_.erase(job_class);
    entry.state = ClassState::kIdle;
    return;
  }
  if (entry.state == ClassState::kBlocked) return;  // Its new head needs what the old one needed.
  if (entry.state == ClassState::kReady && entry.head == waiting.front()) return;
  make_ready(state, job_class);
}

void Planner::observe(const State& state, const Event& event) {
  if (const auto* submitted = std::get_if<JobSubmitted>(&event)) return touch_class(state, submitted->job);
  if (const auto* placed = std::get_if<AttemptPlaced>(&event)) {
    for (const Member& member : placed->members) mark_dirty(state.find_node(member.node)->slot);
    return touch_class(state, placed->job);
  }
  if (const auto* ended = std::get_if<MemberEnded>(&event)) {
    const Job* job = state.jobs.find(ended->job);
    // An attempt that its job went on without leaves no trace of its node there: look at every node.
    if (job == nullptr || job->attempt_count != ended->attempt) {
      unblock_all_ = true;
      for (uint32_t slot = 0; slot < state.nodes.size(); ++slot) mark_dirty(slot);
      return;
    }
    node_gained(state, job->node);
    tenant_gained(state, job->tenant);
    return;
  }
  if (const auto* over = std::get_if<BackoffEnded>(&event)) return touch_class(state, over->job);
  if (const auto* updated = std::get_if<JobUpdated>(&event)) return touch_class(state, updated->change->job);
  if (const auto* held = std::get_if<JobHoldChanged>(&event)) return touch_class(state, held->job);
  if (const auto* available = std::get_if<NodeAvailabilityChanged>(&event))
    return node_changed(state, available->node);
  if (const auto* finished = std::get_if<JobFinished>(&event)) return touch_class(state, finished->job);
  if (const auto* freed = std::get_if<DeviceFreed>(&event)) return node_gained(state, freed->node);
  if (const auto* changed = std::get_if<DeviceConditionChanged>(&event))
    return node_changed(state, changed->node);
  if (const auto* barred = std::get_if<DeviceBarred>(&event)) return node_changed(state, barred->node);
  if (const auto* occupied = std::get_if<DeviceOccupied>(&event)) return node_changed(state, occupied->node);
  if (const auto* quarantined = std::get_if<DeviceQuarantined>(&event))
    return node_changed(state, quarantined->node);
  if (const auto* registered = std::get_if<NodeRegistered>(&event)) {
    node_changed(state, registered->node);
    nodes_[state.find_node(registered->node)->slot].present = true;
    return;
  }
  if (const auto* moved = std::get_if<NodeStateChanged>(&event)) return node_changed(state, moved->node);
  if (const auto* updated = std::get_if<TenantUpdated>(&event))
    return tenant_gained(state, updated->change->tenant);
  if (const auto* abandoned = std::get_if<AttemptAbandoned>(&event)) {
    const Job* job = state.jobs.find(abandoned->job);
    if (job != nullptr) return tenant_gained(state, job->tenant);
    unblock_all_ = true;  // Already forgotten: whose quota it was is not known any more.
  }
}

void Planner::index_node(uint32_t slot) {
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

void Planner::refresh_node(const State& state, uint32_t slot) {
  const Node& node = state.nodes[slot];
  NodeInfo& copy = nodes_[slot];
  copy.dirty = false;
  copy.cpu_milli_free = node.cpu_milli - node.cpu_milli_used;
  copy.memory_mb_free = node.memory_mb - node.memory_mb_used;
  copy.free_mask = node.free_mask;
  copy.attempt_count = static_cast<uint32_t>(node.attempts.size());
  copy.ready = node.in_service() && copy.present;
  for (const auto& [device_class, mask] : copy.class_masks) index_.remove(slot, device_class);
  copy.class_masks.clear();
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    const uint32_t device_class = node.devices[i].device_class;
    auto it = std::find_if(copy.class_masks.begin(), copy.class_masks.end(),
                           [&](const auto& entry) { return entry.first == device_class; });
    if (it == copy.class_masks.end()) it = copy.class_masks.insert(it, {device_class, 0});
    it->second |= uint64_t{1} << i;
  }
  index_node(slot);
}

void Planner::refresh_device_classes(const State& state, ClassInfo& entry, const Part& part) {
  for (; entry.device_classes_known < state.device_classes.size(); ++entry.device_classes_known) {
    if (entry.device_classes_known == 0) entry.device_classes = 0;
    const DeviceClass& kind = state.device_classes[entry.device_classes_known];
    const bool fits = kind.memory_mb >= part.gpu_memory_mb && gpu_model_matches(kind.model, part.gpu_model);
    if (fits) entry.device_classes |= uint64_t{1} << entry.device_classes_known;
  }
}

NodeView Planner::view_of(const State& state, uint32_t slot, uint32_t device_class) const {
  const NodeInfo& node = nodes_[slot];
  NodeView view{.node = state.nodes[slot],
                .cpu_milli_free = node.cpu_milli_free,
                .memory_mb_free = node.memory_mb_free,
                .free_mask = node.free_mask,
                .usable_mask = 0,
                .attempt_count = node.attempt_count};
  for (const auto& [kind, mask] : node.class_masks) {
    if (kind == device_class) view.usable_mask = mask & node.free_mask;
  }
  return view;
}

bool Planner::fits_node(const State& state, uint32_t job_class, uint32_t slot) {
  if (!nodes_[slot].ready) return false;
  const Part& part = part_of(state, job_class);
  ClassInfo& entry = info(job_class);
  refresh_device_classes(state, entry, part);
  const auto passes = [&](uint32_t device_class) {
    const NodeView view = view_of(state, slot, device_class);
    return std::all_of(policies_.filters.begin(), policies_.filters.end(),
                       [&](const auto& filter) { return filter->check(part, view) == Refusal::kNone; });
  };
  if (part.gpu_count == 0) return passes(FreeIndex::kNoDevices);
  for (const auto& [kind, mask] : nodes_[slot].class_masks) {
    if (((entry.device_classes >> kind) & 1) != 0 && passes(kind)) return true;
  }
  return false;
}

void Planner::unblock(const State& state) {
  std::vector<uint32_t> lifted;
  const bool try_all = unblock_all_ || freed_nodes_.size() > kFreedNodesMax;
  for (const uint32_t job_class : blocked_) {
    const WaitReason& reason = info(job_class).reason;
    bool lift = unblock_all_;
    if (reason.code == WaitCode::kQuota) {
      lift = lift || freed_tenants_.contains(reason.tenant);
    } else {
      lift = lift || try_all || std::any_of(freed_nodes_.begin(), freed_nodes_.end(), [&](uint32_t slot) {
               return fits_node(state, job_class, slot);
             });
    }
    if (lift) lifted.push_back(job_class);
  }
  for (const uint32_t job_class : lifted) make_ready(state, job_class);
  unblock_all_ = false;
  freed_nodes_.clear();
  freed_tenants_.clear();
}

// Looks through one bucket for better nodes than `best`; how many were rated.
uint32_t Planner::scan_bucket(const State& state, uint32_t job_class, uint32_t index_class, uint32_t free,
                              Choice& best) {
  ClassInfo& entry = info(job_class);
  const Part& part = part_of(state, job_class);
  const Bitmap& bucket = index_.bucket(index_class, free);
  uint32_t rated = 0;
  for (uint32_t slot = bucket.next_not_in(entry.refused, 0); slot != Bitmap::kNone;
       slot = bucket.next_not_in(entry.refused, slot + 1)) {
    ++visits_;
    const NodeView view = view_of(state, slot, index_class);
    const bool passes =
        std::all_of(policies_.filters.begin(), policies_.filters.end(),
                    [&](const auto& filter) { return filter->check(part, view) == Refusal::kNone; });
    if (!passes) {
      // Within a slice a node only loses. A node of two fitting kinds may still serve with the other.
      if (nodes_[slot].class_masks.size() <= 1 || part.gpu_count == 0) entry.refused.set(slot);
      continue;
    }
    int32_t total = 0;
    for (const auto& score : policies_.scores) total += score->score(part, view).value;
    if (best.node == Bitmap::kNone || total > best.score.value) {
      best = Choice{.node = slot,
                    .device_mask = lowest_bits(view.usable_mask, part.gpu_count),
                    .device_class = index_class,
                    .score = {total}};
    }
    if (++rated >= limits::kCandidatesMax) break;
  }
  return rated;
}

// Best fit: the tightest bucket that holds a node which passes, the best score within it.
Planner::Choice Planner::choose(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  if (entry.refused_cycle != cycle_) {
    entry.refused.clear_all();
    entry.refused_cycle = cycle_;
  }
  const Part& part = part_of(state, job_class);
  refresh_device_classes(state, entry, part);
  Choice best;
  if (part.gpu_count == 0) {
    for (uint32_t free = 0; free <= index_.free_max(FreeIndex::kNoDevices); ++free) {
      if (scan_bucket(state, job_class, FreeIndex::kNoDevices, free, best) > 0) return best;
    }
    return best;
  }
  if (part.gpu_count > static_cast<int32_t>(limits::kDevicesPerNodeMax)) return best;
  uint32_t free_max = 0;
  for (uint64_t rest = entry.device_classes; rest != 0; rest &= rest - 1) {
    free_max = std::max(free_max, index_.free_max(static_cast<uint32_t>(std::countr_zero(rest))));
  }
  for (auto free = static_cast<uint32_t>(part.gpu_count); free <= free_max; ++free) {
    uint32_t rated = 0;
    for (uint64_t rest = entry.device_classes; rest != 0; rest &= rest - 1) {
      rated += scan_bucket(state, job_class, static_cast<uint32_t>(std::countr_zero(rest)), free, best);
    }
    if (rated > 0) return best;
  }
  return best;
}

std::optional<WaitReason> Planner::quota_block(const State& state, uint32_t job_class) const {
  const JobClass& wanted = state.classes[job_class];
  const Amount amount = total_of(wanted.parts);
  for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    Amount used = at->usage;
    for (const auto& [tenant, planned] : planned_usage_) {
      if (tenant == at->id) used.add(planned);
    }
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t limit = at->limits.get(resource);
      const int64_t needed = amount_of(amount, resource);
      if (needed == 0 || limit == Limits::kUnlimited || amount_of(used, resource) + needed <= limit) continue;
      return WaitReason{.code = WaitCode::kQuota,
                        .wanted = wanted.parts.front(),
                        .tenant = at->id,
                        .resource = resource,
                        .limit = limit,
                        .current = amount_of(used, resource)};
    }
  }
  return std::nullopt;
}

void Planner::reserve(const State& state, const Job& job, const Part& part, const Choice& choice,
                      CommitPlan& plan) {
  NodeInfo& node = nodes_[choice.node];
  node.cpu_milli_free -= part.cpu_milli;
  node.memory_mb_free -= part.memory_mb;
  node.free_mask &= ~choice.device_mask;
  ++node.attempt_count;
  index_node(choice.node);
  planned_.push_back({.job = job.id, .attempt = job.attempt_count + 1, .node = choice.node});
  MemberPlacement member{
      .node = state.nodes[choice.node].id, .part = 0, .device_mask = choice.device_mask, .generations = {}};
  for (uint64_t rest = choice.device_mask; rest != 0; rest &= rest - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(rest));
    member.generations.push_back(state.nodes[choice.node].devices[index].generation);
  }
  plan.groups.push_back(
      PlanGroup{.job = job.id, .attempt = job.attempt_count + 1, .members = {std::move(member)}});
  const Amount amount = total_of(state.class_of(job).parts);
  for (const Tenant* at = state.find_tenant(job.tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    auto it = std::find_if(planned_usage_.begin(), planned_usage_.end(),
                           [&](const auto& entry) { return entry.first == at->id; });
    if (it == planned_usage_.end()) it = planned_usage_.insert(it, {at->id, Amount{}});
    it->second.add(amount);
  }
}

// Places the class's head, or blocks the class.
bool Planner::place_head(const State& state, uint32_t job_class, CommitPlan& plan) {
  const std::optional<WaitReason> over = quota_block(state, job_class);
  if (over) return block(job_class, *over), false;
  const Choice choice = choose(state, job_class);
  if (choice.node == Bitmap::kNone) return block(job_class, explain_refusal(state, job_class)), false;
  ClassInfo& entry = info(job_class);
  const Job* job = state.jobs.find(entry.head.job);
  CHECK(job != nullptr);
  reserve(state, *job, part_of(state, job_class), choice, plan);
  return true;
}

Planner::Slice Planner::plan(const State& state) {
  CHECK(planned_.empty());  // One plan in flight at a time.
  ++cycle_;
  visits_ = 0;
  for (const uint32_t slot : dirty_nodes_) refresh_node(state, slot);
  dirty_nodes_.clear();
  if (pending_unblock()) unblock(state);
  Slice slice;
  slice.plan.based_on = state.last.sequence;
  std::vector<std::pair<uint32_t, OrderedJobs::Cursor>> cursors;
  while (!ready_.empty()) {
    if (slice.plan.groups.size() >= limits::kPlacementsPerSlice || visits_ >= limits::kNodeVisitsPerSlice) {
      slice.more = true;
      break;
    }
    const uint32_t job_class = ready_.begin()->second;
    if (!place_head(state, job_class, slice.plan)) continue;
    auto at =
        std::find_if(cursors.begin(), cursors.end(), [&](const auto& c) { return c.first == job_class; });
    if (at == cursors.end()) at = cursors.insert(at, {job_class, state.classes[job_class].waiting.begin()});
    at->second.next();
    take_from_ready(job_class);
    if (at->second.at_end()) {
      info(job_class).state = ClassState::kIdle;
      continue;
    }
    const Job* head = state.jobs.find((*at->second).job);
    CHECK(head != nullptr);
    ClassInfo& entry = info(job_class);
    entry.head =
        policies_.queue_order->key({.state = state, .job_class = state.classes[job_class], .head = *head});
    ready_.insert({entry.head, job_class});
  }
  for (const auto& [job_class, cursor] : cursors) planned_classes_.push_back(job_class);
  return slice;
}

void Planner::plan_applied(const State& state) {
  for (const Planned& planned : planned_) {
    const Job* job = state.jobs.find(planned.job);
    if (job != nullptr && job->attempt_count >= planned.attempt) {
      mark_dirty(planned.node);
      continue;
    }
    // Dropped: what the rest of the slice took for used is free after all.
    node_gained(state, state.nodes[planned.node].id);
    for (const auto& [tenant, amount] : planned_usage_) freed_tenants_.insert(tenant);
  }
  planned_.clear();
  planned_usage_.clear();
  for (const uint32_t job_class : planned_classes_) {
    // What was dropped as stale waits again, before what the class's line had moved on to.
    ClassInfo& entry = info(job_class);
    if (state.classes[job_class].waiting.empty()) {
      if (entry.state == ClassState::kReady) take_from_ready(job_class);
      if (entry.state == ClassState::kBlocked) blocked_.erase(job_class);
      entry.state = ClassState::kIdle;
    } else if (entry.state != ClassState::kBlocked) {
      make_ready(state, job_class);
    }
  }
  planned_classes_.clear();
}

WaitReason Planner::explain_refusal(const State& state, uint32_t job_class) {
  const Part& part = part_of(state, job_class);
  const ClassInfo& entry = info(job_class);
  WaitReason reason{.wanted = part};
  int64_t with_feature = 0;
  int64_t with_devices = 0;
  int64_t ready = 0;
  int64_t in_service = 0;
  int64_t healthy = 0;
  int64_t with_free = 0;
  int64_t with_cpu = 0;
  int64_t with_memory = 0;
  visits_ += state.nodes.size();
  for (uint32_t slot = 0; slot < state.nodes.size(); ++slot) {
    const Node& node = state.nodes[slot];
    const NodeInfo& now = nodes_[slot];
    if ((part.features & ~node.feature_bits) != 0) continue;
    ++with_feature;
    int count_all = 0;
    int count_healthy = 0;
    int count_free = 0;
    for (const auto& [kind, mask] : now.class_masks) {
      if (((entry.device_classes >> kind) & 1) == 0) continue;
      count_all = std::max(count_all, std::popcount(mask));
      count_free = std::max(count_free, std::popcount(mask & now.free_mask));
      int fit = 0;
      for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
        const Device& device = node.devices[static_cast<std::size_t>(std::countr_zero(rest))];
        if (device.fit() && device.state != DeviceState::kQuarantined) ++fit;
      }
      count_healthy = std::max(count_healthy, fit);
    }
    if (count_all < part.gpu_count) continue;
    ++with_devices;
    if (node.cpu_milli < part.cpu_milli || node.memory_mb < part.memory_mb) continue;
    ++reason.nodes_fitting;
    if (node.state != NodeState::kReady || !now.present) continue;
    ++ready;
    if (node.availability != Availability::kInService) continue;
    ++in_service;
    if (count_healthy < part.gpu_count) continue;
    ++healthy;
    reason.gpus_free_max = std::max<int64_t>(reason.gpus_free_max, count_free);
    if (count_free < part.gpu_count) continue;
    ++with_free;
    if (now.cpu_milli_free < part.cpu_milli) continue;
    ++with_cpu;
    if (now.memory_mb_free >= part.memory_mb) ++with_memory;
  }
  if (state.nodes.empty()) {
    reason.code = WaitCode::kNoNode;
  } else if (with_feature == 0) {
    reason.code = WaitCode::kNoFeature;
  } else if (with_devices == 0) {
    reason.code = WaitCode::kNoSuchDevice;
  } else if (reason.nodes_fitting == 0) {
    reason.code = WaitCode::kTooLarge;
  } else if (ready == 0) {
    reason.code = WaitCode::kNodesAway;
  } else if (in_service == 0) {
    reason.code = WaitCode::kNodesHeld;
  } else if (healthy == 0) {
    reason.code = WaitCode::kDevicesUnfit;
  } else if (with_free == 0) {
    reason.code = WaitCode::kGpusBusy;
  } else if (with_cpu == 0) {
    reason.code = WaitCode::kCpuBusy;
  } else if (with_memory == 0) {
    reason.code = WaitCode::kMemoryBusy;
  } else {
    reason.code = WaitCode::kNodeFull;
  }
  return reason;
}

}  // namespace gpusched
