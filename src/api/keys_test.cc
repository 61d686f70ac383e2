// API keys at the doors: over REST, gRPC and the metrics' port.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "api/testing/doors_test.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

class Keys : public DoorsTest {
 protected:
  static constexpr const char* kToken = "the-right-token";

  Keys() : DoorsTest({.token = kToken}) { use_newest_rules(); }

  Reply as(const std::string& credential, const std::string& method, const std::string& target,
           const std::string& body = "", uint16_t port = 0) {
    const std::string shown = credential.empty() ? "" : "Authorization: Bearer " + credential + "\r\n";
    return http(method, target, body, shown + "Content-Type: application/json\r\n", port);
  }
  Reply as_admin(const std::string& method, const std::string& target, const std::string& body = "") {
    return as(kToken, method, target, body);
  }
  std::string tenant(const std::string& name, const std::string& parent = "") {
    const Reply reply = as_admin(
        "POST", "/v1/tenants",
        R"({"name":")" + name + R"(")" + (parent.empty() ? "" : R"(,"parent_id":")" + parent + "\"") + "}");
    EXPECT_EQ(reply.status, 201) << reply.body;
    return field(reply.body, "tenant_id");
  }
  /// The body of a key in that home.
  static std::string body_of(const std::string& name, const std::string& home, const std::string& role,
                             const std::string& more = "") {
    return R"({"name":")" + name + R"(","tenant_id":")" + home + R"(","roles":[{"role":")" + role + "\"}]" +
           more + "}";
  }
  struct Made {
    std::string id, secret;
  };
  Made make(const std::string& body) {
    const Reply reply = as_admin("POST", "/v1/keys", body);
    EXPECT_EQ(reply.status, 201) << reply.body;
    return {.id = field(reply.body, "key_id"), .secret = field(reply.body, "secret")};
  }
  Reply submit_as(const std::string& credential, const std::string& tenant) {
    return as(credential, "POST", "/v1/jobs",
              R"({"tenant_id":")" + tenant + R"(","spec":{"command":["true"]}})");
  }
  static std::string job_of(const Reply& reply) {
    const std::size_t at = reply.body.find("job-");
    return at == std::string::npos ? "" : reply.body.substr(at, reply.body.find('"', at) - at);
  }
  void expect_refused(const Reply& reply, int status, const std::string& code, const std::string& what = "") {
    EXPECT_EQ(reply.status, status) << what << reply.body;
    EXPECT_EQ(field(reply.body, "code"), code) << what << reply.body;
  }
};

TEST_F(Keys, OneWorksFromItsAnswerOn) {
  const std::string vision = tenant("vision");
  for (int i = 0; i < 20; ++i) {
    const Made key = make(body_of("ci-" + std::to_string(i), vision, "user"));
    ASSERT_EQ(submit_as(key.secret, vision).status, 201) << i;
    EXPECT_EQ(as_admin("DELETE", "/v1/keys/" + key.id).status, 200);
    expect_refused(submit_as(key.secret, vision), 401, "unauthenticated");
  }
}

TEST_F(Keys, AHolderHasItsOwnJobsAndNoMore) {
  const std::string vision = tenant("vision"), other = tenant("other");
  const Made key = make(body_of("ci", vision, "user")), second = make(body_of("ci", other, "user"));
  const Reply submitted = submit_as(key.secret, vision);
  ASSERT_EQ(submitted.status, 201) << submitted.body;
  const std::string job = job_of(submitted);
  const Reply shown = as(key.secret, "GET", "/v1/jobs/" + job);
  EXPECT_EQ(field(shown.body, "owner"), "service " + vision + "/ci") << shown.body;
  // Without a tenant's name it means its own.
  EXPECT_EQ(field(as(key.secret, "GET", "/v1/jobs/" + job_of(submit_as(key.secret, ""))).body, "tenant_id"),
            vision);
  expect_refused(submit_as(key.secret, other), 404, "tenant_not_found");
  expect_refused(submit_as(key.secret, "default"), 404, "tenant_not_found");
  // The key of the same name in another home is somebody else.
  expect_refused(as(second.secret, "GET", "/v1/jobs/" + job), 404, "job_not_found");
  expect_refused(as(second.secret, "POST", "/v1/jobs/" + job + "/cancel"), 404, "job_not_found");
  EXPECT_EQ(as(key.secret, "POST", "/v1/jobs/" + job + "/cancel").status, 200);
}

