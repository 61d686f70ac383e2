// The auditor's comparisons of a state with its books.
#include <algorithm>
#include <bit>

#include "codec/group.h"
#include "codec/snapshot.h"
#include "host/core/recovery.h"
#include "sim/audit/auditor.h"

namespace gpusched::sim {
namespace {

std::string shown(const Amount& amount) {
  return std::to_string(amount.gpu_thousandths()) + " thousandths of GPUs, " +
         std::to_string(amount.gpu_memory_mb) + " MB of theirs, " + std::to_string(amount.cpu_milli) +
         " of CPUs, " + std::to_string(amount.memory_mb) + " MB, " + std::to_string(amount.jobs) + " jobs";
}

}  // namespace

void Auditor::check_digest(const char* whose, const State& state, uint64_t position) {
  if (position > position_) return fail(std::string(whose) + " has applied what is not durable");
  if (position != position_) return;  // A durable group is on its way to it.
  if (state.last != replica_.last)
    fail(std::string(whose) + " is at another sequence number than its journal");
  if (state.digest != replica_.digest)
    fail(std::string(whose) + " has another digest than its journal gives");
}

void Auditor::on_recovered(const State& state, uint64_t position) {
  if (position < position_) {
    return fail("recovery ends at record " + std::to_string(position) + ", and " + std::to_string(position_) +
                " were durable");
  }
  heard_.clear();
  check_digest("the recovered state", state, position);
  check_all("the recovered state", state);
}

void Auditor::check_replay() {
  State state;
  Events events;
  for (const std::string& payload : payloads_) {
    const Result<CommandGroup> group = decode_group(payload);
    if (!group) return fail("a journal record cannot be decoded again");
    events.clear();
    for (const Command& command : group->commands) {
      apply(state, command, Stamp{.sequence = state.last.sequence + 1, .at = group->at}, events);
    }
  }
  check_digest("a replay from nothing", state, position_);
  if (snapshot_digest(state) != snapshot_digest(replica_))
    fail("a replay from nothing gives another snapshot");
}

void Auditor::check_snapshot(const char* whose, const State& state) {
  const auto written = [](const State& of) {
    std::string bytes;
    const Result<Unit> done = encode_snapshot(of, [&](std::string_view piece) -> Result<Unit> {
      bytes += piece;
      return Unit{};
    });
    CHECK(done.ok());
    return bytes;
  };
  const std::string bytes = written(state);
  const Result<State> copy = decode_snapshot(bytes);
  if (!copy) return fail(std::string(whose) + " writes a snapshot that is refused: " + copy.error().message);
  if (written(*copy) != bytes || copy->digest != state.digest)
    fail(std::string(whose) + " is read from its snapshot as another state");
}

// Applies the journal with one small difference: everything happens a nanosecond early.
void Auditor::check_otherwise(Prng& prng) {
  if (payloads_.empty()) return;
  const uint64_t from = prng.below(payloads_.size());
  State state;
  Events events;
  for (uint64_t i = 0; i + 1 < payloads_.size(); ++i) {
    const Result<CommandGroup> group = decode_group(payloads_[i]);
    const Result<CommandGroup> next = decode_group(payloads_[i + 1]);
    if (!group || !next) return fail("a journal record cannot be decoded again");
    const bool early = i >= from && group->at > state.last.at;
    const Time at = early ? group->at - Duration{1} : group->at;
    for (const Command& command : group->commands) {
      events.clear();
      apply(state, command, Stamp{.sequence = state.last.sequence + 1, .at = at}, events);
    }
    if (next->digest_before == state.digest.value()) continue;
    RecoveryReport report;
    const JournalRecord record{
        .position = i + 2, .term = 1, .first_sequence = state.last.sequence + 1, .payload = payloads_[i + 1]};
    if (replay(state, record, report, events))
      fail("a start takes another state for the one that journal record " + std::to_string(i + 2) +
           " was written behind");
    return;
  }
}

void Auditor::check_all(const char* whose, const State& state) {
  if (state.last.sequence != replica_.last.sequence) return;
  check_jobs(whose, state);
  check_nodes(whose, state);
  check_tenants(whose, state);
  for (const auto& [id, booking] : state.bookings) {
    // Before feature level 9 they stayed.
    const Tenant* tenant = state.find_tenant(booking.tenant);
    const bool deleted = booking.tenant.valid() && (tenant == nullptr || tenant->deleted);
    if (state.config.feature_level >= 9 && deleted)
      fail(std::string(whose) + " keeps nodes for a deleted tenant");
  }
  check_keys(whose, state);
  check_people(whose, state);
  check_node_identities(whose, state);
  if (state.promises.size() != promises_.size()) fail(std::string(whose) + " miscounts promises");
  for (const auto& [job, promise] : state.promises) {
    // Before feature level 6 a promise stayed when its job was changed.
    if (state.config.feature_level >= 6 && !is_of(promise, jobs_.at(job)))
      fail(std::string(whose) + " keeps for " + name_of(job) + " what that does not ask for");
  }
}

void Auditor::check_jobs(const char* whose, const State& state) {
  std::size_t found = 0;
  int64_t waiting = 0;
  int64_t in_line = 0;
  state.jobs.for_each([&](const Job& job) {
    const auto known = jobs_.find(job.id);
    if (known == jobs_.end() || known->second.forgotten) {
      fail(std::string(whose) + " has " + name_of(job.id) + ", which it should not");
      return false;
    }
    const ReferenceJob& reference = known->second;
    ++found;
    if (job.state != reference.state || is_final(job.state) != reference.final) {
      fail(std::string(whose) + " has " + name_of(job.id) + " as " + std::string(to_string(job.state)) +
           ", the books as " + std::string(to_string(reference.state)));
    }
    if (reference.final &&
        (job.reason != reference.reason || job.exit_code != reference.outcome.exit_code ||
         job.signal != reference.outcome.signal || job.last_cause != reference.outcome.cause)) {
      fail(std::string(whose) + " has another end of " + name_of(job.id));
    }
    const JobOwner* const owner = state.owners.at(job.owner);
    if ((owner == nullptr ? JobOwner{} : *owner) != reference.owner)
      fail(std::string(whose) + " has another owner of " + name_of(job.id));
    if (job.attempt_count != reference.attempts)
      fail(std::string(whose) + " counts other attempts of " + name_of(job.id));
    const bool pending = job.state == JobState::kPending;
    if (pending && reference.element_count > 0) {
      waiting += reference.closed ? 0 : reference.element_count - reference.elements_added;
    } else if (pending) {
      waiting += 1;
    }
    if (pending && !reference.backs_off && !reference.held && reference.unmet.empty() &&
        reference.element_count == 0 && !reference.promised && !reference.parked)
      in_line += 1;
    if (job.promised != reference.promised || job.extras->preempt_count != reference.preempt_count)
      fail(std::string(whose) + " has another promise or count of preemptions of " + name_of(job.id));
    if (job.state == JobState::kPending && job.held != reference.held)
      fail(std::string(whose) + " has " + name_of(job.id) + " as held, or not, otherwise than the books");
    return !failed();
  });
  const auto kept =
      std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job.second.forgotten; });
  if (!failed() && found != static_cast<std::size_t>(kept)) {
    fail(std::string(whose) + " has " + std::to_string(found) + " jobs, and " + std::to_string(kept) +
         " were accepted");
  }
  if (state.waiting_count() != waiting) fail(std::string(whose) + " miscounts waiting jobs");
  if (static_cast<int64_t>(state.line.size()) != in_line) fail(std::string(whose) + " miscounts the line");
}

