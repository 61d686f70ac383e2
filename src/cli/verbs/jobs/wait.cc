#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/signal_watch.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/wait_notice.h"

namespace gpusched::cli {
namespace {

constexpr Duration kRound = milliseconds(200);
constexpr std::size_t kNoticesMax = 8;  ///< Only counts are shown of more jobs.
constexpr Duration kPollServer = seconds(30);
constexpr int kSignalBase = 128;

struct WaitOptions {
  std::vector<std::string> jobs;
  std::string timeout;
  bool any = false;
};

/// Waits for several jobs at once.
class Waiter {
 public:
  Waiter(Session& session, const WaitOptions& wait, Duration patience)
      : session_(session),
        wait_(wait),
        open_(wait.jobs),
        ends_(session.io().wall_now() + patience),
        patient_(session.io()),
        progress_(session.io()) {
    if (wait.jobs.size() > kNoticesMax) return;
    for (const std::string& job : wait.jobs) notices_.emplace(job, WaitNotice(session.io(), job));
  }

  int run();

 private:
  Time now() const { return session_.io().wall_now(); }
  /// Asks for one of the open jobs; true when it is over.
  bool is_over(const std::string& job, Duration poll, std::optional<int>& failed);
  int exit_code() const;
  std::string vain_sentence() const;
  /// How long to wait for the last open job's end in one call.
  Duration last_poll() const;

