#include "api/backend/services/service_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace gpusched::api {
namespace {

constexpr Duration kFirstPause = seconds(1);
constexpr Duration kPauseMax = minutes(5);
constexpr Duration kProbePause = milliseconds(500);  // Probes' results come by heartbeats, not by changes.
constexpr Duration kLongRun = minutes(10);  // An end after so long has nothing to do with the one before.

Duration pause_after(int64_t failures) {
  Duration pause = kFirstPause;
  for (int64_t i = 1; i < failures && pause < kPauseMax; ++i) pause = pause * 2;
  return std::min(pause, kPauseMax);
}

/// When the first job of its index and generation was submitted. From jobs alone: whoever asks gets the same.
Time waits_since(const ReplicaRow& replica) {
  return replica.mark.since.valid() ? replica.mark.since : replica.submitted_at;
}

bool is_older(const ReplicaRow& replica, const ServiceRow& service) {
  return replica.mark.generation != service.settings.generation;
}

/// Whether some of what was there before the newest rollout is still to be replaced.
bool is_rolling_out(const ServiceRow& service) {
  return !service.deleted && std::ranges::any_of(service.replicas, [&service](const auto& one) {
    const ReplicaRow& row = one.second;
    return row.is_live() && is_older(row, service) && row.mark.index < service.settings.replicas;
  });
}

/// When a rollout came further: an index got its first replica of the newest generation, which follows upon
/// that all before it were ready, or one of an older generation was gone. A replica that is started again is
/// no progress.
Time last_progress(const ServiceRow& service, const std::map<int64_t, const ReplicaRow*>& newest) {
  Time last;
  for (const auto& [index, row] : newest) last = std::max(last, waits_since(*row));
  for (const auto& [job, row] : service.replicas) {
    if (is_older(row, service) && !row.is_live()) last = std::max(last, row.ended_at);
  }
  return last;
}

/// The one that follows a replica that ended.
ReplicaStart after_end(const ReplicaRow& ended) {
  ReplicaStart next{.mark = ended.mark, .after = {}, .before = ended.job};
  next.mark.restarts += 1;
  next.mark.since = waits_since(ended);
  if (ended.state == JobState::kCancelled) {  // Somebody's wish, or a scale: no failure.
    next.after = pause_after(1);
    return next;
  }
  const bool ran_long = ended.started_at.valid() && ended.ended_at - ended.started_at >= kLongRun;
  next.mark.failures = ran_long ? 1 : next.mark.failures + 1;
  next.after = pause_after(next.mark.failures);
  return next;
}

/// One look at a service.
class Look {
 public:
  Look(const ServiceRow& service, Time now) : service_(service), now_(now) {}

  ServiceSteps take() {
    steps_.stops = service_.older_records;
    if (service_.deleted) {
      for (const auto& [job, row] : service_.replicas) stop(row);
      return std::move(steps_);
    }
    for (const auto& [job, row] : service_.replicas) by_index_[row.mark.index].push_back(&row);
    const int64_t wanted = service_.settings.replicas;
    for (const auto& [job, row] : service_.replicas) {
      if (row.mark.index >= wanted) stop(row);
    }
    for (int64_t index = 0; index < wanted; ++index) look_at(index);
    // One at a time, and only while what is new works.
    if (settled_ && next_ >= 0) start_first(next_);
    return std::move(steps_);
  }

 private:
  void look_at(int64_t index) {
    const ReplicaRow* newest = nullptr;
    for (const ReplicaRow* const row : by_index_[index])
      if (row->mark.generation == service_.settings.generation) newest = row;
    const auto known = service_.done.find(index);
    if (newest == nullptr && known != service_.done.end()) return look_at_done(index, known->second);
    if (newest == nullptr) return look_at_older(index);
    if (newest->is_live()) {
      if (is_ready(*newest, service_.settings, now_)) return stop_others(index, newest->job);
      settled_ = false;
      // One that is being ended is never ready.
      if (newest->state == JobState::kRunning && !newest->ending) await_ready(*newest);
      return;
    }
    if (is_done(*newest, service_.settings.restart)) {
      if (known == service_.done.end()) steps_.done.emplace(index, newest->state);
      return look_at_done(index, newest->state);
    }
    settled_ = false;
    steps_.starts.push_back(after_end(*newest));
  }

