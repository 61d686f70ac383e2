#include "host/forecast/forecast_service.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/overloaded.h"
#include "engine/policy/policies.h"
#include "log/log.h"

namespace gpusched {
namespace {

Error too_many() {
  return {.code = ErrorCode::kUnavailable,
          .message =
              "too many forecasts are requested at once, or the scheduler is shutting down; try again soon"};
}
Error failed() {
  return {.code = ErrorCode::kInternal,
          .message =
              "no forecast is available: it failed because of a bug of the scheduler, which its log names; "
              "everything else continues"};
}

}  // namespace

/// A state on its way from the observer's thread.
struct ForecastService::Copy {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<State> state;
  Duration took;
};

ForecastService::ForecastService(Observer& observer, const Clock& clock, const HostTuning& tuning,
                                 const Pace& pace)
    : observer_(observer), clock_(clock), tuning_(tuning), pace_(pace) {
  observer_.in_order([this](const Observer::View& view) {
    const std::lock_guard lock(mutex_);
    learned_.begin(view.state);
    learning_ = true;
    waiting_ = view.state.waiting_count();
    seen_sequence_ = view.state.last.sequence;
  });
  observer_.add_listener(
      [this](const Observer::View& view, const Changes& changes) { on_changes(view, changes); });
  thread_ = std::thread([this] { run(); });
}

ForecastService::~ForecastService() { stop(); }

void ForecastService::stop() {
  std::deque<Asked> left;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    left.swap(asked_);
  }
  wake_.notify_all();
  thread_.join();
  for (const Asked& asked : left) asked.unavailable(too_many());
}

void ForecastService::ask(uint64_t sequence, std::vector<JobId> also, Question question,
                          Unavailable unavailable) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_ && asked_.size() < limits::kForecastQueueMax) {
      asked_.push_back({.sequence = sequence,
                        .also = std::move(also),
                        .question = std::move(question),
                        .unavailable = std::move(unavailable)});
      wake_.notify_all();
      return;
    }
  }
  unavailable(too_many());
}

// Everything that the service makes is its own, so that all of it can be thrown away: false when that had to
// be.
bool ForecastService::contain(const std::function<void()>& work) {
  try {
    const ThrowingChecks throwing;
    work();
    return true;
  } catch (const CheckFailure& failure) {
    log_event(LogLevel::kError, "forecast", "failed", {},
              {{"check", failure.fact}, {"file", failure.file}, {"line", failure.line}});
  }
  world_.reset();
  forecast_.reset();
  known_.reset();
  also_.clear();
  copied_sequence_ = 0;
  const std::lock_guard lock(mutex_);
  ++failures_;
  return false;
}

void ForecastService::answer(const Asked& asked) {
  Answer answer;
  const bool whole = contain([&] {
    Table table(*this);
    if (take_copy(asked)) answer = asked.question(table);
  });
  if (answer) return answer();
  asked.unavailable(whole ? too_many() : failed());
}

void ForecastService::on_changes(const Observer::View& view, const Changes& changes) {
  const std::lock_guard lock(mutex_);
  seen_sequence_ = view.state.last.sequence;
  waiting_ = view.state.waiting_count();
  if (!learning_) return;
  const auto score = Overloaded{
      [&](const AttemptPlaced& placed) {
        const Job* job = view.state.jobs.find(placed.job);
        if (job != nullptr) score_.placed(placed.job, job->tenant, placed.at);
      },
      [&](const JobUpdated& updated) { score_.forget(updated.change->job); },
      [&](const JobHoldChanged& held) { score_.forget(held.job); },
      [&](const JobFinished& finished) { score_.forget(finished.job); },
      Ignores<Configured, TenantCreated, TenantUpdated, TenantDeleted, NodeRegistered, NodeStateChanged,
              DeviceConditionChanged, JobSubmitted, RequestRemembered, OldestRequestForgotten, MemberStarted,
              StopRequested, MemberEnded, AttemptAbandoned, JobRequeued, BackoffEnded, JobsForgotten,
              DeviceFreed, DeviceOccupied, DeviceQuarantined, TimerDropped, NodeAvailabilityChanged,
              NodeLabeled, NodeFailureNoted, TimeSkipped, DeviceBarred, DependencySettled, ElementAdded,
              ArrayClosed, DevicesPromised, PromiseEnded, JobCheckpointed, Admitted, BookingMade,
              BookingBegan, BookingEnded, ShareFreed, DeviceHeatChanged, MemberPrepared, DeviceFaultChanged,
              NodeSuspected, WatchdogFindingChanged, ElementUnparked, RequestForgotten, NodeRemoved,
              TenantsForgotten, JobAsked, KeyCreated, KeyRevoked, RoleBound, KeyForgotten, NodeTicketCreated,
              NodeTicketForgotten, NodeAdmitted, NodeRenewed, NodeRevoked, PersonRecorded>{}};
  for (const Event& event : changes.events) {
    learned_.observe(view.state, event);
    std::visit(score, event);
  }
}

