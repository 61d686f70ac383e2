// Applies each event to the planner. Every alternative is named: a new event does not compile until it is
// said here what plans have to learn from it.
#include "base/overloaded.h"
#include "engine/planner/planner.h"

namespace gpusched {
namespace {

constexpr uint32_t kLimits = kTenantMaxGpus | kTenantMaxGpuMemory | kTenantMaxCpu | kTenantMaxMemory |
                             kTenantMaxJobs | kTenantGpuTimeWindow | kTenantGpuTimeMax;

}  // namespace

class Planner::Learner {
 public:
  Learner(Planner& planner, const State& state) : planner_(planner), state_(state) {}

  void operator()(const Configured&) {
    planner_.paused_ = state_.config.pause.on();
    if (state_.config.policy != planner_.chosen_) adopt_policy();
    // All may stand elsewhere in line, or below other limits.
    if (state_.config.pools != planner_.pools_ || state_.config.aging_per_hour != planner_.aging_ ||
        state_.config.feature_level != planner_.level_)
      planner_.start_over(state_);
  }

  // Tenants.
  void operator()(const TenantCreated&) { tenants_changed(); }
  void operator()(const TenantUpdated& event) {
    tenants_changed();
    if ((event.change->given & kTenantPriorityTier) != 0) planner_.start_over(state_);
    // A job that may no longer have what it is promised keeps it from nobody.
    if ((event.change->given & kLimits) != 0) planner_.unblock_all_ = true;
    tenant_gained(event.change->tenant);
  }
  void operator()(const TenantsForgotten&) { planner_.start_over(state_); }

  // Jobs.
  void operator()(const JobSubmitted& event) {
    touch_job(event.job);
    planner_.note_arrival(state_, event.job);
  }
  void operator()(const ElementAdded& event) {
    touch_job(event.job);
    if (!event.parked) planner_.note_arrival(state_, event.job);
  }
  void operator()(const ElementUnparked& event) {
    touch_job(event.job);
    planner_.note_arrival(state_, event.job);
  }
  void operator()(const JobUpdated& event) {
    touch_job(event.change->job);
    // It may have left another class, whose number only older states know.
    if ((event.change->given & kJobParts) != 0) touch_classes();
    if ((event.change->given & kJobDeadline) != 0) deadline_moved(event.change->job);
    if ((event.change->given & kJobMaxRuntime) != 0) runtime_changed(event.change->job);
  }
  void operator()(const BackoffEnded& event) {
    const bool is_moved = state_.find_promise(event.job) != nullptr;
    planner_.look_promised_ = planner_.look_promised_ || is_moved;
    touch_job(event.job);
  }
  void operator()(const DependencySettled& event) { touch_job(event.job); }
  void operator()(const JobHoldChanged& event) { touch_job(event.job); }
  void operator()(const JobFinished& event) { touch_job(event.job); }

  // Attempts.
  void operator()(const AttemptPlaced& event) {
    for (const Member& member : event.members) mark_dirty(member.node);
    const Job* job = state_.jobs.find(event.job);
    if (job != nullptr) planner_.moved_tenants_.insert(job->tenant);
    planner_.waiting_.note_placed(state_, event.job);
    touch_job(event.job);
  }
  void operator()(const MemberEnded& event) {
    const Job* job = state_.jobs.find(event.job);
    // An attempt that its job went on without leaves no trace of its node there: look at every node.
    if (job == nullptr || job->attempt_count != event.attempt) {
      planner_.unblock_all_ = planner_.someone_moved_ = true;
      return mark_all_dirty();
    }
    planner_.node_gained(state_, event.node);
    tenant_gained(job->tenant);
  }
  void operator()(const StopRequested& event) {
    const Job* job = state_.jobs.find(event.job);
    const Attempt* attempt = state_.find_attempt(event.job, event.attempt);
    if (attempt != nullptr) {
      for (const Member& member : attempt->members) mark_dirty(member.node);
    }
    // Its devices no longer count as kept when it is ended for another job.
    if (job != nullptr && planner_.can_reclaim()) planner_.moved_tenants_.insert(job->tenant);
  }
  void operator()(const AttemptAbandoned& event) {
    const Job* job = state_.jobs.find(event.job);
    if (job != nullptr) return tenant_gained(job->tenant);
    // Already forgotten: whose quota it was is not known any more.
    planner_.unblock_all_ = planner_.someone_moved_ = true;
  }

