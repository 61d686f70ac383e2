#include "pilot/secret_files.h"

#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "ops/machine.h"
#include "sign/keys/private_file.h"
#include "sign/keys/sealed_secret.h"

namespace gpusched::pilot {
namespace {

/// The terminal does not show what is typed while this lives.
class HiddenTyping {
 public:
  HiddenTyping() : is_terminal_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!is_terminal_) return;
    termios hidden = before_;
    hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
  }
  HiddenTyping(const HiddenTyping&) = delete;
  HiddenTyping& operator=(const HiddenTyping&) = delete;
  ~HiddenTyping() {
    if (is_terminal_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }

 private:
  termios before_{};
  const bool is_terminal_;
};

/// The first line of a file that only its owner may read.
Result<std::string> private_line(const std::string& path) {
  struct stat facts{};
  const std::optional<std::string> line = ops::read_line(path);
  if (!line || line->empty() || ::stat(path.c_str(), &facts) != 0)
    return Error{.code = ErrorCode::kNotFound, .message = "cannot read the secret in " + path};
  if ((facts.st_mode & 0077) != 0) {
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = "others may read " + path + "; chmod 600 " + path};
  }
  return *line;
}

}  // namespace

Result<std::string> ask_secret(const std::string& prompt) {
  const bool is_terminal = ::isatty(STDIN_FILENO) == 1;
  if (is_terminal) std::fputs(prompt.c_str(), stderr);
  std::string line;
  {
    const HiddenTyping hidden;
    std::getline(std::cin, line);
  }
  if (is_terminal) std::fputs("\n", stderr);
  if (line.empty()) return Error{.code = ErrorCode::kNotFound, .message = "nothing was given: " + prompt};
  return line;
}

Result<std::string> Passphrase::get() {
  if (known_) return *known_;
  if (file_.empty() && ::isatty(STDIN_FILENO) != 1) {
    return Error{.code = ErrorCode::kNotFound,
                 .message =
                     "a sealed secret needs its passphrase, and there is neither a terminal to ask for "
                     "it nor a file; name one: --passphrase-file FILE"};
  }
  Result<std::string> given = file_.empty() ? ask_secret("Passphrase: ") : private_line(file_);
  if (given) known_ = *given;
  return given;
}

Result<std::string> Passphrase::get_new() {
  const Result<std::string> first = get();
  if (!first || !file_.empty()) return first;
  const Result<std::string> second = ask_secret("The same passphrase again: ");
  if (!second) return second.error();
  if (*first == *second) return first;
  known_.reset();
  return Error{.code = ErrorCode::kInvalidArgument, .message = "the two passphrases differ"};
}

Result<std::string> read_secret(const std::string& path, Passphrase& passphrase) {
  const Result<std::string> text = private_line(path);
  if (!text || !sign::is_sealed_secret(*text)) return text;
  const Result<std::string> words = passphrase.get();
  if (!words) return words.error();
  Result<std::string> secret = sign::open_sealed_secret(*text, *words);
  if (!secret) return Error{.code = secret.error().code, .message = path + ": " + secret.error().message};
  return secret;
}

bool is_sealed_file(const std::string& path) {
  const std::optional<std::string> line = ops::read_line(path);
  return line && sign::is_sealed_secret(*line);
}

Result<Unit> write_sealed(const std::string& path, const std::string& secret, const std::string& passphrase) {
  const std::optional<std::string> sealed = sign::sealed_secret(secret, passphrase);
  if (!sealed)
    return Error{.code = ErrorCode::kUnavailable, .message = "there is no memory to seal a secret"};
  return sign::write_whole(path, *sealed + "\n", 0600);
}

}  // namespace gpusched::pilot
