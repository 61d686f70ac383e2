#include "node/process/process_reader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "log/log.h"
#include "shim/processes.h"

namespace gpusched {
namespace {

constexpr Duration kPatience = milliseconds(500);
constexpr std::size_t kBytesMax = 1 << 20;
constexpr int kFieldsBeforeStart = 19;  ///< Behind the name in /proc/<pid>/stat.

std::string read_file_of(pid_t pid, const std::string& file) {
  return shim::read_small_file(("/proc/" + std::to_string(pid) + "/" + file).c_str(), kBytesMax);
}

/// When it began, in ticks of the kernel; 0: it is gone. Not read through its memory.
uint64_t begin_of(pid_t pid) {
  const std::string text = read_file_of(pid, "stat");
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream words(text.substr(name_end + 1));
  std::string word;
  for (int i = 0; i < kFieldsBeforeStart; ++i) words >> word;
  uint64_t begin = 0;
  words >> begin;
  return begin;
}

}  // namespace

/// Data that caller and thread share. It outlives the call when the thread hangs.
struct ProcessReader::Batch {
  Read read;
  std::vector<pid_t> pids;
  std::string file;
  std::mutex mutex;  ///< Guards what follows.
  std::condition_variable progress;
  std::vector<std::string> texts;  ///< Texts of the first pids, so far.
};

ProcessReader::ProcessReader() : ProcessReader(read_file_of, kPatience) {}

bool ProcessReader::is_held(pid_t pid) const {
  const auto known = held_.find(pid);
  return known != held_.end() && known->second == begin_of(pid);
}

std::map<pid_t, std::string> ProcessReader::read_all(const std::vector<pid_t>& pids, const std::string& file,
                                                     std::vector<pid_t>* hung) {
  std::map<pid_t, std::string> found;
  std::vector<pid_t> wanted;
  for (const pid_t pid : pids) {
    if (!is_held(pid)) {
      wanted.push_back(pid);
    } else if (hung != nullptr) {
      hung->push_back(pid);
    }
  }
  while (!wanted.empty()) {
    auto batch = std::make_shared<Batch>();
    batch->read = read_;
    batch->pids = wanted;
    batch->file = file;
    std::thread([batch] {
      for (const pid_t pid : batch->pids) {
        std::string text = batch->read(pid, batch->file);
        const std::lock_guard lock(batch->mutex);
        batch->texts.push_back(std::move(text));
        batch->progress.notify_one();
      }
    }).detach();
    std::unique_lock lock(batch->mutex);
    std::size_t done = 0;
    const auto moved_on = [&] { return batch->texts.size() > done; };
    while (done < wanted.size() &&
           batch->progress.wait_for(lock, std::chrono::nanoseconds(patience_.ns), moved_on))
      done = batch->texts.size();
    for (std::size_t i = 0; i < done; ++i) found[wanted[i]] = std::move(batch->texts[i]);
    if (done == wanted.size()) break;
    const pid_t stuck = wanted[done];
    held_[stuck] = begin_of(stuck);
    if (hung != nullptr) hung->push_back(stuck);
    log_event(LogLevel::kWarning, "agent", "process_hangs", {},
              {{"pid", static_cast<int64_t>(stuck)},
               {"why", "the kernel does not report its " + file + "; it is omitted from now on"}});
    wanted.erase(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(done) + 1);
  }
  return found;
}

std::vector<std::string> words_of_process(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\0', from), text.size());
    words.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return words;
}

std::vector<std::string> ProcessReader::command_line(pid_t pid) {
  const std::map<pid_t, std::string> found = read_all({pid}, "cmdline");
  return found.empty() ? std::vector<std::string>{} : words_of_process(found.begin()->second);
}

bool ProcessReader::has_environment(pid_t pid, const std::string& entry) {
  const std::map<pid_t, std::string> found = read_all({pid}, "environ");
  if (found.empty()) return false;
  const std::vector<std::string> words = words_of_process(found.begin()->second);
  return std::find(words.begin(), words.end(), entry) != words.end();
}

std::vector<pid_t> ProcessReader::processes_with_environment(const std::string& entry) {
  std::vector<pid_t> found;
  for (const auto& [pid, text] : read_all(shim::all_processes(), "environ")) {
    const std::string whole = std::string(1, '\0') + text + '\0';
    if (whole.find('\0' + entry + '\0') != std::string::npos) found.push_back(pid);
  }
  const std::size_t marked = found.size();
  for (std::size_t i = 0; i < marked; ++i) {
    for (const pid_t below : shim::descendants_of(found[i])) {
      if (std::find(found.begin(), found.end(), below) == found.end()) found.push_back(below);
    }
  }
  return found;
}

}  // namespace gpusched
