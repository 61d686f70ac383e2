#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "host/interfaces.h"
#include "model/state.h"

namespace gpusched {

/// A second State on a thread of its own, fed by the same events: every list, watch, explanation and snapshot
/// reads this one, so reads never touch the engine's thread. All public members are thread-safe.
class Observer final : public ChangeSink {
 public:
  /// What a reader sees, for the duration of its call, on the observer's thread.
  struct View {
    const State& state;
    const std::vector<WaitReason>& reasons;  ///< By class number; may be shorter than the classes.
    uint64_t position = 0;                   ///< Of the newest journal record in it.

    const WaitReason& reason_of(const Job& job) const;
  };
  using Query = std::function<void(const View&)>;
  /// Told of each batch of changes after it is in the state; on the observer's thread.
  using Listener = std::function<void(const View&, const Changes&)>;

  /// `state` is its own copy, at journal `position`. `threaded` false: everything runs inside the calls, for
  /// simulation.
  Observer(State state, uint64_t position, bool threaded = true);
  ~Observer() override;

  void publish(Changes changes) override;
  /// Runs `query` once the state has seen `sequence` (0: at once). After `stop` it is dropped.
  void read(uint64_t sequence, Query query);
  /// Runs `query` once, after the next change of the job; the same token cancels it.
  uint64_t on_change(JobId job, Query query);
  void cancel(uint64_t token);
  /// Told of every batch published after it was added.
  void add_listener(Listener listener);
  /// Runs what is queued, then ends the thread.
  void stop();

 private:
  struct Waiter {
    uint64_t token = 0;
    Query query;
  };
  using Task = std::function<void()>;

  void post(Task task);
  void run();
  void take(Changes& changes);
  void wake_watchers(const Changes& changes);

  State state_;
  uint64_t position_;
  bool threaded_;
  std::vector<WaitReason> reasons_;
  std::vector<Listener> listeners_;
  std::multimap<uint64_t, Query> waiting_for_sequence_;
  std::multimap<JobId, Waiter> watchers_;
  std::map<uint64_t, JobId> watched_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  uint64_t next_token_ = 1;
  std::thread thread_;
};

}  // namespace gpusched
