#include "replay/scheduler/journal_trace.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>

#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "journal/journal_inspect.h"
#include "journal/snapshot_store.h"

namespace gpusched::replay {
namespace {

Error broken(const std::string& folder, const std::string& what) {
  return {.code = ErrorCode::kCorrupt,
          .message = folder + ": " + what + "; run `gpu-scheduler journal verify` on it"};
}

/// Follows a journal and keeps what ended.
class Reader {
 public:
  explicit Reader(std::string folder) : folder_(std::move(folder)) {}

  Result<JournalTrace> read() {
    Disk& disk = posix_disk();
    const std::string journal = find_journal_dir(disk, folder_);
    const Result<JournalScan> scan = inspect_journal(disk, journal, {});
    if (!scan) return scan.error();
    if (scan->segments.empty()) return broken(folder_, "the journal has no records");
    const uint64_t first = scan->segments.front().header.first_position;
    const Result<Unit> begun = begin(disk, first);
    if (!begun) return begun.error();
    const Result<JournalScan> read = inspect_journal(
        disk, journal, [&](const StoredRecord& stored, uint64_t) -> Result<Unit> { return add(stored); });
    if (!read) return read.error();
    return finish();
  }

 private:
  // From the oldest snapshot behind which the journal is whole.
  Result<Unit> begin(Disk& disk, uint64_t first_position) {
    if (first_position <= 1) return Unit{};
    const std::string snapshots = folder_ + "/snapshots";
    const Result<std::vector<std::string>> names = disk.list(snapshots);
    std::optional<Snapshot> oldest;
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
      Result<Snapshot> snapshot = read_snapshot(disk, snapshots + "/" + name);
      if (!snapshot || snapshot->info.last_position + 1 < first_position) continue;
      if (!oldest.has_value() || snapshot->info.last_position < oldest->info.last_position)
        oldest = std::move(*snapshot);
    }
    if (!oldest.has_value())
      return broken(folder_, "the journal begins at record " + std::to_string(first_position) +
                                 ", and no snapshot beside it reaches that far");
    Result<State> state = decode_snapshot(oldest->content());
    if (!state) return state.error();
    state_ = std::move(*state);
    position_ = oldest->info.last_position;
    return Unit{};
  }

  Result<Unit> add(const StoredRecord& stored) {
    if (stored.kind != RecordKind::kGroup || stored.record.position <= position_) return Unit{};
    position_ = stored.record.position;
    const Result<CommandGroup> group = decode_group(stored.record.payload);
    if (!group) return group.error();
    const bool follows =
        stored.record.first_sequence == state_.last.sequence + 1 && group->at >= state_.last.at;
    if (!follows)
      return broken(folder_, "record " + std::to_string(position_) + " does not follow the one before it");
    for (const Command& command : group->commands) {
      events_.clear();
      apply(state_, command, {.sequence = state_.last.sequence + 1, .at = group->at}, events_);
      for (const Event& event : events_) note(event);
    }
    return Unit{};
  }

  void note(const Event& event) {
    const auto* finished = std::get_if<JobFinished>(&event);
    if (finished == nullptr) return;
    const Job* job = state_.jobs.find(finished->job);
    if (job == nullptr || job->is_array()) return;
    if (!job->started_at.valid() || finished->at <= job->started_at) {
      ++journal_.unfinished;
      return;
    }
    Ended ended{.id = job->id,
                .tenant = job->tenant,
                .submitted = job->submitted_at,
                .started = job->started_at,
                .ended = finished->at,
                .request = {.priority = job->priority,
                            .parts = state_.class_of(*job).parts,
                            .max_runtime = job->max_runtime,
                            .preemption_mode = job->preemption_mode,
                            .preemption_exempt = job->preemption_exempt,
                            .preempt_grace = milliseconds(job->preempt_grace_ms)}};
    ended_.push_back(std::move(ended));
  }

  JournalTrace finish() {
    std::stable_sort(ended_.begin(), ended_.end(), [](const Ended& a, const Ended& b) {
      return std::pair(a.submitted, a.id) < std::pair(b.submitted, b.id);
    });
    const Time zero = ended_.empty() ? Time{} : ended_.front().submitted;
    for (Ended& one : ended_) {
      const Amount amount = total_of(one.request.parts);
      TraceJob job{.id = one.id.value,
                   .submitted = one.submitted - zero,
                   .run = one.ended - one.started,
                   .requested = one.request.max_runtime,
                   .size = amount.gpus > 0 ? amount.gpus : (amount.cpu_milli + 999) / 1000,
                   .user = one.tenant.value,
                   .queue = one.tenant.value};
      journal_.trace.jobs.push_back(job);
      journal_.requests.push_back(std::move(one.request));
      journal_.as_it_was.runs.push_back(
          {.started = one.started - zero, .ended = one.ended - zero, .ran = true});
    }
    journal_.trace.start_unix_s = zero.ms() / 1000;
    journal_.unfinished +=
        static_cast<uint64_t>(state_.count(JobState::kPending) + state_.count(JobState::kScheduled) +
                              state_.count(JobState::kRunning) + state_.count(JobState::kPreempted));
    journal_.config = state_.config;
    keep_nodes();
    keep_tenants();
    journal_.trace.capacity = journal_.gpus;
    return std::move(journal_);
  }

  void keep_nodes() {
    int64_t cores = 0;
    for (const Node& node : state_.nodes) {
      if (node.removed) continue;
      RegisterNode offer{.name = node.name, .instance = node.name, .boot_id = "replay", .version = {}};
      offer.cpu_milli = node.cpu_milli;
      offer.memory_mb = node.memory_mb;
      offer.features = node.features;
      offer.labels = node.labels;
      for (const Device& device : node.devices) {
        const DeviceClass& kind = state_.device_classes[device.device_class];
        offer.devices.push_back(
            {.uuid = device.uuid, .model = kind.model, .memory_mb = kind.memory_mb, .detail = {}});
      }
      journal_.gpus += static_cast<int64_t>(node.devices.size());
      cores += node.cpu_milli / 1000;
      journal_.nodes.push_back(std::move(offer));
    }
    if (journal_.gpus == 0) journal_.gpus = cores;
  }

  void keep_tenants() {
    for (const auto& [id, tenant] : state_.tenants) {
      journal_.tenants.resize(std::max<std::size_t>(journal_.tenants.size(), id.value + 1));
      CreateTenant& kept = journal_.tenants[id.value];
      kept.parent = tenant.parent;
      kept.limits = tenant.limits;
      kept.priority_tier = tenant.priority_tier;
      kept.weight_milli = tenant.weight_milli;
      kept.allow_preemption = tenant.allow_preemption;
      kept.can_preempt_others = tenant.can_preempt_others;
    }
  }

  struct Ended {
    JobId id;
    TenantId tenant;
    Time submitted;
    Time started;
    Time ended;
    JobRequest request;
  };

  const std::string folder_;
  State state_;
  Events events_;
  uint64_t position_ = 0;
  std::vector<Ended> ended_;
  JournalTrace journal_;
};

}  // namespace

Result<JournalTrace> read_journal_trace(const std::string& folder) { return Reader(folder).read(); }

ReplayOptions options_of(const JournalTrace& journal) {
  return {.cluster = {},
          .machines = journal.nodes,
          .tenant_of = TenantOf::kQueue,
          .tenants = journal.tenants,
          .requests = journal.requests,
          .config = journal.config,
          .restart = {}};
}

}  // namespace gpusched::replay
