#include "host/core/journal_thread.h"

#include <chrono>

#include "base/check.h"
#include "log/log.h"

namespace gpusched {

JournalThread::JournalThread(FileJournal& journal, std::function<void(Result<Unit>)> done)
    : journal_(journal),
      term_(std::max<uint64_t>(journal.last_term(), 1)),
      done_(std::move(done)),
      thread_([this] { run(); }) {}

JournalThread::~JournalThread() {
  if (thread_.joinable()) static_cast<void>(stop(false));
}

void JournalThread::start(DurableGroup group) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(!group_.has_value());
    group_ = std::move(group);
  }
  wake_.notify_one();
}

void JournalThread::compact_before(uint64_t position) {
  {
    const std::lock_guard lock(mutex_);
    compact_before_ = position;
  }
  wake_.notify_one();
}

Result<Unit> JournalThread::stop(bool seal) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (!seal) return Unit{};
  return journal_.seal();
}

void JournalThread::run() {
  while (true) {
    std::optional<DurableGroup> group;
    uint64_t compact = 0;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || group_.has_value() || compact_before_ != 0; });
      if (group_.has_value()) {
        group = std::exchange(group_, std::nullopt);
      } else if (stopping_) {
        return;
      } else {
        compact = std::exchange(compact_before_, 0);
      }
    }
    if (!group.has_value()) {
      const Result<Unit> compacted = journal_.compact_before(compact);
      if (!compacted.ok()) {
        log_event(LogLevel::kWarning, "journal", "compaction_failed", {},
                  {{"error", compacted.error().message}});
      }
      continue;
    }
    const auto begun = std::chrono::steady_clock::now();
    Result<Unit> result = journal_.append({.position = group->position,
                                           .term = term_,
                                           .first_sequence = group->first_sequence,
                                           .command_count = group->command_count,
                                           .payload = group->payload});
    if (result.ok()) result = journal_.sync();
    const auto took = std::chrono::steady_clock::now() - begun;
    syncs_.fetch_add(1, std::memory_order_relaxed);
    sync_ns_.fetch_add(std::chrono::nanoseconds(took).count(), std::memory_order_relaxed);
    done_(std::move(result));
  }
}

}  // namespace gpusched
