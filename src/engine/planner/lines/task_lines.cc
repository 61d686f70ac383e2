#include "engine/planner/lines/task_lines.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched {
namespace {

__extension__ using Wide = __int128;

/// Number of steps in which past use is forgotten.
constexpr int64_t kSlices = 60;

/// A task has one member, with a share of a GPU: no other job's specification is looked at.
bool may_be_tasks(const std::vector<Part>& parts) { return !is_gang(parts) && parts.front().is_share(); }

}  // namespace

void TaskLines::reset(const State& state, std::shared_ptr<const policy::TaskOrder> order, Time now) {
  *this = TaskLines();
  order_ = std::move(order);
  aging_ = state.config.aging_per_hour;
  if (order_ == nullptr) return;
  CHECK(order_->window >= seconds(1));
  state.jobs.for_each([&](const Job& job) {
    if (job.scheduled_at.valid() && slice_of(job.scheduled_at) > slice_of(now) - kSlices)
      note_placed(state, job.id);
    return true;
  });
  uint32_t reads_left = kResetReadsMax;
  for (uint32_t job_class = 0; job_class < state.classes.size() && reads_left > 0; ++job_class) {
    if (finds_task(state, job_class, reads_left)) begin_line(state, job_class);
  }
}

// If it finds no task of a class, the next task that comes in the class begins the line.
bool TaskLines::finds_task(const State& state, uint32_t job_class, uint32_t& reads_left) const {
  const JobClass& kind = state.classes[job_class];
  if (!may_be_tasks(kind.parts)) return false;
  for (OrderedJobs::Cursor at = kind.waiting.begin(); !at.at_end() && reads_left > 0; at.next()) {
    --reads_left;
    if (facts_of(state, state.job_at((*at).job))) return true;
  }
  return false;
}

std::optional<policy::TaskFacts> TaskLines::facts_of(const State& state, const Job& job) const {
  if (!may_be_tasks(state.class_of(job).parts)) return std::nullopt;
  return order_->reader->read(job.spec.view());
}

int64_t TaskLines::slice_of(Time at) const { return at.ns / (order_->window.ns / kSlices); }

uint32_t TaskLines::user_at(TenantId tenant, const policy::TaskFacts& facts) {
  const UserKey key{tenant, std::string(facts.user)};
  const auto [at, is_new] = user_numbers_.try_emplace(key, static_cast<uint32_t>(users_.size()));
  if (!is_new) return at->second;
  if (free_users_.empty()) {
    users_.emplace_back();
  } else {
    at->second = free_users_.back();
    free_users_.pop_back();
  }
  users_[at->second] = {.key = key, .weight_milli = facts.weight_milli, .use = 0, .groups = {}};
  return at->second;
}

void TaskLines::leave_if_unknown(uint32_t number) {
  const User& user = users_[number];
  if (user.use > 0 || !user.groups.empty()) return;
  user_numbers_.erase(user.key);
  free_users_.push_back(number);
}

int64_t TaskLines::shift_of(const GroupKey& group) const {
  if (group.user == kNobody) return 0;
  const User& user = users_[group.user];
  const Duration delay = order_->delay_of(
      {.user = user.key.second, .cost_milli = group.cost, .weight_milli = user.weight_milli}, user.use);
  return static_cast<int64_t>(Wide{delay.ns} * aging_ / milliseconds(1).ns);
}

// Edits a group of a class's line, which is made if it is new and forgotten when it is empty afterwards.
template <typename Edit>
void TaskLines::change(uint32_t job_class, const GroupKey& key, Edit&& edit) {
  Line& line = lines_[job_class];
  const auto at = line.groups.try_emplace(key).first;
  Group& group = at->second;
  if (!group.jobs.empty()) line.heads.erase(group.head());
  edit(group);
  changed_.push_back(job_class);
  if (!group.jobs.empty()) {
    line.heads.emplace(group.head(), key);
    if (key.user != kNobody) users_[key.user].groups.insert({job_class, key.cost});
    return;
  }
  line.groups.erase(at);
  if (key.user == kNobody) return;
  users_[key.user].groups.erase({job_class, key.cost});
}

void TaskLines::add_use(uint32_t number, int64_t cost) {
  users_[number].use += cost;
  CHECK(users_[number].use >= 0);
  const std::set<std::pair<uint32_t, int64_t>> groups = users_[number].groups;
  for (const auto& [job_class, of_cost] : groups) {
    const GroupKey key{.user = number, .cost = of_cost};
    change(job_class, key, [&](Group& group) { group.shift = shift_of(key); });
  }
}

void TaskLines::note_placed(const State& state, JobId id) {
  const Job* job = order_ == nullptr ? nullptr : state.jobs.find(id);
  if (job == nullptr) return;
  const std::optional<policy::TaskFacts> facts = facts_of(state, *job);
  if (!facts) return;
  const uint32_t user = user_at(job->tenant, *facts);
  slices_[slice_of(job->scheduled_at)][user] += facts->cost_milli;
  add_use(user, facts->cost_milli);
}

