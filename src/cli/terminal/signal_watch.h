#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>
#include <thread>

namespace gpusched::cli {

/// Hands signals that would end the process to a function, on a thread of its own, as long as this lives. A
/// signal that the process ignored before, as behind nohup, stays ignored. Create it before other threads:
/// they inherit what it blocks.
class SignalWatch {
 public:
  SignalWatch(std::initializer_list<int> signals, std::function<void(int signal)> on_signal);
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// Waits for `on_signal` to return if it runs.
  ~SignalWatch();

 private:
  void run(const std::function<void(int signal)>& on_signal) const;

  sigset_t before_{};
  int signals_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace gpusched::cli
