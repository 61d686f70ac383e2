#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "host/core/interfaces.h"
#include "journal/journal.h"

namespace gpusched {

/// Owns the journal's thread: one append and one sync for each group, so that the engine's thread never
/// waits for the disk. Public members are thread-safe.
class JournalThread final : public GroupWriter {
 public:
  /// `done` gets each group's result, on the journal's thread. `journal` must outlive this.
  JournalThread(Journal& journal, std::function<void(Result<Unit>)> done);
  ~JournalThread() override;

  void start(DurableGroup group) override;
  std::size_t payload_max() const override { return journal_.payload_max(); }
  JournalSpace space() const override {
    return std::max(limit_.load(std::memory_order_relaxed), journal_.space());
  }
  /// Keeps work from the journal although that has room; kOpen: no longer.
  void hold(JournalSpace limit) { limit_.store(limit, std::memory_order_relaxed); }
  /// How often the journal was made durable, and how long that took in all, its writes included.
  uint64_t sync_count() const { return syncs_.load(std::memory_order_relaxed); }
  Duration sync_time() const { return {sync_ns_.load(std::memory_order_relaxed)}; }
  /// Lets the journal forget records before `position`, between two groups.
  void compact_before(uint64_t position);
  /// Ends the thread after the group in flight; with `seal`, marks a clean end.
  Result<Unit> stop(bool seal);

 private:
  void run();

  Journal& journal_;
  std::function<void(Result<Unit>)> done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<JournalSpace> limit_{JournalSpace::kOpen};
  std::atomic<uint64_t> syncs_{0};
  std::atomic<int64_t> sync_ns_{0};
  std::optional<DurableGroup> group_;
  uint64_t compact_before_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gpusched
