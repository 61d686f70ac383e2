#include "engine/testing/test_engine.h"

namespace gpusched::testing {

std::vector<int64_t> links_of(const std::vector<int>& islands) {
  std::vector<int> island_of;
  for (std::size_t i = 0; i < islands.size(); ++i)
    island_of.insert(island_of.end(), static_cast<std::size_t>(islands[i]), static_cast<int>(i));
  std::vector<int64_t> links;
  for (std::size_t a = 0; a < island_of.size(); ++a) {
    for (std::size_t b = a + 1; b < island_of.size(); ++b) {
      const bool same = island_of[a] == island_of[b];
      links.push_back(
          Link{.kind = same ? LinkKind::kNvlink : LinkKind::kNuma, .gbs = same ? kNvlinkGbs : kPcieGbs}
              .code());
    }
  }
  return links;
}

JobRequest request_of(const Want& want) {
  JobRequest request{.priority = want.priority,
                     .parts = {Part{.member_count = want.members,
                                    .gpu_count = want.gpus,
                                    .gpu_memory_mb = want.gpu_memory_mb,
                                    .cpu_milli = want.cpu_milli,
                                    .memory_mb = want.memory_mb,
                                    .gpu_model = want.model,
                                    .features = want.features,
                                    .work = want.work,
                                    .gpu_milli = want.gpu_milli,
                                    .gpu_share_mb = want.gpu_share_mb,
                                    .member_max = want.members_max,
                                    .domain = want.domain,
                                    .domain_required = want.domain_required,
                                    .one_member_per_node = want.one_member_per_node,
                                    .may_span_nodes = want.may_span_nodes,
                                    .place = want.place}},
                     .max_runtime = want.max_runtime,
                     .retry = want.retry,
                     .require_feasible = want.require_feasible,
                     .spec = Blob("spec"),
                     .held = want.held,
                     .flow = want.flow,
                     .preemption_mode = want.preemption_mode,
                     .preemption_exempt = want.preemption_exempt,
                     .booking = want.booking,
                     .task_type = want.task_type,
                     .interactive = want.interactive,
                     .preempt_grace = want.preempt_grace};
  if (!want.mig.empty()) {
    Part& part = request.parts.front();
    part.gpu_count = 1;
    part.gpu_milli = mig::milli_of(want.mig);
    part.gpu_share_mb = mig::named_mb_of(want.mig);
    part.mig_profile = want.mig;
  }
  if (want.leader_gpus < 0) return request;
  Part leader = request.parts.front();
  leader.member_count = 1;
  leader.member_max = 0;
  leader.gpu_count = want.leader_gpus;
  request.parts.insert(request.parts.begin(), leader);
  return request;
}

RegisterNode registration_of(std::string_view name, const Shape& shape, std::string_view boot_id) {
  RegisterNode offer{.name = std::string(name),
                     .instance = std::string(name) + "-data",
                     .boot_id = std::string(boot_id),
                     .version = "1",
                     .cpu_milli = shape.cpu_milli,
                     .memory_mb = shape.memory_mb};
  for (int i = 0; i < shape.gpus; ++i) {
    offer.devices.push_back(
        DeviceOffer{.uuid = "GPU-" + std::string(name) + "-" + std::to_string(i),
                    .model = shape.model,
                    .memory_mb = shape.gpu_memory_mb,
                    .numa_node = shape.numa_size > 0 ? std::optional(i / shape.numa_size) : std::nullopt,
                    .mig = i < shape.mig});
  }
  offer.labels = shape.labels;
  offer.links = links_of(shape.islands);
  return offer;
}

Applied TestEngine::apply(const Command& command) {
  events_.clear();
  const Digest before = state_.digest;
  const Applied applied =
      gpusched::apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events_);
  follow(followed_, events_.data(), events_.size(), state_.last);
  EXPECT_EQ(followed_.digest, state_.digest);
  if (applied.rejection.has_value()) {
    EXPECT_TRUE(events_.empty());
    EXPECT_EQ(state_.digest, before);
  }
  for (const Event& event : events_) planner_.observe(state_, event);
  return applied;
}

void TestEngine::advance(Duration by) {
  now_ = now_ + by;
  while (state_.next_due() <= now_) apply(AdvanceTime{});
  if (planner_.next_look() <= now_) planner_.look_at_promises(now_);
}

