#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gpusched::machines {

/// Threads for calls that block. Thread-safe.
class Calls {
 public:
  explicit Calls(std::size_t threads);
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls() { stop(); }

  /// Runs it on one of the threads, in order; after `stop` it is dropped.
  void run(std::function<void()> call);
  /// Waits for the calls under way; those that wait are dropped. May be called twice.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gpusched::machines
