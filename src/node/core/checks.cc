#include "node/core/checks.h"

#include <algorithm>

#include "base/limits.h"
#include "log/log.h"

namespace gpusched::agent {
namespace {

/// A check that failed is repeated so soon, and a fault of a hook stands for so long.
constexpr Duration kCheckAgain = seconds(10);
constexpr Duration kFaultStands = seconds(60);
/// Faults in a row, each of which doubles that time, to half an hour.
constexpr int kFaultsCountedMax = 6;
constexpr const char* kFullDiskProblem =
    "the disk of the agent's data folder is full; free space there; running jobs continue";

}  // namespace

void Checks::on_registered(int64_t scheduler_unix_ms, Duration on_its_way) {
  note_clock(scheduler_unix_ms, on_its_way);
  if (clock_is_right()) ports_.files.note_time(ports_.clock.wall());
  if (verdict_) {
    report_verdict();
  } else {
    begin();
  }
}

void Checks::tick(Time now) {
  if (now >= next_check_) begin();
  if (now >= due_) give_up();
}

void Checks::note_fault(const std::string& problem) {
  const Time now = ports_.clock.monotonic();
  if (!fault_until_.valid() || now >= fault_until_ || faults_in_a_row_ == 0)
    faults_in_a_row_ = std::min(faults_in_a_row_ + 1, kFaultsCountedMax);
  fault_ = problem;
  fault_until_ = now + kFaultStands * (int64_t{1} << (faults_in_a_row_ - 1));
  take_verdict(problem);
  next_check_ = std::min(next_check_, now + kCheckAgain);  // The fault may be found or repaired.
}

void Checks::note_orders(const std::string& problem) {
  const bool mended = problem.empty() && !order_problem_.empty();
  order_problem_ = problem;
  if (!problem.empty()) take_verdict(problem);
  if (mended) verdict_.reset();  // The next check finds it again.
}

void Checks::note_disk_full() {
  disk_full_ = true;
  take_verdict(kFullDiskProblem);
}

void Checks::note_disk_has_room() {
  disk_full_ = false;
  // Its own checks find out whether anything else is wrong.
  if (ports_.hooks == nullptr) take_verdict(order_problem_);
  next_check_ = ports_.clock.monotonic();
}

void Checks::begin() {
  next_check_ = kNever;  // Its answer says when the next one is due.
  if (checking_) return;
  if (ports_.hooks == nullptr) return lift_fault();
  checking_ = true;
  due_ = ports_.clock.monotonic() + limits_.patience;
  ports_.hooks->check();
}

/// Without anything to look at, a fault stands for its time.
void Checks::lift_fault() {
  if (!fault_until_.valid()) return;
  if (ports_.clock.monotonic() < fault_until_) {
    next_check_ = fault_until_;
    return;
  }
  fault_until_ = {};
  take_verdict(order_problem_);
}

/// No verdict in time is a failed one. Should it still come, it counts then.
void Checks::give_up() {
  due_ = kNever;
  take_verdict("the node's checks have not finished for " + std::to_string(limits_.patience.ms() / 1'000) +
               " s: a health script or a file system hangs; see ps -eo pid,stat,args | grep ' D'");
}

// A clock that is far from the scheduler's makes certificates, logs and time limits lie.
void Checks::note_clock(int64_t scheduler_unix_ms, Duration on_its_way) {
  clock_problem_.clear();
  if (scheduler_unix_ms == 0) return;
  const Duration skew = ports_.clock.wall() - (Time{} + milliseconds(scheduler_unix_ms));
  const Duration distance = std::max(skew, Duration{-skew.ns});
  if (distance <= limits_.clock_skew_max + on_its_way) return;
  clock_problem_ = "the clock is " + std::to_string(distance.ms() / 1'000) + " s " +
                   (skew.ns > 0 ? "ahead of" : "behind") +
                   " the scheduler's; synchronize both (chronyc makestep, timedatectl set-ntp true)";
}

void Checks::on_checked(const std::string& checked) {
  checking_ = false;
  due_ = kNever;
  if (disk_full_) {  // The verdict of a full disk stands until there is room.
    next_check_ = ports_.clock.monotonic() + std::min(kCheckAgain, limits_.every);
    return;
  }
  const std::string& problem = !checked.empty()          ? checked
                               : !order_problem_.empty() ? order_problem_
                                                         : clock_problem_;
  const Time now = ports_.clock.monotonic();
  if (!problem.empty()) {
    next_check_ = now + std::min(kCheckAgain, limits_.every);
    return take_verdict(problem);
  }
  if (now < fault_until_) {
    next_check_ = fault_until_;
    return take_verdict(fault_);
  }
  fault_until_ = {};
  next_check_ = now + limits_.every;
  take_verdict({});
}

void Checks::take_verdict(const std::string& problem) {
  if (verdict_ && *verdict_ == problem) return;
  const bool news = verdict_.has_value() || !problem.empty();
  verdict_ = problem;
  if (news) {
    log_event(problem.empty() ? LogLevel::kInfo : LogLevel::kWarning, "agent",
              problem.empty() ? "checks_passed" : "checks_failed", {}, {{"problem", problem}});
  }
  report_verdict();
}

void Checks::report_verdict() {
  if (!verdict_) return;
  v1::Report report;
  report.mutable_validated()->set_ok(verdict_->empty());
  report.mutable_validated()->set_detail(clean_text(*verdict_, limits::kReasonBytesMax));
  reports_.replace(verdict_report_, std::move(report));
}

}  // namespace gpusched::agent
