#include "main/tasks/task_settings.h"

#include <cmath>
#include <string>
#include <utility>

#include "api/backend/tasks/task_labels.h"

namespace gpusched {

api::AgentTasksOptions agent_tasks_of(const Config::Tasks& tasks) {
  const auto at = [](api::TaskKind kind) { return static_cast<std::size_t>(kind); };
  api::AgentTasksOptions options;
  options.limits.queue_size = tasks.queue_size;
  options.limits.tokens_per_second = tasks.tokens_per_second;
  options.limits.tokens_burst = tasks.tokens_burst;
  options.limits.tokens_daily = tasks.tokens_daily;
  options.workers.commands[at(api::TaskKind::kEmbedding)] = tasks.embedding_command;
  options.workers.commands[at(api::TaskKind::kLlm)] = tasks.llm_command;
  options.workers.commands[at(api::TaskKind::kDiffusion)] = tasks.diffusion_command;
  options.workers.commands[at(api::TaskKind::kOther)] = tasks.other_command;
  const auto persists = [](const std::string& worker) { return worker == "persistent"; };
  options.workers.persistent[at(api::TaskKind::kEmbedding)] = persists(tasks.embedding_worker);
  options.workers.persistent[at(api::TaskKind::kLlm)] = persists(tasks.llm_worker);
  options.workers.persistent[at(api::TaskKind::kDiffusion)] = persists(tasks.diffusion_worker);
  options.workers.persistent[at(api::TaskKind::kOther)] = persists(tasks.other_worker);
  options.workers.tasks_at_once[at(api::TaskKind::kEmbedding)] = tasks.embedding_worker_tasks;
  options.workers.tasks_at_once[at(api::TaskKind::kLlm)] = tasks.llm_worker_tasks;
  options.workers.tasks_at_once[at(api::TaskKind::kDiffusion)] = tasks.diffusion_worker_tasks;
  options.workers.tasks_at_once[at(api::TaskKind::kOther)] = tasks.other_worker_tasks;
  options.workers.idle_ms = tasks.worker_idle_seconds * 1'000;
  options.workers.health_ms = tasks.worker_health_seconds * 1'000;
  options.workers.gpu_memory_mb = tasks.gpu_memory_mb;
  options.workers.gpu_tflops = tasks.gpu_tflops;
  return options;
}

std::shared_ptr<const policy::TaskOrder> task_order_of(const Config::Tasks& tasks) {
  const bool any = !tasks.embedding_command.empty() || !tasks.llm_command.empty() ||
                   !tasks.diffusion_command.empty() || !tasks.other_command.empty();
  const auto weights = parse_user_weights(tasks.user_weights);
  if (!any || !weights) return nullptr;
  const auto cost_of = [costs = api::TaskLimits{}.costs](api::TaskKind kind) {
    return costs[static_cast<std::size_t>(kind)];
  };
  auto reader = std::make_shared<api::TaskLabels>(
      api::TaskLabels::Numbers{{"embedding", cost_of(api::TaskKind::kEmbedding)},
                               {"llm", cost_of(api::TaskKind::kLlm)},
                               {"diffusion", cost_of(api::TaskKind::kDiffusion)},
                               {"other", cost_of(api::TaskKind::kOther)}},
      api::TaskLabels::Numbers(weights->begin(), weights->end()));
  const int64_t weight_milli_max = reader->weight_milli_max();
  return std::make_shared<policy::TaskOrder>(
      policy::TaskOrder{.reader = std::move(reader),
                        .window = seconds(tasks.order_window_seconds),
                        .gamma_milli = std::llround(tasks.order_gamma * 1'000),
                        .weight_milli_max = weight_milli_max});
}

}  // namespace gpusched
