#include "history/backlog.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "history/store/clock.h"
#include "log/log.h"

namespace gpusched::history {
namespace {

constexpr std::size_t kEventsAtOnce = 20'000;
constexpr Duration kIdle = seconds(10);

std::size_t weight_of(const Batch& batch) {
  return batch.events.size() + batch.present.jobs.size() + batch.present.tenants.size();
}

}  // namespace

Backlog::Backlog(BacklogOptions options, uint64_t position, Source source)
    : options_(std::move(options)),
      source_(std::move(source)),
      start_(position),
      base_(position),
      seen_(position) {
  behind_since_ns_ = now_ns();
}

void Backlog::offer(Batch batch) {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    seen_ = batch.position;
    seen_at_ = batch.at;
    const std::size_t weight = weight_of(batch);
    if (weight == 0) return;
    if (behind_since_ns_ == 0) behind_since_ns_ = now_ns();
    if (queued_events_ + weight > options_.events_max) {
      // The dropped events are read from the journal later.
      queue_.clear();
      came_ns_.clear();
      queued_events_ = 0;
      base_ = batch.position;
      ++stats_.overruns;
    } else {
      queued_events_ += weight;
      queue_.push_back(std::move(batch));
      came_ns_.push_back(now_ns());
    }
    wakes = queue_.size() <= 1;
  }
  if (wakes) wake_.notify_one();
}

void Backlog::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

void Backlog::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
}

bool Backlog::ends() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

HistoryStats Backlog::stats() const {
  const std::lock_guard lock(mutex_);
  HistoryStats stats = stats_;
  stats.position = position_.load(std::memory_order_acquire);
  stats.newest = seen_;
  stats.events_waiting = queued_events_;
  if (behind_since_ns_ != 0) stats.lag = {now_ns() - behind_since_ns_};
  return stats;
}

void Backlog::wait(bool is_open) {
  std::unique_lock lock(mutex_);
  const auto is_called = [this] { return ending_ || woken_; };
  // In trouble, the next try is awaited whatever comes; else a first event waits for others.
  if (now_ns() < retry_at_ns_) {
    wake_.wait_for(lock, std::chrono::nanoseconds(retry_at_ns_ - now_ns()), is_called);
  } else {
    if (queue_.empty() && position_ >= base_ && is_open) {
      wake_.wait_for(lock, std::chrono::nanoseconds(kIdle.ns),
                     [&] { return is_called() || !queue_.empty() || position_ < base_; });
    }
    if (!ending_ && queued_events_ < kEventsAtOnce && !queue_.empty())
      wake_.wait_for(lock, std::chrono::nanoseconds(options_.linger.ns), is_called);
  }
  woken_ = false;
}

bool Backlog::may_try() const { return now_ns() >= retry_at_ns_; }

Result<Unit> Backlog::begin(BatchStore& store) {
  const Result<int64_t> gaps = store.gaps();
  if (!gaps.ok()) return gaps.error();
  {
    const std::lock_guard lock(mutex_);
    stats_.trouble.clear();
    stats_.gaps = std::max(stats_.gaps, static_cast<uint64_t>(*gaps));
  }
  // A position beyond the journal is from another time of this folder.
  if (!std::exchange(was_open_, true) && store.position() > start_) {
    log_event(LogLevel::kWarning, "history", options_.subject + "_ahead", {},
              {{options_.subject + "_position", store.position()},
               {"journal_position", start_},
               {"means", "the data folder was restored from an older copy: the " + options_.subject +
                             " keeps what it has, and continues with what happens now; jobs whose ids are "
                             "given again replace the old ones"}});
    const Result<Unit> set = store.advance(start_, wall());
    if (!set.ok()) return set;
  }
  note_written(store, 0);
  return Unit{};
}

void Backlog::note_failure(const Error& error) {
  retry_at_ns_ = now_ns() + options_.retry.ns;
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.write_errors;
    is_new = stats_.trouble != error.message;
    stats_.trouble = error.message;
  }
  if (!is_new) return;
  log_event(LogLevel::kError, "history", options_.subject + "_not_written", {},
            {{"error", error.message},
             {"means", "the " + options_.subject +
                           " falls behind; scheduling is not affected, and it catches up from the journal "
                           "when it can write again"}});
}

void Backlog::note_written(const BatchStore& store, uint64_t events) {
  position_.store(store.position(), std::memory_order_release);
  const std::lock_guard lock(mutex_);
  stats_.events_written += events;
  if (events > 0) stats_.trouble.clear();
  while (!queue_.empty() && queue_.front().position <= store.position()) {
    queued_events_ -= weight_of(queue_.front());
    queue_.pop_front();
    came_ns_.pop_front();
  }
  if (store.position() >= base_) behind_since_ns_ = queue_.empty() ? 0 : came_ns_.front();
}

