// NodeCore: whether the node may take work, by its own checks, and what runs around attempts.
#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "log/log.h"
#include "node/core/node_core.h"

namespace gpusched {
namespace {

/// A check that failed is repeated so soon, and a fault of a hook stands for so long.
constexpr Duration kCheckAgain = seconds(10);
constexpr Duration kFaultStands = seconds(60);
/// So often that time is doubled, to half an hour.
constexpr int kFaultsCountedMax = 6;

}  // namespace

/// True: the attempt starts after its prolog, by `on_prolog_done`.
bool NodeCore::begin_prolog(Row& attempt) {
  if (ports_.hooks == nullptr || !ports_.hooks->has_prolog()) return false;
  attempts_.move(attempt, State::kPreparing);
  ports_.hooks->prolog(attempt.key, attempt.request->devices);
  return true;
}

void NodeCore::on_prolog_done(const AttemptKey& key, const std::string& problem) {
  Row* const attempt = attempts_.find(key);
  if (attempt == nullptr || attempt->state() != State::kPreparing) return;
  if (!problem.empty()) {
    note_fault(problem);
    return end_attempt(*attempt, make_outcome(v1::Outcome::NODE_FAULT, problem));
  }
  if (attempt->stopped_early)
    return end_attempt(*attempt, make_outcome(v1::Outcome::STOPPED, "stopped before it began"));
  start(*attempt);
}

void NodeCore::release_after_epilog(Row& attempt, Time now) {
  const bool never_ran = attempt.pid == 0 && !attempt.prolog;
  if (never_ran || ports_.hooks == nullptr || !ports_.hooks->has_epilog())
    return begin_releases(attempt, now);
  attempts_.move(attempt, State::kCleaning);
  if (!attempt.holds) hold_devices(attempt);  // Of an earlier agent: nobody is told that they are idle.
  ports_.hooks->epilog(attempt.key, attempt.devices, *attempt.outcome);
}

void NodeCore::on_epilog_done(const AttemptKey& key, const std::string& problem) {
  Row* const attempt = attempts_.find(key);
  if (attempt == nullptr || attempt->state() != State::kCleaning) return;
  if (!problem.empty()) note_fault(problem);
  begin_releases(*attempt, ports_.clock.monotonic());
  close_if_done(*attempt);
}

/// The node is held at once, and for a while even when its checks pass; for longer when it is so again and
/// again.
void NodeCore::note_fault(const std::string& problem) {
  const Time now = ports_.clock.monotonic();
  if (!fault_until_.valid() || now >= fault_until_ || faults_in_a_row_ == 0)
    faults_in_a_row_ = std::min(faults_in_a_row_ + 1, kFaultsCountedMax);
  fault_ = problem;
  fault_until_ = now + kFaultStands * (int64_t{1} << (faults_in_a_row_ - 1));
  take_verdict(problem);
  next_check_ = std::min(next_check_, now + kCheckAgain);  // What is wrong may be found, or mended.
}

void NodeCore::begin_check() {
  next_check_ = kNever;  // Its answer says when the next one is due.
  if (checking_) return;
  if (ports_.hooks == nullptr) return lift_fault();
  checking_ = true;
  check_due_ = ports_.clock.monotonic() + options_.check_patience;
  ports_.hooks->check();
}

/// Without anything to look at, a fault stands for its time.
void NodeCore::lift_fault() {
  if (!fault_until_.valid()) return;
  if (ports_.clock.monotonic() < fault_until_) {
    next_check_ = fault_until_;
    return;
  }
  fault_until_ = {};
  take_verdict({});
}

/// No verdict in time is a failed one. Should it still come, it counts then.
void NodeCore::give_up_check() {
  check_due_ = kNever;
  take_verdict("the node's checks have not answered for " +
               std::to_string(options_.check_patience.ms() / 1'000) +
               " s: a health script or a file system hangs; see ps -eo pid,stat,args | grep ' D'");
}

// A clock that is far from the scheduler's makes certificates, logs and time limits lie.
void NodeCore::note_clock(const v1::Registered& registered) {
  clock_problem_.clear();
  if (registered.unix_ms() == 0) return;
  const Duration skew = ports_.clock.wall() - (Time{} + milliseconds(registered.unix_ms()));
  const Duration on_its_way = ports_.clock.monotonic() - registration_sent_at_;
  const Duration distance = std::max(skew, Duration{-skew.ns});
  if (distance <= options_.clock_skew_max + on_its_way) return;
  clock_problem_ = "the clock is " + std::to_string(distance.ms() / 1'000) + " s " +
                   (skew.ns > 0 ? "ahead of" : "behind") +
                   " the scheduler's; synchronise both (chronyc makestep, timedatectl set-ntp true)";
}

void NodeCore::on_checked(const std::string& checked) {
  checking_ = false;
  check_due_ = kNever;
  if (disk_full_) {  // That verdict stands until there is room.
    next_check_ = ports_.clock.monotonic() + std::min(kCheckAgain, options_.check_every);
    return;
  }
  const std::string& problem = checked.empty() ? clock_problem_ : checked;
  const Time now = ports_.clock.monotonic();
  if (!problem.empty()) {
    next_check_ = now + std::min(kCheckAgain, options_.check_every);
    return take_verdict(problem);
  }
  if (now < fault_until_) {
    next_check_ = fault_until_;
    return take_verdict(fault_);
  }
  fault_until_ = {};
  next_check_ = now + options_.check_every;
  take_verdict({});
}

void NodeCore::take_verdict(const std::string& problem) {
  if (verdict_ && *verdict_ == problem) return;
  const bool news = verdict_.has_value() || !problem.empty();
  verdict_ = problem;
  if (news) {
    log_event(problem.empty() ? LogLevel::kInfo : LogLevel::kWarning, "agent",
              problem.empty() ? "checks_passed" : "checks_failed", {}, {{"problem", problem}});
  }
  report_verdict();
}

void NodeCore::report_verdict() {
  if (!verdict_) return;
  v1::Report report;
  report.mutable_validated()->set_ok(verdict_->empty());
  report.mutable_validated()->set_detail(clean_text(*verdict_, limits::kReasonBytesMax));
  outbox_.withdraw(verdict_report_);
  verdict_report_ = outbox_.add(std::move(report));
}

void NodeCore::on_change(const v1::ChangeAttempt& order) {
  const AttemptKey key = from_wire(order.key());
  const Duration limit =
      milliseconds(std::clamp<int64_t>(order.max_runtime_ms(), 0, limits::kRuntimeMax.ns / 1'000'000));
  Row* const attempt = attempts_.find(key);
  if (attempt == nullptr || attempt->over()) return;
  if (attempt->request) attempt->request->max_runtime = limit;
  if (attempt->slicing) attempt->slicing->order.set_max_runtime_ms(limit.ms());
  ports_.spawner.set_max_runtime(key, limit);
  if (attempt->run_limit) attempt->run_limit->max_runtime = limit;
  expect_end_of_run(*attempt);
}

}  // namespace gpusched