policy::PolicySet ForecastService::policies() const {
  policy::PolicySet set = policy::default_policies();
  set.run_times = known_;
  set.victims = nullptr;
  if (tuning_.preemption) set.victims = std::make_shared<policy::LeastLost>(victim_params(tuning_));
  set.tasks = tuning_.tasks;
  return set;
}

// False when it shuts down before.
bool ForecastService::wait_until(Time at) {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Duration left = at - clock_.monotonic();
    if (left.ns <= 0) return true;
    wake_.wait_for(lock, std::chrono::nanoseconds(left.ns));
  }
  return false;
}

bool ForecastService::take_copy(const Asked& asked) {
  bool changed = false;
  {
    const std::lock_guard lock(mutex_);
    changed = seen_sequence_ != copied_sequence_;
  }
  const auto known_too = [this](JobId job) {
    return std::find(also_.begin(), also_.end(), job) != also_.end();
  };
  const bool knows = world_.has_value() && copied_sequence_ >= asked.sequence &&
                     std::all_of(asked.also.begin(), asked.also.end(), known_too);
  if (knows) {
    const Duration age = clock_.monotonic() - copied_at_;
    // Timers move without commands too: what is not changed is still not for ever.
    if (age <=
        (changed ? std::min(copy_took_ * pace_.pause_factor, pace_.state_age_max) : pace_.state_age_max))
      return true;
  }
  const auto copy = std::make_shared<Copy>();
  const Time begin = clock_.monotonic();
  observer_.scan(asked.sequence, [copy, also = asked.also, clock = &clock_](const Observer::View& view) {
    const Time from = clock->monotonic();
    State state = view.state.clone_unfinished(also);
    const std::lock_guard lock(copy->mutex);
    copy->state = std::move(state);
    copy->took = clock->monotonic() - from;
    copy->done.notify_all();
    return false;
  });
  std::unique_lock lock(copy->mutex);
  while (!copy->state.has_value()) {
    copy->done.wait_for(lock, std::chrono::milliseconds(100));
    const std::lock_guard own(mutex_);
    if (stopping_) return false;
  }
  copied_sequence_ = copy->state->last.sequence;
  copied_at_ = clock_.monotonic();
  also_ = asked.also;
  known_ = std::make_shared<KnownRunTimes>([this, at = clock_.wall()](const predict::JobFacts& facts) {
    const std::lock_guard own(mutex_);
    return learned_.expected(facts, at);
  });
  world_.reset();
  world_.emplace(std::move(*copy->state), policies(), clock_.wall());
  forecast::Work work{.left = limits::kForecastWorkMax};
  world_->settle(work);
  copy_took_ = clock_.monotonic() - begin;
  const std::lock_guard own(mutex_);
  copies_took_sum_ = copies_took_sum_ + copy->took;
  return true;
}

forecast::Forecast ForecastService::make(const forecast::World& world, JobId only) {
  forecast::Options options;
  options.only = only;
  const Time begin = clock_.monotonic();
  const Time end = begin + pace_.forecast_time;
  forecast::Forecast made = forecast::forecast(world, *known_, options, [&] {
    if (clock_.monotonic() >= end) return false;
    const std::lock_guard lock(mutex_);
    return !stopping_;
  });
  const Duration took = clock_.monotonic() - begin;
  if (!only.valid()) forecast_took_ = took;
  const std::lock_guard lock(mutex_);
  ++forecasts_;
  forecasts_took_sum_ = forecasts_took_sum_ + took;
  return made;
}

// Whether the last one still says enough about the job; an invalid one: about all.
bool ForecastService::forecast_serves(JobId job) const {
  if (forecast_ == nullptr) return false;
  if (forecast_->sequence == copied_sequence_ && forecast_->at == world_->now()) return true;
  if (job.valid() && forecast_->find(job) == nullptr) return false;
  const Duration age = clock_.monotonic() - forecast_at_;
  return age <= std::min(forecast_took_ * pace_.pause_factor, pace_.state_age_max);
}

const forecast::Forecast& ForecastService::Table::forecast(JobId job) {
  if (service_.forecast_serves(job)) return *service_.forecast_;
  // At most half of the thread's time, whatever is asked.
  service_.wait_until(service_.forecast_at_ + service_.forecast_took_);
  auto made = std::make_shared<forecast::Forecast>(service_.make(*service_.world_, {}));
  service_.forecast_at_ = service_.clock_.monotonic();
  const std::lock_guard lock(service_.mutex_);
  service_.score_.add(*made);
  service_.score_.calibrate(*made);
  service_.forecast_ = std::move(made);
  service_.published_ = service_.forecast_;
  return *service_.forecast_;
}

