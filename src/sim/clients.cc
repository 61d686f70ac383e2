#include "sim/clients.h"

#include <algorithm>
#include <utility>

#include "engine/policy/policies.h"
#include "forecast/changes.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::sim {
namespace {

constexpr int kTriesMax = 30;
constexpr Duration kPatience = seconds(15);

/// Few who submit again and again, some of one name, and some whom nobody knows.
JobOwner owner_of(uint64_t submission) {
  static const JobOwner kOwners[] = {{},
                                     {CallerKind::kAnonymous, ""},
                                     {CallerKind::kOperator, "admin"},
                                     {CallerKind::kService, "user-0"},
                                     {CallerKind::kPerson, "user-0"},
                                     {CallerKind::kPerson, "user-1"}};
  return kOwners[submission % std::size(kOwners)];
}

}  // namespace

/// One submission, however often it is tried.
struct Clients::Submission {
  uint64_t number = 0;
  SubmitJobs command;
  std::vector<std::string> tags;
  int tries = 0;
  int repeats = 0;  ///< Repetitions although it was answered.
  bool accepted = false;
};

// Fields that identify a job to the auditor stay, and those by which it would be tried for ever.
Clients::Clients(Context& context, SimHost& host, Demand demand)
    : context_(context),
      host_(host),
      demand_(std::move(demand)),
      wild_(context.prng,
            {"spec", "request_key", "array", "booking", "exit_code_retries", "system_retries", "node_name"},
            {"jobs"}) {}

Command Clients::maybe_wild(Command command) {
  if (stopped_ || !context_.prng.chance(static_cast<uint32_t>(demand_.wild_chance))) return command;
  const State& state = context_.auditor.replica();
  Command changed = wild_.changed(command, state, state.last.at);
  // Another job's specification would be taken for its own.
  if (auto* update = std::get_if<UpdateJob>(&changed)) update->given &= ~uint32_t{kJobSpec};
  return changed;
}

void Clients::begin() {
  const uint64_t tenants = context_.prng.below(4);
  for (uint64_t i = 0; i < tenants; ++i) create_tenant();
  act_later();
}

void Clients::stop() { stopped_ = true; }

void Clients::act_later() {
  context_.schedule.in(context_.some_ms(0, 2 * demand_.pause_ms), [this] {
    if (stopped_) return;
    act();
    act_later();
  });
}

void Clients::act() {
  const uint64_t draw = context_.prng.below(100);
  if (draw < 49) return submit_something();
  if (draw < 52) return draw < 50 ? identify_something() : key_something();
  if (draw < 66) return look_at_something();
  if (draw < 77) return cancel_something();
  if (draw < 88) return control_something();
  if (draw < 95) return update_tenant();
  if (draw < 96) return context_.prng.chance(500) ? reserve_something() : label_something();
  if (draw < 98) return create_tenant();
  delete_tenant();
}

// One call. `reached` when it comes to the scheduler, `decided` when that has decided; `done` when the caller
// has its answer, or knows that there will be none.
void Clients::call(Command command, std::function<void()> reached, Answer decided,
                   std::function<void(bool lost)> done) {
  const auto answered = std::make_shared<bool>(false);
  ++calls_;
  const auto finish = [this, answered, done = std::move(done)](bool lost) {
    if (std::exchange(*answered, true)) return;
    --calls_;
    done(lost);
  };
  context_.schedule.in(kPatience, [finish] { finish(true); });
  context_.schedule.in(context_.some_delay(),
                       [this, command = std::move(command), reached = std::move(reached),
                        decided = std::move(decided), finish] {
                         if (!host_.up()) return finish(true);
                         reached();
                         host_.propose(command, [this, decided, finish](const Result<Decided>& result) {
                           decided(result);
                           context_.schedule.in(context_.some_delay(), [finish] { finish(false); });
                         });
                       });
}

// Jobs.

