// gpu-cli attach: a running job's output, live.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "cli/framework/verbs.h"

namespace gpusched::cli {
namespace {

struct AttachOptions {
  std::string job;
  int64_t attempt = 0;
};

/// Waits for SIGINT or SIGTERM in a thread of its own, says that we go, and ends the process there: the other
/// threads wait for the scheduler, and nothing of theirs needs to be finished.
void leave_on_signal(const Session& session, const std::string& job) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);  // Inherited by every thread made from here on.
  std::thread([set, job, err = session.io().err] {
    int signal = 0;
    if (::sigwait(&set, &signal) != 0) return;
    err("\ndetached; the job continues. To attach again: gpu-cli attach " + job + "\n");
    ::_exit(kExitOk);
  }).detach();
}

int attach(Session& session, const AttachOptions& options) {
  const Reply record = session.get("/jobs/" + url_encoded(options.job));
  if (!record) return session.fail(*record.trouble);
  if (is_final(record.json)) return exit_like(session, options.job, record.json);
  leave_on_signal(session, options.job);
  std::mutex mutex;
  const auto copy = [&](Session own, const char* stream, const std::function<void(std::string_view)>& write) {
    const Reply reply = follow_logs(own, options.job, stream, options.attempt, options.attempt > 0,
                                    [&](std::string_view data) {
                                      const std::lock_guard lock(mutex);
                                      write(data);
                                      return true;
                                    });
    if (reply || reply.trouble->code == "log_not_found") return;
    const std::lock_guard lock(mutex);
    own.fail(*reply.trouble);
  };
  std::thread errors(
      [&, own = session.fork()]() mutable { copy(std::move(own), "stderr", session.io().err); });
  copy(session.fork(), "stdout", session.io().out);
  errors.join();
  const Reply end = wait_until_final(session, options.job);
  if (!end) return session.fail(*end.trouble);
  const int code = exit_like(session, options.job, end.json);
  if (code == kExitOk) session.io().err(options.job + " completed\n");
  return code;
}

}  // namespace

Action define_attach(Grammar& grammar) {
  const auto options = std::make_shared<AttachOptions>();
  grammar.argument("JOB", &options->job, "Job id").completes(Complete::kJob);
  grammar
      .option("--attempt", "N", &options->attempt,
              "Output of this attempt only (default: the latest and all later ones)")
      .range(1, 1'000'000'000);
  grammar.details(
      "Copies the job's standard output and standard error until the job ends, across retries and restarts "
      "of the scheduler, and exits with the job's exit code. Ctrl-C detaches; the job continues, and can be "
      "attached to again.");
  return [options](Session& session) { return attach(session, *options); };
}

}  // namespace gpusched::cli
