#include "sign/peer_credential.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace gpusched::sign {
namespace {

/// Accepts one connection, of a child that became somebody else before it connected.
std::optional<PeerCredential> peer_of_child(uid_t uid, gid_t gid, const std::vector<gid_t>& groups) {
  char name[] = "/tmp/peer-XXXXXX";
  const std::string folder = mkdtemp(name);
  const std::string path = folder + "/s";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(server, 1), 0);
  EXPECT_EQ(chmod(path.c_str(), 0666) + chmod(folder.c_str(), 0755), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool became = setgroups(groups.size(), groups.data()) == 0 && setresgid(gid, gid, gid) == 0 &&
                        setresuid(uid, uid, uid) == 0;
    const int client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (!became || connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      _exit(1);
    _exit(0);
  }
  const int accepted = accept(server, nullptr, nullptr);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  auto found = read_peer_credential(accepted);
  close(accepted);
  close(server);
  unlink(path.c_str());
  rmdir(folder.c_str());
  return found;
}

TEST(PeerCredential, IsOfTheProcessThatConnected) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes somebody else";
  const auto peer = peer_of_child(4'321, 4'322, {4'323, 4'324});
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->uid, 4'321U);
  EXPECT_EQ(peer->gid, 4'322U);
  ASSERT_TRUE(peer->groups.has_value());
  EXPECT_TRUE(peer->is_member(4'322));
  EXPECT_TRUE(peer->is_member(4'324));
  EXPECT_FALSE(peer->is_member(4'325));
}

TEST(PeerCredential, ManyGroupsAreAllSeen) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives itself groups";
  std::vector<gid_t> groups;
  for (gid_t group = 10'000; group < 10'300; ++group) groups.push_back(group);
  const auto peer = peer_of_child(4'321, 4'322, groups);
  ASSERT_TRUE(peer && peer->groups);
  EXPECT_EQ(peer->groups->size(), groups.size());
  EXPECT_TRUE(peer->is_member(10'299));
}

TEST(PeerCredential, ASocketOfTheNetworkHasNone) {
  const int network = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_FALSE(read_peer_credential(network).has_value());
  close(network);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const auto self = read_peer_credential(pair[0]);
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(self->uid, geteuid());
  close(pair[0]);
  close(pair[1]);
}

TEST(PeerCredential, NumbersThatStandForNobodyAreKnown) {
  EXPECT_TRUE(is_overflow_uid(65'534));
  EXPECT_TRUE(is_overflow_uid(static_cast<uid_t>(-1)));
  EXPECT_FALSE(is_overflow_uid(0));
  EXPECT_FALSE(is_overflow_uid(1'000));
}

}  // namespace
}  // namespace gpusched::sign
