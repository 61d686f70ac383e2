#include "main/tasks/task_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "api/backend/tasks/task_labels.h"
#include "base/check.h"

namespace gpusched {

api::AgentTasksOptions agent_tasks_of(const Config::Tasks& tasks) {
  api::AgentTasksOptions options;
  options.limits.queue_size = tasks.queue_size;
  options.limits.tokens_per_second = tasks.tokens_per_second;
  options.limits.tokens_burst = tasks.tokens_burst;
  options.limits.tokens_daily = tasks.tokens_daily;
  const auto set = [&](api::TaskKind kind, const std::string& command, const std::string& worker,
                       int64_t at_once, const std::string& url) {
    const auto at = static_cast<std::size_t>(kind);
    options.workers.commands[at] = command;
    options.workers.persistent[at] = worker == "persistent";
    options.workers.tasks_at_once[at] = at_once;
    options.workers.endpoints[at] = {.url = url,
                                     .health_path = tasks.endpoint_health_path,
                                     .timeout = seconds(tasks.endpoint_timeout_seconds),
                                     .retries = tasks.endpoint_retries,
                                     .patience = seconds(tasks.endpoint_ready_seconds)};
  };
  set(api::TaskKind::kEmbedding, tasks.embedding_command, tasks.embedding_worker,
      tasks.embedding_worker_tasks, tasks.embedding_endpoint);
  set(api::TaskKind::kLlm, tasks.llm_command, tasks.llm_worker, tasks.llm_worker_tasks, tasks.llm_endpoint);
  set(api::TaskKind::kDiffusion, tasks.diffusion_command, tasks.diffusion_worker,
      tasks.diffusion_worker_tasks, tasks.diffusion_endpoint);
  set(api::TaskKind::kOther, tasks.other_command, tasks.other_worker, tasks.other_worker_tasks,
      tasks.other_endpoint);
  const auto cpu = parse_task_cpu(tasks.cpu_milli);
  CHECK(cpu.has_value());  // The configuration was checked.
  options.workers.cpu_milli[static_cast<std::size_t>(api::TaskKind::kEmbedding)] = cpu->at("embedding");
  options.workers.cpu_milli[static_cast<std::size_t>(api::TaskKind::kLlm)] = cpu->at("llm");
  options.workers.cpu_milli[static_cast<std::size_t>(api::TaskKind::kDiffusion)] = cpu->at("diffusion");
  options.workers.cpu_milli[static_cast<std::size_t>(api::TaskKind::kOther)] = cpu->at("other");
  options.workers.idle_ms = tasks.worker_idle_seconds * 1'000;
  options.workers.health_ms = tasks.worker_health_seconds * 1'000;
  options.workers.gpu_memory_mb = tasks.gpu_memory_mb;
  options.workers.gpu_tflops = tasks.gpu_tflops;
  return options;
}

std::shared_ptr<const policy::TaskOrder> task_order_of(const Config::Tasks& tasks) {
  const auto is_set = [](const std::string& setting) { return !setting.empty(); };
  const std::array runs = {tasks.embedding_command, tasks.embedding_endpoint, tasks.llm_command,
                           tasks.llm_endpoint,      tasks.diffusion_command,  tasks.diffusion_endpoint,
                           tasks.other_command,     tasks.other_endpoint};
  const auto weights = parse_user_weights(tasks.user_weights);
  if (!weights || std::ranges::none_of(runs, is_set)) return nullptr;
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
