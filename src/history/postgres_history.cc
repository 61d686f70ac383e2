#include "history/postgres_history.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "history/postgres/postgres_store.h"
#include "history/store/clock.h"
#include "log/log.h"

namespace gpusched::history {
namespace {

constexpr Duration kPatience = seconds(60);
constexpr Duration kFarewell = seconds(2);
constexpr Duration kHouse = seconds(10);
constexpr Duration kForget = minutes(10);

}  // namespace

PostgresHistory::PostgresHistory(PostgresOptions options, uint64_t position, Backlog::Source source)
    : options_(std::move(options)),
      backlog_({.subject = "database",
                .events_max = options_.events_max,
                .linger = options_.linger,
                .retry = options_.retry},
               position, std::move(source)),
      writer_([this] { run(); }) {}

PostgresHistory::~PostgresHistory() { stop(); }

void PostgresHistory::run() {
  ::pthread_setname_np(::pthread_self(), "database");
  while (true) {
    backlog_.wait(store_ != nullptr);
    const bool ends = backlog_.ends();
    if (backlog_.may_try() && has_store()) {
      bool goes_on = true;
      while (goes_on && store_->is_usable()) {
        goes_on = backlog_.catch_up(*store_);
        if (goes_on || !store_->is_usable()) continue;
        const Result<bool> more = backlog_.write_queue(*store_);
        goes_on = more.ok() && *more;
      }
      if (store_->is_usable()) keep_house();
      // A new connection learns what became of the last transaction.
      const bool is_old = options_.lifetime.ns > 0 && now_ns() - opened_ns_ > options_.lifetime.ns;
      if (is_old || !store_->is_usable()) store_.reset();
    }
    if (ends) break;
  }
  store_.reset();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  end_.notify_all();
}

bool PostgresHistory::has_store() {
  if (store_ != nullptr) return true;
  Result<std::unique_ptr<PostgresStore>> opened =
      PostgresStore::open(options_.server, options_.term, kPatience, interrupt_);
  if (opened.ok()) {
    if (const Result<Unit> begun = backlog_.begin(**opened); !begun.ok()) opened = begun.error();
  }
  if (!opened.ok()) {
    backlog_.note_failure(opened.error());
    return false;
  }
  store_ = std::move(*opened);
  opened_ns_ = now_ns();
  return true;
}

void PostgresHistory::keep_house() {
  const int64_t now = now_ns();
  const bool ends = backlog_.ends();
  if (now < house_at_ns_ && !ends) return;
  house_at_ns_ = now + kHouse.ns;
  if (const Result<Unit> set = backlog_.advance(*store_); !set.ok())
    return backlog_.note_failure(set.error());
  if (options_.days == 0 || now < forget_at_ns_ || ends) return;
  const Result<bool> more = store_->forget(wall() - hours(24 * options_.days));
  if (!more.ok()) return backlog_.note_failure(more.error());
  if (!*more) forget_at_ns_ = now + kForget.ns;
}

void PostgresHistory::stop() {
  backlog_.end();
  if (!writer_.joinable()) return;
  if (backlog_.stats().trouble.empty()) {
    std::unique_lock lock(mutex_);
    end_.wait_for(lock, std::chrono::nanoseconds(kFarewell.ns), [this] { return ended_; });
  }
  interrupt_.fire();
  writer_.join();
}

}  // namespace gpusched::history
