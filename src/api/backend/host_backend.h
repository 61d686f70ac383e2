#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "api/backend/anonymous_limits.h"
#include "api/backend/job_turns.h"
#include "api/backend/key_index.h"
#include "api/backend/keys/password_hasher.h"
#include "api/backend/nameless_jobs.h"
#include "api/backend/services/service_keeper.h"
#include "api/backend/tasks/task_index.h"
#include "api/backend/tasks/task_uses.h"
#include "api/backend/wait_estimates.h"
#include "api/backend/watch/change_feed.h"
#include "api/contract/backend.h"
#include "api/limits/node_addresses.h"
#include "api/limits/waiting_shares.h"
#include "api/views/flow_views.h"
#include "api/views/job_counts.h"
#include "api/views/proposed_moves.h"
#include "api/views/rights.h"
#include "api/views/viewer.h"
#include "host/host.h"

namespace gpusched::machines {
class Machines;
}

namespace gpusched::api {

/// The client's error when a proposal was refused.
std::optional<ApiError> refusal(const Result<Decided>& decided, std::size_t batch_size = 1);

struct HostBackendOptions {
  int32_t default_priority = 100;
  bool gangs = true;                               ///< Jobs may be on several nodes.
  Duration preempt_grace_max = minutes(5);         ///< Most that a job may ask for.
  std::vector<std::string> preempt_webhook_hosts;  ///< Hosts that jobs may name URLs of.
  AnonymousLimits anonymous;
  NodeAddresses* node_addresses =
      nullptr;                 ///< Forgets removed nodes; null: nobody. It must outlive the backend.
  KeyUses key_uses = {};       ///< Uses of keys that are known from before.
  bool learn_task_use = true;  ///< The GPU memory of tasks of agents that ask for none is learned.
  /// Machines of providers; null: no pools are configured. They must outlive the backend.
  const machines::Machines* machines = nullptr;
};

/// The doors' backend over a host: commands go to its thread, reads to its observer's. Here every call is
/// decided about (`access::decide_access`): before anything else, or, where that needs the job or the tenant,
/// as soon as these are known. Neither a job's tenant and owner nor a tenant's parents ever change, so that
/// nothing overtakes a decision before its command.
class HostBackend final : public Backend {
 public:
  /// Before the host begins to serve. The host must outlive it; no call may come after the host's stop.
  HostBackend(Host& host, HostBackendOptions options);
  ~HostBackend() override;