TEST_F(Keys, ARoleHoldsFromTheNextCallOn) {
  const std::string vision = tenant("vision");
  const Made key = make(body_of("watcher", vision, "viewer"));
  const std::string bind = "/v1/keys/" + key.id + "/bind";
  expect_refused(submit_as(key.secret, vision), 403, "permission_denied");
  EXPECT_EQ(as_admin("POST", bind, R"({"role":"user"})").status, 200);
  EXPECT_EQ(submit_as(key.secret, vision).status, 201);
  EXPECT_EQ(as_admin("POST", bind, R"({"role":"user","taken":true})").status, 200);
  expect_refused(submit_as(key.secret, vision), 403, "permission_denied");
}

TEST_F(Keys, AWrongOneIsRefusedEverywhereInTheSameWords) {
  const std::string vision = tenant("vision");
  const Made key = make(body_of("ci", vision, "user"));
  std::string wrong = key.secret;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  const Reply stranger = as("zxqv", "GET", "/v1/jobs");
  EXPECT_EQ(stranger.status, 401);
  for (const std::string& credential :
       {wrong, key.secret.substr(0, key.secret.size() - 1), key.secret + "0", key.id, key.secret.substr(17),
        std::string("gsk_aaaaaaaaaaaa.") + std::string(64, 'a')}) {
    EXPECT_EQ(as(credential, "GET", "/v1/jobs").body, stranger.body) << credential;
    EXPECT_EQ(as(credential, "GET", "/api/v1/jobs").status, 401) << credential;
    EXPECT_EQ(as(credential, "GET", "/metrics", "", server_->metrics_port()).status, 401) << credential;
  }
}

TEST_F(Keys, AnExpiredOneIsToldSo) {
  const std::string vision = tenant("vision");
  const Made key = make(body_of("ci", vision, "user", R"(,"expires_after_ms":300)"));
  Reply reply = submit_as(key.secret, vision);
  while (reply.status == 201) reply = submit_as(key.secret, vision);
  expect_refused(reply, 401, "unauthenticated");
  EXPECT_NE(reply.body.find(key.id + " has expired"), std::string::npos) << reply.body;
  const Reply listed = as_admin("GET", "/v1/keys?with_ended=true");
  EXPECT_EQ(field(listed.body, "state"), "expired") << listed.body;
  EXPECT_EQ(as_admin("GET", "/v1/keys").body, R"({"keys":[],"next_page_token":""})");
}

