#include "shim/attempt/log_bound.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace gpusched::shim {
namespace {

constexpr Duration kPauseMin = milliseconds(10);
constexpr Duration kPauseGrowing = seconds(1);
constexpr Duration kPauseQuiet = seconds(2);
constexpr Duration kTimesApartFirst = seconds(1);
constexpr int64_t kSlackDivisor = 8;

}  // namespace

LogBound::LogBound(int folder, int output, int error_output, int64_t limit)
    : folder_(folder), limit_(limit), pause_(kLookFirst), times_apart_(kTimesApartFirst) {
  files_[0].descriptor = output;
  files_[1].descriptor = error_output;
}

LogBound::~LogBound() {
  if (times_ >= 0) close(times_);
}

Duration LogBound::look(Time monotonic, Time wall) {
  const Duration passed = looked_at_.valid() ? monotonic - looked_at_ : kLookFirst;
  looked_at_ = monotonic;
  bool grew = false;
  Duration pause = kPauseGrowing;
  for (File& file : files_) {
    if (file.descriptor < 0) continue;
    const int64_t before = file.size;
    if (!measure(file) || file.size == before) continue;
    grew = true;
    if (limit_ <= 0) continue;
    cut_to(file, limit_ / kSlackDivisor);
    // At the pace of now, the next look comes before another eighth of the limit is written.
    const int64_t per_ms = std::max<int64_t>((file.size - before) / std::max<int64_t>(passed.ms(), 1), 1);
    pause = std::min(pause, milliseconds(limit_ / kSlackDivisor / per_ms));
  }
  pause_ = grew ? std::max(pause, kPauseMin) : std::min(pause_ * 2, kPauseQuiet);
  note_time(wall);
  return pause_;
}

void LogBound::finish(Time wall) {
  for (File& file : files_) {
    if (file.descriptor < 0 || !measure(file)) continue;
    if (limit_ > 0) cut_to(file, 0);
  }
  // An attempt that ended before anything was noted is as old as its files say.
  if (times_count_ > 0) note_time(wall);
}

bool LogBound::measure(File& file) {
  struct stat facts{};
  if (fstat(file.descriptor, &facts) != 0) return false;
  if (facts.st_size < file.size) {  // The command cut its own output short, and begins again.
    file.cut = 0;
    file.shrank = true;
  }
  file.size = facts.st_size;
  file.block = std::max<int64_t>(facts.st_blksize, 4'096);
  return true;
}

void LogBound::cut_to(File& file, int64_t slack) {
  if (file.size - file.cut <= limit_ + slack) return;
  const int64_t end =
      (file.size - limit_) / file.block * file.block;  // Whole blocks only: a part of one gives nothing back.
  if (end <= file.cut) return;
  if (fallocate(file.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, file.cut, end - file.cut) == 0)
    file.cut = end;
}

void LogBound::note_time(Time wall) {
  const std::array<int64_t, 2> sizes = {files_[0].size, files_[1].size};
  if (times_failed_ || sizes == noted_.sizes) return;
  if (noted_.unix_ns > 0 && wall.ns - noted_.unix_ns < times_apart_.ns) return;  // A later look notes it.
  const bool shrank = sizes[0] < noted_.sizes[0] || sizes[1] < noted_.sizes[1];
  if (times_ < 0 && !open_times()) return;
  if (shrank && ftruncate(times_, 0) == 0) times_count_ = 0;  // The command began its output again.
  if (times_count_ >= kTimesMax) thin_times();
  const LogTime line{.unix_ns = wall.ns, .sizes = sizes};
  noted_ = line;
  const auto at = static_cast<off_t>(times_count_ * sizeof line);
  times_failed_ = pwrite(times_, &line, sizeof line, at) != static_cast<ssize_t>(sizeof line);
  times_count_ += 1;
}

/// Made by us or not at all: the folder is the command's as well, and it may have put a link there.
bool LogBound::open_times() {
  times_ = openat(folder_, kLogTimesFile, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
  times_failed_ = times_ < 0;
  return times_ >= 0;
}

void LogBound::thin_times() {
  std::vector<LogTime> times(times_count_);
  const std::size_t bytes = times.size() * sizeof(LogTime);
  if (pread(times_, times.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    times_failed_ = true;
    return;
  }
  std::vector<LogTime> kept;
  for (std::size_t i = 1; i < times.size(); i += 2) kept.push_back(times[i]);
  const std::size_t kept_bytes = kept.size() * sizeof(LogTime);
  times_failed_ = pwrite(times_, kept.data(), kept_bytes, 0) != static_cast<ssize_t>(kept_bytes) ||
                  ftruncate(times_, static_cast<off_t>(kept_bytes)) != 0;
  times_count_ = kept.size();
  times_apart_ = times_apart_ * 2;
}

}  // namespace gpusched::shim
