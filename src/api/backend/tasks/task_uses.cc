#include "api/backend/tasks/task_uses.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "base/task_labels.h"

namespace gpusched::api {
namespace {

/// Each other load is another group of tasks in the planner's lines.
constexpr int64_t kLoadStep = 100;

QualityView::MemoryScore memory_score_of(std::string tenant, const LearnedTaskUse::Score& score) {
  return {.tenant = std::move(tenant),
          .count = score.count,
          .within = score.within,
          .given_mb_sum = score.given_mb,
          .peak_mb_sum = score.peak_mb};
}

}  // namespace

void TaskUses::measure_gpus(const State& state) {
  largest_mb_ = 0;
  for (const Node& node : state.nodes) {
    for (const Device& device : node.devices)
      if (!state.device_classes[device.device_class].mig)
        largest_mb_ = std::max(largest_mb_, device.memory_mb);
  }
}

void TaskUses::fill(const State& state) {
  const std::lock_guard lock(mutex_);
  learned_.begin(state);
  measure_gpus(state);
}

void TaskUses::observe(const Observer::View& view, const Changes& changes) {
  const std::lock_guard lock(mutex_);
  for (const Event& event : changes.events) {
    learned_.observe(view.state, event);
    if (std::holds_alternative<NodeRegistered>(event) || std::holds_alternative<NodeRemoved>(event))
      measure_gpus(view.state);
  }
}

void TaskUses::give(TenantId tenant, JobRequest& job) const {
  const std::optional<uint64_t> kind = task_kind_of(tenant, job.spec);
  if (!kind) return;
  std::optional<int64_t> memory_mb, busy_milli;
  int64_t largest_mb = 0;
  {
    const std::lock_guard lock(mutex_);
    memory_mb = learned_.use().memory_mb(*kind);
    busy_milli = learned_.use().busy_per_mille(*kind);
    largest_mb = largest_mb_;
  }
  if (largest_mb == 0) return;
  const int64_t given_mb = std::min(memory_mb.value_or(0), largest_mb);
  if (memory_mb && job.memory_is_default) {
    job.gpu_memory_mb = given_mb;
    add_label(job.spec, kTaskMemoryLabel, kTaskMemoryLearned);
  }
  const int64_t load_milli = (700 * given_mb / largest_mb) + (300 * busy_milli.value_or(0) / 1'000);
  const int64_t rounded = (load_milli + kLoadStep / 2) / kLoadStep * kLoadStep;
  if (rounded > 0 && !spec_label(job.spec, kTaskLoadLabel))
    add_label(job.spec, kTaskLoadLabel, std::to_string(rounded));
}

std::vector<QualityView::MemoryScore> TaskUses::scores() const {
  const std::lock_guard lock(mutex_);
  std::vector<QualityView::MemoryScore> scores = {memory_score_of("", learned_.score())};
  for (const auto& [tenant, score] : learned_.score_by_tenant())
    scores.push_back(memory_score_of(tenant.valid() ? tenant_name(tenant) : "other", score));
  return scores;
}

}  // namespace gpusched::api
