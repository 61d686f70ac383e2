#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "host/core/journal_writer.h"

namespace gpusched {

/// Owns the journal's thread: one append and one sync for each group, so that the engine's thread never
/// waits for the disk. Public members are thread-safe.
class JournalThread final : public JournalWriter {
 public:
  /// `done` gets each group's result, on the journal's thread. `journal` must outlive this.
  JournalThread(FileJournal& journal, std::function<void(Result<Unit>)> done);
  ~JournalThread() override;

  void start(DurableGroup group) override;
  std::size_t payload_max() const override { return journal_.payload_max(); }
  JournalSpace space() const override {
    return std::max(limit_.load(std::memory_order_relaxed), journal_.space());
  }
  void hold(JournalSpace limit) override { limit_.store(limit, std::memory_order_relaxed); }
  uint64_t sync_count() const override { return syncs_.load(std::memory_order_relaxed); }
  /// Writes included.
  Duration sync_time() const override { return {sync_ns_.load(std::memory_order_relaxed)}; }
  std::string space_reason() const override { return journal_.space_reason(); }
  void compact_before(uint64_t position) override;
  /// Ends the thread after the group in flight.
  Result<Unit> stop(bool seal) override;

 private:
  void run();

  FileJournal& journal_;
  const uint64_t term_;
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
