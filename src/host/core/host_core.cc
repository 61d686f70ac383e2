#include "host/core/host_core.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/limits.h"
#include "engine/policy/policies.h"
#include "host/core/refusals.h"

namespace gpusched {
namespace {

/// How long to wait before ends and releases are tried again on a disk that is full to the reserve's end.
constexpr Duration kFullRetry = milliseconds(500);
/// When to look again whether the observer has caught up.
constexpr Duration kBehindRetry = milliseconds(5);
// A plan that waited longer for the group before it is made again.
constexpr Duration kPlanAgeMax = milliseconds(25);

policy::PolicySet policies_of(const HostTuning& tuning, LearnedRunTimes*& run_times) {
  policy::PolicySet policies = policy::default_policies();
  auto learned = std::make_unique<LearnedRunTimes>();
  run_times = learned.get();
  policies.run_times = std::move(learned);
  policies.victims = nullptr;
  if (tuning.preemption) policies.victims = std::make_unique<policy::LeastLost>(victim_params(tuning));
  policies.tasks = tuning.tasks;
  return policies;
}

/// The field of the request that is at fault, as the doors name it, and what to do.
struct Blame {
  std::string field;
  const char* advice = "request less at a time";
};

Blame blame_of(const Command& command) {
  constexpr const char* kAdvice = "split the batch, or put large data into a file that the jobs read";
  if (std::holds_alternative<SubmitJobs>(command)) return {.field = "jobs", .advice = kAdvice};
  if (std::holds_alternative<RegisterNode>(command))
    return {.field = "attempts",
            .advice = "remove the folders of ended attempts from the agent's data folder"};
  if (std::holds_alternative<MakeBooking>(command))
    return {.field = "nodes", .advice = "reserve fewer nodes at a time"};
  return {};
}

bool adds_work(const EditSet& set) {
  return std::ranges::any_of(set.edits, [](const ClusterEdit& edit) {
    return is_new_work(std::visit([](const auto& concrete) { return Command(concrete); }, edit.command));
  });
}

Error too_large(const Command& command, std::size_t bytes, std::size_t bytes_max) {
  const Blame blame = blame_of(command);
  return {.code = ErrorCode::kTooLarge,
          .message = "the request takes " + std::to_string(bytes) +
                     " bytes in the journal, but a request may take at most " + std::to_string(bytes_max) +
                     "; " + blame.advice,
          .field = blame.field};
}

}  // namespace

policy::LeastLost::Params victim_params(const HostTuning& tuning) {
  policy::LeastLost::Params params = tuning.victims;
  if (tuning.grace.ns > 0) params.grace = tuning.grace;
  params.grace_max = tuning.preempt_grace_max;
  return params;
}

HostCore::HostCore(State state, uint64_t position, HostTuning tuning, const Clock& clock, GroupWriter& writer,
                   ChangeSink& sink, std::function<void(const Error&)> fatal)
    : state_(std::move(state)),
      position_(position),
      tuning_(tuning),
      clock_(clock),
      writer_(writer),
      sink_(sink),
      fatal_(std::move(fatal)),
      stamps_(clock, state_.last.at, tuning.clock_jump_max),
      planner_(policies_of(tuning, run_times_)),
      nodes_({.propose = [this](Command command,
                                Decision decision) { propose(std::move(command), std::move(decision)); },
              .state = [this]() -> const State& { return state_; },
              .now = [this] { return stamps_.now(); },
              .monotonic = [this] { return clock_.monotonic(); }},
             tuning.node_lease, tuning.heartbeat, tuning.grace, tuning.preempt_grace_max, tuning.heat,
             tuning.watch),
      group_bytes_max_(writer.payload_max()),
      queue_(tuning.proposals_max, tuning.proposal_bytes_max),
      spec_room_(tuning.spec_bytes_max),
      queue_room_(state_) {
  run_times_->begin(state_);
  planner_.reset(state_, /*nodes_present=*/false);
  starting_ = start_matters();
  if (starting_) queue_.push_back(Proposal{.command = NoteStart{}, .decision = {}});
  nodes_.begin();  // Behind that: it may propose.
}

// Timers of what runs or is silent would count the time in which nobody watched; for what is kept for days it
// has to be long.
bool HostCore::start_matters() const {
  constexpr Duration kLong = hours(1);
  const bool counts = std::any_of(state_.timers.begin(), state_.timers.end(),
                                  [](const Timer& timer) { return timer.kind != TimerKind::kBackoffOver; });
  const bool drains = std::any_of(state_.nodes.begin(), state_.nodes.end(), [](const Node& node) {
    return std::any_of(node.devices.begin(), node.devices.end(), [](const Device& device) {
      return device.state == DeviceState::kDraining ||
             std::any_of(device.shares.begin(), device.shares.end(),
                         [](const Share& share) { return share.draining(); });
    });
  });
  // A running attempt without a limit may be given one, which counts from its start.
  const bool runs = std::any_of(state_.attempts.begin(), state_.attempts.end(),
                                [](const auto& attempt) { return attempt.second.started_at.valid(); });
  const bool keeps = !state_.requests.empty() || !state_.finished.empty();
  return counts || drains || runs || (keeps && stamps_.last() - state_.last.at > kLong);
}

Error HostCore::storage_full_error() const {
  return {.code = ErrorCode::kStorageFull,
          .message =
              "the scheduler's disk is full: new work is refused until there is free space; running jobs "
              "continue"};
}

void HostCore::fail(Proposal& proposal, const Error& error) {
  if (proposal.is_plan) end_plan();
  if (std::holds_alternative<AdvanceTime>(proposal.command)) time_in_flight_ = false;
  if (proposal.decision) proposal.decision(error);
}

void HostCore::refuse(Proposal& proposal, const Rejection& rejection) {
  ++stats_.rejected;
  if (!proposal.decision) return;
  proposal.decision(Decided{.applied = {.rejection = rejection}, .sequence = state_.last.sequence});
}

// Refuses new work; a request that was answered before is answered again without the disk.
void HostCore::refuse_new_work(Proposal& proposal) {
  const auto* submit = std::get_if<SubmitJobs>(&proposal.command);
  const auto* create = std::get_if<CreateTenant>(&proposal.command);
  const RememberedRequest* known = nullptr;
  if (submit != nullptr && !submit->request_key.empty()) known = remembered_request(state_, *submit);
  if (create != nullptr && !create->request_key.empty())
    known = state_.find_request(TenantId{}, OwnerTable::kNobody, create->request_key);
  if (known == nullptr || !proposal.decision) return fail(proposal, storage_full_error());
  Events events;
  const Stamp stamp{.sequence = state_.last.sequence + 1, .at = state_.last.at};
  const Applied applied = decide(state_, proposal.command, stamp, events);
  CHECK(events.empty());
  proposal.decision(Decided{.applied = applied, .sequence = state_.last.sequence});
}

void HostCore::propose(Proposal proposal) {
  if (proposal.bytes == 0) proposal.bytes = encoded_bytes(proposal);
  if (closed_) {
    return fail(proposal, shutting_down());
  }
  if (const auto* wish = std::get_if<Configure>(&proposal.command)) {
    proposal.decision = [this, config = wish->config,
                         decision = std::move(proposal.decision)](const Result<Decided>& decided) {
      if (decided.ok() && !decided->applied.rejection) want(config);
      if (decision) decision(decided);
    };
  }
  if (!well_formed(proposal.command)) {
    return fail(proposal, {.code = ErrorCode::kInvalidArgument,
                           .message = std::string(name_of(proposal.command)) + " has a value out of range"});
  }
  const std::size_t bytes_max = group_bytes_max_ - kGroupHeaderBytes;
  if (proposal.bytes > bytes_max)
    return fail(proposal, too_large(proposal.command, proposal.bytes, bytes_max));
  if (const char* field = unprintable_field(proposal.command)) return fail(proposal, unprintable(field));
  const bool new_work = is_new_work(proposal.command);
  if (new_work && !accepts_new_work()) return refuse_new_work(proposal);
  const bool full =
      queue_.size() >= tuning_.proposals_max || queue_.bytes() + proposal.bytes > tuning_.proposal_bytes_max;
  if (new_work && full) return fail(proposal, overloaded());
  if (new_work) proposal.holder = holder_of(proposal.command);
  if (proposal.holder && !queue_.fits(*proposal.holder, proposal.bytes)) return fail(proposal, over_share());
  queue_.push_back(std::move(proposal));
}

std::optional<TenantId> HostCore::holder_of(const Command& command) const {
  std::optional<TenantId> tenant;
  const auto of_job = [&](JobId id) {
    if (const Job* const job = state_.jobs.find(id)) tenant = job->tenant;
  };
  if (const auto* submit = std::get_if<SubmitJobs>(&command)) tenant = submit->tenant;
  if (const auto* update = std::get_if<UpdateJob>(&command)) of_job(update->job);
  if (const auto* hold = std::get_if<HoldJob>(&command)) of_job(hold->job);
  if (const auto* key = std::get_if<CreateKey>(&command)) tenant = key->tenant;
  const Tenant* const found = tenant ? state_.find_tenant(*tenant) : nullptr;
  return found == nullptr ? std::nullopt : std::optional(state_.spec_holder(*found));
}

// In the way of every other command, so that it waits for room and for its turn as they do.
void HostCore::configure() {
  if (!wanted_ || configuring_ || closed_) return;
  if (accepts_new_work()) finished_kept_.reset();
  // Settings that commands of their own have set are not asked for again.
  EngineConfig config = config_taken(state_.config, *wanted_);
  if (finished_kept_) config.finished_jobs_max = std::min(config.finished_jobs_max, *finished_kept_);
  if (const std::optional<int64_t> kept = spec_room_.finished_kept())
    config.finished_jobs_max = std::min(config.finished_jobs_max, *kept);
  if (config == state_.config || config == refused_config_) return;
  if (!accepts_new_work() && !finished_kept_) return;
  configuring_ = true;
  queue_.push_back(Proposal{.command = Configure{.config = config},
                            .decision = [this, config](const Result<Decided>& decided) {
                              configuring_ = false;
                              if (!decided.ok() || !decided->applied.rejection) return;
                              refused_config_ = config;
                              config_trouble_ = describe(*decided->applied.rejection);
                            }});
}

void HostCore::keep_finished(int64_t count) {
  CHECK(count >= 0);
  if (!accepts_new_work()) finished_kept_ = count;
}

void HostCore::propose(EditSet set) {
  if (closed_) return set.decided(shutting_down());
  std::set<NodeId> labelled;
  for (const ClusterEdit& edit : set.edits) {
    const auto* const label = std::get_if<LabelNode>(&edit.command);
    const Command command = std::visit([](const auto& concrete) { return Command(concrete); }, edit.command);
    if (const char* const field = unprintable_field(command)) return set.decided(unprintable(field));
    if (well_formed(command) && (label == nullptr || labelled.insert(label->node).second)) continue;
    return set.decided(
        Error{.code = ErrorCode::kInvalidArgument,
              .message = std::string(name_of(command)) + " has a value out of range, or names a node twice"});
  }
  const std::size_t bytes = encoded_bytes(set);
  const std::size_t bytes_max = group_bytes_max_ - kGroupHeaderBytes;
  if (set.edits.size() > limits::kEditsMax || bytes > bytes_max) {
    return set.decided(Error{.code = ErrorCode::kTooLarge,
                             .message = std::to_string(set.edits.size()) + " changes of " +
                                        std::to_string(bytes) + " bytes are more than can be made at once (" +
                                        std::to_string(limits::kEditsMax) + ", " + std::to_string(bytes_max) +
                                        " bytes); split them into several requests"});
  }
  if (!accepts_new_work() && !set.dry_run && adds_work(set)) return set.decided(storage_full_error());
  if (edit_sets_.size() >= limits::kEditSetsWaitingMax) return set.decided(overloaded());
  edit_sets_.push_back(std::move(set));
}

bool HostCore::begin_with_edits() {
  bool answered = false;
  while (!edit_sets_.empty() && group_.empty()) {
    const EditSet set = std::move(edit_sets_.front());
    edit_sets_.pop_front();
    const Stamp stamp{.sequence = state_.last.sequence + 1, .at = group_at_};
    std::vector<Command> commands = commands_of(set.edits, stamp.sequence);
    const std::optional<RefusedEdit> refused = try_edits(state_, commands, stamp);
    if (refused || set.dry_run || commands.empty()) {
      set.decided(EditsDecided{.refused = refused, .sequence = state_.last.sequence});
      answered = true;
      continue;
    }
    for (Command& command : commands)
      group_.push_back({.command = std::move(command), .is_edit = true, .by = set.by});
    group_.back().decision = [decided = set.decided](const Result<Decided>& last) {
      if (!last.ok()) return decided(last.error());
      decided(EditsDecided{.sequence = last->sequence});
    };
  }
  return answered;
}

void HostCore::refuse_edits(const Error& error) {
  for (const EditSet& set : std::exchange(edit_sets_, {})) set.decided(error);
}

void HostCore::look_at_space() {
  const JournalSpace space = writer_.space();
  if (std::exchange(space_, space) == space || accepts_new_work()) return;
  refuse_edits(storage_full_error());
  // New work must not wait in the queue for a disk that may stay full.
  for (Proposal& proposal : queue_.take_all()) {
    if (is_new_work(proposal.command)) {
      refuse_new_work(proposal);
    } else {
      queue_.push_back(std::move(proposal));
    }
  }
  for (const auto& hook : group_done_) hook();
}

void HostCore::turn() {
  look_at_space();
  if (clock_.monotonic() >= nodes_.next_check()) nodes_.check_leases();
  if (nodes_.starts_wait()) nodes_.send_starts();
  spec_room_.look(state_);
  configure();
  advance_time();
  if (!sink_.has_room()) return;  // It is behind: nothing more is decided until it has caught up.
  drop_old_plan();
  plan();
  if (in_flight_ || (queue_.empty() && edit_sets_.empty())) return;
  if (retry_at_ != kNever && clock_.monotonic() < retry_at_) return;
  start_group();
}

void HostCore::advance_time() {
  if (time_in_flight_ || starting_ || closed_) return;
  if (state_.next_due() > stamps_.now()) return;
  time_in_flight_ = true;
  queue_.push_back(Proposal{.command = AdvanceTime{}, .decision = {}});
}

void HostCore::drop_old_plan() {
  if (in_flight_ || queue_.empty() || !queue_.front().is_plan) return;
  if (stamps_.now() - planned_at_ <= kPlanAgeMax) return;
  queue_.take_front();
  end_plan();
}

void HostCore::end_plan() {
  plan_in_flight_ = false;
  planner_.plan_applied(state_);
}

bool HostCore::may_plan() const {
  return !plan_in_flight_ && !starting_ && space_ != JournalSpace::kReserveOnly && !closed_;
}

void HostCore::plan() {
  if (!may_plan()) return;
  const Time now = stamps_.now();
  if (planner_.next_look() <= now) planner_.look_at_promises(now);
  if (!planner_.wants_cycle()) return;
  ++stats_.cycles;
  Planner::Slice slice = planner_.plan(state_, now);
  if (slice.plan.groups.empty()) {
    planner_.plan_applied(state_);
    std::vector<uint32_t> changed = planner_.take_changed_reasons();
    if (changed.empty()) return;
    Changes changes{
        .events = {}, .last = state_.last, .position = position_, .payload_bytes = 0, .reasons = {}};
    for (const uint32_t job_class : changed)
      changes.reasons.emplace_back(job_class, planner_.reason(job_class));
    return sink_.publish(std::move(changes));
  }
  plan_in_flight_ = true;
  planned_at_ = now;
  trim(slice.plan);
  // At the front: a placement never waits behind submissions.
  queue_.push_front(Proposal{.command = std::move(slice.plan), .decision = {}, .is_plan = true});
}

void HostCore::trim(CommitPlan& plan) const {
  const auto fits = [&] { return encoded_bytes(Command(plan)) + kGroupHeaderBytes <= group_bytes_max_; };
  while (plan.groups.size() > 1 && !fits()) plan.groups.resize((plan.groups.size() + 1) / 2);
  CHECK(fits());  // The largest gang does.
}

void HostCore::start_group() {
  CHECK(!in_flight_);
  CHECK(group_.empty());
  group_at_ = stamps_.now();
  encoder_.begin(group_at_);
  encoder_.note_digest(state_.digest.value());
  uint32_t sequences = 0;
  // Programs of older rules do not read it, and may take this folder until newer ones hold.
  const bool names_proposers = state_.config.feature_level >= 11;
  const auto add = [&](const Proposal& next) {
    encoder_.add(next.command, names_proposers && next.by ? &*next.by : nullptr);
    sequences += sequence_count(next.command);
  };
  spec_room_.begin_group();
  queue_room_.begin_group();
  bool answered = begin_with_edits();
  for (const Proposal& edit : group_) add(edit);
  // No longer than needed for the disk to be busy, unless one command alone is.
  const auto fits = [&](const Proposal& next) {
    const std::size_t size = encoder_.payload().size();
    return group_.empty() || (group_.size() < limits::kGroupCommandsMax && size < group_bytes_max_ / 4 &&
                              size + next.bytes <= group_bytes_max_);
  };
  while (!queue_.empty() && fits(queue_.front())) {
    Proposal next = queue_.take_front();
    if (const std::optional<Error> refused = spec_room_.take(state_, next.command)) {
      fail(next, *refused);
      answered = true;
      continue;
    }
    if (const std::optional<Rejection> refused = queue_room_.take(state_, next.command)) {
      refuse(next, *refused);
      answered = true;
      continue;
    }
    add(next);
    group_.push_back(std::move(next));
  }
  if (answered) {
    for (const auto& hook : group_done_) hook();
  }
  if (group_.empty()) return;                            // All that waited was answered.
  CHECK(encoder_.payload().size() <= group_bytes_max_);  // No command larger than a record is queued.
  in_flight_ = true;
  retry_at_ = kNever;
  group_bytes_ = encoder_.payload().size();
  writer_.start(DurableGroup{.position = position_ + 1,
                             .first_sequence = state_.last.sequence + 1,
                             .command_count = sequences,
                             .payload = encoder_.take()});
}

void HostCore::on_durable(const Result<Unit>& result) {
  CHECK(in_flight_);
  in_flight_ = false;
  if (result.ok()) {
    ++position_;
    apply_group();
    return;
  }
  const ErrorCode code = result.error().code;
  if (code == ErrorCode::kUnavailable || code == ErrorCode::kLocked) {
    const Error told{.code = code == ErrorCode::kLocked ? ErrorCode::kOutcomeUnknown : code,
                     .message = result.error().message};
    for (Proposal& proposal : std::exchange(group_, {})) fail(proposal, told);
    close();
    for (const auto& hook : group_done_) hook();
    return;
  }
  if (result.error().code == ErrorCode::kTooLarge) {
    // Nothing was written either, and nothing ever will be.
    for (Proposal& proposal : std::exchange(group_, {})) fail(proposal, result.error());
    for (const auto& hook : group_done_) hook();
    return;
  }
  if (result.error().code != ErrorCode::kStorageFull) {
    // It is unknown which bytes are durable: nobody may be told anything any more.
    fatal_(result.error());
    return;
  }
  // Nothing was written. Ends and releases wait for room, new work is refused.
  std::deque<Proposal> behind = queue_.take_all();
  for (Proposal& proposal : group_) {
    if (proposal.is_edit) {
      fail(proposal, storage_full_error());
    } else if (is_new_work(proposal.command)) {
      refuse_new_work(proposal);
    } else {
      queue_.push_back(std::move(proposal));
    }
  }
  group_.clear();
  for (Proposal& proposal : behind) queue_.push_back(std::move(proposal));
  retry_at_ = clock_.monotonic() + kFullRetry;
  for (const auto& hook : group_done_) hook();
}

void HostCore::apply_group() {
  events_.clear();
  ++stats_.groups;
  stats_.payload_bytes += group_bytes_;
  for (Proposal& proposal : group_) {
    const std::size_t begin = events_.size();
    const uint64_t sequence = state_.last.sequence + 1;
    const Applied applied =
        apply(state_, proposal.command, Stamp{.sequence = sequence, .at = group_at_}, events_);
    ++stats_.commands;
    if (applied.rejection) ++stats_.rejected;
    CHECK(!proposal.is_edit || !applied.rejection);  // It was tried on this very state.
    observe(begin);
    if (proposal.is_plan) end_plan();
    if (std::holds_alternative<AdvanceTime>(proposal.command)) time_in_flight_ = false;
    if (std::holds_alternative<NoteStart>(proposal.command)) starting_ = false;
    finish(proposal, applied, state_.last.sequence);
  }
  group_.clear();
  Changes changes{.events = std::move(events_),
                  .last = state_.last,
                  .position = position_,
                  .payload_bytes = group_bytes_,
                  .digest = state_.digest.value(),
                  .reasons = {}};
  events_ = Events();
  for (const uint32_t job_class : planner_.take_changed_reasons()) {
    changes.reasons.emplace_back(job_class, planner_.reason(job_class));
  }
  // Answers first, then the observer's turn: whoever asks it names the sequence number to have seen.
  nodes_.flush();
  for (const auto& hook : group_done_) hook();
  sink_.publish(std::move(changes));
}

void HostCore::observe(std::size_t begin) {
  uint64_t placed = 0;
  for (std::size_t i = begin; i < events_.size(); ++i) {
    run_times_->observe(state_, events_[i]);
    planner_.observe(state_, events_[i]);
    nodes_.on_event(events_[i]);
    if (std::holds_alternative<AttemptPlaced>(events_[i])) ++placed;
    const auto* stopped = std::get_if<StopRequested>(&events_[i]);
    if (stopped != nullptr && stopped->reason == StopReason::kPreempt) ++stats_.preemptions;
  }
  if (placed == 0) return;
  stats_.placements += placed;
}

void HostCore::finish(Proposal& proposal, const Applied& applied, uint64_t sequence) {
  if (!proposal.decision) return;
  Decided decided{.applied = applied, .sequence = sequence};
  if (std::holds_alternative<SubmitJobs>(proposal.command) && !applied.rejection) {
    const Job* job = state_.jobs.find(JobId{applied.first_id});
    if (job != nullptr && job->is_queued()) {
      decided.queue_position = static_cast<int64_t>(state_.line.rank(job->order())) + 1;
      decided.place_among_equals = static_cast<int64_t>(state_.class_of(*job).waiting.rank(job->order())) + 1;
    }
  }
  proposal.decision(std::move(decided));
}

Time HostCore::next_wakeup() const {
  if (nodes_.starts_wait()) return clock_.monotonic();
  if (!sink_.has_room()) return std::min(nodes_.next_check(), clock_.monotonic() + kBehindRetry);
  // A slice that placed nothing may have left others to look at.
  if (may_plan() && planner_.wants_cycle()) return clock_.monotonic();
  Time next = nodes_.next_check();
  if (retry_at_ != kNever) next = std::min(next, retry_at_);
  if (!accepts_new_work()) next = std::min(next, clock_.monotonic() + kFullRetry);
  // A look that nobody may take now, as on a full disk, is no reason to wake: it would be due for ever.
  const Time due = may_plan() ? std::min(state_.next_due(), planner_.next_look()) : state_.next_due();
  if (due == kNever || time_in_flight_ || starting_) return next;
  // The journal's clock runs within a twentieth of the monotonic one: being early only means looking again.
  const Duration wait = std::max(due - stamps_.last(), milliseconds(1));
  return std::min(next, clock_.monotonic() + wait);
}

void HostCore::close() {
  closed_ = true;
  refuse_edits(shutting_down());
  for (Proposal& proposal : queue_.take_all()) fail(proposal, shutting_down());
}

}  // namespace gpusched
