#include "api/backend/tokens/sign_in_workers.h"

#include <chrono>
#include <utility>

#include "base/net/cancel_scope.h"

namespace gpusched::api {

Time steady_time() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

namespace {

ApiError too_many_waiting(const char* whose) {
  return {.kind = ErrorKind::kRateLimited,
          .message = std::string("too many sign-ins ") + whose +
                     " wait for the provider of identities; wait a few seconds, then sign in again",
          .retry_after = seconds(5)};
}

}  // namespace

std::optional<ApiError> SignInWorkers::post(const std::string& party, Work work) {
  const std::lock_guard lock(mutex_);
  if (stopping_)
    return ApiError{ErrorKind::kShuttingDown,
                    "the scheduler is shutting down; sign in again when it is back"};
  if (queue_.size() >= kQueueMax) return too_many_waiting("of all people");
  std::size_t& of_party = of_party_[party];
  if (of_party >= kOfPartyMax) return too_many_waiting("from this address");
  of_party += 1;
  queue_.push_back({.party = party, .work = std::move(work), .since = steady_time()});
  if (threads_.size() < kThreads) threads_.emplace_back([this] { run(); });
  came_.notify_one();
  return std::nullopt;
}

void SignInWorkers::done(const std::string& party) {
  const auto found = of_party_.find(party);
  if (--found->second == 0) of_party_.erase(found);
}

void SignInWorkers::run() {
  const CancelScope scope(stopping_);
  std::unique_lock lock(mutex_);
  while (true) {
    came_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const bool in_time = !stopping_ && steady_time() - item.since < kPatience;
    lock.unlock();
    item.work(in_time);
    item.work = nullptr;  // Its captures are destroyed without the lock.
    lock.lock();
    done(item.party);
  }
}

void SignInWorkers::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    threads = std::move(threads_);
  }
  came_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gpusched::api
