#include "main/ports_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gpusched {
namespace {

std::string path_in(const std::string& data_dir) { return data_dir + "/ports.json"; }

}  // namespace

Result<Unit> write_ports_file(const std::string& data_dir, const BoundPorts& ports) {
  const std::string path = path_in(data_dir);
  const std::string fresh = path + ".new";
  const auto failed = [&](const char* what) {
    return Error{.code = ErrorCode::kIo,
                 .message = std::string("cannot ") + what + " " + fresh + ": " + std::strerror(errno)};
  };
  std::FILE* file = std::fopen(fresh.c_str(), "we");
  if (file == nullptr) return failed("open");
  std::fprintf(file, "{\"http\":%u,\"grpc\":%u,\"metrics\":%u,\"pid\":%d}\n", ports.http, ports.grpc,
               ports.metrics, static_cast<int>(::getpid()));
  if (std::fclose(file) != 0) return failed("write");
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return failed("rename");
  return Unit{};
}

void remove_ports_file(const std::string& data_dir) { ::unlink(path_in(data_dir).c_str()); }

}  // namespace gpusched
