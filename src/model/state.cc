#include "model/state.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {

State::State() {
  last.sequence = kFirstSequence - 1;
  add_tenant(Tenant{.id = kDefaultTenant, .name = "default"});
}

State State::clone() const {
  State copy;
  copy_all_but_jobs(copy);
  copy.jobs = jobs.clone();
  copy.requests = requests;
  copy.finished = finished;
  copy.request_by_hash_ = request_by_hash_;
  copy.request_chains_ = request_chains_;
  copy.request_counts_ = request_counts_;
  return copy;
}

State State::clone_unfinished(const std::vector<JobId>& also) const {
  State copy;
  copy_all_but_jobs(copy);
  copy.jobs = jobs.clone_if([&](const Job& job) {
    return !is_final(job.state) || settling.contains(job.id) ||
           std::find(also.begin(), also.end(), job.id) != also.end();
  });
  return copy;
}

void State::copy_all_but_jobs(State& copy) const {
  copy.config = config;
  copy.last = last;
  copy.digest = digest;
  copy.tenants = tenants;
  for (auto& [id, tenant] : copy.tenants) copy.tenant_by_id_[id.value] = &tenant;
  copy.device_classes = device_classes;
  copy.nodes = nodes;
  std::tie(copy.owners, copy.keys, copy.node_identities) = std::tie(owners, keys, node_identities);
  copy.attempts = attempts;
  for (auto& [key, attempt] : copy.attempts) copy.attempt_by_job_[key.job.value] = &attempt;
  std::tie(copy.promises, copy.bookings, copy.people) = std::tie(promises, bookings, people);
  copy.submitters = submitters;
  copy.classes = classes;
  copy.line = line;
  copy.timers = timers;
  copy.dependents = dependents;
  copy.settling = settling;
  copy.arrays = arrays;
  copy.due_arrays = due_arrays;
  copy.array_waiting = array_waiting;
  copy.waiting_below = waiting_below;
  std::copy(std::begin(state_counts), std::end(state_counts), std::begin(copy.state_counts));
  copy.pending_backoff = pending_backoff;
  copy.spec_bytes = spec_bytes;
  copy.unfinished_spec_bytes = unfinished_spec_bytes;
  copy.unfinished_spec_bytes_of = unfinished_spec_bytes_of;
  copy.spec_users_ = spec_users_;
  copy.online = online;
  copy.batch = batch;
  copy.skipped = skipped;
  copy.skipped_last = skipped_last;
  copy.class_by_hash_ = class_by_hash_;
  copy.free_classes_ = free_classes_;
  copy.node_by_name_ = node_by_name_;
  copy.node_by_id_ = node_by_id_;
  copy.claims_ = claims_;
  copy.tenants_by_name_ = tenants_by_name_;
  copy.submitters_by_end_ = submitters_by_end_;
  copy.removed_slots_ = removed_slots_;
  copy.device_classes_reused = device_classes_reused;
}

const Promise* State::find_promise(JobId job) const {
  const auto it = promises.find(job);
  return it == promises.end() ? nullptr : &it->second;
}

const Submitter* State::find_submitter(TenantId tenant, const std::string& user) const {
  const auto it = submitters.find({tenant, user});
  return it == submitters.end() ? nullptr : &it->second;
}

Time State::next_due() const {
  if (!settling.empty() || !due_arrays.empty()) return Time{};
  Time due = std::min(timers.empty() ? kNever : timers.begin()->due, next_key_due());
  if (!requests.empty()) due = std::min(due, expiry(requests.begin()->second.at, limits::kRequestKeysKept));
  if (static_cast<int64_t>(requests.size()) > limits::kRequestKeysMax) due = Time{};
  if (!finished.empty()) {
    const Job* oldest = jobs.find(finished.front());
    CHECK(oldest != nullptr);
    due = std::min(due, expiry(oldest->ended_at, config.finished_jobs_kept));
    if (static_cast<int64_t>(finished.size()) > config.finished_jobs_max) due = Time{};
  }
  return due;
}

