#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "shim/protocol.h"
#include "shim/worker/task_wire.h"

namespace gpusched::shim {

/// The tasks of a persistent worker, in the process of its shim: takes them from the agent, gives them to the
/// worker, as many at once as it takes, keeps its answers and each task's outcome in that task's own attempt
/// folder, and tells the agent. It owns no process; whoever does says when the worker is over.
///
/// A task's folder comes to be exactly once, before the worker hears of it, from a spare one where its agent
/// names one: so no task is ever given to two workers. An agent that is gone is heard to its last packet
/// before the next one is let in; those of its tasks that have not begun by then never begin here. Not
/// thread-safe.
class WorkerTaskQueue {
 public:
  /// `attempts_folder`: where tasks' folders are made. `key`: the worker's own. `grace`: for a task that is
  /// out of time to end, where others run beside it.
  WorkerTaskQueue(int attempts_folder, const AttemptKey& key, Duration grace)
      : attempts_folder_(attempts_folder), key_(key), grace_(grace) {}
  WorkerTaskQueue(const WorkerTaskQueue&) = delete;
  WorkerTaskQueue& operator=(const WorkerTaskQueue&) = delete;
  ~WorkerTaskQueue();

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
  /// When `must_end` is to be asked again; kNever: not at all.
  Time next_look() const;
  /// Ends tasks that are out of time, where the worker can. Whether the worker has to end: it is broken, it
  /// has a task that ends no other way, or it has had none for too long.
  bool must_end(Time now);
  /// The worker is being ended: what comes now is left to another one.
  void take_no_more() { takes_more_ = false; }

  /// The worker is over, and so are its tasks: `how` is the worker's own end.
  void end(const Outcome& how);

 private:
  struct Task {
    AttemptKey key;
    int folder = -1;
    int output = -1;
    int64_t started_unix_ns = 0;
    Time started;
    Duration max_runtime;
    Time deadline = kNever;
    Cause ending = Cause::kUnspecified;  ///< Why it is to end, if it is.
    std::string detail = {};             ///< The same in words.
    Time gives_up = kNever;              ///< The worker ends then, if it has not.
  };
  /// Bytes for the worker, and behind them those of a file.
  struct Outgoing {
    std::string text;
    int file = -1;
    uint32_t left = 0;  ///< Bytes of the file, from where it is.
  };
  /// An answer that is being read.
  struct Answer {
    std::string length;  ///< Up to four bytes.
    std::string line;    ///< Without its end.
    bool in_result = false;
    AttemptKey key;
    uint32_t left = 0;  ///< Bytes left of the frame.
    int32_t exit_code = 0;
    std::string words;
    std::string unwritten;  ///< Why the rest of the result is dropped, if it is.
  };

  void take_agent();
  void take_packets();
  void take_packet(std::string_view packet);
  void take_stop(const TaskStop& stop);
  void start_waiting();
  void start(WorkerTask&& task);
  bool make_folder(Task& task, const WorkerTask& order);
  void fail_start(const Task& task, std::string detail);
  void drop_frames();
  int make_or_take(const std::string& name, const std::string& spare);
  void begin_end(Task& task, Cause cause, std::string detail, Duration grace, Time now);
  bool has_longer(Task& task, Time now);
  void check_health(Time now);
  void add_frame(std::string_view frame, int payload = -1, uint32_t payload_bytes = 0);
  bool write_frame(Outgoing& frame);
  void write_frames();
  void read_answers();
  void take_bytes(std::string_view bytes);
  void take_piece(std::string_view piece);
  bool take_line();
  bool take_word();
  void take_ready(const ReadyLine& ready);
  void finish_answer();
  void finish_task(const AttemptKey& key, Outcome outcome);
  Outcome outcome_without_answer(const Task& task, const Outcome& how) const;
  void close_agent();
  void say(const std::string& packet);
  void say_room();
  void write_told();

  const int attempts_folder_;
  const AttemptKey key_;
  const Duration grace_;
  std::string socket_path_;
  int listener_ = -1;
  int agent_ = -1;
  bool had_agent_ = false;
  int frames_ = -1;          ///< Our end.
  int workers_frames_ = -1;  ///< The worker's, until it has begun.
  int64_t pid_ = 0;
  uint32_t tasks_max_ = 1;  ///< Most that the agent may give at once.
  uint32_t room_ = 1;       ///< The same, as far as the worker takes them.
  bool cancels_ = false;    ///< The worker can end one task alone.
  bool draining_ = false;   ///< It gets no further task: it is to end for one that it has.
  std::map<AttemptKey, Task> tasks_;
  std::deque<WorkerTask> waiting_;  ///< Without a folder yet.
  std::deque<Outgoing> to_worker_;  ///< Unwritten rest of tasks' frames.
  std::deque<std::string> told_;    ///< Packets for which the agent's socket had no room.
  /// For the packet that is read. Kept, and never cleared: of its pages only those are touched that packets
  /// fill.
  std::unique_ptr<char[]> packet_;
  Answer answer_;
  std::string broken_;
  bool closed_ = false;  ///< By the worker, as it is when that has ended.
  bool takes_more_ = true;
  bool checked_ = false;           ///< It wants to be asked how it is.
  Duration health_ = seconds(10);  ///< Period of questions, and most that an answer may take.
  uint64_t check_ = 0;             ///< Number of the last question.
  Time check_due_ = kNever;        ///< Time of the next one.
  Time check_lost_ = kNever;       ///< Without an answer it is taken for hanging then.
  Duration idle_max_;
  Time idle_end_ = kNever;
};

/// Another maximum runtime than an attempt began with, as the agent wrote it into its folder.
std::optional<Duration> written_limit(int folder);

}  // namespace gpusched::shim
