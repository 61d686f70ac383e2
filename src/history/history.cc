#include "history/history.h"

#include <pthread.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/check.h"
#include "history/store/store.h"
#include "journal/disk/disk.h"
#include "log/log.h"

namespace gpusched::history {
namespace {

constexpr std::size_t kEventsAtOnce = 20'000;
constexpr std::size_t kQuestionsMax = 256;
constexpr std::size_t kOrdersMax = 4;
constexpr Duration kHouse = seconds(10);

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Time wall() {
  return Time{std::chrono::duration_cast<std::chrono::nanoseconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count()};
}

std::string folder_of(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

uint64_t size_of(const std::string& path) {
  struct stat facts{};
  return ::stat(path.c_str(), &facts) == 0 ? static_cast<uint64_t>(facts.st_size) : 0;
}

void remove_file(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

}  // namespace

History::History(HistoryOptions options, uint64_t position, Source source)
    : options_(std::move(options)),
      source_(std::move(source)),
      start_(position),
      base_(position),
      seen_(position) {
  check_at_ns_ = now_ns() + minutes(10).ns;
  behind_since_ns_ = now_ns();
  writer_ = std::thread([this] { run(); });
  reader_ = std::thread([this] { read(); });
}

History::~History() { stop(); }

void History::offer(Batch batch) {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    seen_ = batch.position;
    seen_at_ = batch.at;
    if (batch.events.empty()) return;
    if (behind_since_ns_ == 0) behind_since_ns_ = now_ns();
    if (queued_events_ + batch.events.size() > options_.events_max) {
      // The dropped events are read from the journal later.
      queue_.clear();
      came_ns_.clear();
      queued_events_ = 0;
      base_ = batch.position;
      ++stats_.overruns;
    } else {
      queued_events_ += batch.events.size();
      queue_.push_back(std::move(batch));
      came_ns_.push_back(now_ns());
    }
    wakes = queue_.size() <= 1;
  }
  if (wakes) wake_.notify_one();
}

HistoryStats History::stats() const {
  const std::lock_guard lock(mutex_);
  HistoryStats stats = stats_;
  stats.position = position_.load(std::memory_order_acquire);
  stats.newest = seen_;
  stats.events_waiting = queued_events_;
  if (behind_since_ns_ != 0) stats.lag = {now_ns() - behind_since_ns_};
  return stats;
}

void History::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const auto has_work = [this] { return stopping_ || !orders_.empty(); };
  // In trouble, the next try is awaited whatever comes; else a first event waits for others.
  if (now_ns() < retry_at_ns_) {
    wake_.wait_for(lock, std::chrono::nanoseconds(retry_at_ns_ - now_ns()), has_work);
    return;
  }
  const bool idle = queue_.empty() && position_ >= base_ && store_ != nullptr;
  if (idle) {
    wake_.wait_for(lock, std::chrono::nanoseconds(kHouse.ns),
                   [&] { return has_work() || !queue_.empty() || position_ < base_; });
  }
  if (!stopping_ && queued_events_ < kEventsAtOnce && !queue_.empty())
    wake_.wait_for(lock, std::chrono::nanoseconds(options_.linger.ns), has_work);
}

void History::run() {
  ::pthread_setname_np(::pthread_self(), "history");
  while (true) {
    bool ends = false;
    {
      std::unique_lock lock(mutex_);
      wait_for_work(lock);
      ends = stopping_;
    }
    if (damaged_.exchange(false)) set_aside();
    // Opening makes files, too: what is free on a full volume is the scheduler's.
    const bool tries = now_ns() >= retry_at_ns_ && (store_ != nullptr || has_room()) && has_store();
    serve_orders();
    if (tries && has_room()) {
      while (catch_up() || write_queue()) {
        serve_orders();
      }
      keep_house();
    }
    if (ends) break;
  }
  serve_orders();
  if (store_ != nullptr) static_cast<void>(store_->checkpoint());
}

bool History::has_store() {
  if (store_ != nullptr) return true;
  std::error_code failed;
  const std::string folder = folder_of(options_.path);
  std::filesystem::create_directories(folder, failed);
  if (!failed) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, failed);
  Result<std::unique_ptr<Store>> opened = Store::open(options_.path);
  if (!opened.ok() && opened.error().code == ErrorCode::kCorrupt) {
    set_aside();
    opened = Store::open(options_.path);
  }
  if (!opened.ok()) {
    note_failure(opened.error());
    return false;
  }
  store_ = std::move(*opened);
  const Result<int64_t> gaps = store_->gaps();
  {
    const std::lock_guard lock(mutex_);
    stats_.trouble.clear();
    if (gaps.ok()) stats_.gaps = std::max(stats_.gaps, static_cast<uint64_t>(*gaps));
  }
  // A position beyond the journal is from another time of this folder.
  if (!std::exchange(was_open_, true) && store_->position() > start_) {
    log_event(
        LogLevel::kWarning, "history", "history_ahead", {},
        {{"history_position", store_->position()},
         {"journal_position", start_},
         {"means",
          "the data folder was restored from an older copy: the history keeps what it has, and continues "
          "with what happens now; jobs whose ids are given again replace the old ones"}});
    const Result<Unit> set = store_->advance(start_, wall());
    if (!set.ok()) {
      store_.reset();
      note_failure(set.error());
      return false;
    }
  }
  position_.store(store_->position(), std::memory_order_release);
  opened_.fetch_add(1, std::memory_order_release);
  note_written(0);
  return true;
}

