#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "gpusched/v1/types.pb.h"
#include "sim/clients.h"

// Operators' changes of the cluster's rules while it runs, jobs of people who wait at the terminal, and tasks
// of users.
namespace gpusched::sim {
namespace {

constexpr const char* kUserLabel = "task.user";
constexpr const char* kCostLabel = "task.cost";
constexpr int64_t kUsers = 4;
constexpr int64_t kWeightStep = 600;

/// The same bytes in each run: maps have no order of their own.
std::string packed_alike(const v1::JobSpec& spec) {
  std::string packed;
  google::protobuf::io::StringOutputStream stream(&packed);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  spec.SerializeToCodedStream(&out);
  out.Trim();
  return packed;
}

/// By the labels of the job; of users each has its weight.
class LabelReader final : public policy::TaskReader {
 public:
  std::optional<policy::TaskFacts> read(std::string_view packed) const override {
    v1::JobSpec spec;
    if (!spec.ParseFromString(std::string(packed))) return std::nullopt;
    const auto user = spec.labels().find(kUserLabel);
    const auto cost = spec.labels().find(kCostLabel);
    if (user == spec.labels().end() || cost == spec.labels().end()) return std::nullopt;
    const std::size_t at = packed.find(user->second);
    policy::TaskFacts facts{.user = packed.substr(at, user->second.size())};
    int64_t tokens = 1;
    std::from_chars(cost->second.data(), cost->second.data() + cost->second.size(), tokens);
    facts.cost_milli = tokens * 1'000;
    facts.weight_milli = kWeightStep * (1 + user->second.back() - '0');
    return facts;
  }
};

}  // namespace

/// Other pools, or none, or another aging; or another order of tenants, or half-life.
void Clients::change_rules() {
  EngineConfig config = host_.settings().engine;
  if (!demand_.changes_rules || config.feature_level < 10) return;
  Prng prng(++rule_changes_ * 0x9E3779B97F4A7C15ULL + context_.auditor.command_count());
  if (demand_.mixes_all && prng.chance(400)) {
    static constexpr const char* kOrders[] = {"",     "priority_aging",  "fair_share",
                                              "fifo", "strict_priority", "cost_aware"};
    if (prng.chance(500)) config.policy.queue_order = kOrders[prng.below(std::size(kOrders))];
    if (prng.chance(500)) config.use_half_life = milliseconds(prng.between(1'000, 600'000));
  } else if (prng.chance(500)) {
    config.aging_per_hour = prng.between(0, 1'000);
  } else if (prng.chance(300)) {
    config.pools = {};
  } else {
    const int64_t online = prng.between(200, 800);
    config.pools = {.online_milli = online, .batch_milli = 1'000 - online, .lend = !demand_.keeps_limits};
  }
  host_.reload(config);
}

/// Gives each field that may be changed, or not: what it takes, when it begins, and when it must have.
Command Clients::any_update(JobId job) const {
  const State& state = context_.auditor.replica();
  Prng prng((state.last.sequence + 1) * 0x9E3779B97F4A7C15ULL + job.value);
  UpdateJob command{.job = job,
                    .given = static_cast<uint32_t>(prng.between(1, 63)) & ~uint32_t{kJobSpec},
                    .priority = static_cast<int32_t>(prng.between(-100, 100)),
                    .max_runtime = milliseconds(prng.between(0, demand_.runtime_max_ms)),
                    .may_raise = prng.chance(300)};
  if (prng.chance(700)) command.begin_after = milliseconds(prng.between(1, 30'000));
  if (prng.chance(700)) command.deadline_after = milliseconds(prng.between(1'000, 600'000));
  const Job* known = state.jobs.find(job);
  if (known == nullptr) command.given &= ~uint32_t{kJobParts};
  if ((command.given & kJobParts) == 0) return command;
  command.parts = as_requested(state.class_of(*known).parts);
  Part& part = command.parts.back();
  if (prng.chance(400)) part.cpu_milli = static_cast<int32_t>(prng.between(0, 8) * 500);
  if (prng.chance(400) && !part.is_share() && !part.is_slice())
    part.gpu_count = static_cast<int32_t>(prng.between(0, demand_.gpus_max));
  if (prng.chance(300) && !part.is_slice()) {
    part.member_count = static_cast<int32_t>(prng.between(1, 4));
    part.member_max = prng.chance(300) ? part.member_count + static_cast<int32_t>(prng.between(0, 4)) : 0;
  }
  return command;
}

std::shared_ptr<const policy::TaskOrder> some_task_order(Prng prng) {
  return std::make_shared<policy::TaskOrder>(policy::TaskOrder{.reader = std::make_shared<LabelReader>(),
                                                               .window = seconds(prng.between(1, 300)),
                                                               .gamma_milli = prng.between(20, 1'000),
                                                               .weight_milli_max = kWeightStep * kUsers});
}

/// The jobs of most submissions are tasks. Drawn from the submission's number, so that no other draw moves.
void Clients::make_tasks(SubmitJobs& command, uint64_t number) const {
  Prng prng(number * 0x9E3779B97F4A7C15ULL + 3);
  if (!demand_.has_tasks || !prng.chance(600)) return;
  static constexpr const char* kCosts[] = {"1", "5", "10"};
  for (JobRequest& job : command.jobs) {
    v1::JobSpec spec;
    CHECK(spec.ParseFromString(std::string(job.spec.view())));
    (*spec.mutable_labels())[kUserLabel] = "agent-" + std::to_string(prng.below(kUsers));
    (*spec.mutable_labels())[kCostLabel] = kCosts[prng.below(std::size(kCosts))];
    job.spec = Blob(packed_alike(spec));
    Part part{.gpu_count = 1,
              .cpu_milli = job.parts.front().cpu_milli,
              .memory_mb = job.parts.front().memory_mb,
              .gpu_milli = static_cast<int32_t>(prng.between(1, 6) * 100)};
    if (prng.chance(600)) part.gpu_share_mb = prng.between(1, 5) * 2'000;
    job.parts = {part};
  }
}

/// Some jobs that stand alone are to start at once or not at all.
void Clients::make_interactive(SubmitJobs& command, uint64_t number) const {
  if (!demand_.changes_rules || number % 7 != 3 || command.jobs.size() != 1) return;
  JobRequest& job = command.jobs.front();
  job.interactive = true;
  job.held = false;
  job.preemption_mode = PreemptionMode::kCancel;  // As it ends in any case.
  job.flow.clear();
  if (job.max_runtime.ns <= 0) job.max_runtime = seconds(5);
}

/// Some jobs ask for a longer time to save their work than they are given otherwise.
void Clients::ask_for_time(SubmitJobs& command, uint64_t number) const {
  if (!demand_.changes_rules || number % 5 != 2) return;
  for (JobRequest& job : command.jobs)
    job.preempt_grace = milliseconds(static_cast<int64_t>(number % 7) * 2'000);
}

/// Some reservations are a tenant's, or one user's of it, on several nodes or again and again.
void Clients::keep_for_somebody(MakeBooking& command) const {
  if (!demand_.changes_rules) return;
  const State& state = context_.auditor.replica();
  Prng prng(state.last.sequence * 0x9E3779B97F4A7C15ULL + 1);
  if (prng.chance(700)) command.tenant = tenants_[prng.below(tenants_.size())];
  if (command.tenant.valid() && prng.chance(300)) command.users = {"user-1"};
  const NodeId other = state.nodes[prng.below(state.nodes.size())].id;
  if (prng.chance(300) && other != command.nodes.front()) command.nodes.push_back(other);
  if (prng.chance(300)) command.every = command.length * prng.between(2, 4);
}

/// Some jobs name a reservation that their tenant may use.
void Clients::name_reservation(SubmitJobs& command) const {
  if (!demand_.changes_rules) return;
  const State& state = context_.auditor.replica();
  for (const auto& [id, booking] : state.bookings) {
    if (booking.tenant != command.tenant) continue;
    for (JobRequest& job : command.jobs)
      if (!job.interactive) job.booking = booking.name;
    return;
  }
}

void Clients::let_all_go() {
  for (const JobId job : context_.auditor.unfinished()) {
    const Job* waiting = context_.auditor.replica().jobs.find(job);
    if (waiting == nullptr || !waiting->held) continue;
    call(HoldJob{.job = job, .held = false}, [] {}, [](const Result<Decided>&) {}, [](bool) {});
  }
}

void Clients::delete_tenant() {
  const TenantId tenant = some_tenant();
  call(
      DeleteTenant{.tenant = tenant}, [] {},
      [this, tenant](const Result<Decided>& result) {
        if (!result.ok() || result->applied.rejection) return;
        std::erase(tenants_, tenant);
      },
      [](bool) {});
}

}  // namespace gpusched::sim
