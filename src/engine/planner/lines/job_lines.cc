#include "engine/planner/lines/job_lines.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/policy/policies.h"

namespace gpusched {
namespace {

/// Expected run times asked for between two refreshes when jobs come in line; later ones are ranked by their
/// limits until it is their turn to be ranked again.
constexpr int64_t kPredictionsMax = 256;
/// Ranks that are made again for each refresh, but together, and at most kRanksMax of them, every
/// kRanksEvery: one after the other in the order of age they cost less, and most refreshes nothing.
constexpr std::size_t kRanksEach = 8;
constexpr std::size_t kRanksMax = 32;
constexpr Duration kRanksEvery = milliseconds(100);

const policy::RunTimes& by_limit() {
  static const policy::LimitRunTimes kRunTimes;
  return kRunTimes;
}

}  // namespace

void JobLines::reset(const State& state, const policy::PolicySet& policies, Time now) {
  order_ = policies.job_order.get();
  run_times_ = policies.run_times.get();
  overtaking_ = policies.overtaking;
  now_ = now;
  predictions_left_ = kPredictionsMax;
  lines_.clear();
  entries_.clear();
  by_age_.clear();
  cursor_ = {};
  ranks_owed_ = 0;
  ranked_at_ = {};
  tasks_.reset(state, kept() ? nullptr : policies.tasks, now);
  if (!kept()) return;
  for (OrderedJobs::Cursor at = state.line.begin(); !at.at_end(); at.next())
    put_in(state, state.job_at((*at).job));
}

const OrderedJobs& JobLines::of(const State& state, uint32_t job_class) {
  static const OrderedJobs kEmpty;
  if (!kept()) return job_class < state.classes.size() ? state.classes[job_class].waiting : kEmpty;
  if (job_class >= lines_.size()) return kEmpty;
  // A command may already have changed jobs further back in line; that is observed later.
  OrderedJobs& line = lines_[job_class];
  while (!line.empty()) {
    const Job* first = state.jobs.find(line.front().job);
    if (first != nullptr && first->is_queued() && first->job_class == job_class) break;
    take_out(line.front().job);
  }
  return line;
}

std::optional<OrderKey> JobLines::first(const State& state, uint32_t job_class) {
  if (has_tasks(job_class)) return tasks_.first(state, job_class);
  const OrderedJobs& line = of(state, job_class);
  return line.empty() ? std::nullopt : std::optional(line.front());
}

std::vector<uint32_t> JobLines::place(JobId job) {
  tasks_.place(job);
  return tasks_.take_changed();
}

OrderKey JobLines::key_of(const State& state, const Job& job, Time now) const {
  if (!kept()) return tasks_.key_of(job.id).value_or(job.order());
  const auto found = entries_.find(job.id.value);
  if (found != entries_.end()) return {.key = found->second.rank, .job = job.id};
  return {.key = order_->rank(state, job, by_limit(), now), .job = job.id};
}

// One that was ended for another job begins to wait again: what it had is more than nothing.
Time JobLines::since_of(const Job& job) const { return std::max(job.submitted_at, job.extras->preempted_at); }

bool JobLines::waited_too_long(Time since, Time now) const {
  return overtaking_.ns > 0 && since + overtaking_ <= now;
}

int64_t JobLines::rank_of(const State& state, const Job& job, Time now) {
  if (waited_too_long(since_of(job), now)) return policy::JobOrder::kFirst;
  if (!order_->is_time_dependent()) return order_->rank(state, job, *run_times_, now);
  if (predictions_left_ <= 0) return order_->rank(state, job, by_limit(), now);
  --predictions_left_;
  return order_->rank(state, job, *run_times_, now);
}

void JobLines::put_in(const State& state, const Job& job) {
  const Entry entry{.job_class = job.job_class, .rank = rank_of(state, job, now_), .since = since_of(job)};
  if (job.job_class >= lines_.size()) lines_.resize(job.job_class + 1);
  lines_[job.job_class].insert({.key = entry.rank, .job = job.id});
  if (entry.rank != policy::JobOrder::kFirst) by_age_.insert({entry.since, job.id});
  entries_[job.id.value] = entry;
}

void JobLines::take_out(JobId job) {
  const auto found = entries_.find(job.value);
  if (found == entries_.end()) return;
  const Entry& entry = found->second;
  lines_[entry.job_class].erase({.key = entry.rank, .job = job});
  by_age_.erase({entry.since, job});
  entries_.erase(found);
}

void JobLines::observe(const State& state, JobId id) {
  if (!kept()) return tasks_.observe(state, id);
  now_ = std::max(now_, state.last.at);
  take_out(id);
  const Job* job = state.jobs.find(id);
  if (job != nullptr && job->is_queued()) put_in(state, *job);
}

// Gives the job another rank; whether it had one that differs.
bool JobLines::move(JobId job, int64_t rank) {
  Entry& entry = entries_.at(job.value);
  if (entry.rank == rank) return false;
  lines_[entry.job_class].erase({.key = entry.rank, .job = job});
  entry.rank = rank;
  lines_[entry.job_class].insert({.key = rank, .job = job});
  return true;
}

std::vector<uint32_t> JobLines::refresh(const State& state, Time now) {
  std::vector<uint32_t> changed;
  if (!kept()) {
    tasks_.forget_use(now);
    return tasks_.take_changed();
  }
  now_ = std::max(now_, now);
  predictions_left_ = kPredictionsMax;
  while (!by_age_.empty() && waited_too_long(by_age_.begin()->first, now_)) {
    const JobId oldest = by_age_.begin()->second;
    if (move(oldest, policy::JobOrder::kFirst)) changed.push_back(entries_.at(oldest.value).job_class);
    by_age_.erase(by_age_.begin());
  }
  if (order_->is_time_dependent()) rank_anew(state, changed);
  return changed;
}

// The next few in the order of age, and after the youngest the oldest again.
void JobLines::rank_anew(const State& state, std::vector<uint32_t>& changed) {
  ranks_owed_ = std::min(ranks_owed_ + kRanksEach, kRanksMax);
  if (now_ < ranked_at_ + kRanksEvery) return;
  ranked_at_ = now_;
  const std::size_t count = std::min(std::exchange(ranks_owed_, 0), by_age_.size());
  auto next = by_age_.upper_bound(cursor_);
  for (std::size_t i = 0; i < count; ++i, ++next) {
    if (next == by_age_.end()) next = by_age_.begin();
    const Job* job = state.jobs.find(next->second);
    CHECK(job != nullptr);  // Everything that happened was observed.
    if (move(job->id, rank_of(state, *job, now_))) changed.push_back(job->job_class);
    cursor_ = *next;
  }
}

}  // namespace gpusched