  // Promises.
  void operator()(const DevicesPromised& event) {
    const Promise& promise = *event.promise;
    for (const Member& member : promise.members) mark_dirty(member.node);
    planner_.look_promised_ = true;
    planner_.moved_tenants_.insert(promise.tenant);
    touch_job(promise.job);
  }
  void operator()(const PromiseEnded& event) {
    // It is not known any more what it kept; it was something on some nodes.
    if (event.why != PromiseEnd::kPlaced) {
      planner_.unblock_all_ = true;
      mark_all_dirty();
    }
    const Job* job = state_.jobs.find(event.job);
    if (job != nullptr) planner_.moved_tenants_.insert(job->tenant);
    planner_.someone_moved_ = planner_.someone_moved_ || job == nullptr;
    touch_job(event.job);
  }

  // Nodes and their devices.
  void operator()(const NodeRegistered& event) {
    const Node* found = state_.find_node(event.node);
    if (found == nullptr) return;
    planner_.note_relabeled(found->slot);
    node_changed(event.node);
    NodeInfo& node = planner_.nodes_[found->slot];
    node.present = node.relabelled = true;
    if (planner_.device_classes_reused_ != state_.device_classes_reused) return planner_.start_over(state_);
    if (planner_.fragments_classes_ != state_.device_classes.size()) planner_.learn_arrivals(state_);
  }
  void operator()(const NodeRemoved& event) {
    planner_.note_relabeled(event.slot);
    planner_.mark_dirty(event.slot);
    planner_.nodes_[event.slot].present = false;
    planner_.nodes_[event.slot].relabelled = true;
    planner_.unblock_all_ = true;
  }
  void operator()(const NodeLabeled& event) {
    const Node* found = state_.find_node(event.change->node);
    if (found == nullptr) return;
    planner_.note_relabeled(found->slot);
    node_changed(event.change->node);
    planner_.nodes_[found->slot].relabelled = true;
  }
  void operator()(const NodeStateChanged& event) { node_changed(event.node); }
  void operator()(const NodeAvailabilityChanged& event) { node_changed(event.node); }
  void operator()(const DeviceConditionChanged& event) { node_changed(event.node); }
  void operator()(const DeviceBarred& event) { node_changed(event.node); }
  void operator()(const DeviceHeatChanged& event) { node_changed(event.node); }
  void operator()(const DeviceFaultChanged& event) { node_changed(event.node); }
  void operator()(const DeviceOccupied& event) { node_changed(event.node); }
  void operator()(const DeviceQuarantined& event) { node_changed(event.node); }
  void operator()(const DeviceFreed& event) { planner_.node_gained(state_, event.node); }
  void operator()(const ShareFreed& event) { planner_.node_gained(state_, event.node); }

  // Reservations. The nodes of one that is gone are not known any more; these events are rare.
  void operator()(const BookingMade&) { all_nodes_changed(); }
  void operator()(const BookingBegan&) { all_nodes_changed(); }
  void operator()(const BookingEnded&) { all_nodes_changed(); }

  // Events on which plans do not depend, or whose effects come with another event.
  void operator()(const TenantDeleted&) {}    // Only one without jobs is deleted.
  void operator()(const JobRequeued&) {}      // It is in line again with `BackoffEnded`.
  void operator()(const JobsForgotten&) {}    // They were final.
  void operator()(const ArrayClosed&) {}      // Its elements that wait have events of their own.
  void operator()(const MemberPrepared&) {}   // It holds what it held since it was placed.
  void operator()(const MemberStarted&) {}    // So does it.
  void operator()(const JobCheckpointed&) {}  // Victims' costs are read from the state.
  void operator()(const KeyCreated&) {}       // Keys change no plan.
  void operator()(const KeyRevoked&) {}
  void operator()(const RoleBound&) {}
  void operator()(const KeyForgotten&) {}
  void operator()(const PersonRecorded&) {}
  void operator()(const NodeTicketCreated&) {
  }  // Nor who may be a node: a node that must go is lost as others.
  void operator()(const NodeTicketForgotten&) {}
  void operator()(const NodeAdmitted&) {}
  void operator()(const NodeRenewed&) {}
  void operator()(const NodeRevoked&) {}
  void operator()(const JobAsked&) {}                // Its effects have events of their own.
  void operator()(const WatchdogFindingChanged&) {}  // A warning; a job's end is `StopRequested`.
  void operator()(const NodeFailureNoted&) {}        // Its effect is `NodeAvailabilityChanged`.
  void operator()(const NodeSuspected&) {}           // An operator is called; the node stays in service.
  void operator()(const TimeSkipped&) {}             // Times that lie ahead are read from the state.
  void operator()(const TimerDropped&) {}
  void operator()(const Admitted&) {}
  void operator()(const RequestRemembered&) {}
  void operator()(const RequestForgotten&) {}
  void operator()(const OldestRequestForgotten&) {}