namespace {

/// A MIG slice instead of a GPU or a share.
void make_slice(Part& part, Prng& prng) {
  static const char* const kProfiles[] = {"1g.10gb", "1g.10gb", "1g.10gb+me", "1g.20gb",
                                          "2g.20gb", "3g.40gb", "4g.40gb",    "7g.80gb"};
  part.mig_profile = kProfiles[prng.below(8)];
  part.gpu_milli = mig::milli_of(part.mig_profile);
  part.gpu_share_mb = mig::named_mb_of(part.mig_profile);
  part.gpu_memory_mb = 0;
}

}  // namespace

/// The same as a gang: several members, sometimes as many as fit, sometimes behind one that leads.
std::vector<Part> Clients::some_gang(Part part) {
  Prng& prng = context_.prng;
  part.member_count = static_cast<int32_t>(prng.between(2, 4));
  part.one_member_per_node = prng.chance(400);
  if (prng.chance(300)) part.member_max = part.member_count + static_cast<int32_t>(prng.between(0, 4));
  if (prng.chance(300)) part.domain = prng.chance(700) ? DomainLevel::kRack : DomainLevel::kNode;
  part.domain_required = part.domain != DomainLevel::kAny && prng.chance(500);
  if (part.is_share() || prng.chance(700)) return {part};
  Part leader = part;
  leader.member_count = 1;
  leader.member_max = 0;
  leader.gpu_count = static_cast<int32_t>(prng.between(0, 1));
  return {leader, part};
}

