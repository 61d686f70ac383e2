// The doors over a Unix socket: who the kernel says that calls, and what it may do.
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "api/contract/token.h"
#include "api/testing/tenants_test.h"

namespace gpusched::api {
namespace {

constexpr const char* kAdminGroup = "daemon";  // One that every machine has.

std::shared_ptr<ops::SocketFile> new_socket() {
  char folder[] = "/tmp/gpusched-unix-XXXXXX";
  const std::string path = std::string(mkdtemp(folder)) + "/api.sock";
  EXPECT_EQ(chmod(folder, 0755), 0);
  auto made = ops::SocketFile::bind(path);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return std::move(*made);
}

ServerOptions socket_options() {
  return {.token = kTestToken, .unix_socket = new_socket(), .admin_group = kAdminGroup};
}

/// The user that a process is when it connects.
struct User {
  uid_t uid = 4'321;
  gid_t gid = 4'321;
  std::vector<gid_t> groups = {};
};
const User kAna{}, kBob{.uid = 4'322, .gid = 4'322};

class UnixSocketDoors : public DoorsTest {
 protected:
  explicit UnixSocketDoors(ServerOptions options = socket_options())
      : DoorsTest(options), path_(options.unix_socket->path()) {
    use_newest_rules();
  }
  ~UnixSocketDoors() override {
    server_->shutdown();
    EXPECT_FALSE(std::filesystem::exists(path_));
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  }
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root becomes somebody else";
  }

