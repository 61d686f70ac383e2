#include "sign/peer_credential.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>

namespace gpusched::sign {
namespace {

constexpr std::size_t kGroupsFirst = 64;
constexpr std::size_t kGroupsMax = 65'536;  // The kernel's own bound.
constexpr uid_t kUsualOverflow = 65'534;

std::optional<std::vector<gid_t>> read_groups(int socket) {
  std::vector<gid_t> groups(kGroupsFirst);
  for (int tries = 0; tries < 2; ++tries) {
    socklen_t size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) == 0) {
      groups.resize(size / sizeof(gid_t));
      return groups;
    }
    const std::size_t wanted = size / sizeof(gid_t);
    if (errno != ERANGE || wanted > kGroupsMax) return std::nullopt;
    groups.resize(wanted);
  }
  return std::nullopt;
}

}  // namespace

bool PeerCredential::is_member(gid_t group) const {
  if (gid == group) return true;
  return groups.has_value() && std::find(groups->begin(), groups->end(), group) != groups->end();
}

std::optional<PeerCredential> read_peer_credential(int socket) {
  ucred facts{};
  socklen_t size = sizeof facts;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &facts, &size) != 0 || size != sizeof facts)
    return std::nullopt;
  // A socket of another family answers this, and so does one whose process is gone or was never there.
  if (facts.pid == 0 && facts.uid == static_cast<uid_t>(-1)) return std::nullopt;
  return PeerCredential{.uid = facts.uid, .gid = facts.gid, .groups = read_groups(socket)};
}

bool is_overflow_uid(uid_t uid) {
  static const uid_t kOverflow = [] {
    std::ifstream file("/proc/sys/kernel/overflowuid");
    uid_t number = kUsualOverflow;
    return file >> number ? number : kUsualOverflow;
  }();
  return uid == kOverflow || uid == kUsualOverflow || uid == static_cast<uid_t>(-1);
}

bool sees_all_users() {
  static const bool kAll = [] {
    std::ifstream file("/proc/self/uid_map");
    uint64_t inside = 1, outside = 1, count = 0;
    file >> inside >> outside >> count;
    return inside == 0 && outside == 0 && count >= UINT32_MAX;
  }();
  return kAll;
}

}  // namespace gpusched::sign
