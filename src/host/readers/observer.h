#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/queue_limits.h"
#include "host/core/interfaces.h"
#include "model/state.h"

namespace gpusched {

/// A second State on a thread of its own, fed by the same events: every list, watch, explanation and snapshot
/// reads this one, so reads never touch the engine's thread. Changes come first: between any two of them
/// stand at most limits::kReadsPerTurn short questions and one step of a long one. All public members are
/// thread-safe.
class Observer final : public ChangeSink {
 public:
  /// View of a reader, for the duration of its call, on the observer's thread.
  struct View {
    const State& state;
    const std::vector<WaitReason>& reasons;  ///< By class number; may be shorter than the classes.
    uint64_t position = 0;                   ///< Position of the newest journal record in it.

    const WaitReason& reason_of(const Job& job) const;
  };
  using Query = std::function<void(const View&)>;
  /// One piece of a long question, a few milliseconds at most. True: call it again, on a later state.
  using Step = std::function<bool(const View&)>;
  /// Told of each batch of changes after it is in the state; on the observer's thread.
  using Listener = std::function<void(const View&, const Changes&)>;

  /// `state` is its own copy, at journal `position`. `threaded` false: everything runs inside the calls, for
  /// simulation.
  Observer(State state, uint64_t position, bool threaded = true);
  ~Observer() override;

  void publish(Changes changes) override;
  bool has_room() const override;
  /// Runs `query`, which must be short, once the state has seen `sequence` (0: at once). After `stop` it is
  /// dropped. Never refused: who asks for strangers asks `reads_waiting` first.
  void read(uint64_t sequence, Query query);
  /// The same for what looks at much: its steps take turns with those of others and with everything else.
  void scan(uint64_t sequence, Step step);
  std::size_t reads_waiting() const { return reads_waiting_.load(std::memory_order_relaxed); }
  std::size_t scans_waiting() const { return scans_waiting_.load(std::memory_order_relaxed); }
  /// Runs `query` between what was published before and what is published after it.
  void in_order(Query query);
  /// Runs `query` once, after the next change of the job; the same token cancels it.
  uint64_t on_change(JobId job, Query query);
  void cancel(uint64_t token);
  /// Told of every batch published after it was added.
  void add_listener(Listener listener);
  /// Told, with a sentence, of a batch behind which the state is not the one that was published: a defect, or
  /// memory that erred. Nobody else is told of that batch. Without it the process ends.
  void on_difference(std::function<void(const std::string&)> hook);
  /// Runs what is queued, then ends the thread.
  void stop();

 private:
  struct Waiter {
    uint64_t token = 0;
    Query query;
  };
  /// In the order in which they came: changes, and who is to be told of later ones.
  using Update = std::function<void()>;
  struct Question {
    uint64_t sequence = 0;
    Step step;
    bool is_scan = false;
  };

  View view() const { return {.state = state_, .reasons = reasons_, .position = position_}; }
  void post(Update update);
  void ask(Question question);
  void run();
  /// One turn's share of what waits.
  void take_turn(std::deque<Update>& updates, std::vector<Question>& questions);
  void answer(Question question);
  void put_back(Question question);
  void take(Changes& changes);
  void differs(const Changes& changes);
  void wake_watchers(const Changes& changes);

  State state_;
  uint64_t position_;
  bool threaded_;
  std::vector<WaitReason> reasons_;
  std::vector<Listener> listeners_;
  std::function<void(const std::string&)> difference_;
  std::multimap<uint64_t, Question> waiting_for_sequence_;
  std::multimap<JobId, Waiter> watchers_;
  std::map<uint64_t, JobId> watched_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Update> updates_;
  std::deque<Question> reads_;
  std::deque<Question> scans_;
  bool stopping_ = false;
  uint64_t next_token_ = 1;
  std::atomic<std::size_t> changes_waiting_{0};
  std::atomic<std::size_t> change_bytes_waiting_{0};
  std::atomic<std::size_t> reads_waiting_{0};
  std::atomic<std::size_t> scans_waiting_{0};
  std::thread thread_;
};

}  // namespace gpusched