  Session& session_;
  const WaitOptions& wait_;
  std::vector<std::string> open_;
  Time ends_;
  Patience patient_;
  Progress progress_;
  std::map<std::string, int> codes_;  ///< Exit codes of the jobs that ended.
  std::map<std::string, WaitNotice> notices_;
};

Duration Waiter::last_poll() const {
  const auto notice = notices_.find(open_.front());
  return notice == notices_.end() ? kPollServer : notice->second.next_look();
}

bool Waiter::is_over(const std::string& job, Duration poll, std::optional<int>& failed) {
  const Reply reply = poll_job(session_, job, poll);
  // Nothing else may stand on the line of the progress.
  if (!reply || is_final(reply.json) || is_held(reply.json) || notices_.contains(job)) progress_.clear();
  if (!reply) {
    if (!reply.trouble->passing || !patient_.wait_again()) failed = session_.fail(*reply.trouble);
    return false;
  }
  patient_.renew();
  if (!is_final(reply.json) && !is_held(reply.json)) {
    if (const auto notice = notices_.find(job); notice != notices_.end()) notice->second.look(reply.json);
    return false;
  }
  if (session_.options().json) {
    session_.io().out(json_line(reply));
  } else {
    session_.io().out(job + " " + (is_held(reply.json) ? "held" : reply.json["state"].text()) + "\n");
  }
  codes_[job] = exit_like(session_, job, reply.json);
  return true;
}

/// The code of the first job, in the order of the command line, that did not complete.
int Waiter::exit_code() const {
  for (const std::string& job : wait_.jobs) {
    const auto found = codes_.find(job);
    if (found != codes_.end() && found->second != kExitOk) return found->second;
  }
  return kExitOk;
}

std::string Waiter::vain_sentence() const {
  const std::string after = " after " + wait_.timeout;
  if (wait_.jobs.size() == 1) return gpusched::cli::vain_sentence(open_.front(), wait_.timeout);
  return std::to_string(open_.size()) + " of " + std::to_string(wait_.jobs.size()) + " jobs have not ended" +
         after + ": " + open_.front() + (open_.size() > 1 ? ", ..." : "") + "; they continue";
}

int Waiter::run() {
  for (;;) {
    // The last open job can be waited for at the scheduler; of several we have to ask in turn.
    const Duration left = ends_ - now();
    const Duration poll = open_.size() == 1 ? std::clamp(left, Duration{}, last_poll()) : Duration{};
    std::optional<int> failed;
    std::erase_if(open_, [&](const std::string& job) {
      if (failed || (wait_.any && !codes_.empty())) return false;
      return is_over(job, poll, failed);
    });
    if (failed) return *failed;
    if (open_.empty() || (wait_.any && !codes_.empty())) return exit_code();
    if (now() >= ends_) {
      progress_.clear();
      return session_.fail(kExitWaitedInVain, vain_sentence(), "timeout");
    }
    progress_.show(std::to_string(wait_.jobs.size() - open_.size()) + " of " +
                   std::to_string(wait_.jobs.size()) + " jobs ended");
    if (open_.size() > 1) session_.io().pause(kRound);
  }
}

}  // namespace

int wait_for_jobs(Session& session, const std::vector<std::string>& jobs, const std::string& timeout,
                  bool any) {
  const WaitOptions wait{.jobs = jobs, .timeout = timeout, .any = any};
  const Result<Duration> patience = wait_span(timeout);
  if (!patience) return session.fail(kExitUsage, patience.error().message, "usage");
  const std::unique_ptr<SignalWatch> leaving = watch_leaving(session, jobs);
  return Waiter(session, wait, *patience).run();
}

Result<Duration> wait_span(const std::string& timeout) {
  if (timeout.empty()) return hours(24 * 365);
  const Result<int64_t> span = parse_duration_seconds(timeout);
  if (!span)
    return Error{.code = ErrorCode::kInvalidArgument, .message = "--timeout: " + span.error().message};
  return seconds(*span);
}

std::string vain_sentence(const std::string& job, const std::string& timeout) {
  return job + " has not ended after " + timeout + "; it continues";
}

std::string end_sentence(const std::string& job, const Json& record) {
  const std::string state = record["state"].text();
  const std::string message = record["message"].text();
  const int64_t signal = record["signal"].integer();
  const int64_t exit_code = record["exit_code"].integer();
  if (message.starts_with("was ")) return job + " " + message;
  std::string sentence = job + " " + (state.empty() ? "ended" : state);
  if (state == "completed") return sentence;
  if (!message.empty()) return sentence + ": " + message;
  if (record["reason"].text() == "timeout") return sentence + ": it reached its time limit";
  if (state == "failed" && signal != 0) return sentence + ": ended by signal " + std::to_string(signal);
  if (state == "failed" && exit_code != 0) return sentence + ": exit code " + std::to_string(exit_code);
  return sentence;
}

int exit_like(const Session& session, const std::string& job, const Json& record) {
  const std::string state = record["state"].text();
  if (state == "completed") return kExitOk;
  if (is_held(record)) {
    const std::string why = wait_sentence(job, record);
    const std::string release = job + " is held; to release it: gpu-cli release " + job;
    return session.fail(kExitHeld, why.empty() ? release : why, "held");
  }
  const std::string reason = record["reason"].text();
  const auto signal = static_cast<int>(record["signal"].integer());
  const auto exit_code = static_cast<int>(record["exit_code"].integer());
  int code = kExitJobFailed;
  if (reason == "timeout") {
    code = kExitTimeLimit;
  } else if (reason == "not_at_once") {
    code = kExitRefused;
  } else if (state == "failed" && signal != 0) {
    code = kSignalBase + signal;
  } else if (state == "failed" && exit_code != 0) {
    code = exit_code;
  }
  return session.fail(code, end_sentence(job, record), "");
}

std::string ways_back(const std::string& job) {
  return "  attach   gpu-cli attach " + job + "\n  cancel   gpu-cli cancel " + job + "\n";
}

std::unique_ptr<SignalWatch> watch_leaving(const Session& session, const std::vector<std::string>& jobs) {
  const bool one = jobs.size() == 1;
  const std::string sentence = "\ngpu-cli: " + (one ? jobs.front() + " continues" : "the jobs continue") +
                               "\n" + ways_back(one ? jobs.front() : "JOB");
  return std::make_unique<SignalWatch>(std::initializer_list<int>{SIGINT, SIGTERM},
                                       [sentence, err = session.io().err](int signal) {
                                         err(sentence);
                                         ::_exit(kSignalBase + signal);
                                       });
}

Action define_wait(Grammar& grammar) {
  const auto wait = std::make_shared<WaitOptions>();
  grammar.argument("JOB", &wait->jobs, "Job ids").completes(Complete::kJob);
  grammar.option("--timeout", "SPAN", &wait->timeout,
                 "Stop waiting after this long, with exit code 6; the jobs continue");
  grammar.flag("--any", wait->any, "Exit as soon as one of them has ended");
  grammar.details(
      "Prints the end of each job as it happens. The exit code is 0 if all jobs completed; otherwise it is "
      "that of the first job, in the order given, that did not: its own exit code, 124 at its time limit, "
      "128 + N for signal N, 1 without a code. With `--any` it is that of the job that ended. A job that is "
      "held counts as ended with exit code 8: it does not go on until somebody releases it.");
  grammar.details(
      "If a job waits to be started, standard error says why. Continues across restarts of the scheduler of "
      "up to a minute. Ctrl-C ends gpu-cli; the jobs continue.");
  grammar.example("gpu-cli wait $(gpu-cli list --name 'sweep-*' -o name)", "wait for a whole sweep");
  return [wait](Session& session) { return wait_for_jobs(session, wait->jobs, wait->timeout, wait->any); };
}

}  // namespace gpusched::cli
