#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/prng.h"
#include "engine/messages/commands.h"
#include "engine/testing/random_keys.h"
#include "model/state.h"
#include "model/topology.h"

/// For tests only: commands as a busy and unreliable cluster makes them, some of them late, wrong or
/// repeated.
namespace gpusched::testing {

/// Draws commands that fit a state more or less. The same seed and states give the same commands.
class RandomCommands {
 public:
  explicit RandomCommands(uint64_t seed) : prng_(seed) {}

  Prng& prng() { return prng_; }
  /// Small steps, now and then a long one.
  Duration pause() {
    if (prng_.chance(20)) return minutes(prng_.between(1, 2000));
    if (prng_.chance(100)) return seconds(prng_.between(1, 400));
    return milliseconds(prng_.between(0, 3000));
  }
  /// Without plans: see `plan`.
  Command next(const State& state) {
    const uint64_t draw = prng_.below(100);
    if (draw < 30) return submit(state);
    if (draw < 46) return started(state);
    if (draw < 60) return ended(state);
    if (draw < 70) return device_word(state);
    if (draw < 71) return job_control(state);
    if (draw < 72) return node_service(state);
    if (draw < 75)
      return CancelJob{.job = any_job(state), .tenant = prng_.chance(100) ? any_tenant(state) : TenantId{}};
    if (draw < 81) return register_node(state);
    if (draw < 89) return lease(state);
    if (draw < 91) return condition(state);
    if (draw < 98) return prng_.chance(200) ? moving(state) : tenant_command(state);
    if (prng_.chance(100)) return watch(state);
    if (draw < 99)
      return prng_.chance(200) ? Command(NoteStart{}) : prng_.chance(400) ? booking(state) : AdvanceTime{};
    return configure();
  }
  /// A plan without a planner: jobs from the head of the line onto whatever is drawn.
  Command plan(const State& state) {
    CommitPlan plan{.based_on = state.last.sequence};
    OrderedJobs::Cursor cursor = state.line.begin();
    for (int i = 0; i < 6 && !cursor.at_end(); ++i, cursor.next()) {
      const Job* job = state.jobs.find((*cursor).job);
      if (state.nodes.empty() || prng_.chance(200)) continue;
      plan.groups.push_back(prng_.chance(150) ? preempting(state, *job) : group(state, *job));
    }
    for (const auto& [id, promise] : state.promises) {
      if (!prng_.chance(500)) continue;
      plan.groups.push_back(promised(state, promise));
    }
    return plan;
  }

 private:
  template <typename Container>
  auto any(const Container& container) {
    auto it = container.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(prng_.below(container.size())));
    return it;
  }
  Command watch(const State& state) {
    ReportWatchdogFinding command{.job = any_job(state),
                                  .attempt = 1,
                                  .kind = static_cast<WatchdogFinding>(prng_.below(4)),
                                  .detail = "seen",
                                  .age = seconds(prng_.between(0, 100)),
                                  .action = static_cast<WatchAction>(prng_.below(3))};
    if (!state.attempts.empty()) {
      const Attempt& attempt = any(state.attempts)->second;
      command.job = attempt.job;
      command.attempt = attempt.number;
    }
    return command;
  }
  TenantId any_tenant(const State& state) {
    if (prng_.chance(20)) return TenantId{prng_.below(50)};
    if (prng_.chance(400)) return kDefaultTenant;
    return any(state.tenants)->first;
  }
  JobId any_job(const State& state) { return JobId{prng_.below(state.last.sequence + 2)}; }
  NodeId any_node(const State& state) {
    if (state.nodes.empty() || prng_.chance(20)) return NodeId{prng_.below(50)};
    return any(state.nodes)->id;
  }