bool History::has_room() {
  if (options_.leaves_bytes == 0) return true;
  const std::optional<DiskRoom> room = posix_disk().room(folder_of(options_.path));
  if (!room || room->free_bytes >= options_.leaves_bytes) return true;
  note_failure({.code = ErrorCode::kStorageFull,
                .message = "its volume has " + std::to_string(room->free_bytes >> 20) +
                           " MB left, and the history leaves " + std::to_string(options_.leaves_bytes >> 20) +
                           " MB to the journal: free space"});
  return false;
}

void History::note_failure(const Error& error) {
  retry_at_ns_ = now_ns() + options_.retry.ns;
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.write_errors;
    is_new = stats_.trouble != error.message;
    stats_.trouble = error.message;
  }
  if (!is_new) return;
  log_event(LogLevel::kError, "history", "history_not_written", {},
            {{"error", error.message},
             {"means",
              "the history falls behind; scheduling is not affected, and it catches up from the journal when "
              "it can write again"}});
}

void History::note_written(uint64_t events) {
  position_.store(store_->position(), std::memory_order_release);
  const std::lock_guard lock(mutex_);
  stats_.events_written += events;
  if (events > 0) stats_.trouble.clear();
  while (!queue_.empty() && queue_.front().position <= store_->position()) {
    queued_events_ -= queue_.front().events.size();
    queue_.pop_front();
    came_ns_.pop_front();
  }
  if (store_->position() >= base_) behind_since_ns_ = queue_.empty() ? 0 : came_ns_.front();
}

bool History::catch_up() {
  uint64_t target = 0;
  {
    const std::lock_guard lock(mutex_);
    target = base_;
  }
  if (store_->position() >= target) return false;
  // Replaying for a database that takes nothing would be for nothing.
  Result<Unit> done = store_->advance(store_->position(), wall());
  if (done.ok()) {
    const std::lock_guard lock(mutex_);
    ++stats_.catch_ups;
  }
  std::vector<Batch> batches;
  std::size_t events = 0;
  Result<Unit> written = Unit{};
  uint64_t gaps = 0;
  const auto flush = [&] {
    written = store_->write(batches);
    if (written.ok()) note_written(events);
    batches.clear();
    events = 0;
    return written.ok();
  };
  const uint64_t from = store_->position();
  if (done.ok()) {
    done = source_(from, target, [&](Batch batch) {
      for (const Event& event : batch.events) {
        if (const auto* const adopted = std::get_if<Adopted>(&event)) {
          // A new database begins with what there is: nothing of it was lost.
          if (adopted->after > 0) ++gaps;
          log_event(adopted->after > 0 ? LogLevel::kError : LogLevel::kInfo, "history",
                    adopted->after > 0 ? "history_gap" : "history_begins", {},
                    {{"after_record", adopted->after},
                     {"until_record", batch.position},
                     {"finished_jobs_found", adopted->jobs.size()}});
        }
      }
      events += batch.events.size();
      batches.push_back(std::move(batch));
      if (events >= kEventsAtOnce && !flush()) return false;
      const std::lock_guard lock(mutex_);
      return !stopping_;
    });
  }
  if (written.ok() && !batches.empty()) flush();
  if (!written.ok()) done = written;
  if (done.ok() && store_->position() < target) {
    bool ends = false;
    {
      const std::lock_guard lock(mutex_);
      ends = stopping_;
      stats_.gaps += std::exchange(gaps, 0);
    }
    if (ends) return false;
    done = store_->advance(target, wall());
  }
  {
    const std::lock_guard lock(mutex_);
    stats_.gaps += gaps;
  }
  if (!done.ok()) {
    note_failure(done.error());
    return false;
  }
  note_written(0);
  log_event(LogLevel::kInfo, "history", "history_caught_up", {},
            {{"from_record", from}, {"to_record", store_->position()}});
  return true;
}

