#include "config/keys.h"

namespace gpusched {
namespace {

constexpr double kMillion = 1e6;
constexpr double kBillion = 1e9;
constexpr double kPortMax = 65'535;

constexpr ConfigKey kKeys[] = {
    {.section = "tasks",
     .name = "grpc_port",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.grpc_port; },
     .meaning =
         "Second port of the gRPC API, for clients of the [tasks of agents](agent-tasks.md) that expect "
         "it on 50051; 0: none, and they are served on `api.grpc_port` alone.",
     .min = 0,
     .max = kPortMax},
    {.section = "tasks",
     .name = "http_port",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.http_port; },
     .meaning =
         "Port of the [state of tasks over HTTP](agent-tasks.md#over-http), for clients that expect it on "
         "8081; 0: none, and it is served on `api.http_port` alone.",
     .min = 0,
     .max = kPortMax},
    {.section = "tasks",
     .name = "embedding_command",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.embedding_command; },
     .meaning = "Worker of embedding tasks: a line for `/bin/sh` on the node, with the task's payload on its "
                "standard input. Empty: such tasks are refused."},
    {.section = "tasks",
     .name = "llm_command",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.llm_command; },
     .meaning = "Worker of LLM tasks, as above."},
    {.section = "tasks",
     .name = "diffusion_command",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.diffusion_command; },
     .meaning = "Worker of diffusion tasks, as above."},
    {.section = "tasks",
     .name = "other_command",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.other_command; },
     .meaning = "Worker of other tasks and of those without a type, as above."},
    {.section = "tasks",
     .name = "embedding_worker",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.embedding_worker; },
     .meaning =
         "What runs embedding tasks: `process`, the command once for each task; or `persistent`, the command "
         "as a [persistent worker](agent-tasks.md#persistent-workers), which gets one task after the other.",
     .one_of = "process persistent"},
    {.section = "tasks",
     .name = "llm_worker",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.llm_worker; },
     .meaning = "What runs LLM tasks, as above.",
     .one_of = "process persistent"},
    {.section = "tasks",
     .name = "diffusion_worker",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.diffusion_worker; },
     .meaning = "What runs diffusion tasks, as above.",
     .one_of = "process persistent"},
    {.section = "tasks",
     .name = "other_worker",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.other_worker; },
     .meaning = "What runs other tasks and those without a type, as above.",
     .one_of = "process persistent"},
    {.section = "tasks",
     .name = "worker_idle_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.worker_idle_seconds; },
     .meaning = "A persistent worker without a task ends after so many seconds.",
     .min = 1,
     .max = 600},
    {.section = "tasks",
     .name = "worker_health_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.worker_health_seconds; },
     .meaning = "A persistent worker that says that it answers [checks of its "
                "health](agent-tasks.md#persistent-workers) "
                "is asked after so many seconds, and ended where it does not answer within as many.",
     .min = 1,
     .max = 600},
    {.section = "tasks",
     .name = "embedding_worker_tasks",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.embedding_worker_tasks; },
     .meaning =
         "So many embedding tasks a persistent worker gets at once, at most; each has its own share of the "
         "GPU.",
     .min = 1,
     .max = 64},
    {.section = "tasks",
     .name = "llm_worker_tasks",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.llm_worker_tasks; },
     .meaning = "The same of LLM tasks.",
     .min = 1,
     .max = 64},
    {.section = "tasks",
     .name = "diffusion_worker_tasks",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.diffusion_worker_tasks; },
     .meaning = "The same of diffusion tasks.",
     .min = 1,
     .max = 64},
    {.section = "tasks",
     .name = "other_worker_tasks",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.other_worker_tasks; },
     .meaning = "The same of other tasks.",
     .min = 1,
     .max = 64},
    {.section = "tasks",
     .name = "gpu_memory_mb",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.gpu_memory_mb; },
     .meaning = "GPU memory of a task that asks for none.",
     .min = 1,
     .max = kMillion},
    {.section = "tasks",
     .name = "gpu_tflops",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.gpu_tflops; },
     .meaning =
         "TFLOPS that a whole GPU counts for: the share of a task that asks for `gpu_compute_required` "
         "is measured by it.",
     .min = 1,
     .max = kMillion},
    {.section = "tasks",
     .name = "queue_size",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.queue_size; },
     .meaning = "Maximum number of pending tasks of one tenant; further ones are rejected: `queue is full`.",
     .min = 1,
     .max = 100 * kMillion},
    {.section = "tasks",
     .name = "tokens_per_second",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.tokens_per_second; },
     .meaning =
         "Tokens per second that the bucket of each `user_id` gains; a task without enough is rejected: "
         "`insufficient token`. 0: no bucket.",
     .min = 0,
     .max = kMillion},
    {.section = "tasks",
     .name = "tokens_burst",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.tokens_burst; },
     .meaning = "Capacity of a bucket in tokens.",
     .min = 1,
     .max = kBillion},
    {.section = "tasks",
     .name = "tokens_daily",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.tokens_daily; },
     .meaning = "Tokens that a `user_id` may spend in a day (UTC); 0: no limit.",
     .min = 0,
     .max = 1'000 * kBillion},
    {.section = "tasks",
     .name = "order_window_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.order_window_seconds; },
     .meaning = "Seconds for which the tokens of a task that was placed count as used by its `user_id`, in the "
                "[order of pending tasks](agent-tasks.md#whose-task-is-next).",
     .min = 1,
     .max = 86'400},
    {.section = "tasks",
     .name = "order_gamma",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.order_gamma; },
     .meaning = "What a second of waiting adds to a task's score in that order. Tasks are overtaken only by "
                "those that came within the largest weight divided by it, in seconds.",
     .min = 0.01,
     .max = 1'000},
    {.section = "tasks",
     .name = "user_weights",
     .slot = [](Config& c) -> ConfigSlot { return &c.tasks.user_weights; },
     .meaning = "Weights of users in that order, as `user=weight`, from 0.01 to 10; of other users 1."},
};

}  // namespace

std::span<const ConfigKey> task_config_keys() { return kKeys; }

}  // namespace gpusched