Time State::expiry(Time since, Duration kept) const {
  const Time plain = since + kept;
  if (skipped.ns == 0) return plain;
  const Time over = skipped_last + kept;  // By then everything from before the skip was kept long enough.
  return plain >= over ? plain : std::min(plain + skipped, over);
}

uint32_t State::intern_device_class(const DeviceClass& device_class) {
  const auto it = std::find(device_classes.begin(), device_classes.end(), device_class);
  if (it != device_classes.end()) return static_cast<uint32_t>(it - device_classes.begin());
  if (device_classes.size() < limits::kDeviceClassesMax) {
    device_classes.push_back(device_class);
    return static_cast<uint32_t>(device_classes.size() - 1);
  }
  const auto unused = static_cast<uint32_t>(std::countr_one(used_device_classes()));
  CHECK(unused < limits::kDeviceClassesMax);
  device_classes[unused] = device_class;
  ++device_classes_reused;
  return unused;
}

uint64_t State::used_device_classes() const {
  static_assert(limits::kDeviceClassesMax <= 64);
  uint64_t used = 0;
  for (const Node& node : nodes) {
    for (const Device& device : node.devices) {
      used |= uint64_t{1} << device.device_class;
      if (device.next_class) used |= uint64_t{1} << *device.next_class;
    }
  }
  return used;
}

Node& State::index_node(Node& node) {
  const bool inserted = node_by_name_.try_emplace(node.name, node.slot).second;
  CHECK(inserted);
  const bool is_new = node_by_id_.try_emplace(node.id.value, node.slot).second;
  CHECK(is_new);
  node.feature_bits = feature_bits_of(node.features);
  refresh_free_mask(node);
  note_claims(node);
  return node;
}

Node& State::add_node(Node node) {
  if (removed_slots_.empty()) return restore_node(std::move(node));
  node.slot = *removed_slots_.begin();
  removed_slots_.erase(removed_slots_.begin());
  CHECK(nodes[node.slot].removed);
  nodes[node.slot] = std::move(node);
  return index_node(nodes[node.slot]);
}

Node& State::restore_node(Node node) {
  node.slot = static_cast<uint32_t>(nodes.size());
  nodes.push_back(std::move(node));
  if (!nodes.back().removed) return index_node(nodes.back());
  removed_slots_.insert(nodes.back().slot);
  return nodes.back();
}

void State::remove_node(NodeId id) {
  Node* node = find_node(id);
  CHECK(node != nullptr);
  CHECK(node->attempts.empty());
  CHECK(node->promised_count == 0);
  node_by_name_.erase(node->name);
  node_by_id_.erase(id.value);
  const uint32_t slot = node->slot;
  nodes[slot] = Node{.id = id, .state = NodeState::kDead, .removed = true, .slot = slot};
  removed_slots_.insert(slot);
  CHECK(find_node(id) == nullptr);
}

void State::note_claims(const Node& node) {
  if (!node.instance.empty()) claims_.note(node.instance, node.slot);
  for (const Device& device : node.devices) claims_.note(device.uuid, node.slot);
}

uint32_t State::acquire_class(TenantId tenant, const std::vector<Part>& parts) {
  Digest hash;
  hash.mix(tenant.value);
  for (const Part& part : parts) mix_fields(hash, part);
  uint64_t key = hash.value();
  // Different classes of one hash stand in neighbouring keys. A gap that a dead class left there may make a
  // second class of equal content, which is harmless: both are whole.
  for (auto it = class_by_hash_.find(key); it != class_by_hash_.end(); it = class_by_hash_.find(++key)) {
    JobClass& found = classes[it->second];
    if (found.tenant != tenant || found.parts != parts) continue;
    ++found.references;
    return it->second;
  }
  uint32_t slot = static_cast<uint32_t>(classes.size());
  if (free_classes_.empty()) {
    classes.emplace_back();
  } else {
    slot = free_classes_.back();
    free_classes_.pop_back();
  }
  JobClass& made = classes[slot];
  made.tenant = tenant;
  made.parts = parts;
  made.references = 1;
  made.hash_key = key;
  class_by_hash_.emplace(key, slot);
  return slot;
}