bool History::write_queue() {
  std::vector<Batch> taken;
  std::size_t events = 0;
  {
    const std::lock_guard lock(mutex_);
    if (store_->position() < base_) return false;  // A gap is closed first.
    while (!queue_.empty() && events < kEventsAtOnce) {
      events += queue_.front().events.size();
      queued_events_ -= queue_.front().events.size();
      taken.push_back(std::move(queue_.front()));
      queue_.pop_front();
      came_ns_.pop_front();
    }
  }
  if (taken.empty()) return false;
  const uint64_t last = taken.back().position;
  const Result<Unit> written = store_->write(taken);
  if (!written.ok()) {
    {
      // They are read from the journal later, as those that found no place in the queue.
      const std::lock_guard lock(mutex_);
      base_ = std::max(base_, last);
    }
    if (written.error().code == ErrorCode::kCorrupt) damaged_ = true;
    note_failure(written.error());
    return false;
  }
  note_written(events);
  const std::lock_guard lock(mutex_);
  return queued_events_ >= kEventsAtOnce || (stopping_ && !queue_.empty());
}

void History::serve_orders() {
  while (true) {
    Order order;
    {
      const std::lock_guard lock(mutex_);
      if (orders_.empty()) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    order(store_.get());
  }
}

void History::keep_house() {
  const int64_t now = now_ns();
  bool ends = false;
  uint64_t seen = 0;
  Time seen_at;
  {
    const std::lock_guard lock(mutex_);
    ends = stopping_;
    if (queue_.empty() && base_ <= store_->position()) {
      seen = seen_;
      seen_at = seen_at_;
    }
  }
  if (now < house_at_ns_ && !ends) return;
  house_at_ns_ = now + kHouse.ns;
  // Records that led to nothing count, too: the journal may forget them.
  if (seen > store_->position()) {
    const Result<Unit> set = store_->advance(seen, seen_at);
    if (!set.ok()) return note_failure(set.error());
    note_written(0);
  }
  {
    const uint64_t bytes = size_of(options_.path) + size_of(options_.path + "-wal");
    const std::lock_guard lock(mutex_);
    stats_.bytes = bytes;
  }
  if (options_.days > 0 && !ends) {
    const Result<bool> more = store_->forget(wall() - hours(24 * options_.days));
    if (!more.ok()) return note_failure(more.error());
    if (*more) house_at_ns_ = now + kHouse.ns / 10;
  }
  if (now >= check_at_ns_ && !ends) look_for_damage();
}

// On a thread and a connection of its own: it reads every page.
void History::look_for_damage() {
  check_at_ns_ = now_ns() + options_.check_every.ns;
  if (checker_.joinable()) checker_.join();
  Result<Queries> opened = Queries::open(options_.path);
  if (!opened.ok()) return;
  checking_.emplace(std::move(*opened));
  checks_.store(true);
  checker_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "history-check");
    const Result<std::string> found = checking_->check();
    const bool damaged = found.ok() ? !found->empty() : found.error().code == ErrorCode::kCorrupt;
    if (damaged) {
      log_event(LogLevel::kError, "history", "history_damaged", {},
                {{"error", found.ok() ? *found : found.error().message}});
      damaged_ = true;
    }
    checks_.store(false);
  });
}