void TestEngine::settle() {
  while (!state_.settling.empty() || !state_.due_arrays.empty()) apply(AdvanceTime{});
}

NodeId TestEngine::add_node(std::string_view name, const Shape& shape) {
  return NodeId{apply(registration_of(name, shape)).first_id};
}

TenantId TestEngine::add_tenant(std::string_view name, TenantId parent, Limits limits) {
  return TenantId{
      apply(CreateTenant{.name = std::string(name), .parent = parent, .limits = limits}).first_id};
}

Applied TestEngine::try_submit(const Want& want, std::string key, std::string user) {
  return apply(SubmitJobs{.tenant = want.tenant,
                          .request_key = std::move(key),
                          .jobs = {request_of(want)},
                          .user = std::move(user)});
}

JobId TestEngine::submit(const Want& want) {
  const Applied applied = try_submit(want);
  EXPECT_FALSE(applied.rejection.has_value());
  return JobId{applied.first_id};
}

std::vector<PlanGroup> TestEngine::cycle() {
  std::vector<PlanGroup> groups;
  for (int slice = 0; slice < 10'000; ++slice) {
    Planner::Slice planned = planner_.plan(state_, now_);
    if (!planned.plan.groups.empty()) {
      apply(planned.plan);
      planner_.plan_applied(state_);
      groups.insert(groups.end(), planned.plan.groups.begin(), planned.plan.groups.end());
    }
    if (!planned.more) return groups;
  }
  ADD_FAILURE() << "a cycle without end";
  return groups;
}

const Job& TestEngine::job(JobId id) const {
  const Job* found = state_.jobs.find(id);
  EXPECT_NE(found, nullptr);
  return *found;
}

Applied TestEngine::started(JobId id) {
  Applied applied = apply(AttemptStarted{.job = id, .attempt = job(id).attempt_count, .node = job(id).node});
  for (uint32_t member = 1; member < member_nodes(id).size(); ++member) {
    applied = apply(AttemptStarted{
        .job = id, .attempt = job(id).attempt_count, .member = member, .node = member_nodes(id)[member]});
  }
  return applied;
}

Applied TestEngine::ended(JobId id, const Outcome& outcome) {
  const uint32_t attempt = job(id).attempt_count;
  const std::vector<NodeId> nodes = member_nodes(id);
  Applied applied =
      apply(AttemptEnded{.job = id, .attempt = attempt, .node = job(id).node, .outcome = outcome});
  for (uint32_t member = 1; member < nodes.size(); ++member) {
    applied = apply(AttemptEnded{
        .job = id, .attempt = attempt, .member = member, .node = nodes[member], .outcome = outcome});
  }
  return applied;
}

std::vector<NodeId> TestEngine::member_nodes(JobId id) const {
  std::vector<NodeId> nodes;
  const Attempt* attempt = state_.find_attempt(id, job(id).attempt_count);
  if (attempt == nullptr) return nodes;
  for (const Member& member : attempt->members) nodes.push_back(member.node);
  return nodes;
}

Applied TestEngine::released(NodeId id, uint32_t index) {
  return apply(DeviceReleased{.node = id, .device = index, .generation = device(id, index).generation});
}

JobId TestEngine::run(const Want& want) {
  const JobId id = submit(want);
  cycle();
  EXPECT_EQ(state_of(id), JobState::kScheduled);
  started(id);
  return id;
}

void TestEngine::finish(JobId id) {
  ended(id);
  release_all();
}

void TestEngine::release_all() {
  for (std::size_t slot = 0; slot < state_.nodes.size(); ++slot) {
    for (uint32_t i = 0; i < state_.nodes[slot].devices.size(); ++i) {
      const Device device = state_.nodes[slot].devices[i];
      if (device.state == DeviceState::kDraining) released(state_.nodes[slot].id, i);
      for (const Share& share : device.shares) {
        if (!share.draining()) continue;
        apply(DeviceReleased{.node = state_.nodes[slot].id,
                             .device = i,
                             .generation = device.generation,
                             .share_of = share.held_by});
      }
    }
  }
}

void expect_rejected(const Applied& applied, RejectionCode code) {
  ASSERT_TRUE(applied.rejection.has_value());
  EXPECT_EQ(applied.rejection->code, code) << to_string(applied.rejection->code);
}

}  // namespace gpusched::testing
