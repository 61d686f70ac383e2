#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/contract/errors.h"
#include "base/time.h"

namespace gpusched::api {

/// Time by a clock that never goes back.
Time steady_time();

/// Threads that wait for the provider of identities, so that no door does. They begin with the first work.
/// Thread-safe.
class SignInWorkers {
 public:
  static constexpr std::size_t kThreads = 2, kQueueMax = 64, kOfPartyMax = 4;
  static constexpr Duration kPatience = seconds(20);  ///< Work that waited for longer is not begun.

  /// `in_time` false: it waited for too long, or there is no more time. Called once.
  using Work = std::function<void(bool in_time)>;

  SignInWorkers() = default;
  SignInWorkers(const SignInWorkers&) = delete;
  SignInWorkers& operator=(const SignInWorkers&) = delete;
  ~SignInWorkers() { stop(); }

  /// Why the work of this party is not taken; then it is not called. Nothing: it is.
  std::optional<ApiError> post(const std::string& party, Work work);
  /// Returns when nothing is under way, which is soon: what waits for the network is cancelled (CancelScope).
  /// Again: does nothing.
  void stop();

 private:
  struct Item {
    std::string party;
    Work work;
    Time since;
  };
  void run();
  void done(const std::string& party);

  std::atomic<bool> stopping_{false};  // Written under the mutex.
  std::mutex mutex_;                   // Guards all below.
  std::condition_variable came_;
  std::deque<Item> queue_;
  std::map<std::string, std::size_t> of_party_;  ///< Waiting, or under way.
  std::vector<std::thread> threads_;
};

}  // namespace gpusched::api
