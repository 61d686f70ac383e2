#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace gpusched::api {

/// Hashes passwords on a thread of its own, one after the other, since each takes 64 MiB and some 60 ms.
/// Thread-safe.
class PasswordHasher {
 public:
  /// Nothing: there was no memory for it.
  using HashDone = std::function<void(std::optional<std::string> hash)>;
  static constexpr std::size_t kWaitingMax = 32;

  PasswordHasher() = default;
  PasswordHasher(const PasswordHasher&) = delete;
  PasswordHasher& operator=(const PasswordHasher&) = delete;
  /// Callers that still wait get no answer any more.
  ~PasswordHasher();

  /// Calls `done` on the thread. False: too many wait, and it is not called.
  bool hash(std::string password, HashDone done);

 private:
  struct Waiting {
    std::string password;
    HashDone done;
  };

  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_;
  std::jthread thread_;  ///< Begins with the first password.
};

}  // namespace gpusched::api
