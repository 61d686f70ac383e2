#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

/// Reads whose process has the other end of a Unix socket, by the kernel's word, which nobody else can
/// give.
namespace gpusched::sign {

struct PeerCredential {
  uid_t uid = 0;
  gid_t gid = 0;
  std::optional<std::vector<gid_t>> groups = {};  ///< The supplementary ones; nothing: not known here.

  /// Whether it has the group. Nothing of its groups known: whether that is its main one.
  bool is_member(gid_t group) const;
};

/// Credential of the process when it connected, or, for a client's end, of the server when it began to
/// listen. Nothing: that is no connected Unix socket.
std::optional<PeerCredential> read_peer_credential(int socket);

/// Whether the number may stand for users that have none here, such as those of a container's user namespace:
/// all of these look alike. The overflow uid of this machine, which is usually "nobody".
bool is_overflow_uid(uid_t uid);
/// Whether every user of the machine has a number in this process's user namespace.
bool sees_all_users();

}  // namespace gpusched::sign
