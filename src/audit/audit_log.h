#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "audit/line.h"
#include "base/result.h"
#include "base/time.h"

namespace gpusched::audit {

struct AuditOptions {
  std::string path;
  /// Beyond, the file is renamed to `path` + ".1", over an older one, and begun again; 0: never.
  int64_t bytes_max = 0;
  /// The file does not grow while its disk has less room than that: the last room is for the journal, and for
  /// what a start writes.
  uint64_t leaves_bytes = uint64_t{16} << 20;
  std::size_t lines_max = 65'536;      ///< Most lines that wait for the thread.
  Duration linger = milliseconds(10);  ///< Lines wait so long for others: alike ones become one.
  Duration said_every = seconds(10);   ///< Lost lines are said in the log at most so often.
};

/// The file of the audit and the thread that writes it. Thread-safe. A caller that adds a line never waits
/// for the disk: a line that the queue or the disk does not take is lost, counted and said. Whole lines are
/// appended; after a write that was cut short the next line begins on a line of its own.
class AuditLog {
 public:
  /// Opens the file, which only its owner may read. A disk that is full or cannot be written is no error: the
  /// file is tried again. kIo: a path that cannot be right.
  static Result<std::unique_ptr<AuditLog>> open(AuditOptions options);
  ~AuditLog();

  void add(Line line);
  /// Goes on in the file that has the path now: after somebody renamed the old one.
  void reopen();
  /// Returns when all that was added before is written or lost.
  void flush();

  uint64_t lines_written() const { return written_.load(std::memory_order_relaxed); }
  uint64_t lines_lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  explicit AuditLog(AuditOptions options) : options_(std::move(options)) {}

  void run();
  // For the thread alone, or before it starts.
  Result<Unit> open_file();
  void close_file();
  void rotate();
  void write(const std::vector<Line>& lines);
  /// Appends `text`, which holds `lines` whole lines.
  void append(std::string_view text, uint64_t lines);
  void lose(uint64_t lines, const std::string& why);
  void say_losses();

  const AuditOptions options_;
  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable came_, done_;
  std::vector<Line> waiting_;
  uint64_t added_ = 0, settled_ = 0;  ///< Calls of `add`, ever; and those whose lines wait no more.
  uint64_t reopens_asked_ = 0, reopens_done_ = 0;
  bool hurry_ = false, stop_ = false;

  std::atomic<uint64_t> written_{0}, lost_{0};

  // For the thread alone.
  int fd_ = -1;
  int open_errno_ = 0;  ///< Why it could not be opened.
  int64_t size_ = 0;    ///< Size of a regular file.
  bool is_regular_ = true;
  bool torn_ = false;  ///< The file does not end with a newline.
  uint64_t said_ = 0;  ///< Lost lines that the log was told of.
  int64_t said_at_ns_ = 0;
  std::string why_;  ///< Reason of the latest loss.
  std::thread thread_;
};

}  // namespace gpusched::audit
