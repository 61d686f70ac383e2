#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

/// Protocol of an agent and the shim of a persistent worker, and the frames between that shim and its worker.
/// An agent connects to the worker's socket and sends tasks, one packet each; the shim answers with the tasks
/// that it has, then with the events of tasks, as other shims say them (protocol.h).
namespace gpusched::shim {

/// Attempts from this job on are no attempts: under such a key the shim of a worker lives as that of an
/// attempt does, with folder, groups and mark. No job comes to have such a number.
inline constexpr uint64_t kWorkerJobFirst = uint64_t{1} << 62;
inline bool is_worker_key(const AttemptKey& key) { return key.job.value >= kWorkerJobFirst; }

/// In the environment of a worker: the descriptor of the socket on which its frames travel.
inline constexpr const char* kFrameVariable = "GPU_SCHEDULER_WORKER_FD";
/// Behind what a shim has open, and behind kPortDescriptor.
inline constexpr int kFrameDescriptor = 201;
/// In a worker's folder: where its shim listens for an agent.
inline constexpr const char* kWorkerSocket = "tasks";
/// Milliseconds in decimal, in the environment of a worker: without a task for so long it ends.
inline constexpr const char* kIdleVariable = "GPU_SCHEDULER_WORKER_IDLE_MS";

/// Maximum frame of a task, without the length before it and a payload that its agent left in a file.
inline constexpr std::size_t kTaskFrameBytesMax = 128 * 1024;
/// The first line of an answer.
inline constexpr std::size_t kAnswerLineBytesMax = 512;
/// A larger answer ends its worker.
inline constexpr uint32_t kAnswerBytesMax = 64 << 20;
/// In decimal, in the environment of a worker: so many tasks it may have at once; absent: one.
inline constexpr const char* kTasksVariable = "GPU_SCHEDULER_WORKER_TASKS";
/// Milliseconds in decimal, in the environment of a worker: so often its health is asked, and for so long its
/// answer is waited for, if it wants to be asked.
inline constexpr const char* kHealthVariable = "GPU_SCHEDULER_WORKER_HEALTH_MS";
/// No worker gets more at once.
inline constexpr uint32_t kTasksAtOnceMax = 64;

/// A task for a worker: its frame goes to the worker as it is.
struct WorkerTask {
  AttemptKey key;
  Duration max_runtime;  ///< Zero: no limit.
  std::string frame;
  std::string spare_folder = {};  ///< Name in `spare/` to take over; empty, or gone: a new one is made.
  uint32_t payload_bytes = 0;     ///< Behind the frame come so many of the file that its agent left.
};
std::string encode(const WorkerTask& task);
std::optional<WorkerTask> decode_task(std::string_view packet);

/// Ends one of a worker's tasks, and the others only where the worker cannot end it alone.
struct TaskStop {
  AttemptKey key;
  Duration grace;
};
std::string encode(const TaskStop& stop);
std::optional<TaskStop> decode_stop_task(std::string_view packet);

/// The first packet to an agent that connected: which tasks the worker has.
struct WorkerGreeting {
  struct Task {
    AttemptKey key;
    int64_t started_unix_ns = 0;
  };
  int64_t pid = 0;  ///< The worker's process; 0: it has not begun.
  int64_t shim_pid = 0;
  std::vector<Task> tasks;  ///< Agents from before several know of the first.
};
std::string encode(const WorkerGreeting& greeting);
std::optional<WorkerGreeting> decode_greeting(std::string_view packet);

/// To the agent: what the worker takes from now on.
struct WorkerRoom {
  uint32_t tasks = 0;    ///< Tasks at once; 0: no further one.
  bool cancels = false;  ///< It can end one task alone.
};
std::string encode(const WorkerRoom& room);
std::optional<WorkerRoom> decode_room(std::string_view packet);

/// "12-1-0 0": the task that is answered, and its exit code; behind them, where there are any, words about
/// it.
struct AnswerLine {
  AttemptKey key;
  int32_t exit_code = 0;
  std::string words = {};
};
std::optional<AnswerLine> parse_answer_line(std::string_view line);

/// "ready 8 cancel": what a worker says of itself, as often as it likes. So many tasks it takes at once, 1 to
/// kTasksAtOnceMax; and behind it what else it understands, in any order.
struct ReadyLine {
  uint32_t tasks = 1;
  bool cancels = false;  ///< A frame `{"cancel":"12-1-0"}`, upon which it answers that task soon.
  bool checked = false;  ///< A frame `{"check":7}`, which it answers with "healthy 7" while it computes too.
};
/// First word of such a line.
inline constexpr std::string_view kReadyWord = "ready ";
std::optional<ReadyLine> parse_ready_line(std::string_view line);

/// First word of the answer to a check of its health.
inline constexpr std::string_view kHealthyWord = "healthy ";
std::optional<uint64_t> parse_healthy_line(std::string_view line);

}  // namespace gpusched::shim