TEST_F(Keys, AHugeHeaderIsRefused) {
  const Reply reply = as("gsk_" + std::string(1 << 20, 'a'), "GET", "/v1/jobs");
  EXPECT_TRUE(reply.status == 431 || reply.status == 0) << reply.status;  // 0: cut while it sent.
  const Reply large = as("gsk_" + std::string(6'000, 'a'), "GET", "/v1/jobs");
  expect_refused(large, 401, "unauthenticated");
}

TEST_F(Keys, NobodyGivesMoreThanItHas) {
  const std::string vision = tenant("vision"), child = tenant("child", "vision"), other = tenant("other");
  const Made boss = make(body_of("boss", vision, "tenant_admin", R"(,"unix_users":["ana"])"));
  const Made user = make(body_of("ci", vision, "user"));
  const auto try_to = [&](const std::string& body) { return as(boss.secret, "POST", "/v1/keys", body); };
  EXPECT_EQ(try_to(body_of("a", vision, "user", R"(,"unix_users":["ana"])")).status, 201);
  EXPECT_EQ(try_to(body_of("a", child, "tenant_admin")).status, 201);
  expect_refused(try_to(body_of("b", vision, "admin")), 422, "unprocessable");
  expect_refused(try_to(R"({"name":"b","cluster":true,"roles":[{"role":"admin"}]})"), 403,
                 "permission_denied");
  expect_refused(try_to(R"({"name":"b","cluster":true})"), 403, "permission_denied");
  expect_refused(try_to(body_of("b", other, "user")), 404, "tenant_not_found");
  expect_refused(try_to(R"({"name":"b","tenant_id":")" + vision +
                        R"(","roles":[{"role":"user","tenant_id":")" + other + "\"}]}"),
                 404, "tenant_not_found");
  for (const char* const stranger : {"bob", "root", "*"})
    expect_refused(
        try_to(body_of("b", vision, "user", R"(,"unix_users":[")" + std::string(stranger) + "\"]")), 403,
        "permission_denied", stranger);
  // A role in all tenants is none in the cluster.
  const Made manager = make(R"({"name":"manager","cluster":true,"roles":[{"role":"tenant_admin"}]})");
  for (const std::string role : {"admin", "operator", "tenant_admin"}) {
    expect_refused(as(manager.secret, "POST", "/v1/keys",
                      R"({"name":"b","cluster":true,"roles":[{"role":")" + role + R"("}]})"),
                   403, "permission_denied", role);
    expect_refused(
        as(manager.secret, "POST", "/v1/keys/" + manager.id + "/bind", R"({"role":")" + role + "\"}"), 403,
        "permission_denied", role);
  }
  expect_refused(as(user.secret, "POST", "/v1/keys", body_of("b", vision, "user")), 403, "permission_denied");
  expect_refused(as(user.secret, "POST", "/v1/keys/" + user.id + "/bind", R"({"role":"tenant_admin"})"), 404,
                 "key_not_found");
  expect_refused(as("", "POST", "/v1/keys", body_of("b", "default", "user")), 403, "permission_denied");
}

TEST_F(Keys, OthersKeysAreHidden) {
  const std::string vision = tenant("vision"), other = tenant("other");
  const Made boss = make(body_of("boss", vision, "tenant_admin"));
  const Made theirs = make(body_of("zxqv", other, "user"));
  const Made admins = make(R"({"name":"zxqw","cluster":true,"roles":[{"role":"admin"}]})");
  const Reply listed = as(boss.secret, "GET", "/v1/keys");
  EXPECT_NE(listed.body.find("\"boss\""), std::string::npos);
  EXPECT_EQ(listed.body.find("zxq"), std::string::npos) << listed.body;
  for (const Made& hidden : {theirs, admins}) {
    expect_refused(as(boss.secret, "DELETE", "/v1/keys/" + hidden.id), 404, "key_not_found");
    expect_refused(as(boss.secret, "POST", "/v1/keys/" + hidden.id + "/bind", R"({"role":"user"})"), 404,
                   "key_not_found");
  }
  EXPECT_EQ(as(boss.secret, "DELETE", "/v1/keys/key-99999").body.find("zxq"), std::string::npos);
  // A manager of all tenants who is no admin takes nothing from one who is.
  const Made manager = make(R"({"name":"m","cluster":true,"roles":[{"role":"tenant_admin"}]})");
  expect_refused(as(manager.secret, "DELETE", "/v1/keys/" + admins.id), 403, "permission_denied");
  EXPECT_EQ(as(manager.secret, "DELETE", "/v1/keys/" + theirs.id).status, 200);
}

TEST_F(Keys, TheSecretIsNowhereButInItsAnswer) {
  const std::string vision = tenant("vision");
  const Made key = make(body_of("ci", vision, "user"));
  const std::string secret = key.secret.substr(17);
  ASSERT_EQ(secret.size(), 64U);
  EXPECT_EQ(as_admin("GET", "/v1/keys?with_ended=true").body.find(secret), std::string::npos);
  EXPECT_EQ(as_admin("DELETE", "/v1/keys/" + key.id).body.find(secret), std::string::npos);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    EXPECT_EQ(bytes.find(secret), std::string::npos) << entry.path();
    files += bytes.find(key.secret.substr(4, 12)) != std::string::npos;
  }
  EXPECT_GE(files, 1U);  // The journal has its prefix: it was looked at.
}

TEST_F(Keys, ADeletedTenantsKeysEnd) {
  const std::string vision = tenant("vision");
  const Made key = make(body_of("boss", vision, "tenant_admin"));
  EXPECT_EQ(as_admin("DELETE", "/v1/tenants/" + vision).status, 200);
  const Reply reply = as(key.secret, "GET", "/v1/jobs");
  expect_refused(reply, 401, "unauthenticated");
  EXPECT_NE(reply.body.find("was revoked"), std::string::npos);
}

TEST_F(Keys, ItIsShownWhenTheyWereLastUsed) {
  const std::string vision = tenant("vision");
  const Made used = make(body_of("used", vision, "tenant_admin"));
  EXPECT_EQ(as_admin("GET", "/v1/keys").body.find("last_used_at"), std::string::npos);
  const auto minute = [] {
    return std::chrono::floor<std::chrono::minutes>(std::chrono::system_clock::now().time_since_epoch());
  };
  const auto before = minute();
  EXPECT_EQ(as(used.secret, "GET", "/v1/jobs").status, 200);
  const auto after = minute();
  make(body_of("unused", vision, "user"));
  v1::ListKeysResponse listed;
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + std::string(kToken));
  ASSERT_TRUE(v1::Scheduler::NewStub(channel_)->ListKeys(&context, {}, &listed).ok());
  ASSERT_EQ(listed.keys_size(), 2);
  EXPECT_FALSE(listed.keys(1).has_last_used_at());
  const std::chrono::seconds at(listed.keys(0).last_used_at().seconds());
  EXPECT_TRUE(before <= at && at <= after) << at.count();
  // A caller that may not list the key learns nothing of it.
  const Made other = make(body_of("other", tenant("other"), "tenant_admin"));
  EXPECT_EQ(as(other.secret, "GET", "/v1/keys").body.find("\"used\""), std::string::npos);
  const std::string own = as(used.secret, "GET", "/v1/keys").body;
  EXPECT_NE(own.find("\"last_used_at\":\"20"), std::string::npos) << own;
}

