#include "cli/run.h"

#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/commands.h"
#include "cli/options.h"

namespace gpusched::cli {
namespace {

constexpr int kWidthWithoutTerminal = 80;
constexpr int kWidthMin = 20;
constexpr int kWidthMax = 1'000;
constexpr size_t kStdinBytesMax = 4 << 20;

int run_verb(Session& session) {
  switch (session.options().verb) {
    case Verb::kSubmit:
      return submit_job(session);
    case Verb::kList:
      return list_jobs(session);
    case Verb::kGet:
      return get_job(session);
    case Verb::kCancel:
      return cancel_jobs(session);
    case Verb::kLogs:
      return show_logs(session);
    case Verb::kExplain:
      return explain_job(session);
    case Verb::kNodes:
      return list_nodes(session);
    case Verb::kGpus:
      return list_gpus(session);
    case Verb::kCluster:
      return show_cluster(session);
    case Verb::kTenantCreate:
      return create_tenant(session);
    case Verb::kTenantList:
      return list_tenants(session);
    case Verb::kTenantGet:
      return get_tenant(session);
    case Verb::kTenantUpdate:
      return update_tenant(session);
    case Verb::kTenantDelete:
      return delete_tenant(session);
    case Verb::kNodeConfirmDead:
      return confirm_node_dead(session);
    case Verb::kNodeCondition:
      return set_gpu_condition(session);
  }
  UNREACHABLE();
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // Nobody reads any more; SIGPIPE usually ends us first.
    text.remove_prefix(static_cast<size_t>(written));
  }
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

int terminal_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return kWidthWithoutTerminal;
  }
  return std::clamp<int>(size.ws_col, kWidthMin, kWidthMax);
}

}  // namespace

int run_cli(int argument_count, const char* const* arguments, const CliIo& io) {
  const std::variant<Options, ParseEnd> parsed = parse_options(argument_count, arguments, io);
  if (const ParseEnd* const end = std::get_if<ParseEnd>(&parsed)) {
    if (end->exit_code == kExitOk) {
      io.out(end->text);
    } else {
      print_error(io, end->text, "usage");
    }
    return end->exit_code;
  }
  Result<Session> session = Session::open(std::get<Options>(parsed), io);
  if (!session) {
    print_error(io, session.error().message, "usage");
    return kExitUsage;
  }
  return run_verb(*session);
}

CliIo process_io() {
  CliIo io;
  io.out = [](std::string_view text) { write_all(STDOUT_FILENO, text); };
  io.err = [](std::string_view text) { write_all(STDERR_FILENO, text); };
  io.read_stdin = read_all_of_stdin;
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
  io.width = terminal_width();
  return io;
}

}  // namespace gpusched::cli