  /// Where nothing waits for it, it is the same whether it is ready.
  void await_ready(const ReplicaRow& row) {
    if (row.probed && !is_rolling_out(service_)) return;
    const Time at = row.probed ? now_ + kProbePause : row.started_at + service_.settings.ready_after;
    steps_.look_again = std::min(steps_.look_again, at);
  }

  /// The newest generation ended for good.
  void look_at_done(int64_t index, JobState end) {
    if (end == JobState::kCompleted) return stop_others(index, {});
    settled_ = false;  // The new generation has failed for good: the old one goes on.
  }

  /// There is none of the newest generation.
  void look_at_older(int64_t index) {
    bool any_placed = false;
    for (const ReplicaRow* const row : by_index_[index])
      any_placed |= row->is_live() && row->state != JobState::kPending;
    if (any_placed) {
      if (next_ < 0) next_ = index;
      return;
    }
    stop_others(index, {});  // Those wait still: nothing is lost.
    settled_ = false;
    start_first(index);
  }

  void start_first(int64_t index) {
    steps_.starts.push_back(
        {.mark = {.index = index, .generation = service_.settings.generation}, .after = {}, .before = {}});
  }

  void stop_others(int64_t index, JobId but) {
    for (const ReplicaRow* const row : by_index_[index])
      if (row->job != but) stop(*row);
  }

  void stop(const ReplicaRow& row) {
    if (row.is_live() && !row.ending) steps_.stops.push_back(row.job);
  }

  const ServiceRow& service_;
  const Time now_;
  std::map<int64_t, std::vector<const ReplicaRow*>> by_index_;  ///< The oldest first.
  ServiceSteps steps_;
  bool settled_ = true;  ///< All replicas of the newest generation are ready, or have done their work.
  int64_t next_ = -1;    ///< The first index that an older one runs at; -1: none.
};

}  // namespace

bool is_ready(const ReplicaRow& replica, const ServiceSettings& settings, Time now) {
  if (replica.state != JobState::kRunning || replica.ending || !replica.started_at.valid()) return false;
  if (replica.probed) return replica.endpoint && replica.endpoint->ready.value_or(false);
  return now - replica.started_at >= settings.ready_after;
}

std::optional<Stall> find_stall(const ServiceRow& service, Time now) {
  const Duration patience = service.settings.rollout_deadline;
  if (patience <= Duration{} || !is_rolling_out(service)) return std::nullopt;
  std::map<int64_t, const ReplicaRow*> newest;
  for (const auto& [job, row] : service.replicas) {
    if (!is_older(row, service) && row.mark.index < service.settings.replicas) newest[row.mark.index] = &row;
  }
  if (newest.empty()) {
    const Duration waited = now - service.record_at;
    return waited >= patience ? std::optional(Stall{.waited = waited}) : std::nullopt;
  }
  const Duration waited = now - last_progress(service, newest);
  if (waited < patience) return std::nullopt;
  for (const auto& [index, row] : newest) {
    const bool is_through = is_ready(*row, service.settings, now) ||
                            (row->state == JobState::kCompleted && is_done(*row, service.settings.restart));
    if (!is_through) return Stall{.replica = row, .waited = waited};
  }
  return std::nullopt;
}

bool is_done(const ReplicaRow& replica, RestartPolicy policy) {
  switch (replica.state) {
    case JobState::kCompleted:
      return policy != RestartPolicy::kAlways;
    case JobState::kFailed:
      return policy == RestartPolicy::kNever;
    case JobState::kPending:
    case JobState::kScheduled:
    case JobState::kRunning:
    case JobState::kPreempted:
    case JobState::kCancelled:
      return false;
  }
  return false;
}

int64_t count_done(const ServiceRow& service) {
  std::set<int64_t> done;
  for (const auto& [index, end] : service.done) done.insert(index);
  for (const auto& [job, replica] : service.replicas) {
    if (replica.mark.generation == service.settings.generation && is_done(replica, service.settings.restart))
      done.insert(replica.mark.index);
  }
  return std::ranges::count_if(done, [&](int64_t index) { return index < service.settings.replicas; });
}

ServiceSteps plan_service(const ServiceRow& service, Time now) { return Look(service, now).take(); }

}  // namespace gpusched::api