void State::retain_class(uint32_t job_class) {
  CHECK(classes[job_class].references > 0);
  ++classes[job_class].references;
}

void State::release_class(uint32_t job_class) {
  JobClass& released = classes[job_class];
  CHECK(released.references > 0);
  if (--released.references > 0) return;
  CHECK(released.waiting.empty());
  class_by_hash_.erase(released.hash_key);
  free_classes_.push_back(job_class);
}

int64_t State::waiting_count(const Tenant& tenant) const {
  const auto below = waiting_below.find(tenant.id);
  return tenant.waiting + (below == waiting_below.end() ? 0 : below->second);
}

void State::count_waiting(Tenant& tenant, int64_t change) {
  tenant.waiting += change;
  for (const Tenant* above = find_tenant(tenant.parent); above != nullptr; above = find_tenant(above->parent))
    waiting_below[above->id] += change;
}

void State::count_spec(const Job& job, Tenant& tenant, int64_t users, int64_t unfinished) {
  const auto bytes = static_cast<int64_t>(job.spec.view().size());
  if (bytes == 0) return;
  if (job.array.valid()) {
    const auto known = spec_users_.try_emplace(job.spec.identity()).first;
    SpecUsers& now = known->second;
    const SpecUsers before = now;
    now.all += users;
    now.unfinished += unfinished;
    CHECK(now.all >= now.unfinished && now.unfinished >= 0);
    users = int64_t{now.all > 0} - int64_t{before.all > 0};
    unfinished = int64_t{now.unfinished > 0} - int64_t{before.unfinished > 0};
    if (now.all == 0) spec_users_.erase(known);
  }
  spec_bytes += users * bytes;
  CHECK(spec_bytes >= 0);
  if (unfinished == 0) return;
  CHECK(tenant.id == job.tenant);
  unfinished_spec_bytes += unfinished * bytes;
  tenant.unfinished_spec_bytes += unfinished * bytes;
  const auto holder = unfinished_spec_bytes_of.try_emplace(spec_holder(tenant)).first;
  holder->second += unfinished * bytes;
  CHECK(holder->second >= 0 && tenant.unfinished_spec_bytes >= 0 && unfinished_spec_bytes <= spec_bytes);
  if (holder->second == 0) unfinished_spec_bytes_of.erase(holder);
}

int64_t State::own_spec_bytes(const Job& job) const {
  const auto bytes = static_cast<int64_t>(job.spec.view().size());
  const auto shared = spec_users_.find(job.spec.identity());
  return shared != spec_users_.end() && shared->second.all > 1 ? 0 : bytes;
}

void State::set_spec(Job& job, Blob spec) {
  const int64_t unfinished = is_final(job.state) ? 0 : 1;
  Tenant& tenant = tenant_at(job.tenant);
  count_spec(job, tenant, -1, -unfinished);
  job.spec = std::move(spec);
  count_spec(job, tenant, 1, unfinished);
}

void State::set_anonymous(Tenant& tenant, bool anonymous) {
  const auto move = [&](int64_t sign) {
    if (tenant.unfinished_spec_bytes == 0) return;
    const auto holder = unfinished_spec_bytes_of.try_emplace(spec_holder(tenant)).first;
    holder->second += sign * tenant.unfinished_spec_bytes;
    if (holder->second == 0) unfinished_spec_bytes_of.erase(holder);
  };
  move(-1);
  tenant.anonymous = anonymous;
  move(1);
}

