#include "cli/terminal/signal_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace gpusched::cli {
namespace {

bool is_ignored(int signal) {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

SignalWatch::SignalWatch(std::initializer_list<int> signals, std::function<void(int signal)> on_signal) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    if (!is_ignored(signal)) sigaddset(&set, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  signals_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  CHECK(signals_fd_ >= 0 && stop_fd_ >= 0);
  thread_ = std::thread([this, on_signal = std::move(on_signal)] { run(on_signal); });
}

SignalWatch::~SignalWatch() {
  const uint64_t one = 1;
  CHECK(::write(stop_fd_, &one, sizeof one) == sizeof one);
  thread_.join();
  ::close(signals_fd_);
  ::close(stop_fd_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::run(const std::function<void(int signal)>& on_signal) const {
  for (;;) {
    std::array<pollfd, 2> sources = {pollfd{.fd = signals_fd_, .events = POLLIN, .revents = 0},
                                     pollfd{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
    if (::poll(sources.data(), sources.size(), -1) < 0 && errno != EINTR) return;
    if (sources[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signals_fd_, &info, sizeof info) == sizeof info) on_signal(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace gpusched::cli
