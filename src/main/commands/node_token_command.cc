#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "log/line.h"
#include "main/commands/admin_client.h"
#include "main/commands/admin_command.h"

namespace gpusched {
namespace {

struct NodeTokenOptions {
  AdminAccess access;
  std::string node;
  std::string out;
  std::string expires = "1h";
  bool json = false;
};

int complain_of_token(const std::string& message, int status) {
  std::fprintf(stderr, "gpu-scheduler node-token: %s\n", message.c_str());
  return status;
}

/// "30m", "1h", "2d", or a number of seconds; nothing when it is none of these.
std::optional<int64_t> parse_span_s(const std::string& text) {
  constexpr int64_t kSpanMax = int64_t{100} * 365 * 86'400;
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc{} || number < 0) return std::nullopt;
  const std::string unit(stop, end);
  const int64_t seconds = unit.empty() || unit == "s" ? 1
                          : unit == "m"               ? 60
                          : unit == "h"               ? 3'600
                          : unit == "d"               ? 86'400
                                                      : 0;
  if (seconds == 0 || number > kSpanMax / seconds) return std::nullopt;
  return number * seconds;
}

std::string request_body(const NodeTokenOptions& options, int64_t expires_s) {
  std::string body = "{\"node_name\":";
  append_json_string(body, options.node);
  return body + ",\"expires_after_ms\":" + std::to_string(expires_s * 1'000) + "}";
}

/// Writes the secret into a file that was made for it; false: it is lost, and `errno` says why.
bool fill(int file, const std::string& secret) {
  const std::string line = secret + "\n";
  const bool written = ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const bool kept = written && ::fsync(file) == 0;
  ::close(file);
  return kept;
}

int create(const NodeTokenOptions& options) {
  const std::optional<int64_t> expires_s = parse_span_s(options.expires);
  if (!expires_s)
    return complain_of_token("--expires: \"" + options.expires + "\" is no span such as 30m, 1h or 2d", 2);
  Result<AdminClient> scheduler = AdminClient::open(options.access);
  if (!scheduler.ok()) return complain_of_token(scheduler.error().message, 2);
  // Before there is a secret to lose.
  int file = -1;
  if (!options.out.empty()) {
    file = ::open(options.out.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return complain_of_token("cannot create " + options.out + ": " + std::strerror(errno), 2);
  }
  const Result<Json> made = scheduler->call(
      {.method = "POST", .target = "/v1/node-tokens", .body = request_body(options, *expires_s)});
  if (!made.ok()) {
    if (file >= 0) {
      ::close(file);
      ::unlink(options.out.c_str());
    }
    return complain_of_token(made.error().message, 1);
  }
  const std::string secret = (*made)["secret"].text();
  if (file >= 0 && !fill(file, secret))
    return complain_of_token(
        "cannot write " + options.out + ": " + std::strerror(errno) + "; create another token", 1);
  if (options.json && file < 0) {
    std::printf("%s\n", made->serialize().c_str());
  } else if (file < 0) {
    std::printf("%s\n", secret.c_str());
  }
  if (!options.json) {
    std::fprintf(stderr,
                 "for the node %s, once, until %s: gpu-agent join HOST --node %s --token-file FILE --ca "
                 "FINGERPRINT\n",
                 options.node.c_str(), (*made)["expires_at"].text().c_str(), options.node.c_str());
  }
  return 0;
}

ProgramAction define_create(Grammar& grammar) {
  const auto options = std::make_shared<NodeTokenOptions>();
  grammar.argument("NODE", &options->node, "Name that the node will have");
  grammar.option("--expires", "SPAN", &options->expires,
                 "For how long the token can be used: 30m, 1h, 2d (default: 1h)");
  grammar
      .option("--out", "FILE", &options->out,
              "Write the token to this new file, which only its owner can read")
      .completes(Complete::kFile);
  grammar.flag("--json", options->json, "Print JSON");
  declare_access(grammar, options->access);
  return [options](const std::vector<std::string>&) { return create(*options); };
}

}  // namespace

ProgramCommand node_token_command() {
  return {.path = "node-token create",
          .summary = "Make a token with which a machine becomes the node of that name, once",
          .define = define_create};
}

}  // namespace gpusched
