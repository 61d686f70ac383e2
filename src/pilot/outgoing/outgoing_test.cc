#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "client/json.h"
#include "client/test_server.h"
#include "pilot/outgoing/lease_door.h"

namespace gpusched::pilot {
namespace {

constexpr const char* kId = "02b70bd3-d2c8-85ce-8000-00000000000c";
constexpr const char* kToken = "gsk_token-of-the-test";

class Outgoing : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "pilot-outgoing-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    audit_ = std::make_unique<AuditFile>(folder_ + "/audit");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string audited() const {
    std::ifstream file(folder_ + "/audit");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Outbox outbox(const std::string& url) {
    return {{{.url = url, .token = kToken}}, *audit_, [] { return Time{1'700'000'000'000'000'000}; }};
  }

  std::string folder_;
  std::unique_ptr<AuditFile> audit_;
};

std::string allocated() {
  return std::string(R"({"task_id":"job-12","gpu_id":")") + kId + R"(","message":"GPU allocation started"})";
}

TEST_F(Outgoing, TheDoorAsksExtendsAndReleases) {
  TestServer server([](const TestServer::Request& request) -> TestServer::Reply {
    if (request.method == "POST" && request.target.ends_with("/allocate"))
      return {.status = 202, .body = allocated()};
    return {.body = R"({"status":"BUSY","lease_expires_at":"2023-11-14T23:13:25.5Z"})"};
  });
  Outbox box = outbox(server.url());
  LeaseDoor door(box, server.url());
  const Result<RemoteLease> lease =
      door.allocate({.gpus = 2, .gpu_model = "H100", .memory_gb = 40, .length = minutes(10)}, "a-key");
  ASSERT_TRUE(lease.ok()) << lease.error().message;
  EXPECT_EQ(lease->id, kId);
  EXPECT_EQ(lease->job, "job-12");
  const Result<anticipate::LeaseSeen> seen = door.extend(kId, minutes(10), "a-key-0");
  ASSERT_TRUE(seen.ok());
  EXPECT_TRUE(seen->in_use && seen->is_ready);
  EXPECT_EQ(seen->expires_at.ns, 1'700'003'605LL * 1'000'000'000);
  EXPECT_TRUE(door.look(kId).ok());
  EXPECT_TRUE(door.release(kId, "a-key-release").ok());
  const std::vector<TestServer::Request> requests = server.requests();
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0].body,
            R"({"count":2,"lease_minutes":10,"gpu_model":"H100","min_memory_gb":40,"name":"gpu-pilot"})");
  EXPECT_EQ(requests[0].headers.at("idempotency-key"), "a-key");
  EXPECT_EQ(requests[0].headers.at("authorization"), std::string("Bearer ") + kToken);
  EXPECT_EQ(requests[3].method, "DELETE");
}

TEST_F(Outgoing, TheAuditHasEveryByteButTheToken) {
  TestServer server(
      [](const TestServer::Request&) -> TestServer::Reply { return {.status = 202, .body = allocated()}; });
  Outbox box = outbox(server.url());
  LeaseDoor door(box, server.url());
  ASSERT_TRUE(door.allocate({.length = minutes(10)}, "a-key").ok());
  const std::string text = audited();
  EXPECT_EQ(text.find(kToken), std::string::npos);
  const std::string line = text.substr(0, text.find('\n'));
  const Json sent = *Json::parse(line);
  const std::string whole = sent["sent"].text();
  EXPECT_TRUE(whole.starts_with("POST /api/gpuscheduler/v1/allocate HTTP/1.1\r\n")) << whole;
  EXPECT_NE(whole.find("User-Agent: gpu-pilot\r\n"), std::string::npos);
  EXPECT_TRUE(whole.ends_with("\r\n\r\n" + server.requests()[0].body)) << whole;
  EXPECT_EQ(sent["bytes"].integer(),
            static_cast<int64_t>(whole.size() - std::string("[secret]").size() + std::string(kToken).size()));
  EXPECT_NE(text.find("\"status\":202"), std::string::npos);
}

