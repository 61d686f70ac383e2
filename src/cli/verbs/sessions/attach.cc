// gpu-cli attach: a running job's output, live.
#include <signal.h>
#include <unistd.h>

#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/signal_watch.h"

namespace gpusched::cli {
namespace {

struct AttachOptions {
  std::string job;
  int64_t attempt = 0;
};

int attach(Session& session, const AttachOptions& options) {
  const Reply record = session.get("/jobs/" + url_encoded(options.job));
  if (!record) return session.fail(*record.trouble);
  if (is_final(record.json) || is_held(record.json)) return exit_like(session, options.job, record.json);
  const SignalWatch leaving({SIGINT, SIGTERM}, [&](int) {
    session.io().err("\ngpu-cli: detached; the job continues\n" + ways_back(options.job));
    // The other threads wait for the scheduler, and nothing of theirs needs to be finished.
    ::_exit(kExitOk);
  });
  const Reply end = show_until_final(session, options.job, options.attempt, options.attempt > 0);
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
      "of the scheduler, and exits with the job's exit code. The lines of a gang's members begin with "
      "[member]. If the job waits, standard error says why. Ctrl-C detaches; the job continues, and can be "
      "attached to again.");
  return [options](Session& session) { return attach(session, *options); };
}

}  // namespace gpusched::cli
