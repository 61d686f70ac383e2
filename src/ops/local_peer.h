#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

/// Finds who answers on this machine's loopback: any user may take a free port.
namespace gpusched::ops {

/// A shorter token is none: it could be guessed.
constexpr std::size_t kTokenBytesMin = 16;

/// Whether only this machine can answer there. A name other than "localhost" is not believed to be.
bool is_loopback(const std::string& host);

/// Users whose sockets get connections to `host`, a loopback one, on `port`, out of the text of /proc/net/tcp
/// and tcp6 behind each other. A socket of exactly that address goes before one of any address.
std::vector<uid_t> listening_users(std::string_view table, const std::string& host, uint16_t port);
/// The same of this machine: asked of the kernel by sock_diag(7), or else from its tables.
std::vector<uid_t> listening_users(const std::string& host, uint16_t port);

/// Minimum uid and gid of people, from /etc/login.defs.
struct IdFloor {
  uint32_t uid = 1'000;
  uint32_t gid = 1'000;
};
IdFloor read_id_floor(const std::string& path = "/etc/login.defs");

/// The token of a scheduler on this machine, which says itself that it is at `path`. Only a file of the user
/// whose socket listens at `host` and `port` counts, and only one beside a ports.json in which `port_name`
/// ("http", "grpc") is that port and the process is alive: else a stranger's server could have any file of
/// ours sent to it.
Result<std::string> read_local_token(const std::string& path, const std::string& host, uint16_t port,
                                     const std::string& port_name);

}  // namespace gpusched::ops