Job& State::add_job(Job job) {
  Tenant* tenant = find_tenant(job.tenant);
  CHECK(tenant != nullptr);
  Job& added = jobs.insert(std::move(job));
  const auto index = static_cast<std::size_t>(added.state);
  ++state_counts[index];
  ++tenant->state_counts[index];
  if (added.state == JobState::kPreempted) count_stopping(added, 1);
  count_spec(added, *tenant, 1, is_final(added.state) ? 0 : 1);
  if (is_final(added.state)) return added;
  ++tenant->unfinished;
  if (added.state != JobState::kPending) return added;
  count_waiting(*tenant, 1);
  enter_line(added);
  return added;
}

void State::remove_job(JobId id) {
  Job* job = jobs.find(id);
  CHECK(job != nullptr);
  CHECK(is_final(job->state));
  Tenant* tenant = find_tenant(job->tenant);
  CHECK(tenant != nullptr);
  CHECK(tenant->state_counts[static_cast<std::size_t>(job->state)] > 0);
  --state_counts[static_cast<std::size_t>(job->state)];
  --tenant->state_counts[static_cast<std::size_t>(job->state)];
  release_class(job->job_class);
  owners.release(job->owner);
  count_spec(*job, *tenant, -1, 0);
  const JobId array = job->array;
  jobs.erase(id);
  if (array.valid()) element_removed(array, array == id);
}

void State::move_job(Job& job, JobState to, JobReason reason) {
  Tenant* tenant = find_tenant(job.tenant);
  CHECK(tenant != nullptr);
  CHECK(!is_final(job.state));  // A finished job is finished once.
  if (job.state == JobState::kPending) {
    count_waiting(*tenant, -1);
    leave_line(job);
    if (job.not_before.valid()) {
      timers.erase(Timer{.due = job.not_before, .kind = TimerKind::kBackoffOver, .id = job.id.value});
      job.not_before = Time{};
    }
    job.held = false;
    job.parked = false;
    if (job.unmet > 0) {
      for (const JobDependency& one : job.dependency_list())
        forget_dependent({.parent = one.parent, .child = job.id});
    }
  }
  CHECK(tenant->state_counts[static_cast<std::size_t>(job.state)] > 0);
  --state_counts[static_cast<std::size_t>(job.state)];
  --tenant->state_counts[static_cast<std::size_t>(job.state)];
  const JobState from = job.state;
  if (from == JobState::kPreempted && to != from) count_stopping(job, -1);
  if (to == JobState::kPreempted && to != from) count_stopping(job, 1);
  job.state = to;
  job.reason = reason;
  ++state_counts[static_cast<std::size_t>(to)];
  ++tenant->state_counts[static_cast<std::size_t>(to)];
  if (is_final(to)) {
    CHECK(tenant->unfinished > 0);
    --tenant->unfinished;
    count_spec(job, *tenant, 0, -1);
    finished.push_back(job.id);
    if (job.deadline.valid())
      timers.erase(Timer{.due = job.deadline, .kind = TimerKind::kDeadline, .id = job.id.value});
    const auto dependent = dependents.lower_bound(Dependent{.parent = job.id, .child = {}});
    if (dependent != dependents.end() && dependent->parent == job.id) settling.insert(job.id);
  }
  if (job.array.valid()) element_moved(job, from);
}

void State::requeue(Job& job, Time not_before) {
  CHECK(not_before.valid());
  CHECK(job.state != JobState::kPending);
  move_job(job, JobState::kPending, JobReason::kBackoff);
  count_waiting(tenant_at(job.tenant), 1);
  job.not_before = not_before;
  enter_line(job);
  timers.insert(Timer{.due = not_before, .kind = TimerKind::kBackoffOver, .id = job.id.value});
  if (job.deadline.valid())  // Its timer may have found the job running.
    timers.insert(Timer{.due = job.deadline, .kind = TimerKind::kDeadline, .id = job.id.value});
}

void State::end_backoff(Job& job) {
  CHECK(job.state == JobState::kPending);
  CHECK(job.not_before.valid());
  timers.erase(Timer{.due = job.not_before, .kind = TimerKind::kBackoffOver, .id = job.id.value});
  leave_line(job);
  job.not_before = Time{};
  job.reason = wait_reason(job);
  enter_line(job);
}

