#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pilot/monitors/monitor.h"

namespace gpusched::pilot {

/// A process of the user.
struct UserProcess {
  pid_t pid = 0;
  uint64_t started = 0;  ///< In clock ticks since the boot: with the id it names one process for ever.
  std::vector<std::string> words;  ///< Its command line, cut at 4 KiB.
};

/// This user's processes but this one, at most kProcessesMax of them. `proc` is the folder /proc.
std::vector<UserProcess> user_processes(const std::string& proc = "/proc");
inline constexpr std::size_t kProcessesMax = 10'000;

/// Jobs, such as "job-7", in which a `gpu-cli` of this list runs something: `run --in-lease`, `shell`,
/// `exec`, `attach`.
std::set<std::string> jobs_in_use(const std::vector<UserProcess>& processes);

/// Tells the command lines of processes that this user starts. Those that run at its start are no news.
class ProcessMonitor final : public Monitor {
 public:
  explicit ProcessMonitor(std::string proc = "/proc") : proc_(std::move(proc)) {}

  std::vector<int> descriptors() const override { return {}; }
  void look(Time now, const Sink& sink) override;

 private:
  const std::string proc_;
  std::map<std::pair<pid_t, uint64_t>, std::string> known_;  // Command lines: an exec changes one.
  Time looked_at_;
  bool is_first_ = true;
};

}  // namespace gpusched::pilot