  void on_group_done(std::function<void()> hook) override { host_.on_group_done(std::move(hook)); }
  void submit(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done) override;
  void cancel(const CallerPtr& caller, JobId job, const std::string& tenant, const std::string& by,
              Done<Unit> done) override;
  void create_tenant(const CallerPtr& caller, TenantRequest request, Done<TenantView> done) override;
  void update_tenant(const CallerPtr& caller, const std::string& tenant, TenantRequest request,
                     Done<TenantView> done) override;
  void delete_tenant(const CallerPtr& caller, const std::string& tenant, const std::string& by,
                     Done<Unit> done) override;
  void edit_cluster(const CallerPtr& caller, EditsRequest request, Done<EditsView> done) override;
  void confirm_dead(const CallerPtr& caller, const std::string& node, const std::string& by,
                    Done<NodeView> done) override;
  void remove_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                   Done<Unit> done) override;
  void set_condition(const CallerPtr& caller, const std::string& node, uint32_t index,
                     DeviceCondition condition, const std::string& detail, const std::string& by,
                     Done<NodeView> done) override;
  void update_job(const CallerPtr& caller, JobId job, const std::string& tenant, JobUpdate update,
                  Done<JobView> done) override;
  void hold_job(const CallerPtr& caller, JobId job, const std::string& tenant, bool held,
                const std::string& by, Done<JobView> done) override;
  void requeue_job(const CallerPtr& caller, JobId job, const std::string& tenant, const std::string& by,
                   Done<JobView> done) override;
  void rerun_job(const CallerPtr& caller, JobId job, RerunRequest request, Done<Submitted> done) override;
  void drain_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                  const std::string& reason, Done<NodeView> done) override;
  void resume_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                   Done<NodeView> done) override;
  void reboot_node(const CallerPtr& caller, const std::string& node, const std::string& reason,
                   Done<NodeView> done) override;
  void make_reservation(const CallerPtr& caller, ReservationRequest request,
                        Done<ReservationView> done) override;
  void list_reservations(const CallerPtr& caller, Done<std::vector<ReservationView>> done) override;
  void cancel_reservation(const CallerPtr& caller, const std::string& reservation, Done<Unit> done) override;
  void list_services(const CallerPtr& caller, const std::string& tenant,
                     Done<std::vector<ServiceView>> done) override;
  void get_service(const CallerPtr& caller, const std::string& service, const std::string& tenant,
                   Done<ServiceView> done) override;
  void scale_service(const CallerPtr& caller, const std::string& service, const std::string& tenant,
                     int64_t replicas, const std::string& by, Done<ServiceView> done) override;
  void scale_service_by_queue(const CallerPtr& caller, const std::string& service, const std::string& tenant,
                              std::map<std::string, std::string> labels, const std::string& by,
                              Done<ServiceView> done) override;
  void delete_service(const CallerPtr& caller, const std::string& service, const std::string& tenant,
                      const std::string& by, Done<ServiceView> done) override;
  void label_node(const CallerPtr& caller, const std::string& node, std::vector<Label> set,
                  std::vector<std::string> remove, Done<NodeView> done) override;
  void get_job(const CallerPtr& caller, JobId job, const std::string& tenant, Done<JobView> done) override;
  void get_history(const CallerPtr& caller, JobId job, const std::string& tenant,
                   Done<HistoryView> done) override;
  std::shared_ptr<void> watch_job(const CallerPtr& caller, JobId job, const std::string& tenant,
                                  Done<JobView> changed) override;
  void list_jobs(const CallerPtr& caller, JobFilter filter, Done<JobPage> done) override;
  void get_jobs(const CallerPtr& caller, std::vector<JobId> ids, JobFilter filter,
                Done<JobPage> done) override;
  std::shared_ptr<void> watch_changes(const CallerPtr& caller, std::optional<uint64_t> since,
                                      std::function<void(const ChangeNotice&)> changed,
                                      std::function<void(const WatchBegin&)> begun) override;
  void plan(const CallerPtr& caller, SubmitRequest request, Done<PlanView> done) override;
  void explain_job(const CallerPtr& caller, JobId job, const std::string& tenant,
                   Done<ExplainView> done) override;
  void get_moves(const CallerPtr& caller, MovesRequest request, Done<MovesView> done) override;
  void apply_moves(const CallerPtr& caller, ApplyMoves request, Done<MoveProposalView> done) override;
  void get_tenant(const CallerPtr& caller, const std::string& tenant, Done<TenantView> done) override;
  void list_tenants(const CallerPtr& caller, Done<std::vector<TenantView>> done) override;
  void list_nodes(const CallerPtr& caller, Done<std::vector<NodeView>> done) override;
  void get_node(const CallerPtr& caller, const std::string& node, Done<NodeView> done) override;
  void get_cluster(const CallerPtr& caller, Done<ClusterView> done) override;
  void get_pools(const CallerPtr& caller, Done<PoolsView> done) override;
  void set_pools(const CallerPtr& caller, int64_t online_milli, const std::string& by,
                 Done<PoolsView> done) override;
  void pause_starts(const CallerPtr& caller, bool paused, const std::string& by, const std::string& reason,
                    Done<ClusterView> done) override;
  void get_quality(const CallerPtr& caller, const std::string& tenant, Done<QualityView> done) override;
  void get_metrics(const CallerPtr& caller, Done<MetricsView> done) override;
  void read_log(const CallerPtr& caller, LogRequest request, Done<LogPiece> done) override;
  std::shared_ptr<SessionHandle> open_session(const CallerPtr& caller, SessionRequest request,
                                              std::shared_ptr<SessionPeer> peer) override;
  void read_file(const CallerPtr& caller, FileRequest request, Done<FilePiece> done) override;
  void create_key(const CallerPtr& caller, KeyRequest request, Done<KeyView> done) override;
  void list_keys(const CallerPtr& caller, KeyFilter filter, Done<KeyPage> done) override;
  void revoke_key(const CallerPtr& caller, KeyId key, const std::string& by, Done<KeyView> done) override;
  void bind_role(const CallerPtr& caller, KeyId key, RoleRequest role, bool taken, const std::string& by,
                 Done<KeyView> done) override;
  void record_person(const CallerPtr& caller, PersonId person, PersonRequest request,
                     Done<PersonView> done) override;
  void list_people(const CallerPtr& caller, int64_t skip, int64_t limit,
                   Done<std::vector<PersonView>> done) override;
  void create_node_token(const CallerPtr& caller, NodeTokenRequest request,
                         Done<NodeTokenView> done) override;
  void list_node_identities(const CallerPtr& caller, NodeIdentityFilter filter,
                            Done<NodeIdentityPage> done) override;
  void revoke_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                   Done<NodeIdentityView> done) override;
  /// Requests that were refused because their caller, or its tenant, had too many waiting.
  uint64_t refused_for_share() const { return shares_->refused(); }
  /// Index of keys and their holders. It lives as long as this.
  const KeyIndex& keys() const { return *keys_; }
  /// The jobs that are tasks of agents. It lives as long as this.
  TaskIndex& tasks() const { return *tasks_; }
  HealthView health() const override;
  bool containers_possible() const override { return containers_->load(std::memory_order_acquire); }

 private:
  class Watch;
  /// Whether the caller may do that to the tenant, as far as is known without the state.
  bool is_known_to_be_allowed(const access::Caller& caller, access::Action action, TenantId tenant) const;
  /// Calls `use` with the tenant's id when the caller may do that to it: at once when `name` is an id and
  /// nothing needs to be looked up, else from the observer's thread. No name: the caller's home.
  void with_tenant(const CallerPtr& caller, access::Action action, const std::string& name,
                   std::function<void(TenantId)> use, std::function<void(ApiError)> refuse);
  /// Calls `use` with the job's own id when the caller may do that to it, and with its tenant: at once when
  /// nothing needs to be looked up, and then without a tenant when none is named.
  void with_job(const CallerPtr& caller, access::Action action, JobId job, const std::string& tenant,
                std::function<void(JobId, TenantId)> use, std::function<void(ApiError)> refuse);
  void with_node(const std::string& name, std::function<void(NodeId)> use,
                 std::function<void(ApiError)> refuse);
  void propose_for_tenant(const CallerPtr& caller, Command command, TenantId tenant, Done<TenantView> done);
  /// Answers with the job as it then is.
  void propose_for_job(const CallerPtr& caller, Command command, JobId job, Viewer viewer,
                       Done<JobView> done);
  /// Proposes what `make` makes of the job and its tenant, when the caller may do that.
  void change_job(const CallerPtr& caller, access::Action action, JobId job, const std::string& tenant,
                  std::function<Command(JobId, TenantId)> make, Done<JobView> done);
  /// Changes a job by what it is: `command` has the rest of the update. In the job's turn.
  void change_read_job(const CallerPtr& caller, const Observer::View& view, const Job& job, Viewer viewer,
                       const JobUpdate& update, UpdateJob command, const Done<JobView>& done);
  void propose_for_node(const CallerPtr& caller, Command command, NodeId node, Done<NodeView> done);
  /// Answers with the key as it then is, where `made`, if any, is told its holder.
  /// `hash`: of the password that the request had.
  void record_hashed(const CallerPtr& caller, PersonId person, PersonRequest request,
                     std::optional<std::string> hash, Done<PersonView> done);
  void propose_for_key(const CallerPtr& caller, Command command, KeyId key, std::string made,
                       Done<KeyView> done);

  /// The command is journaled with who it is by.
  void propose(const access::Caller& caller, Command command, Decision decision,
               WaitingShares::Charge charge = {});
  /// The same for what every caller may ask, and may ask for very often: refused when the caller has too many
  /// waiting.
  void propose_as(const access::Caller& caller, Command command, Decision decision);
  void submit_jobs(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done);
  /// Puts the numbers of elements of arrays in the place of their names among the dependencies, and goes on
  /// with `then`; `refused` is told of one that does not exist.
  void number_elements(const CallerPtr& caller, SubmitRequest request, std::function<void(ApiError)> refused,
                       std::function<void(SubmitRequest)> then);
  /// Refuses a submission where that is the door's to do; it may complete the jobs.
  std::optional<ApiError> check_jobs(const access::Caller& caller, SubmitRequest& request) const;
  /// Gives the command its tenant, as far as the caller may submit there.
  void propose_jobs(const CallerPtr& caller, const std::string& tenant, SubmitJobs command,
                    Done<Submitted> done);
  static bool is_about_service(const SubmitRequest& request);
  /// Refuses labels that only another door sets.
  static std::optional<ApiError> check_labels(const SubmitRequest& request);
  /// A submission that creates a service, or rolls it out.
  void submit_record(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done);
  /// The same `done`, which ends the change of the service first.
  template <typename View>
  Done<View> settling(const ServiceKey& key, Done<View> done) {
    return [this, key, done = std::move(done)](Answer<View> answer) {
      // Until its record is seen, another change would not know of it.
      read([services = services_, key](const Observer::View&) { services->end(key); });
      done(std::move(answer));
    };
  }
  using ServiceChange = std::function<Answer<Command>(const Job& record, const ServiceSettings& settings)>;
  /// Proposes what `make` makes of its record, when the caller may do that to it.
  void change_service(const CallerPtr& caller, access::Action action, const std::string& service,
                      const std::string& tenant, ServiceChange make, Done<ServiceView> done);
  /// Replaces defaults by what was learned.
  void give_learned(const access::Caller& caller, SubmitRequest& request) const;
  SubmitJobs command_of(const access::Caller& caller, SubmitRequest& request) const;
  /// Refuses a job of several nodes where gangs are off; keeps the GPUs of all others on one node.
  std::optional<ApiError> check_gangs(SubmitRequest& request) const;
  std::optional<ApiError> check_handshake(const SubmitRequest& request) const;
  std::optional<ApiError> check_users(const access::Caller& caller, const SubmitRequest& request) const;
  void plan_numbered(const CallerPtr& caller, SubmitRequest request, Done<PlanView> done);
  void plan_for(const CallerPtr& caller, const Viewer& viewer, SubmitJobs command, Done<PlanView> done);
  /// The caller's error when a proposal was refused, without what it may not know.
  std::optional<ApiError> refusal_to(const access::Caller& caller, const Result<Decided>& decided,
                                     std::size_t batch_size = 1) const;
  /// Reads what every write that was answered before has changed.
  void read(Observer::Query query);
  /// The same for what looks at much.
  void scan(Observer::Step step);
  void scan_once(Observer::Query query) {
    scan([query = std::move(query)](const Observer::View& view) {
      query(view);
      return false;
    });
  }
  /// The error for one question more, when too many wait.
  std::optional<ApiError> too_many_questions(bool long_ones) const;
  template <typename Refuse>
  bool sheds_read(const Refuse& refuse) const {
    std::optional<ApiError> error = too_many_questions(false);
    if (error) refuse(std::move(*error));
    return error.has_value();
  }
  /// The caller's place among those whose long questions wait, to be kept as long as the question is; null:
  /// it is refused.
  template <typename Refuse>
  std::shared_ptr<void> place_for_scan(const access::Caller& caller, const Refuse& refuse) const {
    if (std::optional<ApiError> error = too_many_questions(true)) return refuse(std::move(*error)), nullptr;
    return place_for(caller, WaitingShares::Kind::kScans, refuse);
  }
  template <typename Refuse>
  std::shared_ptr<void> place_for(const access::Caller& caller, WaitingShares::Kind kind,
                                  const Refuse& refuse) const {
    std::shared_ptr<void> place = shares_->place(caller, kind);
    if (place == nullptr) refuse(to_api_error(WaitingShares::over_share()));
    return place;
  }

  Host& host_;
  HostBackendOptions options_;
  std::atomic<uint64_t> answered_{0};  ///< The newest command whose answer a client may have.
  std::shared_ptr<JobCounts> counts_;  ///< Used on the observer's thread.
  /// Questions for metrics that wait.
  std::shared_ptr<std::atomic<std::size_t>> metrics_waiting_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::shared_ptr<std::atomic<bool>> containers_ = std::make_shared<std::atomic<bool>>(false);
  WaitEstimates waits_;  ///< On the observer's thread.
  std::shared_ptr<ChangeFeed> feed_;
  std::shared_ptr<NamelessJobs> nameless_ = std::make_shared<NamelessJobs>();
  std::shared_ptr<TenantPositions> positions_ = std::make_shared<TenantPositions>();
  std::shared_ptr<KeyIndex> keys_ = std::make_shared<KeyIndex>();
  JobTurns job_turns_;
  std::shared_ptr<WaitingShares> shares_ = std::make_shared<WaitingShares>();
  std::shared_ptr<TaskIndex> tasks_ = std::make_shared<TaskIndex>();
  std::shared_ptr<TaskUses> task_uses_;  ///< Null: nothing is learned.
  std::shared_ptr<ServiceIndex> services_;
  std::shared_ptr<ServiceKeeper> keeper_;
  std::shared_ptr<ProposedMoves> moves_ = std::make_shared<ProposedMoves>();
  /// The last, so that it ends first: what it has under way uses the others.
  std::unique_ptr<PasswordHasher> hasher_ = std::make_unique<PasswordHasher>();
};

}  // namespace gpusched::api