TEST_F(Outgoing, NothingIsSentThatCannotBeWrittenDown) {
  audit_ = std::make_unique<AuditFile>(folder_ + "/nowhere/audit");
  TestServer server([](const TestServer::Request&) -> TestServer::Reply { return {}; });
  Outbox box = outbox(server.url());
  EXPECT_FALSE(box.send(server.url(), {.method = "GET", .target = "/"}).ok());
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(Outgoing, NothingIsSentToAnybodyElse) {
  TestServer server([](const TestServer::Request&) -> TestServer::Reply { return {}; });
  TestServer other([&](const TestServer::Request&) -> TestServer::Reply {
    return {.status = 307, .headers = "Location: " + server.url() + "/\r\n"};
  });
  Outbox box = outbox(other.url());
  EXPECT_EQ(box.send(server.url(), {.method = "GET", .target = "/"}).error().code,
            ErrorCode::kPermissionDenied);
  const Result<HttpAnswer> moved = box.send(other.url(), {.method = "GET", .target = "/"});
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->status, 307) << "a redirect is an answer like any other";
  EXPECT_TRUE(server.requests().empty());
  EXPECT_NE(audited().find("none of the destinations"), std::string::npos);
}

TEST_F(Outgoing, AHostWithAnotherAddressIsNotConnectedTo) {
  TestServer server([](const TestServer::Request&) -> TestServer::Reply { return {}; });
  const auto send_to = [&](const char* network) {
    Outbox box({{.url = server.url(), .addresses = {*IpNetwork::parse(network)}}}, *audit_,
               [] { return Time{1'700'000'000'000'000'000}; });
    return box.send(server.url(), {.method = "GET", .target = "/"});
  };
  const Result<HttpAnswer> refused = send_to("10.0.0.0/8");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_NE(refused.error().message.find("does not allow"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(server.requests().empty());
  EXPECT_TRUE(send_to("127.0.0.0/8").ok());
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST_F(Outgoing, AHostileSchedulerGetsNowhere) {
  TestServer::Reply reply;
  TestServer server([&](const TestServer::Request&) { return reply; });
  Outbox box = outbox(server.url());
  LeaseDoor door(box, server.url());
  for (const char* const body :
       {"", "[]", "no JSON", R"({"gpu_id":"../../admin/x","task_id":"job-1"})",
        R"({"gpu_id":"02b70bd3-d2c8-85ce-8000-00000000000c","task_id":"job-1; rm -rf"})",
        R"({"gpu_id":7})"}) {
    reply = {.status = 202, .body = body};
    EXPECT_EQ(door.allocate({.length = minutes(1)}, "k").error().code, ErrorCode::kUnavailable) << body;
  }
  reply = {.status = 429, .body = "{\"detail\":\"quota \x1b[31m reached\"}"};
  EXPECT_FALSE(door.allocate({.length = minutes(1)}, "k").ok());
  reply = {.status = 429, .body = R"({"detail":"GPU quota reached."})"};
  EXPECT_EQ(door.allocate({.length = minutes(1)}, "k").error().code, ErrorCode::kTooLarge);
  reply = {.status = 200, .body = R"({"status":"DANCING"})"};
  EXPECT_FALSE(door.look(kId).ok());
  reply = {.status = 404, .body = R"({"detail":"GPU not found."})"};
  EXPECT_EQ(door.look(kId).error().code, ErrorCode::kNotFound);
  reply = {.status = 500, .body = std::string(2 << 20, 'x')};
  EXPECT_FALSE(door.look(kId).ok());
  reply = {.hang_up = true};
  EXPECT_EQ(door.release(kId, "k").error().code, ErrorCode::kOutcomeUnknown);
}

}  // namespace
}  // namespace gpusched::pilot
