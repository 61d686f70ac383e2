#include "host/forecast/learned_task_use.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/digest.h"
#include "base/task_labels.h"
#include "base/text/task_payload.h"
#include "base/text/task_worker.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched {
namespace {

/// Finished jobs looked at when a scheduler starts, as many as for run times.
constexpr std::size_t kTasksBeginMax = 20'000;

/// Most jobs are no tasks, and need not be unpacked for that.
bool may_be_task(std::string_view packed) { return packed.find(kTaskIdLabel) != std::string_view::npos; }

bool parse_task(std::string_view packed, v1::JobSpec& spec) {
  return spec.ParseFromString(without_task_payload(packed));
}

std::string_view task_label_of(const v1::JobSpec& spec, std::string_view name) {
  const auto found = spec.labels().find(std::string(name));
  return found == spec.labels().end() ? std::string_view() : std::string_view(found->second);
}

std::optional<uint64_t> kind_in(TenantId tenant, const v1::JobSpec& spec, std::string_view packed) {
  const std::string_view type = task_label_of(spec, kTaskTypeLabel);
  if (type.empty() || task_label_of(spec, kTaskIdLabel).empty()) return std::nullopt;
  std::size_t bytes = task_payload_bytes_of(packed);
  const auto payload = spec.environment().find(std::string(kTaskPayloadVariable));
  if (bytes == 0 && payload != spec.environment().end()) bytes = payload->second.size();
  Digest kind;
  kind.mix(tenant.value);
  kind.mix(type);
  kind.mix(static_cast<uint64_t>(std::bit_width(bytes)));
  return kind.value();
}

std::optional<int32_t> busy_per_mille_of(const Usage& usage) {
  if (usage.gpu_watched_ms <= 0) return std::nullopt;
  const double busy = static_cast<double>(usage.gpu_busy_ms) / static_cast<double>(usage.gpu_watched_ms);
  return static_cast<int32_t>(std::clamp(busy, 0.0, 1.0) * 1'000);
}

}  // namespace

std::optional<uint64_t> task_kind_of(TenantId tenant, std::string_view packed) {
  if (!may_be_task(packed)) return std::nullopt;
  v1::JobSpec spec;
  if (!parse_task(packed, spec)) return std::nullopt;
  return kind_in(tenant, spec, packed);
}

void LearnedTaskUse::Score::add(int64_t given, int64_t peak) {
  ++count;
  if (peak <= given) ++within;
  given_mb += given;
  peak_mb += peak;
}

void LearnedTaskUse::ended(const State& state, const Job& job, bool is_scored) {
  if (job.state == JobState::kCancelled || !may_be_task(job.spec.view())) return;
  v1::JobSpec spec;
  if (!parse_task(job.spec.view(), spec)) return;
  const std::optional<uint64_t> kind = kind_in(job.tenant, spec, job.spec.view());
  const std::vector<Part>& parts = state.class_of(job).parts;
  if (!kind || parts.empty()) return;
  const Usage used = job.last_usage().total;
  const int64_t given_mb = parts.front().gpu_share_mb;
  const bool is_learned = task_label_of(spec, kTaskMemoryLabel) == kTaskMemoryLearned;
  const bool by_itself = job.last_cause == EndCause::kExited || job.last_cause == EndCause::kSignaled;
  const bool cut_off = job.last_cause == EndCause::kOverLimit && used.peak_gpu_memory_mb > given_mb;
  if (job.state == JobState::kCompleted || cut_off) {
    use_.finished(*kind, {.memory_mb = used.peak_gpu_memory_mb,
                          .busy_per_mille = busy_per_mille_of(used),
                          .cut_off = cut_off});
  } else if (is_learned && by_itself) {
    use_.forget(*kind);
  }
  if (!is_scored || !is_learned || used.peak_gpu_memory_mb == 0) return;
  score_.add(given_mb, used.peak_gpu_memory_mb);
  const bool own = by_tenant_.contains(job.tenant) || by_tenant_.size() < kScoredTenantsMax;
  by_tenant_[own ? job.tenant : TenantId{}].add(given_mb, used.peak_gpu_memory_mb);
}

void LearnedTaskUse::begin(const State& state) {
  const std::size_t count = std::min(state.finished.size(), kTasksBeginMax);
  for (std::size_t i = state.finished.size() - count; i < state.finished.size(); ++i) {
    const Job* const job = state.jobs.find(state.finished[i]);
    if (job != nullptr) ended(state, *job, /*is_scored=*/false);
  }
}

void LearnedTaskUse::observe(const State& state, const Event& event) {
  const auto* const finished = std::get_if<JobFinished>(&event);
  const Job* const job = finished == nullptr ? nullptr : state.jobs.find(finished->job);
  if (job != nullptr) ended(state, *job, /*is_scored=*/true);
}

}  // namespace gpusched
