#include "main/demo/process_tree.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "ops/machine.h"

namespace gpusched {
namespace {

constexpr int kRounds = 200;
constexpr int kRoundMs = 20;

/// The parent of a process that lives; zombies and those that are gone have none.
std::optional<pid_t> parent_of(const std::string& pid) {
  const std::optional<std::string> stat = ops::read_text("/proc/" + pid + "/stat");
  const std::size_t name_end = stat ? stat->rfind(')') : std::string::npos;
  // "12 (name) S 11 ...": a state of one letter behind the name, then the parent.
  if (name_end == std::string::npos || stat->size() < name_end + 5 || (*stat)[name_end + 2] == 'Z')
    return std::nullopt;
  pid_t parent = 0;
  std::from_chars(stat->data() + name_end + 4, stat->data() + stat->size(), parent);
  return parent;
}

std::set<pid_t> descendants() {
  std::map<pid_t, pid_t> parents;
  for (const std::string& name : ops::names_in("/proc")) {
    pid_t pid = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed != std::errc() || end != name.data() + name.size()) continue;
    if (const std::optional<pid_t> parent = parent_of(name)) parents[pid] = *parent;
  }
  std::set<pid_t> found;
  const pid_t self = getpid();
  for (bool grown = true; grown;) {  // Each round goes one generation deeper.
    grown = false;
    for (const auto& [pid, parent] : parents) {
      if (parent == self || found.contains(parent)) grown |= found.insert(pid).second;
    }
  }
  return found;
}

}  // namespace

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

std::vector<std::string> end_descendants() {
  std::vector<std::string> names;
  for (int round = 0; round < kRounds; ++round) {
    const std::set<pid_t> left = descendants();
    if (left.empty()) break;
    for (const pid_t pid : left) {
      const std::optional<std::string> name = ops::read_line("/proc/" + std::to_string(pid) + "/comm");
      if (kill(pid, SIGKILL) == 0) names.push_back(name.value_or("?"));
    }
    poll(nullptr, 0, kRoundMs);
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace gpusched
