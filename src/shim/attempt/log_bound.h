#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "base/time.h"

namespace gpusched::shim {

/// Name of the file in an attempt's folder that says when its output had which size: records of 24 bytes,
/// little-endian, each the wall time in ns and the sizes of stdout and stderr at that time. Growing in all
/// three. It is there once the attempt wrote for longer than a look's pause.
inline constexpr const char* kLogTimesFile = "log-times";

struct LogTime {
  int64_t unix_ns = 0;
  std::array<int64_t, 2> sizes = {};  ///< Files of stdout and of stderr.
};
static_assert(sizeof(LogTime) == 24);

/// Keeps the files that a command writes its output to within a limit, without a hand in the writing: the
/// oldest bytes are given back to the file system as a hole. The command never waits and never fails, a
/// byte's offset stays what it was, and what is kept are the newest `limit` bytes and at most an eighth more,
/// beside what is written between two looks. Where the file system has no holes nothing is given back.
///
/// Also keeps the record of sizes over time that `--since` is answered from: a second apart at first, at most
/// `kTimesMax` of them; then every other one goes and the distance doubles.
///
/// Not thread-safe. Descriptors stay the caller's.
class LogBound {
 public:
  static constexpr std::size_t kTimesMax = 4'096;
  /// After the start: a job that is over sooner costs no look.
  static constexpr Duration kLookFirst = milliseconds(250);

  /// `folder`: the attempt's. `limit` in bytes for each file; 0: none. A descriptor of -1: no file of ours.
  LogBound(int folder, int output, int error_output, int64_t limit);
  ~LogBound();
  LogBound(const LogBound&) = delete;
  LogBound& operator=(const LogBound&) = delete;

  /// Looks at the files. Returns how long it may be until the next look: short while they grow fast.
  Duration look(Time monotonic, Time wall);
  /// The last look, when nothing writes any more.
  void finish(Time wall);
  /// Whether the command was seen to cut its output short, as opening it by name and once more does: 0:
  /// stdout, 1: stderr. Between two looks this may pass unseen.
  bool was_cut_short(std::size_t file) const { return files_.at(file).shrank; }

 private:
  struct File {
    int descriptor = -1;
    int64_t size = 0;  ///< Size at the last check.
    int64_t cut = 0;   ///< Everything before is a hole.
    int64_t block = 4'096;
    bool shrank = false;  ///< Minimum time between two checks.
  };

  bool measure(File& file);
  void cut_to(File& file, int64_t slack);
  void note_time(Time wall);
  bool open_times();
  void thin_times();

  const int folder_;
  const int64_t limit_;
  std::array<File, 2> files_;
  Time looked_at_;
  Duration pause_;
  int times_ = -1;
  bool times_failed_ = false;
  std::size_t times_count_ = 0;
  Duration times_apart_;
  LogTime noted_;
};

}  // namespace gpusched::shim
