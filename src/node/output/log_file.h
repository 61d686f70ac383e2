#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shim/attempt/log_bound.h"

namespace gpusched {

/// Why an attempt's output cannot be read: a code of docs/reference/errors.md, and a sentence.
struct LogTrouble {
  std::string code;
  std::string message;
};

/// Lines that were chosen from an output.
struct LogLines {
  std::string data;   ///< Whole lines, one after the other; they need not follow each other in the output.
  int64_t first = 0;  ///< Offset of the first of them; without any, where the search began.
  int64_t next = 0;   ///< Offset to go on at.
  bool more = false;  ///< The search stopped before the end because it had enough.
};

/// One of an attempt's output files, open for reading. Offsets count from the command's first byte, whether
/// or not the oldest bytes are still kept. Not thread-safe.
class LogFile {
 public:
  /// The file in the attempt's folder. The job may have put anything in its place: a link, a pipe and another
  /// user's file are told and not read. Empty code: there is no such file.
  static std::variant<LogFile, LogTrouble> open(const std::string& folder, bool of_stderr);
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&&) = delete;
  ~LogFile();

  int descriptor() const { return file_; }
  int64_t size() const { return size_; }
  /// Looks again how large it is.
  void refresh();
  /// The first byte that is still kept; the size when none is.
  int64_t oldest() const;

  /// At most `size_max` bytes; fewer at the end.
  std::string read(int64_t offset, std::size_t size_max) const;
  /// The begin of the last `lines` lines. Looks at the last 256 MB.
  int64_t tail(int64_t lines) const;
  /// The begin of what was written at or after the time, as well as `log-times` in the folder knows: rather
  /// too much than too little, and whole lines.
  int64_t since(int64_t unix_ns) const;
  /// The lines from `offset` on that hold `text` (empty: all), each with the time at which it was there at
  /// the latest before it when `timestamps`, about `size_max` bytes of them. A line is cut after 1 MiB. Gives
  /// up after 64 MiB without enough of them. `partial`: what follows the last line feed is a line, too.
  LogLines grep(int64_t offset, std::string_view text, std::size_t size_max, bool partial,
                bool timestamps = false) const;

 private:
  LogFile(std::string folder, bool of_stderr, int file)
      : folder_(std::move(folder)), of_stderr_(of_stderr), file_(file) {}
  int64_t line_begin(int64_t offset) const;
  /// The entries of `log-times`.
  std::vector<shim::LogTime> times() const;

  std::string folder_;
  bool of_stderr_ = false;
  int file_ = -1;
  int64_t size_ = 0;
  int64_t blocks_bytes_ = 0;  ///< Bytes that it takes on the disk.
  int64_t modified_unix_ns_ = 0;
};

}  // namespace gpusched