JobReason State::wait_reason(const Job& job) {
  if (job.held) return JobReason::kHeld;
  if (job.parked) return JobReason::kArray;
  const bool tried = job.attempt_count > 0;
  if (job.unmet > 0) return JobReason::kDependency;
  if (job.not_before.valid()) return tried ? JobReason::kBackoff : JobReason::kBegin;
  if (job.is_array()) return JobReason::kArray;
  return tried ? JobReason::kRetry : JobReason::kSubmitted;
}

void State::index_dependencies(const Job& job) {
  if (job.unmet == 0) return;
  for (const JobDependency& one : job.dependency_list()) {
    if (one.verdict != JobDependency::Verdict::kOpen) continue;
    dependents.insert({.parent = one.parent, .child = job.id});
    if (has_ended(one.parent)) settling.insert(one.parent);
  }
}

void State::forget_dependent(const Dependent& dependent) {
  dependents.erase(dependent);
  const auto next = dependents.lower_bound(Dependent{.parent = dependent.parent, .child = {}});
  if (next == dependents.end() || next->parent != dependent.parent) settling.erase(dependent.parent);
}

const Dependent* State::next_settling() const {
  if (settling.empty()) return nullptr;
  const auto first = dependents.lower_bound(Dependent{.parent = *settling.begin(), .child = {}});
  CHECK(first != dependents.end());
  CHECK(first->parent == *settling.begin());
  return &*first;
}

void State::resolve_dependency(Job& job, JobId parent, bool met) {
  CHECK(job.state == JobState::kPending);
  leave_line(job);
  std::vector<JobDependency> list = job.dependency_list();
  for (JobDependency& one : list) {
    if (one.parent == parent && one.verdict == JobDependency::Verdict::kOpen)
      one.verdict = met ? JobDependency::Verdict::kMet : JobDependency::Verdict::kImpossible;
  }
  job.set_dependencies(list);
  forget_dependent({.parent = parent, .child = job.id});
  job.reason = wait_reason(job);
  enter_line(job);
}

void State::set_deadline(Job& job, Time deadline) {
  Timer timer{.due = job.deadline, .kind = TimerKind::kDeadline, .id = job.id.value};
  if (job.deadline.valid()) timers.erase(timer);
  job.deadline = deadline;
  timer.due = deadline;
  if (deadline.valid()) timers.insert(timer);
}

void State::set_begin(Job& job, Time begin) {
  CHECK(job.state == JobState::kPending);
  leave_line(job);
  Timer timer{.due = job.not_before, .kind = TimerKind::kBackoffOver, .id = job.id.value};
  if (job.not_before.valid()) timers.erase(timer);
  job.not_before = begin;
  timer.due = begin;
  if (begin.valid()) timers.insert(timer);
  job.reason = wait_reason(job);
  enter_line(job);
}

void State::set_held(Job& job, bool held) {
  CHECK(job.state == JobState::kPending);
  if (job.held == held) return;
  leave_line(job);
  job.held = held;
  job.reason = wait_reason(job);
  enter_line(job);
  if (job.parked) refresh_array(job.array);
}

void State::reorder(Job& job, int64_t order_key) {
  CHECK(!is_final(job.state));
  if (job.state == JobState::kPending) leave_line(job);
  job.order_key = order_key;
  if (job.state == JobState::kPending) enter_line(job);
}

void State::set_parts(Job& job, const std::vector<Part>& parts) {
  CHECK(job.state == JobState::kPending);
  leave_line(job);
  const uint32_t before = job.job_class;
  job.job_class = acquire_class(job.tenant, parts);  // First, so that it is another slot than the old one's.
  release_class(before);
  enter_line(job);
}

void State::enter_line(const Job& job) {
  if (job.is_queued()) {
    line.insert(job.order());
    classes[job.job_class].waiting.insert(job.order());
  } else {
    ++pending_backoff;
  }
  if (job.is_array()) refresh_array(job.id);
}