  /// The answer to a process of the user.
  Reply ask(const User& user, const std::string& method, const std::string& target,
            const std::string& body = "", const std::string& headers = "") {
    const std::string request = method + " " + target +
                                " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers +
                                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) _exit(exchange(user, request, pipe_ends[1]));
    close(pipe_ends[1]);
    std::string all;
    char buffer[65'536];
    for (ssize_t size = 0; (size = read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
      all.append(buffer, static_cast<std::size_t>(size));
    close(pipe_ends[0]);
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    const std::size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) return {};
    return {.status = std::atoi(all.substr(9, 3).c_str()),
            .head = all.substr(0, end),
            .body = all.substr(end + 4)};
  }
  std::string submit_as(const User& user, const std::string& body = R"({"script":"true","name":"x"})") {
    const Reply reply = ask(user, "POST", "/api/v1/jobs", body);
    EXPECT_EQ(reply.status, 201) << reply.body;
    return field(reply.body, "job_id");
  }
  /// The job as the holder of the token sees it, over TCP.
  std::string shown(const std::string& job) {
    return http("GET", "/api/v1/jobs/" + job, "", std::string("Authorization: Bearer ") + kTestToken + "\r\n")
        .body;
  }

 private:
  /// In a child of a process with threads: system calls alone.
  int exchange(const User& user, const std::string& request, int answer) const {
    if (setgroups(user.groups.size(), user.groups.data()) != 0) return 1;
    if (setresgid(user.gid, user.gid, user.gid) != 0 || setresuid(user.uid, user.uid, user.uid) != 0)
      return 2;
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const timeval patience{20, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return 3;
    if (send(socket, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
      return 4;
    char buffer[4'096];
    for (ssize_t size = 0; (size = recv(socket, buffer, sizeof buffer, 0)) > 0;) {
      if (write(answer, buffer, static_cast<std::size_t>(size)) != size) return 5;
    }
    return 0;
  }

  const std::string path_;
};

TEST_F(UnixSocketDoors, RootIsAnAdministratorUnderItsOwnName) {
  const User root{.uid = 0, .gid = 0};
  const std::string job = submit_as(root, R"({"script":"true","tenant_id":"default"})");
  EXPECT_EQ(field(shown(job), "owner"), "person root");
  EXPECT_EQ(ask(root, "POST", "/v1/tenants", R"({"name":"lab"})").status, 201);
  EXPECT_EQ(ask(root, "POST", "/v1/nodes/none/drain", "{}").status, 404);
  EXPECT_EQ(ask(root, "GET", "/api/v1/metrics").status, 200);
}

TEST_F(UnixSocketDoors, APersonsJobIsItsOwnAndRunsAsItAlone) {
  const std::string job = submit_as(kAna);
  EXPECT_EQ(field(shown(job), "owner"), "person 4321");
  EXPECT_EQ(field(shown(job), "user"), "4321");
  EXPECT_EQ(field(shown(job), "submitted_by"), "unix:4321");
  EXPECT_EQ(ask(kAna, "POST", "/api/v1/jobs", R"({"script":"true","user":"4321"})").status, 201);
  for (const char* const other : {"4322", "root", "0", "nobody"}) {
    const Reply refused =
        ask(kAna, "POST", "/api/v1/jobs", R"({"script":"true","user":")" + std::string(other) + "\"}");
    EXPECT_EQ(refused.status, 403) << other;
    EXPECT_EQ(field(refused.body, "code"), "permission_denied") << other;
  }
  EXPECT_EQ(ask(kAna, "DELETE", "/api/v1/jobs/" + job).status, 200);
}

TEST_F(UnixSocketDoors, OtherPersonsJobsAreTheirs) {
  const std::string job = submit_as(kAna, R"({"script":"secret words","name":"x"})");
  const Reply seen = ask(kBob, "GET", "/api/v1/jobs/" + job);
  EXPECT_EQ(seen.status, 200);
  EXPECT_EQ(seen.body.find("secret words"), std::string::npos) << seen.body;
  EXPECT_NE(ask(kAna, "GET", "/api/v1/jobs/" + job).body.find("secret words"), std::string::npos);
  EXPECT_EQ(ask(kBob, "DELETE", "/api/v1/jobs/" + job).status, 403);
  EXPECT_EQ(ask(kBob, "GET", "/api/v1/jobs/" + job + "/logs").status, 403);
  EXPECT_EQ(ask(kBob, "POST", "/v1/jobs/" + job + "/hold").status, 403);
}

TEST_F(UnixSocketDoors, APersonHasNoMoreThanItsJobs) {
  EXPECT_EQ(ask(kAna, "POST", "/v1/tenants", R"({"name":"lab"})").status, 403);
  EXPECT_EQ(ask(kAna, "POST", "/v1/nodes/none/drain", "{}").status, 403);
  EXPECT_EQ(ask(kAna, "POST", "/v1/keys", R"({"name":"k"})").status, 403);
  const Reply first = ask(kAna, "POST", "/api/v1/jobs", R"({"script":"true","priority":1001})");
  EXPECT_EQ(first.status, 403);
  EXPECT_NE(first.body.find("Unix users without a role"), std::string::npos) << first.body;
  EXPECT_EQ(ask(kAna, "POST", "/api/v1/jobs", R"({"script":"true","priority":1000})").status, 201);
}

TEST_F(UnixSocketDoors, WhatIsSubmittedWithoutACredentialIsOfAllWhoCouldHaveSubmittedIt) {
  const std::string job = submit();
  EXPECT_EQ(field(shown(job), "owner"), "anonymous");
  EXPECT_EQ(ask(kAna, "DELETE", "/api/v1/jobs/" + job).status, 200);
  // But not the other way round.
  const std::string hers = submit_as(kAna);
  EXPECT_EQ(http("DELETE", "/api/v1/jobs/" + hers).status, 403);
}

TEST_F(UnixSocketDoors, ACredentialThatIsSentGoesBeforeThatOfTheProcess) {
  const std::string bearer = std::string("Authorization: Bearer ") + kTestToken + "\r\n";
  EXPECT_EQ(ask(kAna, "POST", "/v1/tenants", R"({"name":"lab"})", bearer).status, 201);
  EXPECT_EQ(ask({.uid = 0, .gid = 0}, "GET", "/api/v1/jobs", "", "Authorization: Bearer wrong\r\n").status,
            401);
}

TEST_F(UnixSocketDoors, MembersOfTheGroupAreAdministratorsUnderTheirOwnNames) {
  const group* const found = getgrnam(kAdminGroup);
  ASSERT_NE(found, nullptr);
  const gid_t admins = found->gr_gid;
  const User member{.uid = 4'323, .gid = 4'323, .groups = {4'999, admins}};
  EXPECT_EQ(ask(member, "POST", "/v1/tenants", R"({"name":"lab"})").status, 201);
  EXPECT_EQ(field(shown(submit_as(member)), "owner"), "person 4323");
  // A process that gave the group up is none, though its user is remembered; and one that has it as its main
  // one.
  EXPECT_EQ(ask({.uid = 4'323, .gid = 4'323}, "POST", "/v1/tenants", R"({"name":"two"})").status, 403);
  EXPECT_EQ(ask({.uid = 4'324, .gid = admins}, "POST", "/v1/tenants", R"({"name":"two"})").status, 201);
}

TEST_F(UnixSocketDoors, AUserOfWhomNobodyKnowsWhoItIsIsAnonymous) {
  const User nobody{.uid = 65'534, .gid = 65'534};
  EXPECT_EQ(field(shown(submit_as(nobody)), "owner"), "anonymous");
  EXPECT_EQ(ask(nobody, "POST", "/api/v1/jobs", R"({"script":"true","user":"nobody"})").status, 403);
}

TEST_F(UnixSocketDoors, AForwardedSocketIsNotReachedByPages) {
  const User root{.uid = 0, .gid = 0};
  EXPECT_EQ(ask(root, "GET", "/api/v1/jobs", "", "Origin: http://evil.example\r\n").status, 403);
}

ServerOptions closed_options() {
  ServerOptions options = socket_options();
  options.token_required = true;
  return options;
}
class ClosedUnixSocketDoors : public UnixSocketDoors {
 protected:
  ClosedUnixSocketDoors() : UnixSocketDoors(closed_options()) {}
};

TEST_F(ClosedUnixSocketDoors, WhereTheTokenIsRequiredAdministratorsAloneNeedNone) {
  EXPECT_EQ(ask({.uid = 0, .gid = 0}, "GET", "/api/v1/jobs").status, 200);
  const gid_t admins = getgrnam(kAdminGroup)->gr_gid;
  EXPECT_EQ(ask({.groups = {admins}}, "GET", "/api/v1/jobs").status, 200);
  EXPECT_EQ(ask(kAna, "GET", "/api/v1/jobs").status, 401);
  EXPECT_EQ(ask({.uid = 65'534, .gid = 65'534}, "GET", "/api/v1/jobs").status, 401);
  EXPECT_EQ(ask(kAna, "GET", "/api/v1/jobs", "", std::string("Authorization: Bearer ") + kTestToken + "\r\n")
                .status,
            200);
}

}  // namespace
}  // namespace gpusched::api