void TaskLines::forget_use(Time now) {
  if (order_ == nullptr) return;
  while (!slices_.empty() && slices_.begin()->first <= slice_of(now) - kSlices) {
    const std::map<uint32_t, int64_t> used = std::move(slices_.begin()->second);
    slices_.erase(slices_.begin());
    for (const auto& [user, cost] : used) {
      add_use(user, -cost);
      leave_if_unknown(user);
    }
  }
}

// A class whose first task came: all that wait in it stand here from now on.
void TaskLines::begin_line(const State& state, uint32_t job_class) {
  if (job_class >= lines_.size()) lines_.resize(job_class + 1);
  lines_[job_class].active = true;
  const OrderedJobs& waiting = state.classes[job_class].waiting;
  for (OrderedJobs::Cursor at = waiting.begin(); !at.at_end(); at.next())
    put_in(state, state.job_at((*at).job));
}

void TaskLines::put_in(const State& state, const Job& job) {
  take_out(job.id);  // Where it stood in another class.
  const std::optional<policy::TaskFacts> facts = facts_of(state, job);
  GroupKey key;
  if (facts) key = {.user = user_at(job.tenant, *facts), .cost = facts->cost_milli};
  entries_[job.id.value] = {.job_class = job.job_class, .group = key, .order = job.order()};
  change(job.job_class, key, [&](Group& group) {
    if (group.jobs.empty()) group.shift = shift_of(key);
    group.jobs.insert(job.order());
  });
}

void TaskLines::take_out(JobId id) {
  const auto found = entries_.find(id.value);
  if (found == entries_.end()) return;
  const Entry entry = found->second;
  entries_.erase(found);
  change(entry.job_class, entry.group, [&](Group& group) { group.jobs.erase(entry.order); });
  if (entry.group.user != kNobody) leave_if_unknown(entry.group.user);
  if (lines_[entry.job_class].heads.empty()) end_if_empty(entry.job_class);
}

// Jobs that a plan in the making took out of it are still in the state's line.
void TaskLines::end_if_empty(uint32_t job_class) {
  if (!planned_.empty()) return emptied_.push_back(job_class);
  if (lines_[job_class].heads.empty()) lines_[job_class].active = false;
}

void TaskLines::observe(const State& state, JobId id) {
  if (order_ == nullptr) return;
  take_out(id);
  const Job* job = state.jobs.find(id);
  if (job == nullptr || !job->is_queued()) return;
  if (has(job->job_class)) return put_in(state, *job);
  if (!facts_of(state, *job)) return;
  begin_line(state, job->job_class);
}

void TaskLines::place(JobId id) {
  const auto found = entries_.find(id.value);
  if (found == entries_.end()) return;
  const GroupKey group = found->second.group;
  planned_.emplace_back(id, group);
  if (group.user != kNobody) add_use(group.user, group.cost);
  take_out(id);
}

void TaskLines::plan_applied(const State& state) {
  const std::vector<std::pair<JobId, GroupKey>> planned = std::exchange(planned_, {});
  for (const auto& [id, group] : planned) observe(state, id);
  for (const auto& [id, group] : planned) {
    if (group.user == kNobody) continue;
    add_use(group.user, -group.cost);
    leave_if_unknown(group.user);
  }
  for (const uint32_t job_class : std::exchange(emptied_, {})) end_if_empty(job_class);
}

std::optional<OrderKey> TaskLines::first(const State& state, uint32_t job_class) {
  // A command may already have changed jobs further back in line; that is observed later.
  const std::map<OrderKey, GroupKey>& heads = lines_[job_class].heads;
  while (!heads.empty()) {
    const JobId id = heads.begin()->first.job;
    const Job* job = state.jobs.find(id);
    if (job != nullptr && job->is_queued() && job->job_class == job_class) return heads.begin()->first;
    take_out(id);
  }
  return std::nullopt;
}

std::vector<OrderKey> TaskLines::behind(uint32_t job_class, const OrderKey& begin,
                                        std::size_t jobs_max) const {
  std::vector<OrderKey> found;
  for (const auto& [key, group] : lines_[job_class].groups) {
    std::size_t taken = 0;
    for (OrderedJobs::Cursor at = group.jobs.begin(); !at.at_end() && taken < jobs_max; at.next()) {
      const OrderKey order = group.shifted(*at);
      if (!(begin < order)) continue;
      found.push_back(order);
      ++taken;
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() > jobs_max) found.resize(jobs_max);
  return found;
}

std::optional<OrderKey> TaskLines::key_of(JobId id) const {
  const auto found = entries_.find(id.value);
  if (found == entries_.end()) return std::nullopt;
  const Entry& entry = found->second;
  return lines_[entry.job_class].groups.at(entry.group).shifted(entry.order);
}

}  // namespace gpusched
