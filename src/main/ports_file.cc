#include "main/ports_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "log/line.h"

namespace gpusched {
namespace {

std::string path_in(const std::string& data_dir) { return data_dir + "/ports.json"; }

Error failed(const char* what, const std::string& path) {
  return {.code = ErrorCode::kIo,
          .message = std::string("cannot ") + what + " " + path + ": " + std::strerror(errno)};
}

Result<Unit> write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return failed("open", path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return failed("write", path);
  return Unit{};
}

/// Takes the place of an older file's bytes, which a full disk has room for.
bool overwrite(const std::string& path, std::string text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct stat facts{};
  const bool known = ::fstat(file, &facts) == 0;
  // Spaces over the rest: a reader finds one whole object at any time.
  if (known && facts.st_size > static_cast<off_t>(text.size()))
    text.resize(static_cast<std::size_t>(facts.st_size), ' ');
  const bool written =
      known && ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  ::close(file);
  return written;
}

}  // namespace

Result<Unit> write_ports_file(const std::string& data_dir, const BoundPorts& ports) {
  char head[128];
  std::snprintf(head, sizeof head, "{\"http\":%u,\"grpc\":%u,\"metrics\":%u,\"pid\":%d%s%s", ports.http,
                ports.grpc, ports.metrics, static_cast<int>(::getpid()), ports.https ? ",\"https\":true" : "",
                ports.grpc_certificate.empty() ? "" : ",\"grpc_tls\":true");
  std::string text = head;
  if (ports.tasks_grpc != 0) text += ",\"tasks_grpc\":" + std::to_string(ports.tasks_grpc);
  if (ports.tasks_http != 0) text += ",\"tasks_http\":" + std::to_string(ports.tasks_http);
  if (ports.allocation != 0) text += ",\"allocation\":" + std::to_string(ports.allocation);
  if (!ports.unix_socket.empty()) {
    text += ",\"unix_socket\":";
    append_whole_json_string(text, ports.unix_socket);
  }
  if (!ports.agent_socket.empty()) {
    text += ",\"agent_socket\":";
    append_whole_json_string(text, ports.agent_socket);
  }
  text += "}\n";
  const std::string path = path_in(data_dir);
  const std::string fresh = path + ".new";
  Result<Unit> done = write_file(fresh, text);
  if (done.ok() && std::rename(fresh.c_str(), path.c_str()) != 0) done = failed("rename", fresh);
  if (done.ok()) return done;
  ::unlink(fresh.c_str());
  if (overwrite(path, text)) return Unit{};
  return done;
}

void remove_ports_file(const std::string& data_dir) { ::unlink(path_in(data_dir).c_str()); }

}  // namespace gpusched