void State::leave_line(const Job& job) {
  if (job.is_queued()) {
    line.erase(job.order());
    classes[job.job_class].waiting.erase(job.order());
  } else {
    CHECK(pending_backoff > 0);
    --pending_backoff;
  }
}

Attempt& State::add_attempt(Attempt attempt) {
  const AttemptKey key = attempt.key();
  const auto [it, inserted] = attempts.try_emplace(key, std::move(attempt));
  CHECK(inserted);
  it->second.count_members();
  attempt_by_job_[key.job.value] = &it->second;
  return it->second;
}

void State::remove_attempt(const AttemptKey& key) {
  const auto found = attempts.find(key);
  CHECK(found != attempts.end());
  const auto known = attempt_by_job_.find(key.job.value);
  CHECK(known != attempt_by_job_.end());
  if (known->second == &found->second) {
    // Another of the job's may still hold something.
    const auto other = attempts.lower_bound(AttemptKey{.job = key.job, .attempt = 0, .member = 0});
    auto next = std::next(found);
    if (other != found) {
      known->second = &other->second;
    } else if (next != attempts.end() && next->first.job == key.job) {
      known->second = &next->second;
    } else {
      attempt_by_job_.erase(known);
    }
  }
  attempts.erase(found);
}

TenantId State::root_of(TenantId id) const {
  TenantId root = id;
  for (const Tenant* at = find_tenant(id); at != nullptr; at = find_tenant(at->parent)) root = at->id;
  return root;
}

void State::count_stopping(const Job& job, int64_t sign) {
  const Amount amount = held_by(job);
  pool_of(work_of(class_of(job).parts)).stopping_gpu_milli += sign * amount.gpu_thousandths();
  for (Tenant* each = find_tenant(job.tenant); each != nullptr; each = find_tenant(each->parent)) {
    if (sign > 0) {
      each->going.add(amount);
    } else {
      each->going.subtract(amount);
    }
  }
}

void State::accrue_usage(Tenant& tenant, Time at) const {
  if (!at.valid()) return;
  const bool keeps_parts = config.feature_level >= 6;
  tenant.gpu_time.settle(tenant.usage, at, keeps_parts);
  if (config.feature_level >= 2) tenant.use.settle(tenant.usage, config.half_life(), at, keeps_parts);
}

void State::charge(TenantId tenant, const Amount& amount, Time at, WorkClass work) {
  pool_of(work).milli += amount.gpu_thousandths();
  for (Tenant* each = find_tenant(tenant); each != nullptr; each = find_tenant(each->parent)) {
    accrue_usage(*each, at);
    each->usage.add(amount);
  }
}

void State::discharge(TenantId tenant, const Amount& amount, Time at, WorkClass work) {
  pool_of(work).milli -= amount.gpu_thousandths();
  CHECK(pool_of(work).milli >= 0);
  for (Tenant* each = find_tenant(tenant); each != nullptr; each = find_tenant(each->parent)) {
    accrue_usage(*each, at);
    each->usage.subtract(amount);
    CHECK(each->usage.gpu_thousandths() >= 0 && each->usage.jobs >= 0);
  }
}

void State::hold_member(const Attempt& attempt, uint32_t member) {
  const Member& held = attempt.members[member];
  Node* node = find_node(held.node);
  CHECK(node != nullptr);
  node->cpu_milli_used += held.cpu_milli;
  node->memory_mb_used += held.memory_mb;
  if (held.exclusive) ++node->exclusive_count;
  const AttemptKey key = attempt.key(member);
  const auto place = std::lower_bound(node->attempts.begin(), node->attempts.end(), key);
  CHECK(place == node->attempts.end() || *place != key);
  node->attempts.insert(place, key);
}

