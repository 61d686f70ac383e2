#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/backend/services/service_plan.h"
#include "api/backend/services/service_queues.h"
#include "api/backend/services/service_scaling.h"
#include "host/core/interfaces.h"
#include "model/state.h"

namespace gpusched::api {

/// The refusal of a change while another one is under way.
ApiError being_changed(const std::string& service);

/// The services that there are, found in the labels of jobs: as durable as the jobs, and filled again at
/// every start. Thread-safe.
class ServiceIndex {
 public:
  /// Gives the endpoint that the replica's node tells.
  using EndpointOf = std::function<std::optional<ReplicaEndpoint>(NodeId node, const AttemptKey& attempt)>;
  explicit ServiceIndex(EndpointOf endpoint_of = {}) : endpoint_of_(std::move(endpoint_of)) {}

  struct Entry {
    ServiceKey key;
    ServiceRow row;
    std::string problem;                  ///< Why a replica could not be made; empty: nothing is wrong.
    std::optional<int64_t> waiting = {};  ///< Jobs in the queue that it follows; absent: not counted yet.
    std::optional<Lull> lull = {};        ///< Fewer replicas would be enough.
  };

  /// Takes in all of a state; `jobs` are those of it that may be of services, in the order of their ids.
  void fill(const State& state, std::span<const Job* const> jobs);
  /// Takes in a batch of changes. Returns the services that it did something to, those that ended with it and
  /// those whose queue changed among them. On the observer's thread.
  std::set<ServiceKey> observe(const State& state, const Changes& changes);

  std::vector<Entry> all() const;
  std::vector<ServiceKey> keys() const;
  std::optional<Entry> find(const ServiceKey& key) const;
  /// The services of that name, each in its tenant.
  std::vector<ServiceKey> named(const std::string& name) const;
  /// The service that the job is, or was, a record of.
  std::optional<ServiceKey> with_record(JobId job) const;
  struct Plan {
    JobId record;
    ServiceSteps steps;
    std::optional<int64_t> replicas = {};  ///< The record is to say so many from now on.
    std::optional<uint64_t> count = {};    ///< Its queue is to be counted, by `count_some`.
  };
  /// Plans the next steps for the service; nothing when there is none.
  std::optional<Plan> plan(const ServiceKey& key, Time now);
  /// Counts some jobs more of a queue. Returns whether there are others, and adds the services that wait for
  /// the end of it.
  bool count_some(const State& state, uint64_t count, std::set<ServiceKey>& touched);
  /// The service that the job is the record of.
  std::optional<ServiceKey> recorded_by(JobId job) const;
  /// Whether the job is or was a replica of the service.
  bool knows_replica(const ServiceKey& key, JobId job) const;

  /// Only one change of a service is under way at a time: false while another one is.
  bool begin(const ServiceKey& key);
  void end(const ServiceKey& key);
  void note_problem(const ServiceKey& key, std::string problem);

 private:
  struct Service {
    std::set<JobId> records;             ///< Records that have not ended.
    ServiceRow row = {.deleted = true};  ///< Until a record is known.
    std::string problem;
    std::optional<QueueKey> queue;  ///< Queue that it follows.
    std::optional<Lull> lull;

    /// Counts the row's records from its set of them.
    void count_records();
  };

  // All with the mutex held.
  /// Whether the job is about a service, and is known from now on.
  bool add(const State& state, const Job& job);
  void update(const State& state, const Job& job);
  /// The newest record says which queue it follows.
  void follow_queue(const State& state, const ServiceKey& key, const Job& record);
  /// Notes the end of a job that is forgotten already.
  void note_end(const JobFinished& end);
  /// Forgets replicas that ended and say nothing any more, and services of which nothing is left.
  void tidy(const ServiceKey& key);
  /// With what nodes tell now.
  Entry entry_of(const ServiceKey& key, const Service& service) const;

  const EndpointOf endpoint_of_;
  mutable std::mutex mutex_;  // Guards all below.
  std::map<ServiceKey, Service> services_;
  std::map<JobId, ServiceKey> by_job_;
  std::set<ServiceKey> changing_;
  ServiceQueues queues_;
};

}  // namespace gpusched::api
