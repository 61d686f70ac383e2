#include "main/unix_socket.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "log/log.h"
#include "ops/api_socket.h"

namespace gpusched {
namespace {

const int64_t kUsualPort = Config::Api{}.http_port;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// One of the scheduler's sockets.
struct Place {
  std::string setting, variable;
  std::string chosen;  ///< The setting's value.
  const char* name;    ///< In its usual folder.
  mode_t mode;
  const char* event;  ///< Event in the log when it is not served.
};

/// The place where gpu-cli looks. Each user has one such place, as there is one usual port: the holder of the
/// port has the place, so that gpu-cli finds the same scheduler by both. Empty: this is another scheduler.
std::string usual_place(const Config::Api& api, const char* name) {
  std::string runtime = environment("RUNTIME_DIRECTORY");  // Made by the service manager, for us alone.
  runtime.resize(std::min(runtime.find(':'), runtime.size()));
  if (runtime.starts_with('/')) return runtime + "/" + name;
  if (api.http_port != kUsualPort) return {};
  if (::geteuid() != 0) return ops::personal_socket(environment("XDG_RUNTIME_DIR"), name);
  const std::string folder = ops::kSystemSocket;
  return folder.substr(0, folder.rfind('/') + 1) + name;
}

Result<std::unique_ptr<ops::SocketFile>> bind_usual(const Place& place, const std::string& path) {
  const bool is_managed = !environment("RUNTIME_DIRECTORY").empty();
  if (!is_managed && !ops::make_socket_folder(path, ::geteuid() == 0)) {
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = "the folder of " + path +
                            " cannot be made, or others than this user can change it; remove it, or choose "
                            "another place with " +
                            place.setting};
  }
  return ops::SocketFile::bind(path, place.mode);
}

Result<std::shared_ptr<ops::SocketFile>> bind_at(const Place& place, const Config::Api& api) {
  const bool is_usual = place.chosen == "auto";
  const std::string path = is_usual ? usual_place(api, place.name) : place.chosen;
  if (path.empty()) return std::shared_ptr<ops::SocketFile>();
  Result<std::unique_ptr<ops::SocketFile>> bound =
      is_usual ? bind_usual(place, path) : ops::SocketFile::bind(path, place.mode);
  if (bound) return std::shared_ptr<ops::SocketFile>(std::move(*bound));
  if (!is_usual) {
    return Error{.code = bound.error().code,
                 .message = bound.error().message + "; " + place.setting + " (" + place.variable +
                            ") chooses another path, or none if it is empty"};
  }
  // The ports are served all the same.
  log_event(LogLevel::kWarning, "scheduler", place.event, {},
            {{"path", path}, {"error", bound.error().message}});
  return std::shared_ptr<ops::SocketFile>();
}

}  // namespace

Result<std::shared_ptr<ops::SocketFile>> bind_api_socket(const Config::Api& api) {
  return bind_at({.setting = "api.unix_socket",
                  .variable = "GPU_SCHEDULER_API_UNIX_SOCKET",
                  .chosen = api.unix_socket,
                  .name = ops::kSocketName,
                  .mode = ops::kSocketForAll,
                  .event = "unix_socket_not_served"},
                 api);
}

Result<std::shared_ptr<ops::SocketFile>> bind_agent_socket(const Config& config) {
  return bind_at({.setting = "agent.unix_socket",
                  .variable = "GPU_SCHEDULER_AGENT_UNIX_SOCKET",
                  .chosen = config.agent.unix_socket,
                  .name = ops::kAgentSocketName,
                  .mode = ops::kSocketForOwner,
                  .event = "agent_socket_not_served"},
                 config.api);
}

}  // namespace gpusched
