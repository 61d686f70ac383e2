#include "pilot/monitors/process_monitor.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/text/shell_words.h"
#include "ops/machine.h"

namespace gpusched::pilot {
namespace {

constexpr std::size_t kCommandBytesMax = 4'096;

struct CloseProcessFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

std::optional<pid_t> pid_of(std::string_view name) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc{} && end == name.data() + name.size() ? std::optional(pid) : std::nullopt;
}

/// The 22nd field of /proc/PID/stat; the second may contain anything.
uint64_t start_of(std::string_view stat) {
  std::size_t at = stat.rfind(')');
  if (at == std::string_view::npos) return 0;
  constexpr int kFieldsBehindName = 20;
  for (int field = 0; field < kFieldsBehindName && at != std::string_view::npos; ++field)
    at = stat.find(' ', at + 1);
  if (at == std::string_view::npos) return 0;
  uint64_t ticks = 0;
  std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks);
  return ticks;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  while (!line.empty()) {
    const std::size_t end = line.find('\0');
    words.emplace_back(line.substr(0, end));
    line = end == std::string_view::npos ? std::string_view() : line.substr(end + 1);
  }
  return words;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::vector<UserProcess> user_processes(const std::string& proc) {
  std::vector<UserProcess> found;
  const std::unique_ptr<DIR, CloseProcessFolder> folder(::opendir(proc.c_str()));
  if (folder == nullptr) return found;
  const uid_t own = ::geteuid();
  for (const dirent* entry = ::readdir(folder.get()); entry != nullptr && found.size() < kProcessesMax;
       entry = ::readdir(folder.get())) {
    const std::optional<pid_t> pid = pid_of(entry->d_name);
    if (!pid || *pid == ::getpid()) continue;
    const std::string place = proc + "/" + entry->d_name;
    struct stat facts{};
    if (::stat(place.c_str(), &facts) != 0 || facts.st_uid != own) continue;
    const std::optional<std::string> line = ops::read_text(place + "/cmdline", kCommandBytesMax);
    const std::optional<std::string> stat = ops::read_text(place + "/stat", kCommandBytesMax);
    if (!line || line->empty() || !stat) continue;
    found.push_back({.pid = *pid, .started = start_of(*stat), .words = words_of(*line)});
  }
  return found;
}

std::set<std::string> jobs_in_use(const std::vector<UserProcess>& processes) {
  std::set<std::string> jobs;
  for (const UserProcess& process : processes) {
    const std::span<const std::string> words = process.words;
    if (words.empty() || file_name(words.front()) != "gpu-cli") continue;
    // Words behind "--" belong to the command that it runs.
    const auto end = std::ranges::find(words, "--");
    const std::span<const std::string> own(words.begin(), end);
    const bool holds = std::ranges::any_of(own, [](const std::string& word) {
      return word == "shell" || word == "exec" || word == "attach" || word.starts_with("--in-lease");
    });
    for (std::size_t at = 1; holds && at < own.size(); ++at) {
      const std::string& word = own[at];
      const std::size_t equals = word.starts_with("--in-lease=") ? word.find('=') + 1 : 0;
      if (word.substr(equals).starts_with("job-")) jobs.insert(word.substr(equals));
    }
  }
  return jobs;
}

void ProcessMonitor::look(Time now, const Sink& sink) {
  constexpr Duration kLookEvery = seconds(1);
  if (!is_first_ && now - looked_at_ < kLookEvery) return;
  std::map<std::pair<pid_t, uint64_t>, std::string> seen;
  for (const UserProcess& process : user_processes(proc_)) {
    std::string line = shell_line(process.words);
    const auto known = known_.find({process.pid, process.started});
    const bool is_news = known == known_.end() || known->second != line;
    if (is_news && !is_first_) sink({.origin = std::string(file_name(process.words.front())), .bytes = line});
    seen.emplace(std::pair(process.pid, process.started), std::move(line));
  }
  known_ = std::move(seen);
  looked_at_ = now;
  is_first_ = false;
}

}  // namespace gpusched::pilot
