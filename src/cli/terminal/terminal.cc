#include "cli/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/check.h"

namespace gpusched::cli {
namespace {

constexpr char kCtrlP = '\x10';
constexpr char kCtrlQ = '\x11';

}  // namespace

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  CHECK(::tcgetattr(fd_, &before_) == 0);
  resume();
}

void RawTerminal::resume() {
  if (is_raw_) return;
  termios raw = before_;
  ::cfmakeraw(&raw);
  is_raw_ = ::tcsetattr(fd_, TCSADRAIN, &raw) == 0;
}

void RawTerminal::restore() {
  if (!is_raw_) return;
  is_raw_ = false;
  ::tcsetattr(fd_, TCSADRAIN, &before_);
}

TerminalSize terminal_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {.rows = size.ws_row, .columns = size.ws_col};
}

std::string DetachKeys::feed(std::string_view typed) {
  std::string out;
  for (const char key : typed) {
    if (detached_) break;
    const char held = held_;
    held_ = 0;
    if (held == kCtrlP && key == kCtrlQ) {
      detached_ = true;
      break;
    }
    if (held == '~' && key == '.') {
      detached_ = true;
      break;
    }
    if (held == '~' && key == '~') {
      out.push_back('~');
      at_line_start_ = false;
      continue;
    }
    if (held != 0) {
      out.push_back(held);
      at_line_start_ = false;
    }
    if (key == kCtrlP || (key == '~' && at_line_start_)) {
      held_ = key;
      continue;
    }
    out.push_back(key);
    at_line_start_ = key == '\r' || key == '\n';
  }
  return out;
}

}  // namespace gpusched::cli
