#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpusched::replay {

/// A line of a trace may be so long.
inline constexpr std::size_t kTraceLineBytesMax = 1u << 16;

/// Reads a text file line by line, gzip or plain (the content decides, not the name). Not thread-safe.
class LineFile {
 public:
  /// kNotFound or kIo with the path when it cannot be opened.
  static Result<LineFile> open(const std::string& path);

  /// Reads the next line without its end into `line`; false at the end of the file. A torn gzip file, a line
  /// longer than kTraceLineBytesMax and a zero byte are kCorrupt, with the line's number.
  Result<bool> next(std::string_view& line);
  /// Number of the line that `next` gave last; the first is 1.
  uint64_t number() const { return number_; }
  const std::string& path() const { return path_; }

  /// A kCorrupt error that names file and present line.
  Error broken(std::string_view what) const;

 private:
  struct Close {
    void operator()(void* file) const;
  };
  LineFile(std::string path, void* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<void, Close> file_;
  std::string buffer_;
  uint64_t number_ = 0;
};

}  // namespace gpusched::replay
