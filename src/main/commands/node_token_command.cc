#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
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
  int64_t expires_s = 3'600;
  bool json = false;
};

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "gpu-scheduler node-token: %s\n", message.c_str());
  return status;
}

std::string request_body(const NodeTokenOptions& options) {
  std::string body = "{\"node_name\":";
  append_json_string(body, options.node);
  return body + ",\"expires_after_ms\":" + std::to_string(options.expires_s * 1'000) + "}";
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
  Result<AdminClient> scheduler = AdminClient::open(options.access);
  if (!scheduler.ok()) return complain(scheduler.error().message, 2);
  // Before there is a secret to lose.
  int file = -1;
  if (!options.out.empty()) {
    file = ::open(options.out.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return complain("cannot create " + options.out + ": " + std::strerror(errno), 2);
  }
  const Result<Json> made =
      scheduler->call({.method = "POST", .target = "/v1/node-tokens", .body = request_body(options)});
  if (!made.ok()) {
    if (file >= 0) {
      ::close(file);
      ::unlink(options.out.c_str());
    }
    return complain(made.error().message, 1);
  }
  const std::string secret = (*made)["secret"].text();
  if (file >= 0 && !fill(file, secret))
    return complain("cannot write " + options.out + ": " + std::strerror(errno) + "; create another token",
                    1);
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

}  // namespace

int run_node_token_command(int argc, char** argv) {
  NodeTokenOptions options;
  CLI::App app("Makes node tokens, with each of which one machine becomes a node, once",
               "gpu-scheduler node-token");
  app.require_subcommand(1);
  CLI::App& creating = *app.add_subcommand("create", "make a token for the node of that name");
  creating.add_option("NODE", options.node, "name that the node will have")->required();
  creating
      .add_option("--expires", options.expires_s, "for how long it can be used: 30m, 1h, 2d (default: 1h)")
      ->transform(CLI::AsNumberWithUnit(
          std::map<std::string, int64_t>{{"s", 1}, {"m", 60}, {"h", 3'600}, {"d", 86'400}}));
  creating.add_option("--out", options.out,
                      "write the token to this new file, which only its owner can read");
  creating.add_flag("--json", options.json, "print JSON");
  declare_access(creating, options.access);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return create(options);
}

}  // namespace gpusched
