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

/// Where gpu-cli looks. There is one such place for each user, as there is one usual port: whoever has that
/// has the place, so that gpu-cli finds the same scheduler by both. Empty: this is another scheduler.
std::string usual_place(const Config::Api& api) {
  std::string runtime = environment("RUNTIME_DIRECTORY");  // Made by the service manager, for us alone.
  runtime.resize(std::min(runtime.find(':'), runtime.size()));
  if (runtime.starts_with('/')) return runtime + "/" + ops::kSocketName;
  if (api.http_port != kUsualPort) return {};
  return ::geteuid() == 0 ? ops::kSystemSocket : ops::personal_socket(environment("XDG_RUNTIME_DIR"));
}

Result<std::unique_ptr<ops::SocketFile>> bind_usual(const std::string& path) {
  const bool is_managed = !environment("RUNTIME_DIRECTORY").empty();
  if (!is_managed && !ops::make_socket_folder(path, ::geteuid() == 0)) {
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = "the folder of " + path +
                            " cannot be made, or others than this user can change it; remove it, or choose "
                            "another place with api.unix_socket"};
  }
  return ops::SocketFile::bind(path);
}

}  // namespace

Result<std::shared_ptr<ops::SocketFile>> bind_api_socket(const Config::Api& api) {
  const bool is_usual = api.unix_socket == "auto";
  const std::string path = is_usual ? usual_place(api) : api.unix_socket;
  if (path.empty()) return std::shared_ptr<ops::SocketFile>();
  Result<std::unique_ptr<ops::SocketFile>> bound = is_usual ? bind_usual(path) : ops::SocketFile::bind(path);
  if (bound) return std::shared_ptr<ops::SocketFile>(std::move(*bound));
  if (!is_usual) {
    return Error{.code = bound.error().code,
                 .message = bound.error().message +
                            "; api.unix_socket (GPU_SCHEDULER_API_UNIX_SOCKET) chooses "
                            "another path, or none if it is empty"};
  }
  // The ports are served all the same.
  log_event(LogLevel::kWarning, "scheduler", "unix_socket_not_served", {},
            {{"path", path}, {"error", bound.error().message}});
  return std::shared_ptr<ops::SocketFile>();
}

}  // namespace gpusched
