#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/framework/run.h"
#include "cli/testing/now.h"
#include "client/json.h"
#include "client/test_server.h"

/// Runs gpu-cli in a test, with everything around it made up.
namespace gpusched::cli::testing {

using Request = TestServer::Request;
using Reply = TestServer::Reply;

/// One run of gpu-cli and what came of it.
struct Ran {
  int exit_code = -1;
  std::string out;
  std::string err;
};

struct World {
  std::map<std::string, std::string> environment = {};
  std::string standard_input = {};
  std::string working_directory = {};
  int width = 80;
  std::string zone = "UTC";
  Duration clock_step = {};  ///< Time that each look at the clock takes.
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  int height = 24;
  std::optional<std::string> answer = std::nullopt;  ///< Text that somebody types when asked.
  /// The token of this machine's scheduler; nothing: that is away.
  std::function<std::optional<std::string>()> find_token = {};
  std::string login = {};   ///< Name of who runs the command; empty: it has none.
  std::string socket = {};  ///< URL of the socket of this machine's scheduler; empty: none answers.
};

inline Ran run(const std::vector<std::string>& arguments, const World& world = {}) {
  Ran ran;
  ::setenv("TZ", world.zone.c_str(), 1);
  ::tzset();
  std::mutex mutex;
  std::vector<const char*> raw;
  for (const std::string& argument : arguments) raw.push_back(argument.c_str());
  CliIo io;
  io.out = [&](std::string_view text) {
    const std::lock_guard lock(mutex);
    ran.out += text;
  };
  io.err = [&](std::string_view text) {
    const std::lock_guard lock(mutex);
    ran.err += text;
  };
  io.read_stdin = [&] { return Result<std::string>(world.standard_input); };
  io.environment = [&](const char* name) {
    const auto found = world.environment.find(name);
    return found == world.environment.end() ? std::string() : found->second;
  };
  io.environment_all = [&] {
    std::vector<std::string> all;
    for (const auto& [name, value] : world.environment) all.push_back(name + "=" + value);
    return all;
  };
  io.working_directory = [&] { return world.working_directory; };
  Time now = kNow;
  io.wall_now = [&] {
    const std::lock_guard lock(mutex);
    return std::exchange(now, now + world.clock_step);
  };
  io.pause = [](Duration) {};
  io.width = world.width;
  io.height = world.height;
  io.out_is_terminal = world.out_is_terminal;
  io.err_is_terminal = world.err_is_terminal;
  io.read_answer = [&] { return world.answer; };
  io.login_name = [&] { return world.login; };
  io.find_socket = [&] { return world.socket; };
  if (world.find_token) io.find_token = [&](const auto&, const auto&) { return world.find_token(); };
  ran.exit_code = run_cli(static_cast<int>(raw.size()), raw.data(), io);
  return ran;
}

/// Message of a command line that is refused as wrong.
inline std::string refusal(const std::vector<std::string>& words, const World& world = {}) {
  const Ran ran = run(words, world);
  EXPECT_EQ(ran.exit_code, kExitUsage);
  return ran.err;
}

/// Runs against a server that gives `handler`'s answers; `seen` gets the requests.
inline Ran run_against(TestServer::Handler handler, std::vector<std::string> arguments,
                       std::vector<Request>* seen = nullptr, const World& world = {}) {
  TestServer server(std::move(handler));
  arguments.insert(arguments.begin(), {"--api-url", server.url()});
  Ran ran = run(arguments, world);
  if (seen != nullptr) *seen = server.requests();
  return ran;
}

/// The requests that change something, or would.
inline std::vector<Request> posts(const std::vector<Request>& seen) {
  std::vector<Request> out;
  for (const Request& request : seen) {
    if (request.method == "POST") out.push_back(request);
  }
  return out;
}

}  // namespace gpusched::cli::testing