void History::set_aside() {
  store_.reset();
  const std::string aside = options_.path + ".damaged-" + std::to_string(wall().ms());
  std::error_code failed;
  std::filesystem::rename(options_.path, aside, failed);
  for (const char* const suffix : {"-wal", "-shm"}) {
    std::error_code missing;
    std::filesystem::rename(options_.path + suffix, aside + suffix, missing);
  }
  {
    const std::lock_guard lock(mutex_);
    base_ = seen_;
    queue_.clear();
    came_ns_.clear();
    queued_events_ = 0;
    ++stats_.gaps;
  }
  log_event(
      LogLevel::kError, "history", "history_set_aside", {},
      {{"file", aside},
       {"means",
        "the database is damaged: a new one begins with what the journal and the state still have. Check "
        "the disk; `sqlite3 FILE .recover` may save rows of the old one"}});
}

void History::copy(std::function<void(Result<std::string>)> done) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_ && orders_.size() < kOrdersMax) {
      orders_.emplace_back([this, done = std::move(done)](Store* store) {
        if (store == nullptr)
          return done(Error{.code = ErrorCode::kUnavailable,
                            .message = "the history's database cannot be opened; see the scheduler's log"});
        done(make_copy(*store));
      });
      wake_.notify_one();
      return;
    }
  }
  done(Error{.code = ErrorCode::kUnavailable, .message = "other copies are being made; try again later"});
}

Result<std::string> History::make_copy(Store& store) const {
  // A caller that still reads an older copy keeps its file: the new one takes its name only when it is whole.
  const std::string path = options_.path + ".copy";
  const std::string part = path + ".part";
  remove_file(part);
  const Result<Unit> copied = store.copy_to(part);
  if (copied.ok() && ::chmod(part.c_str(), 0600) == 0 && ::rename(part.c_str(), path.c_str()) == 0)
    return path;
  const int error = errno;
  remove_file(part);
  if (!copied.ok()) return copied.error();
  return Error{.code = ErrorCode::kUnavailable,
               .message = "cannot name the copy " + path + ": " + ::strerror(error)};
}

void History::ask(Question question) {
  {
    const std::lock_guard lock(read_mutex_);
    if (!reading_ends_ && questions_.size() < kQuestionsMax) {
      questions_.push_back(std::move(question));
      read_wake_.notify_one();
      return;
    }
  }
  question(Error{.code = ErrorCode::kUnavailable,
                 .message = "too many questions to the history wait; try again later"});
}

void History::read() {
  ::pthread_setname_np(::pthread_self(), "history-read");
  std::optional<Queries> queries;
  uint64_t of = 0;  // The database that they read.
  while (true) {
    Question question;
    bool ends = false;
    {
      std::unique_lock lock(read_mutex_);
      read_wake_.wait(lock, [this] { return reading_ends_ || !questions_.empty(); });
      if (questions_.empty()) return;
      question = std::move(questions_.front());
      questions_.pop_front();
      ends = reading_ends_;
    }
    if (ends) {
      question(Error{.code = ErrorCode::kUnavailable, .message = "the scheduler is shutting down"});
      continue;
    }
    const uint64_t now = opened_.load(std::memory_order_acquire);
    if (std::exchange(of, now) != now) queries.reset();
    if (!queries) {
      Result<Queries> opened = Queries::open(options_.path);
      if (!opened.ok() || now == 0) {
        question(Error{.code = ErrorCode::kUnavailable,
                       .message = "the history's database is not open yet; try again in a moment"});
        continue;
      }
      queries.emplace(std::move(*opened));
    }
    question(&*queries);
  }
}

void History::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  {
    const std::lock_guard lock(read_mutex_);
    reading_ends_ = true;
  }
  read_wake_.notify_all();
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
  while (checks_.load()) {
    checking_->interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (checker_.joinable()) checker_.join();
  checking_.reset();
  store_.reset();
}

}  // namespace gpusched::history
