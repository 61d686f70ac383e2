// API keys on the command line, against a server that answers as the scheduler does.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

constexpr const char* kMade =
    R"({"key_id":"key-7","name":"ci","tenant_id":"tenant-3","roles":[{"role":"user","tenant_id":"tenant-3"}],)"
    R"("secret":"gsk_p.s"})";

Reply makes_key(const Request&) { return {.status = 201, .body = kMade}; }

class KeyFiles : public ::testing::Test {
 protected:
  KeyFiles() {
    char pattern[] = "/tmp/gpusched-keys-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~KeyFiles() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST(Keys, AreMadeForATenantWithRolesUsersAndAnEnd) {
  std::vector<Request> seen;
  const Ran ran = run_against(makes_key,
                              {"key", "create", "ci", "--tenant", "vision", "--role", "user", "--role",
                               "viewer@other", "--as-user", "ana", "--expires", "30d"},
                              &seen);
  EXPECT_EQ(seen.at(0).target, "/v1/keys");
  EXPECT_EQ(
      seen.at(0).body,
      R"({"name":"ci","tenant_id":"vision","roles":[{"role":"user"},{"role":"viewer","tenant_id":"other"}],)"
      R"("unix_users":["ana"],"expires_after_ms":2592000000})");
  // The key alone, for whoever redirects it.
  EXPECT_EQ(ran.out, "gsk_p.s\n");
  EXPECT_NE(ran.err.find("key-7 is shown this once"), std::string::npos) << ran.err;
}

TEST(Keys, OfTheClusterHaveNoTenant) {
  std::vector<Request> seen;
  run_against(makes_key, {"key", "create", "x", "--tenant", "vision", "--cluster", "--role", "metrics"},
              &seen);
  EXPECT_EQ(seen.at(0).body, R"({"name":"x","cluster":true,"roles":[{"role":"metrics"}]})");
}

TEST_F(KeyFiles, AreOfTheirOwnerAlone) {
  const std::string path = folder_ + "/k";
  const Ran ran = run_against(makes_key, {"key", "create", "ci", "--out", path});
  EXPECT_EQ(ran.out, "key-7\n");
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "gsk_p.s");
  struct stat facts{};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
}

TEST_F(KeyFiles, AreNotOverwrittenAndNotLeftEmpty) {
  const std::string path = folder_ + "/k";
  std::vector<Request> seen;
  std::ofstream(path) << "mine\n";
  EXPECT_EQ(run_against(makes_key, {"key", "create", "ci", "--out", path}, &seen).exit_code, kExitUsage);
  EXPECT_TRUE(seen.empty());
  std::filesystem::remove(path);
  const Ran refused = run_against(
      [](const Request&) {
        return Reply{.status = 403, .body = R"({"error":"no","code":"permission_denied"})"};
      },
      {"key", "create", "ci", "--out", path});
  EXPECT_EQ(refused.exit_code, kExitRefused);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(KeyFiles, AreTheOnlyPlaceOfTheSecretInJson) {
  const Ran ran = run_against(makes_key, {"--json", "key", "create", "ci", "--out", folder_ + "/k"});
  EXPECT_EQ(ran.out.find("gsk_"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("\"key-7\""), std::string::npos) << ran.out;
}

TEST(Keys, AreListedPageByPage) {
  const Ran ran = run_against(
      [](const Request& request) {
        if (request.target.find("page_token=key-7") == std::string::npos)
          return Reply{.body = R"({"keys":[)" + std::string(kMade) + R"(],"next_page_token":"key-7"})"};
        return Reply{.body =
                         R"({"keys":[{"key_id":"key-9","name":"boss","roles":[{"role":"admin"}],)"
                         R"("state":"active","last_used_at":"2031-05-15T12:00:00Z"}],"next_page_token":""})"};
      },
      {"key", "list"});
  EXPECT_NE(ran.out.find("key-7"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("key-9"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("(cluster)"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("LAST USED"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("2031-05-15"), std::string::npos) << ran.out;
}

TEST(Keys, AreRevokedByIdOrName) {
  std::vector<Request> seen;
  const auto serve = [](const Request& request) {
    if (request.method == "GET") return Reply{.body = R"({"keys":[)" + std::string(kMade) + "]}"};
    return Reply{.body = kMade};
  };
  EXPECT_EQ(run_against(serve, {"key", "revoke", "key-5"}, &seen).out, "key-5 revoked\n");
  EXPECT_EQ(seen.back().target, "/v1/keys/key-5");
  EXPECT_EQ(run_against(serve, {"key", "revoke", "ci"}, &seen).out, "key-7 revoked\n");
  EXPECT_EQ(seen.back().method, "DELETE");
  EXPECT_EQ(seen.back().target, "/v1/keys/key-7");
  EXPECT_EQ(run_against(serve, {"key", "revoke", "other"}, &seen).exit_code, kExitRefused);
}

TEST(Keys, AreGivenRolesAndLoseThem) {
  std::vector<Request> seen;
  const Ran ran = run_against([](const Request&) { return Reply{.body = kMade}; },
                              {"key", "bind", "key-7", "--role", "viewer@vision", "--take"}, &seen);
  EXPECT_EQ(seen.at(0).target, "/v1/keys/key-7/bind");
  EXPECT_EQ(seen.at(0).body, R"({"role":"viewer","tenant_id":"vision","taken":true})");
  EXPECT_EQ(ran.out, "key-7 has user\n");
}

}  // namespace
}  // namespace gpusched::cli::testing
