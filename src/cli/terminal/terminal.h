#pragma once

#include <termios.h>

#include <string>
#include <string_view>

namespace gpusched::cli {

/// A terminal that hands over each key as it is (raw mode), and is as it was before when this goes.
class RawTerminal {
 public:
  /// `fd` must be a terminal.
  explicit RawTerminal(int fd);
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal() { restore(); }

  void restore();
  /// Raw again, after `restore`.
  void resume();

 private:
  const int fd_;
  termios before_{};
  bool is_raw_ = false;
};

struct TerminalSize {
  int rows = 24;
  int columns = 80;
};
TerminalSize terminal_size(int fd);

/// Finds the keys that leave a session in what is typed: Ctrl-P Ctrl-Q anywhere, or `~.` at the start of a
/// line. A first key is held back until the next one shows what it was; `~~` at the start of a line types
/// one.
class DetachKeys {
 public:
  /// Returns the part of `typed` for the command; bytes after the detach keys are dropped.
  std::string feed(std::string_view typed);
  bool detached() const { return detached_; }

 private:
  bool at_line_start_ = true;
  char held_ = 0;  ///< Ctrl-P or '~'; 0: none.
  bool detached_ = false;
};

}  // namespace gpusched::cli