std::optional<Time> ForecastService::known_start(JobId job) const {
  const std::lock_guard lock(mutex_);
  const forecast::Estimate* const estimate = published_ == nullptr ? nullptr : published_->find(job);
  if (estimate == nullptr || estimate->p50 == kNever) return std::nullopt;
  return estimate->p50;
}

forecast::Forecast ForecastService::Table::forecast_of(const forecast::World& world, JobId job) {
  forecast::Forecast made = service_.make(world, job);
  const std::lock_guard lock(service_.mutex_);
  service_.score_.calibrate(made);
  return made;
}

forecast::MoveOptions ForecastService::Table::move_options() const {
  const policy::LeastLost::Params victims = victim_params(service_.tuning_);
  return {.protection = victims.protection,
          .recent = std::max(victims.recent, service_.tuning_.moves.rest),
          .budget = victims.budget,
          .grace = victims.grace,
          .grace_max = victims.grace_max};
}

void ForecastService::on_moves(std::function<void(MoveJobs)> carry_out) {
  const std::lock_guard lock(mutex_);
  carry_out_ = std::move(carry_out);
}

// One proposal at a time, within the bounds of the configuration; what follows from it is seen next time.
void ForecastService::move_by_itself() {
  std::function<void(MoveJobs)> carry_out;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_ == 0 || !carry_out_) return;
    carry_out = carry_out_;
  }
  const Time now = clock_.monotonic();
  while (!moved_.empty() && moved_.front() + hours(1) <= now) moved_.pop_front();
  const int64_t left = tuning_.moves.per_hour_max - static_cast<int64_t>(moved_.size());
  if (left <= 0 || !take_copy({})) return;
  const Table table(*this);
  forecast::MoveOptions options = table.move_options();
  options.moves_max = std::min(options.moves_max, static_cast<std::size_t>(left));
  forecast::Work work{.left = limits::kMoveWorkMax};
  forecast::MovePlan plan = forecast::plan_moves(*world_, options, work);
  for (forecast::MoveProposal& proposal : plan.proposals) {
    const forecast::MoveBounds bounds{.price_max = tuning_.moves.price_max,
                                      .patience = pace_.move_patience,
                                      .soon = tuning_.victims.patience};
    if (!forecast::is_worth_it(*world_, proposal, bounds)) continue;
    MoveJobs command = std::move(proposal.command);
    command.by = "scheduler";
    command.why = std::to_string(proposal.price.lost_gpu_ms / 1'000) + " GPU-seconds are lost and " +
                  std::to_string(proposal.gpus_started) + " GPUs start";
    moved_.insert(moved_.end(), command.groups.size() - 1, now);
    return carry_out(std::move(command));
  }
}

void ForecastService::run() {
  ::pthread_setname_np(::pthread_self(), "forecast");
  // On Linux this concerns the calling thread alone.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), pace_.nice);
  Time sampled_at = clock_.monotonic();
  Time moved_at = sampled_at;
  const bool acts = tuning_.moves.mode == MoveTuning::Mode::kAct;
  while (true) {
    std::optional<Asked> asked;
    bool sample = false;
    const Time sample_due = sampled_at + pace_.sample_every;
    {
      std::unique_lock lock(mutex_);
      const Time due = acts ? std::min(sample_due, moved_at + pace_.move_every) : sample_due;
      const auto wait = std::chrono::nanoseconds(std::max<int64_t>((due - clock_.monotonic()).ns, 0));
      wake_.wait_for(lock, wait, [this] { return stopping_ || !asked_.empty(); });
      if (stopping_) return;
      if (!asked_.empty()) {
        asked = std::move(asked_.front());
        asked_.pop_front();
      } else {
        sample = waiting_ > 0 && clock_.monotonic() >= sample_due;
      }
    }
    if (acts && clock_.monotonic() >= moved_at + pace_.move_every) {
      contain([this] { move_by_itself(); });
      moved_at = clock_.monotonic();
    }
    if (asked.has_value()) {
      answer(*asked);
      continue;
    }
    if (clock_.monotonic() < sample_due) continue;
    sampled_at = clock_.monotonic();
    if (!sample) continue;
    contain([this] {
      if (take_copy({}) && !forecast_serves({})) Table(*this).forecast({});
    });
  }
}

ForecastService::Quality ForecastService::quality() const {
  const std::lock_guard lock(mutex_);
  return {.eta = score_.totals(),
          .eta_by_tenant = score_.by_tenant(),
          .runs = learned_.quality(),
          .runs_by_tenant = learned_.quality_by_tenant(),
          .forecasts = forecasts_,
          .forecasts_took = forecasts_took_sum_,
          .copies_took = copies_took_sum_,
          .failures = failures_};
}

}  // namespace gpusched
