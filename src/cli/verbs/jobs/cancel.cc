#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"

namespace gpusched::cli {
namespace {

int cancel_jobs(Session& session, const std::vector<std::string>& jobs) {
  int exit_code = kExitOk;
  for (const std::string& job : jobs) {
    const Reply reply = session.send("DELETE", "/jobs/" + url_encoded(job));
    if (!reply) {
      // The others are cancelled all the same, as far as somebody answers.
      exit_code = session.fail(*reply.trouble);
      if (exit_code == kExitUnreachable) return exit_code;
      continue;
    }
    session.io().out(session.options().json ? json_line(reply) : job + " cancelled\n");
  }
  return exit_code;
}

}  // namespace

Action define_cancel(Grammar& grammar) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  grammar.argument("JOB", jobs.get(), "Job ids").completes(Complete::kJob);
  grammar.details("Continues after a refusal; the exit code is that of the last one.");
  return [jobs](Session& session) { return cancel_jobs(session, *jobs); };
}

}  // namespace gpusched::cli
