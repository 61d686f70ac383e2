#pragma once

#include <memory>

#include "api/contract/backend.h"
#include "api/views/open_tenants.h"

namespace gpusched::api {

/// How far callers without a credential may put themselves before others.
struct AnonymousLimits {
  int32_t priority_max = 100;         ///< Of their jobs.
  int32_t priority_tier_max = 1'000;  ///< Of tenants that they make or change,
  int64_t weight_milli_max = 1'000;   ///< and their weight in fair shares.
};

/// What callers without a credential may do. They
///   * use the default tenant and those that such callers made, and see no other one;
///   * submit jobs, which run as the nodes' default users and never as root, and name no user;
///   * put neither jobs nor tenants before what others have by default;
///   * see the states of all jobs in those tenants, and what is in the jobs of callers like them, which alone
///   they
///     change, cancel, enter, and read the output of;
///   * look at nodes and the cluster, and do nothing that operators do.
/// Every call of the interface stands here, so that none can be forgotten. Thread-safe.
class AnonymousBackend final : public Backend {
 public:
  /// Both must outlive it.
  AnonymousBackend(Backend& inner, const OpenTenants& tenants, AnonymousLimits limits)
      : inner_(inner), tenants_(tenants), limits_(limits) {}

  void on_group_done(std::function<void()> hook) override { inner_.on_group_done(std::move(hook)); }
  void submit(SubmitRequest request, Done<Submitted> done) override;
  void cancel(JobId job, const std::string& tenant, const std::string& by, Done<Unit> done) override;
  void create_tenant(TenantRequest request, Done<TenantView> done) override;
  void update_tenant(const std::string& tenant, TenantRequest request, Done<TenantView> done) override;
  void delete_tenant(const std::string& tenant, const std::string& by, Done<Unit> done) override;
  void edit_cluster(EditsRequest request, Done<EditsView> done) override;
  void confirm_dead(const std::string& node, const std::string& by, Done<NodeView> done) override;
  void remove_node(const std::string& node, const std::string& by, Done<Unit> done) override;
  void set_condition(const std::string& node, uint32_t index, DeviceCondition condition,
                     const std::string& detail, const std::string& by, Done<NodeView> done) override;
  void update_job(JobId job, const std::string& tenant, JobUpdate update, Done<JobView> done) override;
  void hold_job(JobId job, const std::string& tenant, bool held, const std::string& by,
                Done<JobView> done) override;
  void requeue_job(JobId job, const std::string& tenant, const std::string& by, Done<JobView> done) override;
  void drain_node(const std::string& node, const std::string& by, const std::string& reason,
                  Done<NodeView> done) override;
  void resume_node(const std::string& node, const std::string& by, Done<NodeView> done) override;
  void reboot_node(const std::string& node, const std::string& reason, Done<NodeView> done) override;
  void label_node(const std::string& node, std::vector<Label> set, std::vector<std::string> remove,
                  Done<NodeView> done) override;
  void make_reservation(ReservationRequest request, Done<ReservationView> done) override;
  void list_reservations(Done<std::vector<ReservationView>> done) override;
  void cancel_reservation(const std::string& reservation, Done<Unit> done) override;
  void get_job(JobId job, const std::string& tenant, Done<JobView> done) override;
  void get_history(JobId job, const std::string& tenant, Done<HistoryView> done) override;
  std::shared_ptr<void> watch_job(JobId job, const std::string& tenant, Done<JobView> changed) override;
  void list_jobs(JobFilter filter, Done<JobPage> done) override;
  void get_jobs(std::vector<JobId> ids, JobFilter filter, Done<JobPage> done) override;
  std::shared_ptr<void> watch_changes(std::function<void(const ChangeNotice&)> changed) override;
  void plan(SubmitRequest request, Done<PlanView> done) override;
  void explain_job(JobId job, const std::string& tenant, Done<ExplainView> done) override;
  void get_moves(MovesRequest request, Done<MovesView> done) override;
  void apply_moves(ApplyMoves request, Done<MoveProposalView> done) override;
  void get_tenant(const std::string& tenant, Done<TenantView> done) override;
  void list_tenants(Done<std::vector<TenantView>> done) override;
  void list_nodes(Done<std::vector<NodeView>> done) override;
  void get_node(const std::string& node, Done<NodeView> done) override;
  void get_cluster(Done<ClusterView> done) override;
  void pause_starts(bool paused, const std::string& by, const std::string& reason,
                    Done<ClusterView> done) override;
  void get_quality(const std::string& tenant, Done<QualityView> done) override;
  void get_metrics(Done<MetricsView> done) override;
  void read_log(LogRequest request, Done<LogPiece> done) override;
  std::shared_ptr<SessionHandle> open_session(SessionRequest request,
                                              std::shared_ptr<SessionPeer> peer) override;
  void read_file(FileRequest request, Done<FilePiece> done) override;
  HealthView health() const override { return inner_.health(); }
  bool containers_possible() const override { return inner_.containers_possible(); }

 private:
  /// Calls `use` with the id, as text, of a tenant that such callers may use.
  void with_tenant(const std::string& tenant, std::function<void(const std::string&)> use,
                   std::function<void(ApiError)> refuse) const;
  /// Of several tenants of one name the one that such callers may use, if it is one.
  void with_open_tenant_named(const std::string& name, std::function<void(const std::string&)> use,
                              std::function<void(ApiError)> refuse) const;
  /// Calls `use` with the job, whose tenant is one of those.
  void with_job(JobId job, const std::string& tenant, std::function<void(const JobView&)> use,
                std::function<void(ApiError)> refuse) const;
  /// The same when such a caller submitted it; `use` gets its tenant's id, as text.
  void with_own_job(JobId job, const std::string& tenant, std::function<void(const std::string&)> use,
                    std::function<void(ApiError)> refuse) const;

  Backend& inner_;
  const OpenTenants& tenants_;
  const AnonymousLimits limits_;
};

}  // namespace gpusched::api
