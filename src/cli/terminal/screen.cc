#include "cli/terminal/screen.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace gpusched::cli {
namespace {

// The alternate screen; no cursor; no wrapping of long lines.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::array kEndingSignals = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGABRT,
                                       SIGSEGV, SIGBUS,  SIGFPE, SIGILL};

/// State that signal handlers need; there is one terminal.
struct Taken {
  volatile std::sig_atomic_t active = 0;
  volatile std::sig_atomic_t changed = 0;  ///< The size may be another, or the screen was somebody else's.
  int tty = -1;
  termios before = {};
  termios raw = {};
};
Taken taken;

void write_now(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void take() {
  if (taken.tty >= 0) ::tcsetattr(taken.tty, TCSADRAIN, &taken.raw);
  write_now(kEnter);
  taken.active = 1;
  taken.changed = 1;
}

void give_back() {
  if (taken.active == 0) return;
  taken.active = 0;
  write_now(kLeave);
  if (taken.tty >= 0) ::tcsetattr(taken.tty, TCSADRAIN, &taken.before);
}

/// Only calls that are safe in a handler.
void on_ending_signal(int signal) {
  give_back();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_resize(int) { taken.changed = 1; }

void on_stop(int) {
  const int saved = errno;
  give_back();
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  struct sigaction own{};
  ::sigaction(SIGTSTP, &standard, &own);
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // Stopped here, until somebody says to go on.
  ::sigaction(SIGTSTP, &own, nullptr);
  take();
  errno = saved;
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

/// The key that the bytes of an escape sequence mean; 0 for none that we know.
int key_of_sequence(std::string_view bytes) {
  struct Named {
    std::string_view bytes;
    int key;
  };
  static constexpr std::array kNamed = {
      Named{"[A", kKeyUp},      Named{"[B", kKeyDown},      Named{"[C", kKeyRight}, Named{"[D", kKeyLeft},
      Named{"OA", kKeyUp},      Named{"OB", kKeyDown},      Named{"OC", kKeyRight}, Named{"OD", kKeyLeft},
      Named{"[5~", kKeyPageUp}, Named{"[6~", kKeyPageDown}, Named{"[H", kKeyHome},  Named{"[F", kKeyEnd},
      Named{"[1~", kKeyHome},   Named{"[4~", kKeyEnd},      Named{"OH", kKeyHome},  Named{"OF", kKeyEnd},
  };
  for (const Named& named : kNamed) {
    if (bytes == named.bytes) return named.key;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Screen>> Screen::open() {
  if (::isatty(STDOUT_FILENO) != 1) {
    return Error{.code = ErrorCode::kUnavailable, .message = "standard output is not a terminal"};
  }
  CHECK(taken.active == 0);
  std::unique_ptr<Screen> screen(new Screen);
  screen->keys_fd_ =
      ::isatty(STDIN_FILENO) == 1 ? ::dup(STDIN_FILENO) : ::open("/dev/tty", O_RDONLY | O_CLOEXEC);
  taken.tty = screen->keys_fd_;
  if (taken.tty >= 0 && ::tcgetattr(taken.tty, &taken.before) == 0) {
    taken.raw = taken.before;
    taken.raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z still signal.
    taken.raw.c_cc[VMIN] = 0;
    taken.raw.c_cc[VTIME] = 0;
  } else {
    taken.tty = -1;
  }
  for (const int signal : kEndingSignals) set_handler(signal, on_ending_signal);
  set_handler(SIGTSTP, on_stop);
  set_handler(SIGWINCH, on_resize);
  take();
  return screen;
}

Screen::~Screen() {
  give_back();
  for (const int signal : kEndingSignals) set_handler(signal, SIG_DFL);
  set_handler(SIGTSTP, SIG_DFL);
  set_handler(SIGWINCH, SIG_DFL);
  if (keys_fd_ >= 0) ::close(keys_fd_);
  taken.tty = -1;
}

ScreenSize Screen::size() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

void Screen::draw(const std::string& text) {
  const int rows = size().rows;
  std::string out = "\x1b[H";
  int row = 0;
  for (size_t begin = 0; begin < text.size() && row < rows; ++row) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (row > 0) out += "\r\n";
    out += "\x1b[K";  // Before the text: behind a full line it would take its last character.
    out.append(text, begin, end - begin);
    begin = end + 1;
  }
  if (row < rows) out += (row > 0 ? "\r\n" : "") + std::string("\x1b[J");
  write_now(out);
}

std::optional<int> Screen::wait_key(Duration patience) {
  if (!pending_.empty()) return next_key();
  if (taken.changed != 0) {
    taken.changed = 0;
    return std::nullopt;
  }
  pollfd keys{.fd = keys_fd_, .events = POLLIN, .revents = 0};
  const int ready =
      ::poll(&keys, keys_fd_ >= 0 ? 1 : 0, static_cast<int>(std::clamp<int64_t>(patience.ms(), 0, 60'000)));
  if (ready <= 0) {
    taken.changed = 0;
    return std::nullopt;
  }
  std::array<char, 256> bytes;
  const ssize_t got = ::read(keys_fd_, bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return std::nullopt;
  if (got <= 0) {
    // The terminal is gone: nobody looks any more.
    ::close(keys_fd_);
    keys_fd_ = -1;
    taken.tty = -1;
    return 'q';
  }
  pending_.assign(bytes.data(), static_cast<size_t>(got));
  return next_key();
}

int Screen::next_key() {
  CHECK(!pending_.empty());
  size_t size = 1;
  int key = static_cast<unsigned char>(pending_[0]);
  if (pending_[0] == '\x1b') {
    key = kKeyEscape;
    if (pending_.size() > 1 && (pending_[1] == '[' || pending_[1] == 'O')) {
      // Parameters, then one letter or a tilde.
      size = std::min(pending_.find_first_not_of("0123456789;", 2), pending_.size() - 1) + 1;
      key = key_of_sequence(std::string_view(pending_).substr(1, size - 1));
    }
  }
  pending_.erase(0, size);
  return key;
}

}  // namespace gpusched::cli
