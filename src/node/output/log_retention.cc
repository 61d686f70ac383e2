#include "node/output/log_retention.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/text/civil_time.h"
#include "log/log.h"
#include "shim/attempt/log_bound.h"
#include "shim/processes.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

constexpr Duration kLookPause = seconds(10);  ///< While attempts run, whose output may grow.
constexpr Duration kQuietPause = hours(1);
constexpr off_t kNotesBytesMax = 4 << 20;

int64_t bytes_on_disk(const std::string& path) {
  struct stat facts{};
  if (lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return 0;
  return int64_t{facts.st_blocks} * 512;
}

std::string shown(Time wall) {
  std::string text;
  append_civil_time(text, civil_time_of(wall), ' ');
  return text + " UTC";
}

std::string span_text(Duration span) {
  const int64_t whole_hours = span.ns / hours(1).ns;
  if (whole_hours >= 48 && whole_hours % 24 == 0) return std::to_string(whole_hours / 24) + " days";
  if (whole_hours > 0) return std::to_string(whole_hours) + " hours";
  return std::to_string(span.ns / seconds(1).ns) + " s";
}

}  // namespace

LogRetention::LogRetention(LogRetentionOptions options) : options_(std::move(options)) {}

LogRetention::~LogRetention() {
  if (notes_ >= 0) close(notes_);
}

std::string LogRetention::folder_of(const AttemptKey& key) const {
  return options_.data_folder + "/" + shim::kAttemptsFolder + "/" + shim::key_text(key);
}

int64_t LogRetention::bytes_of(const AttemptKey& key) const {
  const std::string folder = folder_of(key);
  return bytes_on_disk(folder + "/" + shim::kStdoutFile) + bytes_on_disk(folder + "/" + shim::kStderrFile);
}

/// Looked up now and then: short jobs end far more often.
int64_t LogRetention::running_bytes(Time wall) {
  const Duration passed = wall - running_seen_at_;
  if (running_seen_at_.valid() && passed.ns >= 0 && passed < kLookPause) return running_bytes_;
  running_seen_at_ = wall;
  running_bytes_ = 0;
  for (const AttemptKey& key : running_) running_bytes_ += bytes_of(key);
  return running_bytes_;
}

void LogRetention::add(const AttemptKey& key, int64_t ended_unix_ns, bool by_clock) {
  const int64_t bytes = bytes_of(key);
  if (bytes == 0 || !ended_.try_emplace(key, ended_unix_ns, bytes).second) return;
  if (by_clock) by_clock_.insert(key);
  by_age_.insert({ended_unix_ns, key});
  ended_bytes_ += bytes;
}

void LogRetention::ended(const AttemptKey& key, Time wall) {
  running_.erase(key);
  add(key, wall.ns, true);
}

void LogRetention::forgot(const AttemptKey& key, Time wall, const std::string& why) {
  running_.erase(key);
  const auto found = ended_.find(key);
  if (found == ended_.end()) return;
  ended_bytes_ -= found->second.second;
  by_age_.erase({found->second.first, key});
  by_clock_.erase(key);
  ended_.erase(found);
  note(key, wall, why);
}

void LogRetention::shift(Duration by) {
  for (const AttemptKey& key : by_clock_) {
    int64_t& at = ended_.at(key).first;
    by_age_.erase({at, key});
    at += by.ns;
    by_age_.insert({at, key});
  }
  running_seen_at_ = {};
}

void LogRetention::look_around(Time born, Time wall) {
  std::error_code ignored;
  const std::string attempts = options_.data_folder + "/" + shim::kAttemptsFolder;
  for (const auto& entry : std::filesystem::directory_iterator(attempts, ignored)) {
    const std::optional<AttemptKey> key = shim::parse_key(entry.path().filename().string());
    if (!key) continue;
    struct stat facts{};
    if (lstat((entry.path() / shim::kOutcomeFile).c_str(), &facts) == 0 && facts.st_size > 0) {
      const int64_t ended = int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
      const bool misdated = ended < born.ns;
      add(*key, misdated ? wall.ns : ended, misdated);
    } else {
      running_.insert(*key);
    }
  }
}

Duration LogRetention::enforce(Time wall, bool by_age) {
  if (options_.kept.ns > 0 && by_age) {
    const std::string why = "older than " + span_text(options_.kept);
    while (!by_age_.empty() && wall.ns - by_age_.begin()->first >= options_.kept.ns) remove_oldest(wall, why);
  }
  if (options_.bytes_max > 0) {
    const int64_t running = running_bytes(wall);
    const std::string why =
        "this node keeps at most " + std::to_string(options_.bytes_max >> 20) + " MB of output";
    while (!by_age_.empty() && running + ended_bytes_ > options_.bytes_max) remove_oldest(wall, why);
  }
  Duration next = options_.bytes_max > 0 && !running_.empty() ? kLookPause : kQuietPause;
  if (options_.kept.ns > 0 && by_age && !by_age_.empty()) {
    next = std::min(next, Duration{by_age_.begin()->first + options_.kept.ns - wall.ns});
  }
  return std::max(next, milliseconds(10));
}

void LogRetention::remove_oldest(Time wall, const std::string& why) {
  const AttemptKey key = by_age_.begin()->second;
  const int64_t bytes = ended_.at(key).second;
  note(key, wall, why);  // First: a reader finds either the output or the note.
  const std::string folder = folder_of(key);
  for (const char* name : {shim::kStdoutFile, shim::kStderrFile, shim::kLogTimesFile}) {
    unlink((folder + "/" + name).c_str());
  }
  by_age_.erase(by_age_.begin());
  by_clock_.erase(key);
  ended_.erase(key);
  ended_bytes_ -= bytes;
  log_event(LogLevel::kInfo, "agent", "output_removed", {.id = key.job},
            {{"attempt", key.attempt}, {"bytes", bytes}, {"why", why}});
}

void LogRetention::note(const AttemptKey& key, Time wall, const std::string& why) {
  const std::string path = options_.data_folder + "/" + kRemovedLogsFile;
  struct stat facts{};
  if (notes_ >= 0 && fstat(notes_, &facts) == 0 && facts.st_size > kNotesBytesMax) {
    // The older half goes.
    const std::string text = shim::read_small_file(path.c_str(), 2 * kNotesBytesMax);
    const std::size_t half = text.find('\n', text.size() / 2);
    const std::string draft = path + ".new";
    const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    const std::string kept = half == std::string::npos ? "" : text.substr(half + 1);
    if (file >= 0 && write(file, kept.data(), kept.size()) == static_cast<ssize_t>(kept.size()))
      rename(draft.c_str(), path.c_str());
    if (file >= 0) close(file);
    close(notes_);
    notes_ = -1;
  }
  if (notes_ < 0) notes_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (notes_ < 0) return;
  const std::string line = shim::key_text(key) + " " + shown(wall) + ": " + why + "\n";
  [[maybe_unused]] const ssize_t size = write(notes_, line.data(), line.size());
}

std::string removed_log_note(const std::string& data_folder, const AttemptKey& key) {
  const std::string path = data_folder + "/" + kRemovedLogsFile;
  const std::string text = '\n' + shim::read_small_file(path.c_str(), 2 * kNotesBytesMax);
  const std::string begin = '\n' + shim::key_text(key) + ' ';
  const std::size_t found = text.rfind(begin);
  if (found == std::string::npos) return {};
  const std::size_t from = found + begin.size();
  return text.substr(from, text.find('\n', from) - from);
}

}  // namespace gpusched