void State::release_member(const Attempt& attempt, uint32_t member) {
  const Member& held = attempt.members[member];
  Node* node = find_node(held.node);
  CHECK(node != nullptr);
  node->cpu_milli_used -= held.cpu_milli;
  node->memory_mb_used -= held.memory_mb;
  CHECK(node->cpu_milli_used >= 0);
  CHECK(node->memory_mb_used >= 0);
  CHECK(!held.exclusive || node->exclusive_count > 0);
  if (held.exclusive) --node->exclusive_count;
  const AttemptKey key = attempt.key(member);
  const auto place = std::lower_bound(node->attempts.begin(), node->attempts.end(), key);
  CHECK(place != node->attempts.end() && *place == key);
  node->attempts.erase(place);
}

void State::put_submitter(Submitter submitter, Time at) {
  SubmitterKey key{submitter.tenant, submitter.user};
  Submitter& kept = submitters[key];
  submitters_by_end_.erase({kept.forgettable_at(), key});
  submitters_by_end_.emplace(submitter.forgettable_at(), std::move(key));
  kept = std::move(submitter);
  while (submitters_by_end_.begin()->first <= at || submitters.size() > limits::kSubmittersMax) {
    submitters.erase(submitters_by_end_.begin()->second);
    submitters_by_end_.erase(submitters_by_end_.begin());
  }
}

void State::refill_buckets() {
  std::map<SubmitterKey, Submitter> before = std::exchange(submitters, {});
  submitters_by_end_.clear();
  for (auto& [key, submitter] : before) {
    submitter.full_at = {};
    submitter.next_at = {};
    if (submitter.spent == 0) continue;
    submitters_by_end_.emplace(submitter.forgettable_at(), key);
    submitters.emplace(key, std::move(submitter));
  }
}

void State::count_requests(TenantId tenant, RequestChain& chain, int64_t change) {
  if (chain.count > 0) request_counts_.erase({chain.count, tenant});
  chain.count += change;
  if (chain.count > 0) request_counts_.emplace(chain.count, tenant);
}

void State::remember(RememberedRequest request) {
  const uint64_t number = request.first_id;
  const TenantId tenant = request.tenant;
  request_by_hash_[request_hash(tenant, request.owner, request.key)] = number;
  RequestChain& chain = request_chains_[tenant];
  CHECK(chain.newest < number);  // It is younger than all others of the tenant.
  if (chain.newest != 0) requests.at(chain.newest).next = number;
  if (chain.oldest == 0) chain.oldest = number;
  chain.newest = number;
  count_requests(tenant, chain, 1);
  const bool inserted = requests.try_emplace(number, std::move(request)).second;
  CHECK(inserted);  // A sequence number is used once.
}

void State::forget_oldest_request() {
  CHECK(!requests.empty());
  forget_request_of(requests.begin()->second.tenant);
}

void State::forget_request_of(TenantId tenant) {
  const auto chain = request_chains_.find(tenant);
  CHECK(chain != request_chains_.end());
  const auto oldest = requests.find(chain->second.oldest);
  CHECK(oldest != requests.end());
  const auto known = request_by_hash_.find(request_hash(tenant, oldest->second.owner, oldest->second.key));
  if (known != request_by_hash_.end() && known->second == oldest->first) request_by_hash_.erase(known);
  chain->second.oldest = oldest->second.next;
  count_requests(tenant, chain->second, -1);
  if (chain->second.count == 0) request_chains_.erase(chain);
  owners.release(oldest->second.owner);
  requests.erase(oldest);
}

uint32_t State::feature_bits_of(const std::vector<std::string>& features) const {
  uint32_t bits = 0;
  for (const std::string& feature : features) {
    if (feature == "container") bits |= kFeatureContainer;
    if (feature == "external" && config.feature_level >= 12) bits |= kFeatureExternal;
  }
  return bits;
}

void State::refresh_free_mask(Node& node) {
  node.free_mask = 0;
  if (!node.in_service()) return;
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    if (node.devices[i].placeable() && !node.devices[i].promised_to.valid())
      node.free_mask |= uint64_t{1} << i;
  }
}

}  // namespace gpusched
