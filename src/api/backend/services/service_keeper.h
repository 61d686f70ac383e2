#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "api/backend/services/service_index.h"
#include "base/time.h"
#include "host/core/system_clock.h"
#include "host/host.h"

namespace gpusched::api {

/// Makes and ends the replicas of all services, by commands such as clients give. It keeps nothing that
/// counts: what is to be done follows from the jobs alone, and each replica is submitted by a key that is
/// made of what it follows, so that a scheduler that dies in between makes none twice. Thread-safe.
class ServiceKeeper final : public std::enable_shared_from_this<ServiceKeeper> {
 public:
  /// The host must outlive it, or its `stop`.
  ServiceKeeper(Host& host, std::shared_ptr<ServiceIndex> index);
  ~ServiceKeeper();

  /// Looks at all services. On the observer's thread, after the index was told.
  void step_all(const Observer::View& view);
  /// Looks at these, which were changed. On the observer's thread, too.
  void step(const Observer::View& view, const std::set<ServiceKey>& changed);
  /// Does nothing from now on.
  void stop();
  /// How many of its requests it knows of, of all services together.
  std::size_t remembered() const;

 private:
  /// Its own requests about a service. Forgotten as soon as no plan wants them.
  struct Requests {
    /// Requests that are not yet seen to be done (kNever), or were refused: when to ask again.
    std::map<std::string, Time> pending;
    /// Suffixes of keys whose first request stood for a job that is not kept any more.
    std::map<std::string, uint64_t> again;
    Time next_look = kNever;
  };

  void take(const Observer::View& view, const ServiceKey& key, Time now);
  /// Forgets all but these and those that are under way.
  void keep_only(const ServiceKey& key, const std::set<std::string>& wanted);
  /// Has the record say which indexes are done: their jobs are not kept for ever.
  void mark_done(const Observer::View& view, const ServiceKey& key, JobId of, const DoneIndexes& done);
  /// Has the record say how many replicas its queue wants.
  void set_replicas(const Observer::View& view, const ServiceKey& key, JobId of, int64_t replicas);
  /// Changes labels of the record, while nobody else changes the service.
  void relabel(const Observer::View& view, const ServiceKey& key, JobId of, const std::string& id,
               const std::function<std::string(std::string_view spec)>& change);
  /// Counts the queue of a service, a piece at a time.
  void count_queue(uint64_t count);
  void submit(const Observer::View& view, const ServiceKey& key, JobId of, const ReplicaStart& start);
  void propose(const ServiceKey& service, const std::string& id, Command command);
  void decided(const ServiceKey& service, const std::string& id, const Result<Decided>& decided);
  /// Whether what has this name may be asked for: it is not under way, and not refused a moment ago.
  bool may_begin(const ServiceKey& service, const std::string& id, Time now);
  void retry(const ServiceKey& service, const std::string& id, Duration after);
  void look_at(const ServiceKey& service, Time time);
  void run();
  Time now() const { return clock_.wall(); }

  Host& host_;
  const std::shared_ptr<ServiceIndex> index_;
  const SystemClock clock_;

  mutable std::mutex mutex_;  // Guards all below.
  std::condition_variable wake_;
  bool stopping_ = false;
  std::map<ServiceKey, Requests> requests_;
  std::thread timer_;
};

}  // namespace gpusched::api