void Backlog::note_batch(const Batch& batch, uint64_t& gaps) const {
  for (const Event& event : batch.events) {
    const auto* const adopted = std::get_if<Adopted>(&event);
    if (adopted == nullptr) continue;
    // A new database begins with what there is: nothing of it was lost.
    const bool is_gap = adopted->after > 0;
    if (is_gap) ++gaps;
    log_event(is_gap ? LogLevel::kError : LogLevel::kInfo, "history",
              options_.subject + (is_gap ? "_gap" : "_begins"), {},
              {{"after_record", adopted->after},
               {"until_record", batch.position},
               {"finished_jobs_found", adopted->jobs.size()}});
  }
}

bool Backlog::catch_up(BatchStore& store) {
  uint64_t target = 0;
  {
    const std::lock_guard lock(mutex_);
    target = base_;
  }
  if (store.position() >= target) return false;
  // Replaying for a database that takes nothing would be for nothing.
  Result<Unit> done = store.advance(store.position(), wall());
  if (done.ok()) {
    const std::lock_guard lock(mutex_);
    ++stats_.catch_ups;
  }
  std::vector<Batch> batches;
  std::size_t events = 0;
  Result<Unit> written = Unit{};
  uint64_t gaps = 0;
  const auto flush = [&] {
    written = store.write(batches);
    if (written.ok()) note_written(store, events);
    batches.clear();
    events = 0;
    return written.ok();
  };
  const uint64_t from = store.position();
  if (done.ok()) {
    done = source_(from, target, [&](Batch batch) {
      note_batch(batch, gaps);
      events += weight_of(batch);
      batches.push_back(std::move(batch));
      if (events >= kEventsAtOnce && !flush()) return false;
      return !ends();
    });
  }
  if (written.ok() && !batches.empty()) flush();
  if (!written.ok()) done = written;
  {
    const std::lock_guard lock(mutex_);
    stats_.gaps += gaps;
    if (done.ok() && store.position() < target && ending_) return false;
  }
  if (done.ok() && store.position() < target) done = store.advance(target, wall());
  if (!done.ok()) {
    note_failure(done.error());
    return false;
  }
  note_written(store, 0);
  log_event(LogLevel::kInfo, "history", options_.subject + "_caught_up", {},
            {{"from_record", from}, {"to_record", store.position()}});
  return true;
}

Result<bool> Backlog::write_queue(BatchStore& store) {
  std::deque<int64_t> came_ns;
  std::vector<Batch> taken;
  std::size_t events = 0;
  {
    const std::lock_guard lock(mutex_);
    if (store.position() < base_) return false;  // A gap is closed first.
    while (!queue_.empty() && events < kEventsAtOnce) {
      const std::size_t weight = weight_of(queue_.front());
      events += weight;
      queued_events_ -= weight;
      taken.push_back(std::move(queue_.front()));
      queue_.pop_front();
      came_ns.push_back(came_ns_.front());
      came_ns_.pop_front();
    }
  }
  if (taken.empty()) return false;
  const Result<Unit> written = store.write(taken);
  if (!written.ok()) {
    put_back({std::move_iterator(taken.begin()), std::move_iterator(taken.end())}, std::move(came_ns));
    note_failure(written.error());
    return written.error();
  }
  note_written(store, events);
  const std::lock_guard lock(mutex_);
  return queued_events_ >= kEventsAtOnce || (ending_ && !queue_.empty());
}

void Backlog::put_back(std::deque<Batch> batches, std::deque<int64_t> came_ns) {
  std::size_t events = 0;
  for (const Batch& batch : batches) events += weight_of(batch);
  const std::lock_guard lock(mutex_);
  const uint64_t last = batches.back().position;
  if (base_ >= last) return;  // The queue was emptied meanwhile: the journal has them all.
  if (queued_events_ + events > options_.events_max) {
    // These are read from the journal, as those that found no place in the queue.
    base_ = last;
    ++stats_.overruns;
    return;
  }
  queued_events_ += events;
  queue_.insert(queue_.begin(), std::move_iterator(batches.begin()), std::move_iterator(batches.end()));
  came_ns_.insert(came_ns_.begin(), came_ns.begin(), came_ns.end());
}

Result<Unit> Backlog::advance(BatchStore& store) {
  uint64_t seen = 0;
  Time seen_at;
  {
    const std::lock_guard lock(mutex_);
    if (!queue_.empty() || base_ > store.position()) return Unit{};
    seen = seen_;
    seen_at = seen_at_;
  }
  if (seen <= store.position()) return Unit{};
  Result<Unit> set = store.advance(seen, seen_at);
  if (set.ok()) note_written(store, 0);
  return set;
}

void Backlog::start_over() {
  const std::lock_guard lock(mutex_);
  base_ = seen_;
  queue_.clear();
  came_ns_.clear();
  queued_events_ = 0;
  ++stats_.gaps;
}

}  // namespace gpusched::history