TEST_F(Keys, PagesOfThemFollowEachOther) {
  const std::string vision = tenant("vision");
  for (int i = 0; i < 5; ++i) make(body_of("k" + std::to_string(i), vision, "user"));
  std::string names, token;
  int pages = 0;
  do {
    const Reply page = as_admin("GET", "/v1/keys?page_size=2&tenant_id=vision&page_token=" + token);
    ASSERT_EQ(page.status, 200) << page.body;
    for (std::size_t at = 0; (at = page.body.find("\"name\":\"k", at)) != std::string::npos; ++at)
      names += page.body.substr(at + 8, 2);
    token = field(page.body, "next_page_token");
  } while (++pages < 10 && !token.empty());
  EXPECT_EQ(names, "k0k1k2k3k4");
  EXPECT_EQ(pages, 3);
}

TEST_F(Keys, WhatIsWrongInARequestIsNamed) {
  const std::string vision = tenant("vision");
  const auto try_to = [&](const std::string& body) { return as_admin("POST", "/v1/keys", body); };
  for (const auto& [body, at] : {std::pair<std::string, std::string>{R"({"name":"a/b"})", "name"},
                                 {R"({"name":""})", "name"},
                                 {R"({"name":"a","kind":"operator"})", "kind"},
                                 {R"({"name":"a","cluster":true,"tenant_id":"vision"})", "tenant_id"},
                                 {R"({"name":"a","roles":[{"role":"node"}]})", "roles[0].role"},
                                 {R"({"name":"a","roles":[{"role":"root"}]})", "roles[0].role"},
                                 {R"({"name":"a","expires_after_ms":0})", "expires_after_ms"},
                                 {R"({"name":"a","unix_users":["-x"]})", "unix_users[0]"}}) {
    const Reply reply = try_to(body);
    expect_refused(reply, 400, "invalid_argument", body);
    EXPECT_EQ(field(reply.body, "field"), at) << reply.body;
  }
  expect_refused(try_to(R"({"name":"a","expires_at":"2001-01-01T00:00:00Z"})"), 422, "unprocessable");
  make(body_of("a", vision, "user"));
  expect_refused(try_to(body_of("a", vision, "user")), 409, "key_exists");
  expect_refused(as_admin("DELETE", "/v1/keys/key-1x"), 404, "key_not_found");
}

TEST_F(Keys, GrpcTakesThemToo) {
  const std::string vision = tenant("vision");
  const auto stub = v1::Scheduler::NewStub(channel_);
  const auto with = [](grpc::ClientContext& context, const std::string& credential) {
    context.AddMetadata("authorization", "Bearer " + credential);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  };
  v1::Key key;
  {
    grpc::ClientContext context;
    with(context, kToken);
    v1::CreateKeyRequest request;
    request.set_name("ci");
    request.set_tenant_id(vision);
    request.add_roles()->set_role("tenant_admin");
    ASSERT_TRUE(stub->CreateKey(&context, request, &key).ok());
  }
  EXPECT_EQ(key.holder(), vision + "/ci");
  EXPECT_EQ(key.roles(0).tenant_id(), vision);
  const auto list_as = [&](const std::string& credential, v1::ListKeysResponse& response) {
    grpc::ClientContext context;
    with(context, credential);
    return stub->ListKeys(&context, {}, &response);
  };
  v1::ListKeysResponse listed;
  ASSERT_TRUE(list_as(key.secret(), listed).ok());
  ASSERT_EQ(listed.keys_size(), 1);
  EXPECT_FALSE(listed.keys(0).has_secret());
  {
    grpc::ClientContext context;
    with(context, key.secret());
    v1::BindRoleRequest request;
    request.set_key_id(key.key_id());
    request.set_role("admin");
    v1::Key bound;
    EXPECT_EQ(stub->BindRole(&context, request, &bound).error_code(), grpc::INVALID_ARGUMENT);
  }
  {
    grpc::ClientContext context;
    with(context, key.secret());
    v1::RevokeKeyRequest request;
    request.set_key_id(key.key_id());
    v1::Key revoked;
    ASSERT_TRUE(stub->RevokeKey(&context, request, &revoked).ok());
    EXPECT_EQ(revoked.state(), "revoked");
    EXPECT_EQ(revoked.revoked_by(), "service " + vision + "/ci (127.0.0.1)");
  }
  const grpc::Status refused = list_as(key.secret(), listed);
  EXPECT_EQ(refused.error_code(), grpc::UNAUTHENTICATED);
  EXPECT_NE(refused.error_message().find("was revoked"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::api
