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
#include "history/postgres_history.h"
#include "history/store/clock.h"
#include "history/store/store.h"
#include "journal/disk/disk.h"
#include "log/log.h"

namespace gpusched::history {
namespace {

constexpr std::size_t kQuestionsMax = 256;
constexpr std::size_t kOrdersMax = 4;
constexpr Duration kHouse = seconds(10);

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
      backlog_({.subject = "history",
                .events_max = options_.events_max,
                .linger = options_.linger,
                .retry = options_.retry},
               position, source) {
  check_at_ns_ = now_ns() + minutes(10).ns;
  if (options_.postgres)
    postgres_ = std::make_unique<PostgresHistory>(*options_.postgres, position, std::move(source));
  writer_ = std::thread([this] { run(); });
  reader_ = std::thread([this] { read(); });
}

History::~History() { stop(); }

void History::offer(Batch batch) {
  if (postgres_ != nullptr) postgres_->offer(batch);
  batch.present = {};  // It keeps what is over.
  backlog_.offer(std::move(batch));
}

HistoryStats History::stats() const {
  HistoryStats stats = backlog_.stats();
  stats.bytes = bytes_.load(std::memory_order_relaxed);
  return stats;
}

std::optional<HistoryStats> History::postgres_stats() const {
  if (postgres_ == nullptr) return std::nullopt;
  return postgres_->stats();
}

void History::run() {
  ::pthread_setname_np(::pthread_self(), "history");
  while (true) {
    backlog_.wait(store_ != nullptr);
    const bool ends = backlog_.ends();
    if (damaged_.exchange(false)) set_aside();
    // Opening makes files, too: what is free on a full volume is the scheduler's.
    const bool tries = backlog_.may_try() && (store_ != nullptr || has_room()) && has_store();
    serve_orders();
    if (tries && has_room()) {
      while (backlog_.catch_up(*store_) || write_queue()) {
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
  if (opened.ok()) {
    store_ = std::move(*opened);
    if (const Result<Unit> begun = backlog_.begin(*store_); !begun.ok()) opened = begun.error();
  }
  if (!opened.ok()) {
    store_.reset();
    backlog_.note_failure(opened.error());
    return false;
  }
  opened_.fetch_add(1, std::memory_order_release);
  return true;
}

bool History::has_room() {
  if (options_.leaves_bytes == 0) return true;
  const std::optional<DiskRoom> room = posix_disk().room(folder_of(options_.path));
  if (!room || room->free_bytes >= options_.leaves_bytes) return true;
  backlog_.note_failure({.code = ErrorCode::kStorageFull,
                         .message = "its volume has " + std::to_string(room->free_bytes >> 20) +
                                    " MB left, and the history leaves " +
                                    std::to_string(options_.leaves_bytes >> 20) +
                                    " MB to the journal: free space"});
  return false;
}

bool History::write_queue() {
  const Result<bool> more = backlog_.write_queue(*store_);
  if (!more.ok() && more.error().code == ErrorCode::kCorrupt) damaged_ = true;
  return more.ok() && *more;
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
  const bool ends = backlog_.ends();
  if (now < house_at_ns_ && !ends) return;
  house_at_ns_ = now + kHouse.ns;
  if (const Result<Unit> set = backlog_.advance(*store_); !set.ok())
    return backlog_.note_failure(set.error());
  bytes_ = size_of(options_.path) + size_of(options_.path + "-wal");
  if (options_.days > 0 && !ends) {
    const Result<bool> more = store_->forget(wall() - hours(24 * options_.days));
    if (!more.ok()) return backlog_.note_failure(more.error());
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
  backlog_.start_over();
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
      backlog_.wake();
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
  backlog_.end();
  {
    const std::lock_guard lock(read_mutex_);
    reading_ends_ = true;
  }
  read_wake_.notify_all();
  if (reader_.joinable()) reader_.join();
  if (postgres_ != nullptr) postgres_->stop();
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
