#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "shim/protocol.h"
#include "shim/worker/task_wire.h"

namespace gpusched::shim {

/// The tasks of a persistent worker, in the process of its shim: takes them from the agent, gives them to the
/// worker one after the other, keeps its answers and each task's outcome in that task's own attempt folder,
/// and tells the agent. It owns no process; whoever does says when the worker is over.
///
/// A task's folder comes to be exactly once, before the worker hears of it: so no task is ever given to two
/// workers. An agent that is gone is heard to its last packet before the next one is let in.
class TaskDesk {
 public:
  /// `attempts_folder`: where tasks' folders are made. `key`: the worker's own.
  TaskDesk(int attempts_folder, const AttemptKey& key) : attempts_folder_(attempts_folder), key_(key) {}
  TaskDesk(const TaskDesk&) = delete;
  TaskDesk& operator=(const TaskDesk&) = delete;
  ~TaskDesk();

  /// Makes its sockets, that for agents in `folder`, the worker's. Empty, or why it cannot.
  std::string open(int folder, const std::vector<char*>& environment);
  /// The worker's end of the frames, as a descriptor that a new process inherits; to be closed by the caller
  /// when that has begun.
  int hand_over();
  /// The worker runs: from now on agents are let in.
  void begin(int64_t pid, Time now);

  /// Waits until `signals` or a socket has something, or `span` is over, and does what the sockets ask for.
  void wait(int signals, Duration span);

  /// Why the worker has to end, in words: what it said is no answer. Empty: it has not.
  const std::string& broken() const { return broken_; }
  /// When its task has to be over; kNever: it has none, or that has no limit.
  Time deadline() const { return deadline_; }
  Duration max_runtime() const { return max_runtime_; }
  /// Whether the agent wrote down a longer one since.
  bool has_longer(Time now);
  /// The worker is being ended: what comes now is left to another one.
  void take_no_more() { takes_more_ = false; }
  /// When it has been without a task for too long; kNever: not at all.
  Time idle_end() const { return idle_end_; }

  /// The worker is over, and so is its task: `how` is the worker's own end.
  void end(Outcome how);

 private:
  struct Task {
    AttemptKey key;
    int folder = -1;
    int output = -1;
    int64_t started_unix_ns = 0;
    Time started;
  };
  /// An answer that is being read.
  struct Answer {
    std::string length;  ///< Up to four bytes.
    std::string line;    ///< Without its end.
    bool in_result = false;
    uint32_t left = 0;  ///< Of the frame.
    int32_t exit_code = 0;
  };

  void take_agent();
  void take_packets();
  void start(WorkerTask&& task);
  bool make_folder(Task& task);
  void write_frames();
  void read_answers();
  void take_bytes(std::string_view bytes);
  void take_result(std::string_view bytes);
  void finish_task(Outcome outcome);
  void say(const std::string& packet);
  void write_told();

  const int attempts_folder_;
  const AttemptKey key_;
  std::string socket_path_;
  int listener_ = -1;
  int agent_ = -1;
  int frames_ = -1;          ///< Our end.
  int workers_frames_ = -1;  ///< The worker's, until it has begun.
  int64_t pid_ = 0;
  std::optional<Task> task_;
  std::deque<WorkerTask> waiting_;  ///< An agent sends one at a time; another one's may wait.
  std::string to_worker_;           ///< What is left to be written of the task's frame.
  std::deque<std::string> told_;    ///< Packets for which the agent's socket had no room.
  Answer answer_;
  std::string broken_;
  bool closed_ = false;  ///< By the worker, as it is when that has ended.
  bool takes_more_ = true;
  Duration max_runtime_;
  Time deadline_ = kNever;
  Duration idle_max_;
  Time idle_end_ = kNever;
};

/// Another maximum runtime than an attempt began with, as the agent wrote it into its folder.
std::optional<Duration> written_limit(int folder);

}  // namespace gpusched::shim