void Auditor::check_nodes(const char* whose, const State& state) {
  const auto there =
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) { return !entry.second.removed; });
  if (state.node_count() != there) return fail(std::string(whose) + " has another number of nodes");
  for (const Node& node : state.nodes) {
    if (node.removed) continue;
    const ReferenceNode& reference = nodes_.at(node.id);
    const std::string name = std::string(whose) + ": node " + node.name;
    if (node.state != reference.state) fail(name + " is in another state");
    if (node.availability != reference.availability) fail(name + " is in or out of service otherwise");
    if (node.devices.size() != reference.devices.size()) return fail(name + " has another number of devices");
    uint64_t free_mask = 0;
    for (uint32_t i = 0; i < reference.devices.size(); ++i) {
      const ReferenceDevice& device = reference.devices[i];
      const Device& known = node.devices[i];
      if (known.uuid != device.uuid || known.state != device.state || known.generation != device.generation ||
          known.condition != device.condition || known.barred != device.barred || known.hot != device.hot ||
          (known.fault >= FaultClass::kDrain) != device.faulty || known.promised_to != device.promised_to) {
        fail(name + " has device " + device.uuid + " otherwise");
      }
      if (device.state == DeviceState::kHeld && known.held_by != device.held_by) {
        fail(name + " has another holder of " + device.uuid);
      }
      const bool same_shares = std::equal(known.shares.begin(), known.shares.end(), device.shares.begin(),
                                          device.shares.end(), [](const Share& share, const auto& entry) {
                                            return share.held_by == entry.first &&
                                                   share.milli == entry.second.milli &&
                                                   share.memory_mb == entry.second.memory_mb &&
                                                   share.draining() == entry.second.draining;
                                          });
      if (!same_shares) fail(name + " has other shares of " + device.uuid);
      if (device.state == DeviceState::kQuarantined && known.detail.empty()) {
        fail(name + " has no evidence against " + device.uuid);
      }
      if (device.state == DeviceState::kFree && device.condition == DeviceCondition::kOk && !device.barred &&
          !device.hot && !device.faulty && !device.promised_to.valid()) {
        free_mask |= uint64_t{1} << i;
      }
    }
    int64_t cpu_milli = 0;
    int64_t memory_mb = 0;
    std::size_t attempts = 0;
    for (const JobAttempt& live : live_) {
      for (const Member& member : attempts_.at(live).members) {
        if (member.node != node.id || member.state == MemberState::kEnded) continue;
        cpu_milli += member.cpu_milli;
        memory_mb += member.memory_mb;
        attempts += 1;
      }
    }
    for (const auto& [job, promise] : promises_) {
      for (const Member& kept : promise.members) {
        if (kept.node != node.id) continue;
        cpu_milli += kept.cpu_milli;
        memory_mb += kept.memory_mb;
      }
    }
    if (node.cpu_milli_used != cpu_milli || node.memory_mb_used != memory_mb ||
        node.attempts.size() != attempts) {
      fail(name + " miscounts what it runs");
    }
    // A node that is not ready offers nothing.
    const bool offers =
        reference.state == NodeState::kReady && reference.availability == Availability::kInService;
    if (offers && node.free_mask != free_mask) fail(name + " miscounts its free devices");
  }
}

