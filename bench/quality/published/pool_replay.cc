#include "published/pool_replay.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "engine/policy/backfill/backfill.h"

namespace gpusched::replay {
namespace {

using policy::BackfillPass;
using policy::PoolAmounts;
using policy::Verdict;

enum class EventKind : uint8_t { kRanOut = 0, kSubmitted, kEnded };

struct PoolEvent {
  Time at;
  EventKind kind = EventKind::kRanOut;
  uint32_t job = 0;
  uint64_t order = 0;  ///< Counts events as they are made.

  friend bool operator>(const PoolEvent& a, const PoolEvent& b) {
    return std::tie(a.at, a.kind, a.order) > std::tie(b.at, b.kind, b.order);
  }
};

PoolAmounts size_of(const TraceJob& job) { return {.value = {job.size}}; }

class PoolReplay {
 public:
  PoolReplay(std::span<const TraceJob> jobs, const PoolRules& rules, Estimator& estimator)
      : jobs_(jobs), rules_(rules), estimator_(estimator), runs_(jobs.size()) {
    outcome_.started.resize(jobs.size());
  }

  PoolOutcome run() {
    uint32_t arriving = 0;
    while (arriving < jobs_.size() || !events_.empty()) {
      if (arriving < jobs_.size()) {
        const PoolEvent next{
            .at = at(jobs_[arriving].submitted), .kind = EventKind::kSubmitted, .job = arriving};
        if (events_.empty() || events_.top() > next) {
          ++arriving;
          submitted(next);
          continue;
        }
      }
      const PoolEvent event = events_.top();
      events_.pop();
      if (event.kind == EventKind::kRanOut) ran_out(event);
      if (event.kind == EventKind::kEnded) ended(event);
    }
    CHECK(queue_.empty());
    return std::move(outcome_);
  }

 private:
  struct Run {
    RunEstimate estimate;
    Time estimated_end;
    bool running = false;
  };

  // Times of a trace begin at zero, which elsewhere means "not yet": nothing here asks that.
  static Time at(Duration since_start) { return Time{since_start.ns}; }
  static Duration since_start(Time time) { return Duration{time.ns}; }

  void submitted(const PoolEvent& event) {
    const TraceJob& job = jobs_[event.job];
    CHECK(job.size <= rules_.capacity);
    runs_[event.job].estimate = estimator_.submitted(event.job, job, since_start(event.at));
    queue_.push_back(event.job);
    const int64_t free = rules_.capacity - running_.held_after(event.at).value[0];
    if (rules_.pass_at_every_submission || job.size <= free) pass(event.at);
  }

  void ran_out(const PoolEvent& event) {
    Run& run = runs_[event.job];
    if (!run.running) return;
    const TraceJob& job = jobs_[event.job];
    const Time start = at(outcome_.started[event.job]);
    ++outcome_.corrections;
    const Duration estimate = estimator_.ran_out(event.job, job, run.estimate.hold, event.at - start);
    CHECK(start + estimate > event.at);
    running_.move(run.estimated_end, event.job, start + estimate);
    run.estimate.hold = estimate;
    run.estimated_end = start + estimate;
    if (estimate < job.run) {
      events_.push(
          {.at = run.estimated_end, .kind = EventKind::kRanOut, .job = event.job, .order = ++order_});
    }
  }

  void ended(const PoolEvent& event) {
    Run& run = runs_[event.job];
    running_.remove(run.estimated_end, event.job);
    run.running = false;
    in_use_ -= jobs_[event.job].size;
    estimator_.finished(event.job, jobs_[event.job], since_start(event.at));
    pass(event.at);
  }

  void started(uint32_t index, Time now) {
    const TraceJob& job = jobs_[index];
    Run& run = runs_[index];
    run.running = true;
    run.estimated_end = now + run.estimate.hold;
    if (run.estimate.running.ns > 0 && run.estimate.running != run.estimate.hold) {
      run.estimate.hold = run.estimate.running;
      running_.move(run.estimated_end, index, now + run.estimate.hold);
      run.estimated_end = now + run.estimate.hold;
    }
    outcome_.started[index] = since_start(now);
    in_use_ += job.size;
    if (in_use_ > rules_.capacity) ++outcome_.overfull_starts;
    events_.push({.at = now + job.run, .kind = EventKind::kEnded, .job = index, .order = ++order_});
    if (run.estimate.hold < job.run) {
      events_.push({.at = run.estimated_end, .kind = EventKind::kRanOut, .job = index, .order = ++order_});
    }
    estimator_.started(index, job, since_start(now));
  }

  void pass(Time now) {
    if (queue_.empty()) return;
    ++outcome_.passes;
    BackfillPass pass({.capacity = {.value = {rules_.capacity}},
                       .running = &running_,
                       .now = now,
                       .reservations_max = rules_.reservations,
                       .promises = promises_});
    std::size_t offered = 0;
    for (; offered < queue_.size(); ++offered) {
      if (rules_.shortest_first && pass.blocked() && !pass.reserving()) break;
      offer(pass, queue_[offered], now);
    }
    if (offered < queue_.size()) offer_shortest_first(pass, offered, now);
    promises_ = pass.reservations();
    std::erase_if(queue_, [&](uint32_t job) { return runs_[job].running; });
  }

  bool offer(BackfillPass& pass, uint32_t index, Time now) {
    const policy::Offer offer =
        pass.offer({.id = index, .amounts = size_of(jobs_[index]), .estimate = runs_[index].estimate.hold});
    if (offer.verdict != Verdict::kStart) return false;
    started(index, now);
    return true;
  }

  void offer_shortest_first(BackfillPass& pass, std::size_t from, Time now) {
    if (pass.free().value[0] <= 0) return;
    const std::vector<uint32_t> tail(queue_.begin() + static_cast<std::ptrdiff_t>(from), queue_.end());
    std::vector<Duration> estimates;
    estimates.reserve(tail.size());
    for (const uint32_t job : tail) estimates.push_back(runs_[job].estimate.order);
    for (const uint32_t index : policy::shortest_first(estimates)) offer(pass, tail[index], now);
  }

  std::span<const TraceJob> jobs_;
  PoolRules rules_;
  Estimator& estimator_;
  std::priority_queue<PoolEvent, std::vector<PoolEvent>, std::greater<>> events_;
  std::vector<Run> runs_;
  std::vector<uint32_t> queue_;  ///< In the order of submission.
  policy::ReleaseTimeline running_;
  std::vector<policy::Reservation> promises_;
  int64_t in_use_ = 0;
  uint64_t order_ = 0;
  PoolOutcome outcome_;
};

}  // namespace

PoolOutcome replay_pool(std::span<const TraceJob> jobs, const PoolRules& rules, Estimator& estimator) {
  CHECK(rules.capacity > 0);
  return PoolReplay(jobs, rules, estimator).run();
}

double bounded_slowdown(std::span<const TraceJob> jobs, std::span<const Duration> started, Duration bound) {
  CHECK(jobs.size() == started.size());
  CHECK(bound.ns > 0);
  if (jobs.empty()) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Duration wait_and_run = started[i] - jobs[i].submitted + jobs[i].run;
    const double slowdown =
        static_cast<double>(wait_and_run.ns) / static_cast<double>(std::max(jobs[i].run, bound).ns);
    sum += std::max(1.0, slowdown);
  }
  return sum / static_cast<double>(jobs.size());
}

}  // namespace gpusched::replay
