#pragma once

#include "cli/session.h"

/// One function for each verb: it does what the options say, prints, and returns the exit code.
namespace gpusched::cli {

int submit_job(Session& session);
int list_jobs(Session& session);
int get_job(Session& session);
int cancel_jobs(Session& session);
int explain_job(Session& session);
int show_logs(Session& session);

int show_cluster(Session& session);
int list_nodes(Session& session);
int list_gpus(Session& session);
int confirm_node_dead(Session& session);
int set_gpu_condition(Session& session);

int create_tenant(Session& session);
int list_tenants(Session& session);
int get_tenant(Session& session);
int update_tenant(Session& session);
int delete_tenant(Session& session);

/// Writes a job's output to `write` until the job has ended, over all attempts from `attempt` on (0: from the
/// latest on); over `attempt` alone when `one_attempt`. Waits for a job that has not started, and takes up
/// the thread after the scheduler was away. `stream` is "stdout" or "stderr".
Reply follow_logs(Session& session, const std::string& job, const std::string& stream, int64_t attempt,
                  bool one_attempt, const HttpOnData& write);

/// Whether a job's record says that nothing more will happen to it.
bool is_final(const Json& job);
/// Asks for the job until it is final, each time for at most `poll`. Survives a scheduler's restart.
Reply wait_until_final(Session& session, const std::string& job);

/// The reply's JSON with one end of line.
std::string json_line(const Reply& reply);

}  // namespace gpusched::cli
