#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"

namespace gpusched::cli {
namespace {

int set_pause(Session& session, bool paused, const std::string& reason) {
  JsonObjectWriter body;
  body.add("reason", reason);
  const Reply reply = session.send("POST", paused ? "/v1/cluster/pause" : "/v1/cluster/resume", body.text());
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  const int64_t running = reply.json["running_jobs"].integer();
  const int64_t waiting = reply.json["pending_jobs"].integer();
  session.io().out(paused ? "no job is started until `gpu-cli resume`; " + std::to_string(running) +
                                (running == 1 ? " running job continues" : " running jobs continue") +
                                ", new ones are accepted and wait\n"
                          : "jobs start again; " + std::to_string(waiting) +
                                (waiting == 1 ? " job waits\n" : " jobs wait\n"));
  return kExitOk;
}

}  // namespace

Action define_pause(Grammar& grammar) {
  const auto reason = std::make_shared<std::string>();
  grammar.option("--reason", "TEXT", reason.get(), "Reason, shown by `gpu-cli status`");
  grammar.details(
      "Stops all starts in the whole cluster. Running jobs continue and end as usual; submissions are "
      "accepted and wait. The pause persists across restarts of the scheduler, until `gpu-cli resume`. To "
      "keep jobs away from single nodes, use `gpu-cli node drain`.");
  return [reason](Session& session) { return set_pause(session, true, *reason); };
}

Action define_resume(Grammar& grammar) {
  grammar.details("Ends a pause of the cluster. A drained node is returned with `gpu-cli node resume`.");
  return [](Session& session) { return set_pause(session, false, {}); };
}

}  // namespace gpusched::cli
