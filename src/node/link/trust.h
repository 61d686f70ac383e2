#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpusched {

/// The shared token's bytes: the file's content without surrounding white space, 16 bytes or more. The file
/// must be its owner's alone.
Result<std::string> read_token(const std::string& path);

struct Address {
  std::string host;  ///< Without brackets.
  uint16_t port = 0;
};
/// Prefix of the path of a Unix socket where the scheduler of this machine takes agents.
inline constexpr std::string_view kUnixAddress = "unix:";
inline bool is_unix_address(std::string_view scheduler) { return scheduler.starts_with(kUnixAddress); }
/// The address of such a socket for who names no scheduler: the first at which one listens whom this process
/// may believe, else root's. Empty: there is none for this user.
std::string usual_agent_socket();
/// "HOST:PORT" or "[IPV6]:PORT".
Result<Address> parse_address(const std::string& text);
/// Whether an agent may obey that scheduler without a token. An agent runs what it is told, as the user that
/// it is: without a token only for a scheduler on this machine, and only for its own user's or root's.
/// kPermissionDenied says why not and what to do.
Result<Unit> check_trust(const Address& scheduler, bool has_token, uid_t user,
                         const std::vector<uid_t>& listeners);

}  // namespace gpusched
