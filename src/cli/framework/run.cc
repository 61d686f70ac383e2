#include "cli/framework/run.h"

#include <pwd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/framework/completion.h"
#include "cli/framework/help.h"
#include "cli/framework/job_words.h"
#include "cli/framework/options.h"
#include "cli/framework/verb.h"
#include "client/local_token.h"
#include "grammar/version.h"

namespace gpusched::cli {
namespace {

constexpr int kWidthMin = 20;
constexpr int kWidthMax = 1'000;
constexpr size_t kStdinBytesMax = 4 << 20;

/// Zero, or the errno of a write that failed.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

Result<std::string> read_all_of_stdin() {
  std::string text;
  std::array<char, 65536> piece;
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error{.code = ErrorCode::kIo,
                   .message = std::string("cannot read standard input: ") + std::strerror(errno)};
    }
    if (got == 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > kStdinBytesMax) {
      return Error{.code = ErrorCode::kTooLarge, .message = "standard input is larger than 4 MiB"};
    }
  }
}

/// A terminal gives whole lines.
std::optional<std::string> read_answer_of_terminal() {
  if (::isatty(STDIN_FILENO) != 1) return std::nullopt;
  std::array<char, 256> line;
  ssize_t got = 0;
  do {
    got = ::read(STDIN_FILENO, line.data(), line.size());
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return std::nullopt;
  std::string text(line.data(), static_cast<size_t>(got));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

void read_terminal_size(CliIo& io) {
  winsize size{};
  if (!io.out_is_terminal || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return;
  io.width = std::clamp<int>(size.ws_col, kWidthMin, kWidthMax);
  if (size.ws_row > 0) io.height = size.ws_row;
}

int usage_error(const CliIo& io, const std::string& sentence) {
  print_error(io, sentence, "usage");
  return kExitUsage;
}

/// Parses the command's own words, opens its session and runs it.
int run_verb(const CommandLine& line, Options& options, const Grammar& global, const CliIo& io) {
  const VerbDefinition& verb = *line.verb;
  Grammar grammar;
  grammar.refuses_empty_values();
  const Action action = verb.define(grammar);
  const Result<Unit> parsed = grammar.parse(line.words, &global);
  if (!parsed) return usage_error(io, parsed.error().message);
  if (options.help) {
    io.out(verb_help(verb, io.width));
    return kExitOk;
  }
  const Result<Unit> complete = grammar.check_complete("gpu-cli " + std::string(verb.path));
  if (!complete) return usage_error(io, complete.error().message);
  const Result<Unit> filled = complete_options(options, io, verb.offline);
  if (!filled) return usage_error(io, filled.error().message);
  Result<Session> session = Session::open(options, io, !verb.offline && !verb.anonymous);
  if (!session && session.error().code == ErrorCode::kUnauthenticated) {
    print_error(io, session.error().message, "login_ended");
    return kExitRefused;
  }
  if (!session && session.error().code == ErrorCode::kUnavailable) {
    print_error(io, session.error().message, "unreachable");
    return kExitUnreachable;
  }
  if (!session) return usage_error(io, session.error().message);
  if (const Result<Unit> resolved = resolve_job_words(*session, grammar); !resolved)
    return usage_error(io, resolved.error().message);
  return action(*session);
}

}  // namespace

int run_cli(int argument_count, const char* const* arguments, const CliIo& io) {
  const std::vector<std::string> words(arguments, arguments + argument_count);
  if (!words.empty() && words.front() == "__complete") {
    io.out(completions({words.begin() + 1, words.end()}, io));
    return kExitOk;
  }
  const Result<CommandLine> line = split_command_line(words);
  if (!line) return usage_error(io, line.error().message);
  Options options;
  Grammar global;
  global.refuses_empty_values();
  define_global_options(global, options);
  if (line->verb != nullptr) return run_verb(*line, options, global, io);
  const Result<Unit> parsed = global.parse(line->words);
  if (!parsed) return usage_error(io, parsed.error().message);
  if (options.help) {
    io.out(line->group.empty() ? main_help(io.width) : group_help(line->group, io.width));
    return kExitOk;
  }
  if (options.version) {
    io.out(version_line("gpu-cli", GPUSCHED_VERSION) + "\n");
    return kExitOk;
  }
  if (!line->group.empty()) {
    return usage_error(io,
                       "a subcommand is missing; gpu-cli " + line->group + " --help lists the subcommands");
  }
  return usage_error(io, "a command is missing; gpu-cli --help lists the commands");
}

std::string lost_output(int error) {
  return std::string("cannot write the output: ") + std::strerror(error) +
         "; the request may have been carried out nevertheless";
}

CliIo process_io() {
  CliIo io;
  io.on_lost_output = std::make_shared<std::function<void()>>();
  io.out = [lost = io.on_lost_output](std::string_view text) {
    const int error = write_all(STDOUT_FILENO, text);
    if (error == 0) return;
    if (*lost) (*lost)();
    write_all(STDERR_FILENO, "gpu-cli: " + lost_output(error) + "\n");
    ::_exit(kExitOutputLost);
  };
  io.err = [](std::string_view text) { write_all(STDERR_FILENO, text); };  // There is nobody left to tell.
  io.read_stdin = read_all_of_stdin;
  io.read_answer = read_answer_of_terminal;
  io.environment = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  io.wall_now = [] {
    timespec now{};
    CHECK(::clock_gettime(CLOCK_REALTIME, &now) == 0);
    return Time{static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
  };
  io.pause = [](Duration duration) {
    timespec rest{.tv_sec = duration.ns / 1'000'000'000, .tv_nsec = duration.ns % 1'000'000'000};
    while (::nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
  };
  io.environment_all = [] {
    std::vector<std::string> all;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) all.emplace_back(*entry);
    return all;
  };
  io.leave = [](int exit_code) { ::_exit(exit_code); };
  io.working_directory = [] {
    std::array<char, 4096> folder;
    return std::string(::getcwd(folder.data(), folder.size()) == nullptr ? "" : folder.data());
  };
  io.login_name = [] {
    const passwd* const entry = ::getpwuid(::geteuid());
    return std::string(entry == nullptr ? "" : entry->pw_name);
  };
  io.find_socket = [] {
    const char* const folder = std::getenv("XDG_RUNTIME_DIR");
    return find_local_socket(folder == nullptr ? "" : folder);
  };
  io.find_token = find_local_token;
  io.check_receiver = check_token_receiver;
  io.out_is_terminal = ::isatty(STDOUT_FILENO) == 1;
  io.err_is_terminal = ::isatty(STDERR_FILENO) == 1;
  read_terminal_size(io);
  return io;
}

}  // namespace gpusched::cli
