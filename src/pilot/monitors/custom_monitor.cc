#include "pilot/monitors/custom_monitor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "client/json.h"

namespace gpusched::pilot {

CustomMonitor::CustomMonitor(std::vector<std::string> command, int32_t weight_max)
    : command_(std::move(command)), weight_max_(weight_max) {}

CustomMonitor::~CustomMonitor() {
  if (child_ <= 0) return;
  ::kill(-child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  ::close(output_);
}

std::vector<int> CustomMonitor::descriptors() const {
  return output_ < 0 ? std::vector<int>() : std::vector<int>{output_};
}

void CustomMonitor::start(Time now) {
  start_at_ = now + pause_;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  std::vector<char*> words;
  for (const std::string& word : command_) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const int nothing = ::open("/dev/null", O_RDONLY);
    const bool is_ready =
        ::getppid() == parent && ::dup2(nothing, STDIN_FILENO) >= 0 && ::dup2(ends[1], STDOUT_FILENO) >= 0;
    if (is_ready) ::execvp(words.front(), words.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return;
  }
  ::setpgid(child, child);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  child_ = child;
  output_ = ends[0];
  started_at_ = now;
  lines_.reset();
}

void CustomMonitor::end(Time now) {
  ::kill(-child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  ::close(output_);
  child_ = output_ = -1;
  pause_ = now - started_at_ > kRestartMax ? kRestartFirst : std::min(pause_ * 2, kRestartMax);
  start_at_ = now + pause_;
}

void CustomMonitor::look(Time now, const Sink& sink) {
  constexpr int kReadsMax = 16;
  if (child_ < 0 && now >= start_at_) start(now);
  if (child_ < 0) return;
  std::array<char, 65'536> piece;
  for (int reads = 0; reads < kReadsMax; ++reads) {
    const ssize_t got = ::read(output_, piece.data(), piece.size());
    if (got < 0) return;
    if (got == 0) return end(now);
    for (const std::string& line : lines_.feed({piece.data(), static_cast<std::size_t>(got)}))
      take(line, sink);
  }
}

void CustomMonitor::take(const std::string& line, const Sink& sink) const {
  const Result<Json> told = Json::parse(line);
  if (!told || !(*told)["text"].is_string()) return;
  Sighting sighting{.origin = (*told)["origin"].text(), .bytes = (*told)["text"].text()};
  if (sighting.origin.empty()) sighting.origin = command_.front();
  const Json weight = (*told)["weight"];
  if (weight.is_number()) {
    const int64_t gpus = (*told)["gpus"].is_number() ? (*told)["gpus"].integer() : 1;
    sighting.conclusion = Conclusion{
        .weight = static_cast<int32_t>(std::clamp<int64_t>(weight.integer(), -weight_max_, weight_max_)),
        .gpus = static_cast<int32_t>(std::clamp<int64_t>(gpus, 1, 1'000'000))};
  }
  sink(std::move(sighting));
}

}  // namespace gpusched::pilot