  std::vector<Part> parts() {
    static const char* const kModels[] = {"", "", "A100", "H100", "B200"};
    Part part{.gpu_count = static_cast<int32_t>(prng_.below(5)),
              .gpu_memory_mb = prng_.chance(200) ? prng_.between(1, 100'000) : 0,
              .cpu_milli = static_cast<int32_t>(prng_.below(4) * 1000),
              .memory_mb = prng_.chance(300) ? prng_.between(1, 20'000) : 0,
              .gpu_model = kModels[prng_.below(5)]};
    if (part.gpu_count == 1 && prng_.chance(500))
      part.gpu_milli = static_cast<int32_t>(prng_.between(1, 10) * 100);
    if (part.gpu_milli > 0 && prng_.chance(300)) part.gpu_share_mb = prng_.between(1, 60'000);
    if (prng_.chance(120)) make_slice(part);
    if (prng_.chance(300)) part.place = place(part);
    if (prng_.chance(80)) part.features = prng_.chance(600) ? kFeatureContainer : kFeatureExternal;
    if (prng_.chance(300)) part.work = prng_.chance(500) ? WorkClass::kOnline : WorkClass::kBatch;
    return prng_.chance(150) ? gang(part) : std::vector<Part>{part};
  }
  /// Makes a part of a profile that some, or no, node's GPUs in MIG mode have.
  void make_slice(Part& part) {
    static const char* const kProfiles[] = {"1g.10gb", "1g.10gb", "1g.10gb+me", "2g.20gb",
                                            "3g.40gb", "4g.40gb", "7g.80gb",    "1g.5gb"};
    part.mig_profile = kProfiles[prng_.below(8)];
    part.gpu_count = 1;
    part.gpu_milli = mig::milli_of(part.mig_profile);
    part.gpu_share_mb = mig::named_mb_of(part.mig_profile);
    if (prng_.chance(950)) part.gpu_memory_mb = 0;
  }
  /// Some of these are refused: an elastic part before another one, a share beside others.
  std::vector<Part> gang(Part part) {
    part.place.clear();
    part.member_count = static_cast<int32_t>(prng_.between(1, 4));
    part.one_member_per_node = prng_.chance(400);
    if (prng_.chance(300)) part.member_max = part.member_count + static_cast<int32_t>(prng_.below(4));
    if (prng_.chance(200)) part.domain = static_cast<DomainLevel>(prng_.below(5));
    part.domain_required = prng_.chance(300);
    if (prng_.chance(100)) part.may_span_nodes = true;
    if (prng_.chance(600)) return {part};
    Part leader = part;
    leader.member_count = 1;
    if (prng_.chance(900)) leader.member_max = 0;
    leader.gpu_count = static_cast<int32_t>(prng_.below(3));
    return {leader, part};
  }
  LabelTerm term() {
    static const char* const kNames[] = {"rack", "zone", "disk"};
    return {.name = kNames[prng_.below(3)],
            .value = "r" + std::to_string(prng_.below(3)),
            .any_value = prng_.chance(200)};
  }
  std::vector<PlaceRequest> place(Part& part) {
    PlaceRequest place;
    if (prng_.chance(300)) place.labels = {term()};
    if (prng_.chance(300)) place.without_labels = {term()};
    if (prng_.chance(300) && part.gpu_count > 0) {
      place.gpu_models = {"H100", "A100"};
      part.gpu_model.clear();
    }
    place.exclusive = prng_.chance(300);
    if (part.gpu_milli == 0 && part.gpu_count > 1) {
      if (prng_.chance(300)) place.bandwidth_min = prng_.between(1, 60);
      if (prng_.chance(400)) place.layout = static_cast<Layout>(prng_.below(3));
    }
    if (part.gpu_milli == 0 && part.gpu_count > 0 && place.layout == Layout::kPack && prng_.chance(200)) {
      if (prng_.chance(500)) {
        place.device_mask = (uint64_t{1} << part.gpu_count) - 1;
        place.device_mask <<= prng_.below(3);
      } else {
        const std::string node = "n" + std::to_string(prng_.below(6)) + "-";
        for (int32_t i = 0; i < part.gpu_count; ++i) place.device_uuids.push_back(node + std::to_string(i));
      }
    }
    return {place};
  }
  Command submit(const State& state) {
    SubmitJobs command{.tenant = any_tenant(state)};
    if (prng_.chance(500)) command.user = "user-" + std::to_string(prng_.below(5));
    if (!command.user.empty()) command.by = command.user + "@login";
    own(command, state.last.sequence);
    if (prng_.chance(200)) command.request_key = "key-" + std::to_string(prng_.below(20));
    const uint64_t count = prng_.chance(200) ? 1 + prng_.below(5) : 1;
    for (uint64_t i = 0; i < count; ++i) {
      JobRequest job{.priority = static_cast<int32_t>(prng_.between(-3, 3)),
                     .parts = parts(),
                     .require_feasible = prng_.chance(50),
                     .spec = Blob(std::string(prng_.below(40), 'x')),
                     .held = prng_.chance(20),
                     .preemption_mode = static_cast<PreemptionMode>(prng_.chance(300) ? 1 : 0),
                     .preemption_exempt = prng_.chance(50),
                     .booking = prng_.chance(50) ? "b" + std::to_string(prng_.below(6)) : "",
                     .task_type = prng_.chance(300) ? "llm" : ""};
      if (prng_.chance(200)) job.max_runtime = seconds(prng_.between(1, 100));
      job.retry.exit_code_retries = static_cast<int32_t>(prng_.below(3));
      job.retry.system_retries = static_cast<int32_t>(prng_.between(-1, 2));
      job.retry.overlap_allowed = prng_.chance(500);
      job.retry.tolerates_node_loss = prng_.chance(500);
      if (prng_.chance(300)) job.retry.kill_after_lost_contact = seconds(prng_.between(1, 300));
      if (prng_.chance(100)) job.retry.causes = static_cast<uint32_t>(prng_.below(32));
      if (prng_.chance(50)) job.retry.exit_codes = Blob("\x01");
      if (prng_.chance(150)) job.flow.push_back(flow(state, i));
      command.jobs.push_back(std::move(job));
    }
    return command;
  }
  /// Owners of every kind, and none.
  static void own(SubmitJobs& command, uint64_t number) {
    if (!command.user.empty()) {
      command.owner_kind = number % 2 == 0 ? CallerKind::kPerson : CallerKind::kService;
      command.owner = command.user;
    } else if (number % 3 != 0) {
      command.owner_kind = number % 3 == 1 ? CallerKind::kOperator : CallerKind::kAnonymous;
      if (number % 3 == 1) command.owner = "admin";
    }
  }
  JobFlow flow(const State& state, uint64_t index) {
    JobFlow flow;
    if (prng_.chance(200)) flow.begin_after = seconds(prng_.between(1, 100));
    if (prng_.chance(200)) flow.deadline_after = seconds(prng_.between(50, 500));
    for (uint64_t count = prng_.below(4); count > 0 && prng_.chance(700); --count) {
      Dependency one{.kind = static_cast<DependencyKind>(1 + prng_.below(3))};
      if (index > 0 && prng_.chance(300)) {
        one.index = static_cast<uint32_t>(prng_.below(index + 1));
      } else {
        // Mostly a new one, which still waits or runs.
        one.parent = prng_.chance(300) ? any_job(state) : JobId{state.last.sequence - prng_.below(20)};
        if (!one.parent.valid()) continue;
      }
      flow.dependencies.push_back(one);
    }
    if (prng_.chance(300)) flow.on_parent_failure = OnParentFailure::kWait;
    if (prng_.chance(300)) {
      flow.array = {{.first = 3, .last = 3 + prng_.between(0, 20), .step = prng_.between(1, 3)}};
      flow.array_at_once = prng_.between(0, 3);
    }
    return flow;
  }
  Command job_control(const State& state) {
    const JobId job = any_job(state);
    const uint64_t draw = prng_.below(10);
    if (draw < 4) return HoldJob{.job = job, .held = prng_.chance(400), .by = "operator"};
    if (draw < 6) return RequeueJob{.job = job};
    if (draw < 7 && !state.attempts.empty()) {
      const Attempt& attempt = any(state.attempts)->second;
      return CheckpointSaved{.job = attempt.job,
                             .attempt = attempt.number,
                             .node = attempt.members[0].node,
                             .age = seconds(prng_.between(-2, 60))};
    }
    return UpdateJob{.job = job,
                     .tenant = prng_.chance(100) ? any_tenant(state) : TenantId{},
                     .given = static_cast<uint32_t>(prng_.below(64)),
                     .priority = static_cast<int32_t>(prng_.between(-3, 3)),
                     .max_runtime = seconds(prng_.between(0, 100)),
                     .spec = Blob("renamed"),
                     .begin_after = seconds(prng_.between(0, 20)),
                     .deadline_after = seconds(prng_.between(0, 500)),
                     .parts = parts()};
  }
  Command node_service(const State& state) {
    const NodeId node = any_node(state);
    const Node* found = state.find_node(node);
    const uint64_t draw = prng_.below(10);
    if (draw < 2)
      return SetNodeAvailability{.node = node, .to = Availability::kDraining, .by = "op", .reason = "r"};
    if (draw < 6) return SetNodeAvailability{.node = node, .to = Availability::kInService, .by = "op"};
    if (draw < 8) {
      return NodeValidated{.node = node,
                           .boot_id = found == nullptr || prng_.chance(50) ? "boot-x" : found->boot_id,
                           .passed = prng_.chance(700),
                           .detail = "disk full"};
    }
    if (prng_.chance(300)) {
      const LabelTerm one = term();
      return LabelNode{
          .node = node, .set = {{.name = one.name, .value = one.value}}, .remove = {term().name}};
    }
    return LabelNode{.node = node,
                     .set = {{.name = "topology.rack", .value = prng_.chance(500) ? "r1" : "r2"}},
                     .remove = {"topology.zone"}};
  }
  uint32_t any_member(const Attempt& attempt) {
    return static_cast<uint32_t>(prng_.below(attempt.members.size()));
  }
  Command started(const State& state) {
    if (state.attempts.empty()) return submit(state);
    const Attempt& attempt = any(state.attempts)->second;
    const uint32_t number = prng_.chance(20) ? 1 : attempt.number;
    const uint32_t member = any_member(attempt);
    const NodeId node = prng_.chance(20) ? any_node(state) : attempt.members[member].node;
    if (prng_.chance(attempt.is_gang() ? 500 : 10))
      return AttemptPrepared{.job = attempt.job, .attempt = number, .member = member, .node = node};
    return AttemptStarted{.job = attempt.job, .attempt = number, .member = member, .node = node};
  }
  Command ended(const State& state) {
    if (state.attempts.empty()) return submit(state);
    const Attempt& attempt = any(state.attempts)->second;
    Outcome outcome{.cause = static_cast<EndCause>(prng_.below(14)), .detail = {}};
    if (prng_.chance(500)) outcome.cause = EndCause::kExited;
    if (outcome.cause == EndCause::kExited) outcome.exit_code = prng_.chance(500) ? 0 : 1;
    if (outcome.cause == EndCause::kSignaled) outcome.signal = 9;
    if (prng_.chance(100)) outcome.detail = "because";
    if (outcome.exit_code == 0) {  // Some nodes do not tell.
      outcome.usage = {.peak_memory_bytes = static_cast<int64_t>(attempt.job.value) << 20,
                       .peak_of_process = attempt.number % 2 == 0,
                       .cpu_time = seconds(attempt.number),
                       .gpu_busy_ms = 250,
                       .gpu_watched_ms = 1'000,
                       .peak_gpu_memory_mb = attempt.number % 2};
    }
    return AttemptEnded{.job = attempt.job,
                        .attempt = prng_.chance(20) ? 1 : attempt.number,
                        .member = prng_.chance(10) ? 1u : 0u,
                        .node = attempt.members[0].node,
                        .outcome = outcome};
  }
  Command device_word(const State& state) {
    const Node* node = state.find_node(any_node(state));
    if (node == nullptr || node->devices.empty()) return DeviceReleased{.node = NodeId{77}};
    auto index = static_cast<uint32_t>(prng_.below(node->devices.size() + 1));
    // Mostly one that drains, if there is any.
    for (uint32_t i = 0; i < node->devices.size() && prng_.chance(900); ++i) {
      if (node->devices[i].state == DeviceState::kDraining) index = i;
    }
    AttemptKey share_of;
    for (uint32_t i = 0; i < node->devices.size(); ++i) {
      for (const Share& share : node->devices[i].shares) {
        if (prng_.chance(share.draining() ? 700 : 50)) share_of = share.held_by;
        if (share_of == share.held_by) index = i;
      }
    }
    uint32_t generation = index < node->devices.size() ? node->devices[index].generation : 0;
    if (prng_.chance(50)) ++generation;
    if (prng_.chance(300)) {
      return DeviceStillBusy{.node = node->id,
                             .device = index,
                             .generation = generation,
                             .evidence = "pid 1",
                             .share_of = share_of};
    }
    return DeviceReleased{.node = node->id, .device = index, .generation = generation, .share_of = share_of};
  }
  Command register_node(const State& state) {
    const uint64_t number = prng_.below(6);
    const std::string name = "n" + std::to_string(number);
    const Node* node = state.find_node_named(name);
    RegisterNode offer{.name = name, .instance = name, .boot_id = "boot-0", .version = "1"};
    if (node != nullptr) offer.boot_id = node->boot_id;
    if (prng_.chance(200)) offer.boot_id = "boot-" + std::to_string(prng_.below(100));
    if (prng_.chance(50)) offer.instance += "-other";
    // A folder or a machine that was copied, and agents that do not tell their machine.
    if (prng_.chance(30)) offer.instance = "n" + std::to_string(1 + prng_.below(6));
    if (prng_.chance(500)) offer.machine = prng_.chance(950) ? name + "-machine" : "copy";
    const std::string& owner = prng_.chance(980) ? name : offer.instance;
    offer.cpu_milli = 4000 * static_cast<int64_t>(number);
    offer.memory_mb = prng_.chance(900) ? 30'000 : 10'000;
    offer.validates = number == 4;
    offer.features = {number != 5 ? "container" : "external"};
    const uint64_t count = prng_.chance(900) ? number : prng_.below(9);
    for (uint64_t i = 0; i < count; ++i) {
      offer.devices.push_back(
          DeviceOffer{.uuid = owner + "-" + std::to_string(prng_.chance(980) ? i : prng_.below(9)),
                      .model = number % 2 == 0 ? "NVIDIA A100-SXM4-80GB" : "NVIDIA H100",
                      .memory_mb = number == 3 && i % 2 == 0 ? 40'000 : 80'000,
                      .condition = prng_.chance(950) ? DeviceCondition::kOk : DeviceCondition::kUnhealthy,
                      .mig = number % 2 == 0 && prng_.chance(i % 2 == 0 ? 950 : 50)});
    }
    for (const char* name_of_label : {"disk", "rack"}) {
      if (prng_.chance(300))
        offer.labels.push_back({.name = name_of_label, .value = "r" + std::to_string(prng_.below(3))});
    }
    if (prng_.chance(700)) {
      for (std::size_t i = 0; i < pair_count(offer.devices.size()); ++i) {
        static constexpr int64_t kSpeeds[] = {0, 10, 20, 50};
        offer.links.push_back(
            Link{.kind = static_cast<LinkKind>(prng_.below(8)), .gbs = kSpeeds[prng_.below(4)]}.code());
      }
      for (DeviceOffer& device : offer.devices) {
        if (const auto drawn = static_cast<int32_t>(prng_.below(3)); drawn > 0) device.numa_node = drawn - 1;
      }
    }
    if (node != nullptr) {
      for (const AttemptKey& key : node->attempts) {
        if (prng_.chance(200)) continue;
        offer.attempts.push_back(
            {.job = key.job, .attempt = key.attempt, .member = key.member, .ended = prng_.chance(100)});
      }
    }
    if (prng_.chance(100)) {
      offer.attempts.push_back({.job = any_job(state), .attempt = 9, .device_mask = prng_.below(32)});
    }
    return offer;
  }
  Command lease(const State& state) {
    const NodeId node = any_node(state);
    const uint64_t draw = prng_.below(10);
    if (draw < 4) return NodeLeaseLost{.node = node};
    if (draw < 8) return NodeLeaseBack{.node = node};
    return ConfirmNodeDead{.node = node};
  }
  Command condition(const State& state) {
    SetDeviceCondition command{.node = any_node(state),
                               .device = static_cast<uint32_t>(prng_.below(5)),
                               .condition = static_cast<DeviceCondition>(1 + prng_.below(3)),
                               .by_operator = prng_.chance(500),
                               .lasting = prng_.chance(500)};
    if (prng_.chance(250)) {
      const bool hot = prng_.chance(400);
      return NoteDeviceHeat{
          .node = command.node, .device = command.device, .hot = hot, .detail = hot ? "82 C" : ""};
    }
    if (prng_.chance(250)) {
      return NoteDeviceFault{.node = command.node,
                             .device = command.device,
                             .fault = static_cast<FaultClass>(prng_.below(5)),
                             .code = "xid 79",
                             .detail = {},
                             .id = prng_.between(0, 5)};
    }
    if (prng_.chance(600)) command.condition = DeviceCondition::kOk;
    if (command.condition != DeviceCondition::kOk) command.detail = "XID";
    return command;
  }
  Command tenant_command(const State& state) {
    if (prng_.chance(state.config.pools.on() ? 100 : 10)) {
      const int64_t online = prng_.between(0, 10) * 100;
      return SetPools{.online_milli = online, .batch_milli = prng_.between(0, 1000 - online), .by = "op"};
    }
    if (prng_.chance(350)) return random_key_command(prng_, state, any_tenant(state));
    if (prng_.chance(350)) return random_node_identity_command(prng_, state);
    static const char* const kNames[] = {"a", "b", "c", "d", "default"};
    const std::string name = kNames[prng_.below(5)];
    Limits limits;
    const auto resource = static_cast<Resource>(1 + prng_.below(5));
    limits.set(resource, resource == Resource::kCpu || resource == Resource::kGpuMemory
                             ? prng_.between(0, 9000)
                             : prng_.between(0, 9));
    if (prng_.chance(150)) limits.waiting_max = prng_.between(0, 11);
    if (prng_.chance(150)) limits.soft_waiting_max = prng_.between(0, 7);
    const uint64_t draw = prng_.below(10);
    Amount guarantee;
    if (prng_.chance(300)) guarantee.gpus = prng_.between(1, 6);
    if (prng_.chance(200)) guarantee.cpu_milli = prng_.between(1, 6000);
    const Duration window = prng_.chance(200) ? minutes(prng_.between(1, 30)) : Duration{};
    const int64_t gpu_time_max_ms = prng_.between(0, 400'000);
    if (draw < 3) {
      return CreateTenant{.name = name,
                          .parent = prng_.chance(500) ? any_tenant(state) : TenantId{},
                          .limits = limits,
                          .priority_tier = static_cast<int32_t>(prng_.below(3)),
                          .allow_preemption = prng_.chance(500),
                          .can_preempt_others = prng_.chance(300),
                          .request_key = prng_.chance(200) ? "key-1" : "",
                          .guarantee = guarantee,
                          .gpu_time_window = window,
                          .gpu_time_max_ms = gpu_time_max_ms,
                          .name_may_repeat = guarantee.gpus > 4};
    }
    if (draw < 6) {
      return UpdateTenant{.tenant = any_tenant(state),
                          .given = static_cast<uint32_t>(prng_.below(uint64_t{1} << 21)),
                          .name = name,
                          .limits = limits,
                          .priority_tier = 2,
                          .allow_preemption = prng_.chance(500),
                          .can_preempt_others = prng_.chance(300),
                          .guarantee = guarantee,
                          .gpu_time_window = window,
                          .gpu_time_max_ms = gpu_time_max_ms};
    }
    return DeleteTenant{.tenant = any_tenant(state)};
  }
  AdmissionPolicy admission() {
    return {.rate_milli = prng_.chance(700) ? prng_.between(1, 5'000) : 0,
            .burst = prng_.between(0, 50),
            .daily = prng_.chance(300) ? prng_.between(1, 500) : 0,
            .soft_queue = prng_.chance(500) ? prng_.between(1, 50) : 0,
            .throttled_milli = prng_.between(0, 3'000),
            .costs = {{.type = "llm", .tokens = prng_.between(1, 9)}}};
  }
  Command booking(const State& state) {
    if (!state.bookings.empty() && prng_.chance(300))
      return CancelBooking{.booking = any(state.bookings)->first};
    MakeBooking make{.name = "b" + std::to_string(prng_.below(6)),
                     .tenant = prng_.chance(700) ? any_tenant(state) : TenantId{},
                     .begin_after = seconds(prng_.between(0, 200)),
                     .length = seconds(prng_.between(1, 200)),
                     .every = prng_.chance(300) ? seconds(prng_.between(1, 400)) : Duration{}};
    if (prng_.chance(300)) make.users = {"user-1", "user-2"};
    for (uint64_t count = 1 + prng_.below(2); count > 0; --count) make.nodes.push_back(any_node(state));
    return make;
  }
  Command configure() {
    EngineConfig config;
    config.aging_per_hour = prng_.between(0, 20);
    config.queue_size_max = prng_.between(50, 500);
    config.finished_jobs_max = prng_.between(0, 30);
    config.finished_jobs_kept = minutes(prng_.between(1, 5000));
    config.drain_limit = seconds(prng_.between(0, 60));
    config.lost_after = seconds(prng_.between(1, 600));
    config.auto_drain_percent = prng_.between(0, 50);
    if (prng_.chance(400)) config.admission = admission();
    if (prng_.chance(800)) config.feature_level = kFeatureLevel;
    return Configure{.config = config};
  }
  static std::vector<uint32_t> generations_of(const Node& node, uint64_t mask) {
    std::vector<uint32_t> generations;
    for (std::size_t i = 0; i < node.devices.size(); ++i) {
      if (((mask >> i) & 1) != 0) generations.push_back(node.devices[i].generation);
    }
    return generations;
  }
  /// Onto what some attempts of one node hold, and what is free beside it.
  PlanGroup preempting(const State& state, const Job& job) {
    const auto wanted = state.class_of(job).parts.front().gpu_count;
    const Node& node = *any(state.nodes);
    PlanGroup group{.job = job.id, .attempt = job.attempt_count + 1};
    uint64_t pool = prng_.chance(500) ? node.free_mask : 0;
    for (const AttemptKey& key : node.attempts) {
      if (__builtin_popcountll(pool) >= wanted && !prng_.chance(50)) break;
      const Attempt* attempt = state.find_attempt(key.job, key.attempt);
      if (prng_.chance(100) || attempt->stop != StopReason::kNone) continue;
      group.preemptions.push_back({.job = key.job, .attempt = key.attempt});
      pool |= attempt->members[0].device_mask;
    }
    MemberPlacement member{.node = node.id};
    for (int32_t count = wanted; count > 0 && pool != 0; --count) {
      const uint64_t bit = uint64_t{1} << (63 - __builtin_clzll(pool));
      pool ^= bit;
      member.device_mask |= bit;
    }
    member.generations = generations_of(node, member.device_mask);
    group.members.push_back(member);
    return group;
  }
  /// Jobs of one node go on elsewhere, so that one that waits may start.
  Command moving(const State& state) {
    const OrderedJobs::Cursor head = state.line.begin();
    if (state.nodes.empty() || head.at_end()) return AdvanceTime{};
    MoveJobs command{.groups = {preempting(state, *state.jobs.find((*head).job))}, .by = "op", .why = "w"};
    std::map<NodeId, uint64_t> taken;
    for (const Preemption& victim : command.groups.front().preemptions) {
      const Job* job = state.jobs.find(victim.job);
      if (job == nullptr) return AdvanceTime{};
      PlanGroup to{.job = victim.job, .attempt = victim.attempt + 1};
      to.members.push_back(member(state, state.class_of(*job).parts.front(), taken));
      command.groups.push_back(std::move(to));
    }
    if (command.groups.size() > limits::kMovesMax + 1) return AdvanceTime{};
    return command;
  }
  PlanGroup promised(const State& state, const Promise& promise) {
    const Member& kept = promise.members[0];
    const Node& node = *state.find_node(kept.node);
    const MemberPlacement member{.node = kept.node,
                                 .device_mask = kept.device_mask,
                                 .generations = generations_of(node, kept.device_mask)};
    return {
        .job = promise.job, .attempt = state.jobs.find(promise.job)->attempt_count + 1, .members = {member}};
  }
  MemberPlacement member(const State& state, const Part& part, std::map<NodeId, uint64_t>& taken) {
    const Node& node = *any(state.nodes);
    MemberPlacement member{.node = node.id};
    uint64_t free = prng_.chance(30) ? prng_.next() : node.free_mask & ~taken[node.id];
    for (std::size_t i = 0; part.is_share() && i < node.devices.size(); ++i) {
      if (node.devices[i].state == DeviceState::kShared && prng_.chance(700)) free = uint64_t{1} << i;
    }
    for (int32_t count = part.gpu_count; count > 0 && free != 0; --count) {
      const uint64_t bit = free & (~free + 1);
      free ^= bit;
      member.device_mask |= bit;
      const auto index = static_cast<std::size_t>(__builtin_ctzll(bit));
      member.generations.push_back(index < node.devices.size() ? node.devices[index].generation : 0);
    }
    taken[node.id] |= member.device_mask;
    if (part.is_slice() || prng_.chance(10)) member.mig_start = static_cast<int32_t>(prng_.below(8));
    return member;
  }
  PlanGroup group(const State& state, const Job& job) {
    const std::vector<Part>& parts = state.class_of(job).parts;
    PlanGroup group{.job = job.id, .attempt = job.attempt_count + 1};
    std::map<NodeId, uint64_t> taken;
    for (uint32_t part = 0; part < parts.size(); ++part) {
      const int32_t count =
          static_cast<int32_t>(prng_.between(parts[part].member_count, parts[part].members_most()));
      for (int32_t i = 0; i < count; ++i) {
        group.members.push_back(member(state, parts[part], taken));
        group.members.back().part = part;
      }
    }
    if (prng_.chance(20)) group.members.push_back(group.members.front());
    return group;
  }

  Prng prng_;
};

}  // namespace gpusched::testing