JobRequest Clients::some_job(const std::string& tag) {
  Prng& prng = context_.prng;
  Behaviour behaviour{.tag = tag, .runtime_ms = prng.between(1, demand_.runtime_max_ms)};
  if (prng.chance(300)) behaviour.runtime_ms = prng.between(1, 200);
  if (prng.chance(200)) behaviour.exit_code = static_cast<int32_t>(prng.between(1, 255));
  if (prng.chance(40)) behaviour.signal = 11;
  if (prng.chance(400)) behaviour.failing_attempts = static_cast<int32_t>(prng.between(1, 3));
  behaviour.ignores_term = prng.chance(100);
  if (prng.chance(200)) behaviour.busy_after_ms = prng.between(100, prng.chance(300) ? 90'000 : 5'000);
  v1::JobSpec spec;
  for (const std::string& word : to_arguments(behaviour)) spec.add_command(word);
  Part part{.gpu_count = static_cast<int32_t>(prng.between(0, demand_.gpus_max)),
            .cpu_milli = static_cast<int32_t>(prng.between(0, 8) * 500),
            .memory_mb = prng.between(0, 16) * 1'000};
  if (prng.chance(400)) part.gpu_count = 1;
  if (part.gpu_count > 0 && prng.chance(300)) part.gpu_memory_mb = prng.between(1, 10) * 10'000;
  if (part.gpu_count > 0 && prng.chance(300))
    part.gpu_model = demand_.models[prng.below(demand_.models.size())];
  if (part.gpu_count == 1 && prng.chance(demand_.share_chance)) {
    part.gpu_milli = static_cast<int32_t>(prng.between(1, 9) * 100);
    if (prng.chance(300)) part.gpu_share_mb = prng.between(1, 40) * 1'000;
  }
  if (demand_.keeps_limits) part.gpu_count %= 3;
  const bool slice = part.gpu_count == 1 && prng.chance(demand_.slice_chance);
  if (slice) make_slice(part, prng);
  if (prng.chance(300)) part.work = prng.chance(500) ? WorkClass::kOnline : WorkClass::kBatch;
  if (demand_.external_chance > 0 && prng.chance(static_cast<uint32_t>(demand_.external_chance)))
    part.features |= kFeatureExternal;
  JobRequest request{.priority = static_cast<int32_t>(prng.between(-100, 100)), .parts = {part}};
  if (!slice && prng.chance(demand_.gang_chance)) request.parts = some_gang(part);
  if (part.gpu_count > 1 && part.member_count == 1 && request.parts.size() == 1 &&
      prng.chance(demand_.gang_chance)) {
    request.parts.front().gpu_count += static_cast<int32_t>(prng.between(0, demand_.gpus_max));
    request.parts.front().may_span_nodes = request.parts.front().member_count == 1;
  }
  if (prng.chance(150)) request.max_runtime = milliseconds(prng.between(50, demand_.runtime_max_ms));
  if (prng.chance(300)) request.retry.exit_code_retries = static_cast<int32_t>(prng.between(1, 3));
  if (prng.chance(300)) request.retry.system_retries = static_cast<int32_t>(prng.between(-1, 4));
  request.retry.overlap_allowed = prng.chance(100);
  request.retry.tolerates_node_loss = prng.chance(300);
  if (prng.chance(150)) request.retry.kill_after_lost_contact = milliseconds(prng.between(3'000, 30'000));
  request.require_feasible = prng.chance(200);
  request.held = prng.chance(30);
  request.preemption_exempt = prng.chance(50);
  if (prng.chance(200)) request.preemption_mode = PreemptionMode::kCancel;
  request.spec = Blob(spec.SerializeAsString());
  if (prng.chance(300)) request.retry.causes = static_cast<uint32_t>(prng.between(1, kRetryKnown));
  if (prng.chance(100)) request.retry.exit_codes = Blob("\x01\x02\x07");
  return request;
}

/// Times, and jobs to wait for: of a batch mostly its earlier ones.
JobFlow Clients::some_flow(std::size_t index) {
  Prng& prng = context_.prng;
  JobFlow flow;
  if (prng.chance(300)) flow.begin_after = milliseconds(prng.between(100, 60'000));
  if (prng.chance(200)) flow.deadline_after = milliseconds(prng.between(60'001, 600'000));
  for (int64_t count = prng.between(0, 3); count > 0; --count) {
    Dependency one{.kind = static_cast<DependencyKind>(prng.between(1, 3))};
    if (index > 0 && prng.chance(700)) {
      one.index = static_cast<uint32_t>(prng.between(1, static_cast<int64_t>(index)) - 1);
    } else if (!jobs_.empty()) {
      // Mostly one of the newest, which has not ended yet.
      const uint64_t back = prng.below(std::min<std::size_t>(jobs_.size(), prng.chance(800) ? 8 : 100));
      one.parent = jobs_[jobs_.size() - 1 - back];
    } else {
      continue;
    }
    const bool twice = std::any_of(
        flow.dependencies.begin(), flow.dependencies.end(),
        [&](const Dependency& other) { return other.parent == one.parent && other.index == one.index; });
    if (!twice) flow.dependencies.push_back(one);
  }
  return flow;
}

TenantId Clients::some_tenant() { return tenants_[context_.prng.below(tenants_.size())]; }

void Clients::submit_something() {
  auto submission = std::make_shared<Submission>();
  submission->number = next_submission_++;
  submission->command.tenant = some_tenant();
  submission->command.user = "user-" + std::to_string(submission->number % 3);
  const JobOwner owner = owner_of(submission->number);
  submission->command.owner_kind = owner.kind;
  submission->command.owner = owner.name;
  Prng& prng = context_.prng;
  if (prng.chance(700)) submission->command.request_key = "key-" + std::to_string(submission->number);
  if (prng.chance(300)) submission->repeats = static_cast<int>(prng.between(1, 3));
  const int64_t count = prng.chance(150) ? prng.between(2, 6) : 1;
  for (int64_t i = 0; i < count; ++i) {
    submission->tags.push_back("tag-" + std::to_string(submission->number) + "-" + std::to_string(i));
    submission->command.jobs.push_back(some_job(submission->tags.back()));
    if (prng.chance(250))
      submission->command.jobs.back().flow.push_back(some_flow(static_cast<std::size_t>(i)));
  }
  if (count == 1 && prng.chance(60)) {
    std::vector<JobFlow>& flow = submission->command.jobs.front().flow;
    if (flow.empty()) flow.emplace_back();
    flow.front().array = {{.first = 0, .last = prng.between(0, prng.chance(100) ? 600 : 12), .step = 1}};
    if (prng.chance(600)) flow.front().array_at_once = prng.between(1, 4);
  }
  // Waiting jobs are never forgotten: a few large ones alone would fill a small volume for good.
  const bool bulky = submission->number % 8 == 5 && host_.settings().volume_bytes == UINT64_MAX;
  if (bulky) {
    make_bulky(submission->command, submission->number);
  } else {
    submission->command = std::get<SubmitJobs>(maybe_wild(submission->command));
  }
  make_tasks(submission->command, submission->number);
  make_interactive(submission->command, submission->number);
  ask_for_time(submission->command, submission->number);
  name_reservation(submission->command);
  ++open_;
  send(submission);
}

/// Up to a little more than a journal record holds. Drawn from the submission's number, so that no other draw
/// moves.
void Clients::make_bulky(SubmitJobs& command, uint64_t number) {
  Prng prng(number);
  for (JobRequest& job : command.jobs) {
    v1::JobSpec spec;
    CHECK(spec.ParseFromString(std::string(job.spec.view())));
    (*spec.mutable_environment())["BULK"] = std::string(prng.below(70'000), 'b');
    job.spec = Blob(spec.SerializeAsString());
  }
}

void Clients::send(const std::shared_ptr<Submission>& submission) {
  ++submission->tries;
  const auto rejected = std::make_shared<bool>(false);
  const auto refused = std::make_shared<bool>(false);
  call(
      submission->command,
      [this, submission] {
        const SubmitJobs& said = submission->command;
        context_.auditor.on_submit_try(submission->number, submission->tags, {said.owner_kind, said.owner});
      },
      [this, submission, rejected, refused](const Result<Decided>& result) {
        if (!result.ok()) {
          *refused = true;
          if (submission->accepted && result.error().code == ErrorCode::kStorageFull) {
            context_.auditor.fail("the remembered answer of submission " +
                                  std::to_string(submission->number) + " is refused: the disk is full");
          }
          return context_.auditor.on_submit_refused(submission->number, result.error().message);
        }
        if (result->applied.rejection) {
          *rejected = true;
          return context_.auditor.on_submit_refused(submission->number, describe(*result->applied.rejection));
        }
        context_.auditor.on_submit_accepted(submission->number, *result);
        const bool first = !std::exchange(submission->accepted, true);
        for (uint32_t i = 0; i < result->applied.id_count && first; ++i) {
          jobs_.push_back(JobId{result->applied.first_id + i});
        }
        if (first &&
            submission->command.jobs.front().is_array()) {  // Elements, whether they are jobs yet or not.
          const uint32_t elements = submission->command.jobs.front().sequence_count() - 1;
          for (int i = 0; i < 3; ++i)
            elements_.push_back(JobId{result->applied.first_id + 1 + context_.prng.below(elements)});
        }
        // A reader with the answer's sequence number finds the job.
        host_.read(result->sequence,
                   [this, job = JobId{result->applied.first_id}](const Observer::View& view) {
                     context_.auditor.on_job_told(job, view.state.jobs.find(job));
                   });
      },
      [this, submission, rejected, refused](bool lost) {
        if (*rejected) {
          --open_;
          return;
        }
        const bool safe = !submission->command.request_key.empty() || (*refused && !lost);
        if (lost || *refused) {
          if (safe && submission->tries < kTriesMax) return again(submission);
          --open_;
          return;
        }
        after_acceptance(submission);
      });
}

void Clients::again(const std::shared_ptr<Submission>& submission) {
  context_.schedule.in(context_.some_ms(50, 5'000), [this, submission] { send(submission); });
}

void Clients::after_acceptance(const std::shared_ptr<Submission>& submission) {
  if (submission->command.request_key.empty() || submission->repeats == 0 || stopped_) {
    --open_;
    return;
  }
  --submission->repeats;
  if (context_.prng.chance(300)) try_conflict(submission);
  if (context_.prng.chance(100)) try_anothers_key(submission);
  again(submission);
}

// The same key with another body is refused, whatever else is wrong.
void Clients::try_conflict(const std::shared_ptr<Submission>& submission) {
  SubmitJobs other = submission->command;
  other.jobs.front().priority += 1;
  call(
      other, [] {},
      [this, number = submission->number](const Result<Decided>& result) {
        if (!result.ok()) return;
        const std::optional<Rejection>& rejection = result->applied.rejection;
        if (!rejection || rejection->code != RejectionCode::kRequestKeyConflict) {
          context_.auditor.fail("the key of submission " + std::to_string(number) +
                                " is taken for another body");
        }
      },
      [](bool) {});
}

// A client that uses another's key is not told so, whatever is wrong with its own body.
void Clients::try_anothers_key(const std::shared_ptr<Submission>& submission) {
  SubmitJobs other = submission->command;
  other.owner_kind = CallerKind::kPerson;
  other.owner = "stranger";
  other.jobs.front().parts.clear();
  call(
      other, [] {},
      [this, number = submission->number, tenant = other.tenant,
       key = other.request_key](const Result<Decided>& result) {
        const State& state = context_.auditor.replica();
        const bool own = state.config.feature_level >= 9 &&
                         state.find_request(tenant, OwnerTable::kNobody, key) == nullptr;
        if (!result.ok() || !own) return;
        const std::optional<Rejection>& rejection = result->applied.rejection;
        if (!rejection || rejection->code == RejectionCode::kRequestKeyConflict)
          context_.auditor.fail("the key of submission " + std::to_string(number) + " is another's, too");
      },
      [](bool) {});
}

void Clients::cancel_something() {
  if (jobs_.empty()) return;
  if (!elements_.empty() && context_.prng.chance(100)) {
    return cancel(elements_[context_.prng.below(elements_.size())]);
  }
  cancel(jobs_[context_.prng.below(jobs_.size())]);
}

void Clients::cancel(JobId job) {
  call(
      CancelJob{.job = job, .by = "client"}, [] {},
      [this, job](const Result<Decided>& result) {
        if (!result.ok() || result->applied.rejection) return;
        context_.trace.note("cancelled", {job.value});
        context_.auditor.on_cancel_accepted(job, result->sequence);
      },
      [](bool) {});
}

// Holds, releases, requeues or updates a job; what became of it is in the journal.
void Clients::control_something() {
  if (jobs_.empty()) return;
  const JobId job = some_job_of_any_kind();
  const uint64_t draw = context_.prng.below(100);
  Command command = HoldJob{.job = job, .held = draw < 20, .by = "client"};
  if (draw >= 50) command = RequeueJob{.job = job, .by = "client"};
  if (draw >= 75) command = some_update(job);
  call(
      maybe_wild(std::move(command)), [] {},
      [this](const Result<Decided>& result) {
        if (result.ok()) context_.auditor.on_answer(result->sequence);
      },
      [](bool) {});
}

JobId Clients::some_job_of_any_kind() {
  Prng& prng = context_.prng;
  const State& state = context_.auditor.replica();
  const uint64_t draw = prng.below(10);
  if (draw == 0 && !state.promises.empty()) return state.promises.begin()->first;
  if (draw <= 2 && !elements_.empty()) return elements_[prng.below(elements_.size())];
  return jobs_[prng.below(jobs_.size())];
}

// One of a job's needs is changed; its other fields are given or not.
Command Clients::some_update(JobId job) {
  if (demand_.mixes_all) return any_update(job);
  Prng& prng = context_.prng;
  UpdateJob command{.job = job,
                    .given = static_cast<uint32_t>(prng.between(1, 3)),
                    .priority = static_cast<int32_t>(prng.between(-100, 100)),
                    .max_runtime = milliseconds(prng.between(0, demand_.runtime_max_ms))};
  const State& state = context_.auditor.replica();
  const Job* known = state.jobs.find(job);
  if (known == nullptr || !prng.chance(300)) return command;
  command.given = kJobParts;
  command.parts = as_requested(state.class_of(*known).parts);
  Part& part = command.parts.back();
  const bool cores = prng.chance(500);
  if (cores) part.cpu_milli = static_cast<int32_t>(prng.between(0, 8) * 500);
  if (!cores) part.gpu_memory_mb = part.gpu_count > 0 ? prng.between(0, 4) * 4'096 : 0;
  return command;
}

// Why does a job wait, when does it start, what would start it now? Answered on a copy, as it is for people.
void Clients::explain_something() {
  const JobId job = some_job_of_any_kind();
  policy::PolicySet policies = policy::default_policies();
  policies.tasks = host_.settings().tuning.tasks;
  host_.read(0, [job, policies](const Observer::View& view) {
    forecast::World world(view.state.clone_unfinished(), policies, view.state.last.at);
    forecast::Work settling{.left = 5'000};
    if (!forecast::subject_of(view.state, job).valid() || !world.settle(settling)) return;
    forecast::Work work{.left = 2'000};
    forecast::smallest_changes(world, job, 5, work);
  });
}

void Clients::cancel_reservations() {
  for (const auto& [id, booking] : context_.auditor.replica().bookings)
    call(CancelBooking{.booking = id}, [] {}, [](const Result<Decided>&) {}, [](bool) {});
}

void Clients::look_at_something() {
  if (jobs_.empty() || !host_.up()) return;
  if (context_.prng.chance(150)) return explain_something();
  const JobId job = jobs_[context_.prng.below(jobs_.size())];
  host_.read(0, [this, job](const Observer::View& view) {
    context_.auditor.on_job_told(job, view.state.jobs.find(job));
  });
}

// Tenants.

Limits Clients::some_limits() {
  Prng& prng = context_.prng;
  Limits limits;
  if (prng.chance(demand_.keeps_limits ? 900 : 500)) {
    const int64_t gpus = prng.between(0, 2 * demand_.gpus_max);
    limits.set(Resource::kGpus, demand_.keeps_limits ? 1 + gpus % 3 : gpus);
  }
  if (prng.chance(300)) limits.set(Resource::kJobs, prng.between(0, 6));
  if (prng.chance(200)) limits.set(Resource::kCpu, prng.between(0, 16'000));
  if (prng.chance(200)) limits.set(Resource::kMemory, prng.between(0, 64'000));
  if (prng.chance(100)) limits.set(Resource::kGpuMemory, prng.between(0, 400'000));
  return limits;
}

Amount Clients::some_guarantee() {
  Prng& prng = context_.prng;
  Amount guarantee;
  if (demand_.keeps_limits) return guarantee;
  if (prng.chance(500)) guarantee.gpus = prng.between(1, demand_.gpus_max);
  if (prng.chance(200)) guarantee.cpu_milli = prng.between(1, 8'000);
  if (prng.chance(100)) guarantee.jobs = prng.between(1, 3);
  return guarantee;
}

/// Puts a node into another rack, or none.
void Clients::label_something() {
  if (!host_.up()) return;
  host_.read(0, [this](const Observer::View& view) {
    if (view.state.nodes.empty()) return;
    Prng& prng = context_.prng;
    LabelNode command{.node = view.state.nodes[prng.below(view.state.nodes.size())].id};
    if (prng.chance(200)) {
      command.remove = {"topology.rack"};
    } else {
      command.set = {{.name = "topology.rack", .value = "rack-" + std::to_string(prng.below(2))}};
    }
    call(
        maybe_wild(command), [] {},
        [this](const Result<Decided>& result) {
          if (result.ok() && !result->applied.rejection) context_.auditor.on_answer(result->sequence);
        },
        [](bool) {});
  });
}

/// Maintenance of a node, soon and for a short time.
void Clients::reserve_something() {
  if (!host_.up()) return;
  host_.read(0, [this](const Observer::View& view) {
    if (view.state.nodes.empty()) return;
    Prng& prng = context_.prng;
    MakeBooking command{.name = "maintenance-" + std::to_string(prng.below(4)),
                        .nodes = {view.state.nodes[prng.below(view.state.nodes.size())].id},
                        .begin_after = milliseconds(prng.between(0, 30'000)),
                        .length = milliseconds(prng.between(500, 60'000))};
    keep_for_somebody(command);
    call(
        maybe_wild(command), [] {},
        [this](const Result<Decided>& result) {
          if (result.ok() && !result->applied.rejection) context_.auditor.on_answer(result->sequence);
        },
        [](bool) {});
  });
}

void Clients::create_tenant() {
  const std::string name = "tenant-" + std::to_string(next_tenant_++);
  CreateTenant command{.name = name, .limits = some_limits(), .request_key = "tenant-key-" + name};
  command.priority_tier = static_cast<int32_t>(context_.prng.between(1, 5) * 100);
  command.allow_preemption = context_.prng.chance(600) || demand_.moves_jobs;
  command.can_preempt_others = context_.prng.chance(500);
  command.guarantee = some_guarantee();
  if (context_.prng.chance(150)) {
    command.gpu_time_window = seconds(context_.prng.between(60, 300));
    command.gpu_time_max_ms = context_.prng.between(0, 60'000);
  }
  if (context_.prng.chance(400)) command.parent = some_tenant();
  if (!command.parent.valid() || command.parent == kDefaultTenant) command.parent = {};
  call(
      maybe_wild(command), [] {},
      [this](const Result<Decided>& result) {
        if (!result.ok() || result->applied.rejection) return;
        context_.auditor.on_answer(result->sequence);
        tenants_.push_back(TenantId{result->applied.first_id});
      },
      [](bool) {});
}

void Clients::update_tenant() {
  change_rules();
  UpdateTenant command{.tenant = some_tenant(), .limits = some_limits()};
  command.given = static_cast<uint32_t>(context_.prng.below(32)) << 3;  // Some of the five limits.
  command.allow_preemption = context_.prng.chance(600) || demand_.moves_jobs;
  command.can_preempt_others = context_.prng.chance(500);
  command.priority_tier = static_cast<int32_t>(context_.prng.between(1, 5) * 100);
  if (context_.prng.chance(100)) command.given |= kTenantPriorityTier;
  if (context_.prng.chance(300)) command.given |= kTenantAllowPreemption;
  if (context_.prng.chance(300)) command.given |= kTenantCanPreempt;
  command.guarantee = some_guarantee();
  command.given |= static_cast<uint32_t>(context_.prng.below(32)) << 12;  // Some of the five guarantees.
  command.gpu_time_window = seconds(context_.prng.between(60, 300));
  command.gpu_time_max_ms = context_.prng.between(0, 60'000);
  if (context_.prng.chance(100)) command.given |= kTenantGpuTimeWindow | kTenantGpuTimeMax;
  if (command.tenant == kDefaultTenant && context_.prng.chance(500)) return;
  call(
      maybe_wild(command), [] {},
      [this](const Result<Decided>& result) {
        if (result.ok()) context_.auditor.on_answer(result->sequence);
      },
      [](bool) {});
}

void Clients::lift_quotas() {
  const PoolShares& pools = context_.auditor.replica().config.pools;
  if (pools.on() && !pools.lends())
    call(SetPools{.by = "operator"}, [] {}, [](const Result<Decided>&) {}, [](bool) {});
  for (const auto& [id, tenant] : context_.auditor.replica().tenants) {
    if (tenant.deleted) continue;
    call(
        UpdateTenant{.tenant = id,
                     .given = kTenantMaxGpus | kTenantMaxGpuMemory | kTenantMaxCpu | kTenantMaxMemory |
                              kTenantMaxJobs | kTenantGpuTimeWindow},
        [] {}, [](const Result<Decided>&) {}, [](bool) {});
  }
}

}  // namespace gpusched::sim
