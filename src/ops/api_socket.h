#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

/// Where the scheduler of this machine listens for those who name none: its Unix socket has a place that both
/// sides know.
namespace gpusched::ops {

/// Path of the machine's scheduler, in a folder that only root or the service manager makes.
inline constexpr const char* kSystemSocket = "/run/gpu-scheduler/api.sock";
inline constexpr const char* kSocketName = "api.sock";
/// Where agents of this machine come without a token, beside it.
inline constexpr const char* kSystemAgentSocket = "/run/gpu-scheduler/agent.sock";
inline constexpr const char* kAgentSocketName = "agent.sock";
/// Path of a person's own socket, below the given XDG_RUNTIME_DIR; empty: there is none.
std::string personal_socket(const std::string& runtime_dir, const char* name = kSocketName);

/// Makes the folder of a well-known socket, for everybody to pass or for its owner alone, unless it is there.
/// False: it is not, or others could put a socket of theirs into it.
bool make_socket_folder(const std::string& path, bool for_everybody);

/// User whose process listens on a Unix socket; nothing: nobody does, or it cannot be reached.
std::optional<uid_t> socket_listener(const std::string& path);

/// The first of these sockets where somebody answers whom this process may believe: neither its folder nor
/// the socket is a stranger's. That is: nobody but the folder's owner can put a socket there, the owner is
/// root, this process's user or whoever answers, and for another user's the folder above is root's alone.
/// Empty: none.
std::string find_api_socket(const std::vector<std::string>& paths);

/// Connects to whoever listens there, whom this process may believe by the same rule. The descriptor, which
/// is the caller's to close, does not block. kUnavailable: nobody listens there, or it cannot be reached;
/// kPermissionDenied: a stranger might.
Result<int> connect_believed(const std::string& path);

}  // namespace gpusched::ops