void Auditor::check_tenants(const char* whose, const State& state) {
  for (const auto& [id, reference] : tenants_) {
    const Tenant* tenant = state.find_tenant(id);
    if (tenant == nullptr) return fail(std::string(whose) + " lost tenant " + std::to_string(id.value));
    if (tenant->limits != reference.limits)
      fail(std::string(whose) + " has other limits of tenant " + tenant->name);
    if (tenant->guarantee != reference.guarantee)
      fail(std::string(whose) + " guarantees something else to tenant " + tenant->name);
    const GpuTime& gpu_time = tenant->gpu_time;
    if (gpu_time.length != reference.window || gpu_time.max_ms != reference.gpu_ms_max)
      fail(std::string(whose) + " has another limit of GPU hours of tenant " + tenant->name);
    if (gpu_time.limited() && gpu_time_known_) {
      const auto [used, rounded] = gpu_ms_of(id, state.last.at);
      const int64_t counted = gpu_time.used_by(state.last.at, tenant->usage);
      if (counted > used || counted < used - rounded)
        fail(std::string(whose) + " miscounts the GPU hours of tenant " + tenant->name);
    }
    if (tenant->usage != usage_of(id)) {
      fail(std::string(whose) + " miscounts the usage of tenant " + tenant->name + ": " +
           shown(tenant->usage) + " instead of " + shown(usage_of(id)));
    }
    int64_t unfinished = 0;
    for (const auto& [job_id, job] : jobs_) unfinished += job.tenant == id && !job.final ? 1 : 0;
    if (tenant->unfinished != unfinished)
      fail(std::string(whose) + " miscounts the jobs of tenant " + tenant->name);
  }
}

}  // namespace gpusched::sim
