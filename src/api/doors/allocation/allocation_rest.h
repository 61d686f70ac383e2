#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/contract/backend.h"
#include "api/doors/allocation/allocation_json.h"
#include "api/doors/allocation/lease_admission.h"
#include "api/doors/allocation/repeated_calls.h"
#include "api/doors/rest_routes.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// The newest heartbeat of each lease, since this process began. Thread-safe.
class Heartbeats {
 public:
  void note(JobId lease, Time at);
  /// None: there was none.
  Time last(JobId lease) const;

 private:
  mutable std::mutex mutex_;
  std::map<JobId, Time> last_;  ///< Bounded: the oldest leases go first.
};

/// The allocation door over REST: GPUs held for somebody, under /api/gpuscheduler/v1. Its allocations are
/// leases, which are jobs. See docs/reference/allocations.md. Every call needs a credential. Errors are
/// written by `allocation_error`. Requests come on the server's thread; nothing blocks it.
class AllocationRest {
 public:
  explicit AllocationRest(Backend& backend) : backend_(backend), admission_(backend) {}
  void attach(HttpServer& server) { server_ = &server; }

  /// Whether a path is this door's.
  static bool takes(std::string_view path);
  /// Whether it asks for the health at the door's own port, which is told to everybody.
  static bool is_health(const HttpRequest& request);
  void handle(HttpRequest&& request, const RestCallPtr& call);
  /// Says in the note what a request is about that nobody is to answer.
  static void name_call(const HttpRequest& request, CallNote& note);

  using RouteRow = RestRoute<AllocationRest>;
  static std::span<const RouteRow> routes();

 private:
  using Segments = std::vector<std::string>;

  void health(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void allocate(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void list(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void get(const HttpRequest&, const Segments& path, const RestCallPtr& call);
  void release(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void heartbeat(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void renew(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void create_organization(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void create_key(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void list_keys(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void revoke_key(const HttpRequest& request, const Segments& path, const RestCallPtr& call);

  void create_user(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void list_users(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void update_user(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  /// `person` none: a new one.
  void record_user(const HttpRequest& request, PersonId person, const RestCallPtr& call);

  /// Calls `then` once the cluster's name is known, which ids are made of.
  void with_cluster(const RestCallPtr& call, std::function<void()> then);
  /// Only once that is known.
  std::string cluster() const;
  /// Calls `use` with the lease of the path, when the caller may see it and it is one; else answers.
  void with_lease(const Segments& path, const RestCallPtr& call, std::function<void(JobView)> use);
  /// Calls `use` unless the call repeats another one by its Idempotency-Key, whose answer it gets then.
  void once(const HttpRequest& request, const RestCallPtr& call,
            const std::function<void(const RepeatedCalls::TurnPtr&)>& use);
  /// Mark that every repetition of the request has and no other request; empty: it has no Idempotency-Key.
  static std::string repeats(const HttpRequest& request, const RestCallPtr& call);
  /// Extends the lease unless the request with this mark did: then the lease is shown. `mark` empty: the
  /// request cannot be repeated.
  void extend_once(const RestCallPtr& call, const JobView& job, Duration by, const std::string& asked_by,
                   const std::string& mark, const RepeatedCalls::TurnPtr& turn);
  /// Answers for a lease that the caller does not see: whose it is is nobody's business, that it is one is
  /// told.
  void answer_unseen(const RestCallPtr& call, JobId id, const ApiError& error);
  /// Answers with the lease and what is known of its devices.
  void show(const RestCallPtr& call, JobView job, RepeatedCalls::TurnPtr turn = {});
  void extend(const RestCallPtr& call, const JobView& job, Duration by, const std::string& asked_by,
              RepeatedCalls::TurnPtr turn);
  LeaseScene scene_of(JobId lease, const DeviceTable* devices) const;

  Backend& backend_;
  HttpServer* server_ = nullptr;
  LeaseAdmission admission_;
  Heartbeats heartbeats_;
  const std::shared_ptr<RepeatedCalls> repeated_ = std::make_shared<RepeatedCalls>();
  mutable std::mutex mutex_;
  std::string cluster_;  ///< Empty: it has not been asked for, or has none yet.
};

}  // namespace gpusched::api