 private:
  /// Plans by what the configuration chooses from now on; everything is looked at again.
  void adopt_policy() {
    planner_.chosen_ = state_.config.policy;
    planner_.choose_policies();
    planner_.start_over(state_);
  }

  void tenants_changed() {
    const bool before = planner_.guarantees_;
    planner_.refresh_preemptors(state_);
    if (before != planner_.guarantees_) planner_.start_over(state_);  // Places in line have another form now.
  }

  void tenant_gained(TenantId tenant) {
    planner_.moved_tenants_.insert(tenant);
    for (const Tenant* at = state_.find_tenant(tenant); at != nullptr; at = state_.find_tenant(at->parent)) {
      planner_.freed_tenants_.insert(at->id);
    }
  }

  void touch_job(JobId job) {
    planner_.waiting_.observe(state_, job);
    const Job* touched = state_.jobs.find(job);
    // It ended and was forgotten by the same command: which class it was of is not known any more.
    if (touched == nullptr) return touch_classes();
    ClassInfo& entry = planner_.info(touched->job_class);
    planner_.touch_class(state_, touched->job_class);
    // The head waits for the sake of a reservation that this one may not delay.
    const bool kept = entry.state == ClassState::kBlocked &&
                      (entry.reason.of_limit || !planner_.shapes_[entry.shape].kept.empty());
    if (kept && touched->is_queued() && entry.fresh.size() < limits::kPassTriesMax) {
      if (entry.fresh.empty()) planner_.fresh_classes_.push_back(touched->job_class);
      entry.fresh.push_back(job);
    }
  }

  // Others may be ended for it now.
  void deadline_moved(JobId id) {
    const Job* job = state_.jobs.find(id);
    if (job == nullptr) return;
    const ClassInfo& entry = planner_.info(job->job_class);
    const bool waits = entry.state == ClassState::kBlocked && entry.preempts && entry.head.job == id;
    if (waits) planner_.look_again(job->job_class, planner_.now_);
  }

  // Its nodes are free at another time: whoever is promised one, or passes, is looked at again.
  void runtime_changed(JobId id) {
    const Job* job = state_.jobs.find(id);
    const Attempt* attempt = job == nullptr ? nullptr : state_.find_attempt(id, job->attempt_count);
    if (attempt == nullptr) return;
    for (const Member& member : attempt->members) planner_.node_gained(state_, member.node);
    tenant_gained(job->tenant);
  }

  void touch_classes() {
    for (uint32_t job_class = 0; job_class < planner_.classes_.size(); ++job_class) {
      if (planner_.classes_[job_class].state != ClassState::kIdle) planner_.touch_class(state_, job_class);
    }
  }

  // One that is not there any more was removed by a later command of the same group.
  void mark_dirty(NodeId node) {
    if (const Node* found = state_.find_node(node)) planner_.mark_dirty(found->slot);
  }

  void mark_all_dirty() {
    for (uint32_t slot = 0; slot < state_.nodes.size(); ++slot) planner_.mark_dirty(slot);
  }

  // The node's resources are different: every reason may be another one now.
  void node_changed(NodeId node) {
    const Node* changed = state_.find_node(node);
    if (changed == nullptr) return;
    planner_.mark_dirty(changed->slot);
    planner_.look_promised_ = planner_.look_promised_ || !state_.promises.empty();
    planner_.unblock_all_ = true;
  }

  void all_nodes_changed() {
    for (const Node& node : state_.nodes) node_changed(node.id);
  }

  Planner& planner_;
  const State& state_;
};

void Planner::observe(const State& state, const Event& event) { std::visit(Learner(*this, state), event); }

}  // namespace gpusched
