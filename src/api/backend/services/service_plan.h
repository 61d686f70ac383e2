#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/backend/services/service_labels.h"
#include "api/contract/services.h"

/// Steps that make a service as its record says. Pure: the same rows give the same steps, so that a scheduler
/// that dies at any point goes on where it was.
namespace gpusched::api {

/// Where a replica is reached, as its node tells.
struct ReplicaEndpoint {
  uint32_t port = 0;
  std::optional<bool> ready = {};  ///< Last result of its probe; absent: none yet.
  std::string detail = {};         ///< Why it is not ready.
};

struct ReplicaRow {
  JobId job;
  ReplicaMark mark;
  JobState state = JobState::kPending;
  bool ending = false;  ///< Somebody asked for its end.
  Time submitted_at = {}, started_at = {}, ended_at = {};
  NodeId node = {};
  uint32_t attempt = 0;
  bool probed = false;  ///< Its probe says whether it is ready; else the time that it runs does.
  std::optional<ReplicaEndpoint> endpoint = {};

  bool is_live() const { return !is_final(state); }
};

struct ServiceRow {
  JobId record;  ///< The newest one.
  ServiceSettings settings;
  bool deleted = false;              ///< No record of it is left that has not ended.
  std::vector<JobId> older_records;  ///< Those that have not ended beside the newest.
  /// Indexes whose work is done for good, and how that ended; their jobs may be forgotten.
  DoneIndexes done;
  std::map<JobId, ReplicaRow> replicas;
  Time record_at;  ///< When the newest record was submitted.
};

/// A replica to be made.
struct ReplicaStart {
  ReplicaMark mark;
  Duration after;  ///< Time from now on.
  JobId before;    ///< The one whose end it follows; none: it is the first of its index and generation.
};

struct ServiceSteps {
  std::vector<ReplicaStart> starts;
  std::vector<JobId> stops;
  DoneIndexes done;  ///< Indexes that the record does not name yet.
  Time look_again = kNever;
};
ServiceSteps plan_service(const ServiceRow& service, Time now);

/// Why a rollout does not go on.
struct Stall {
  const ReplicaRow* replica = nullptr;  ///< It does not get ready; null: none could be made.
  Duration waited;                      ///< Since the rollout came further.
};
/// Nothing: no rollout is under way, all of it is ready so far, or it came further within its deadline. So a
/// replica that was ready and is not for a while stalls a long rollout only when nothing else happens,
/// either.
std::optional<Stall> find_stall(const ServiceRow& service, Time now);

/// Whether its probe says so, or it has run for as long as the service wants.
bool is_ready(const ReplicaRow& replica, const ServiceSettings& settings, Time now);
/// Whether its end is the last one of its index: the policy starts none after it.
bool is_done(const ReplicaRow& replica, RestartPolicy policy);
/// How many of the wanted indexes have done their work for good.
int64_t count_done(const ServiceRow& service);

}  // namespace gpusched::api
