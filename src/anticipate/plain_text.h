#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Untrusted bytes as text that is safe to keep and to print. Pure and thread-safe.
namespace gpusched::anticipate {

inline constexpr std::size_t kLineBytesMax = 4'096;       ///< Kept of one line; the rest is dropped.
inline constexpr std::size_t kFileTextBytesMax = 65'536;  ///< Kept of one file or cell of a notebook.

/// `bytes` without terminal escape sequences, control characters and invisible or direction-changing
/// characters; bytes that are no UTF-8 become '?', tabs and carriage returns blanks. Newlines stay. At most
/// `bytes_max` bytes, cut between characters.
std::string plain_text(std::string_view bytes, std::size_t bytes_max);

/// Parts a stream of bytes into lines, whatever pieces it comes in. Keeps kLineBytesMax of a line, however
/// long it is. Not thread-safe.
class LineSplitter {
 public:
  /// The lines that end in `bytes`, as they came and without their newlines. Empty lines are left out.
  std::vector<std::string> feed(std::string_view bytes);
  /// Forgets an unfinished line.
  void reset();

  /// Bytes of long lines that were dropped so far.
  uint64_t dropped_bytes() const { return dropped_bytes_; }

 private:
  std::string line_;
  uint64_t dropped_bytes_ = 0;
};

}  // namespace gpusched::anticipate
