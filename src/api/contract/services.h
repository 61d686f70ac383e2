#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/ids.h"
#include "base/text/service_port.h"
#include "base/time.h"
#include "model/types.h"

/// Services: jobs that are kept running, several of a kind at a time.
namespace gpusched::api {

/// After which ends a replica is started again.
enum class RestartPolicy : uint8_t { kAlways, kOnFailure, kNever };
/// "always", "on_failure" or "never".
std::string_view to_string(RestartPolicy policy);
std::optional<RestartPolicy> restart_policy_named(std::string_view name);

/// How the number of replicas follows a queue: the jobs of the service's tenant that wait and have a label.
struct ServiceScaling {
  std::string queue;  ///< The label: "KEY=VALUE", or "KEY" for any value.
  int64_t min = 1;
  int64_t max = 0;                   ///< Given wherever there is a queue: at least 1, not below `min`.
  int64_t per_replica = 1;           ///< For so many jobs that wait there is one replica.
  Duration down_after = minutes(5);  ///< Fewer replicas are enough for so long before there are fewer.

  friend bool operator==(const ServiceScaling&, const ServiceScaling&) = default;
};

/// Settings in the record of a service, beside what its replicas run.
struct ServiceSettings {
  int64_t replicas = 1;
  int64_t generation = 1;  ///< Counts what its replicas were told to run: 1, and one more by each rollout.
  RestartPolicy restart = RestartPolicy::kAlways;
  Duration ready_after = seconds(5);     ///< Without a probe, a replica that has run for so long is ready.
  bool has_port = false;                 ///< Each replica gets a port of its node.
  std::optional<ReadyProbe> probe = {};  ///< How a replica's port is asked whether it is ready.
  /// A rollout that makes no progress for longer is stalled; zero: none is.
  Duration rollout_deadline = minutes(10);
  std::optional<ServiceScaling> scaling = {};  ///< `replicas` is within its bounds, and follows its queue.

  friend bool operator==(const ServiceSettings&, const ServiceSettings&) = default;
};

struct ReplicaView {
  JobId job;
  int64_t index = 0;  ///< From 0.
  int64_t generation = 1;
  std::string_view state;  ///< State of its job.
  bool is_ready = false;
  int64_t restarts = 0;   ///< Starts after an end, in its generation.
  std::string node_name;  ///< Empty: it has no place.
  uint32_t port = 0;      ///< Where it is reached there; 0: nowhere yet.
  Time started_at;        ///< None: it does not run.
  Time starts_at;         ///< While it backs off: not before.
  std::string message;    ///< One sentence, of its job.
};

/// View of a service that follows a queue.
struct ScalingView {
  std::optional<int64_t> waiting;  ///< Jobs in the queue; absent: they are being counted.
  int64_t wanted = 0;              ///< Replicas for them, within the bounds.
  std::string message;             ///< Why there are as many replicas as there are: one sentence.
};

struct ServiceView {
  std::string name;
  TenantId tenant;
  JobId record;            ///< The job that is never started, and says what the service is.
  std::string_view state;  ///< "starting", "ready", "rolling_out", "stalled", "finished" or "deleting".
  ServiceSettings settings;
  int64_t running = 0, ready = 0;  ///< Replicas; ready ones run.
  std::string owner;
  Time created_at;  ///< Creation of its generation.
  /// Why a replica could not be made, or the rollout is stalled; empty: nothing is wrong.
  std::string message;
  std::vector<ReplicaView>
      jobs;  ///< Replicas by index, the newest generation first, with the newest job of each of them.
  std::optional<ScalingView> scaling = {};  ///< Absent: it follows no queue.
};

/// A service is created, and rolled out, by the submission of its record: a held job with labels of
/// base/job_labels.h. Here is what else is done to it. Everything is thread-safe and returns at once; answers
/// come by `Done`. `tenant`, if it is given, is an id or a name; a service may also be named by its record.
class ServiceBackend {
 public:
  virtual ~ServiceBackend() = default;

  /// By tenant and name.
  virtual void list_services(const CallerPtr& caller, const std::string& tenant,
                             Done<std::vector<ServiceView>> done) = 0;
  virtual void get_service(const CallerPtr& caller, const std::string& service, const std::string& tenant,
                           Done<ServiceView> done) = 0;
  /// By hand: kConflict when it follows a queue.
  virtual void scale_service(const CallerPtr& caller, const std::string& service, const std::string& tenant,
                             int64_t replicas, const std::string& by, Done<ServiceView> done) = 0;
  /// Changes which queue it follows, and how: `labels` are those of a record that say it, perhaps with the
  /// number of replicas when it follows none any more; the others stay.
  virtual void scale_service_by_queue(const CallerPtr& caller, const std::string& service,
                                      const std::string& tenant, std::map<std::string, std::string> labels,
                                      const std::string& by, Done<ServiceView> done) = 0;
  /// Its replicas are ended by and by; it is shown until they are.
  virtual void delete_service(const CallerPtr& caller, const std::string& service, const std::string& tenant,
                              const std::string& by, Done<ServiceView> done) = 0;
};

}  // namespace gpusched::api
