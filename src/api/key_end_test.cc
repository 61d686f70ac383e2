// Streams that are open under a key end with it: over REST, gRPC and WebSocket.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "api/testing/doors_test.h"
#include "base/net/websocket.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

class KeyEnd : public DoorsTest {
 protected:
  static constexpr const char* kToken = "the-right-token";

  KeyEnd() : DoorsTest({.token = kToken}) {
    use_newest_rules();
    make_key(R"("roles":[{"role":"user"}])");
  }

  Reply as_admin(const std::string& method, const std::string& target, const std::string& body = "") {
    return http(method, target, body, with(kToken));
  }
  static std::string with(const std::string& credential) {
    return "Authorization: Bearer " + credential + "\r\nContent-Type: application/json\r\n";
  }
  void make_key(const std::string& more) {
    const Reply reply =
        as_admin("POST", "/v1/keys", R"({"name":"ci-)" + std::to_string(++made_) + "\"," + more + "}");
    ASSERT_EQ(reply.status, 201) << reply.body;
    id_ = field(reply.body, "key_id");
    secret_ = field(reply.body, "secret");
  }
  std::string submit_with_key() {
    const Reply reply = http("POST", "/v1/jobs", R"({"spec":{"command":["true"]}})", with(secret_));
    EXPECT_EQ(reply.status, 201) << reply.body;
    return reply.body.substr(13, reply.body.find('"', 13) - 13);
  }
  void revoke() { EXPECT_EQ(as_admin("DELETE", "/v1/keys/" + id_).status, 200); }
  void bind(const std::string& role, bool taken) {
    const Reply reply = as_admin("POST", "/v1/keys/" + id_ + "/bind",
                                 R"({"role":")" + role + R"(","taken":)" + (taken ? "true}" : "false}"));
    EXPECT_EQ(reply.status, 200) << reply.body;
  }
  std::string revoked() const { return "the API key " + id_ + " was revoked; send another one"; }

  /// A request with the key whose answer may take its time.
  class Open {
   public:
    Open(uint16_t port, const std::string& text) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
      const timeval patience{30, 0};
      setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
      send(text);
    }
    ~Open() { close(socket_); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    void send(const std::string& text) {
      EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    }
    /// All that came so far, once this is in it or nothing more comes.
    const std::string& until(const std::string& what) {
      char buffer[65'536];
      while (what.empty() || all_.find(what) == std::string::npos) {
        const ssize_t size = recv(socket_, buffer, sizeof buffer, 0);
        if (size <= 0) break;
        all_.append(buffer, static_cast<std::size_t>(size));
      }
      return all_;
    }

   private:
    const int socket_;
    std::string all_;
  };
  std::unique_ptr<Open> get(const std::string& target, const std::string& headers = "") {
    return std::make_unique<Open>(server_->http_port(), "GET " + target + " HTTP/1.1\r\nHost: x\r\n" +
                                                            with(secret_) + headers + "\r\n");
  }
  std::unique_ptr<grpc::ClientContext> call_with_key() const {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("authorization", "Bearer " + secret_);
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return context;
  }
  void expect_revoked(const grpc::Status& status) const {
    EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED);
    EXPECT_EQ(status.error_message(), revoked());
  }

  int made_ = 0;
  std::string id_, secret_;
};

TEST_F(KeyEnd, AWatchOfOneJobEndsWithAnEventThatSaysWhy) {
  const auto watch = get("/v1/jobs/" + submit_with_key() + "/watch");
  EXPECT_NE(watch->until("event: job").find("200 OK"), std::string::npos);
  revoke();
  const std::string all = watch->until("\r\n0\r\n\r\n");
  EXPECT_NE(
      all.find("event: error\ndata: {\"error\":\"" + revoked() + "\",\"code\":\"unauthenticated\"}\n\n"),
      std::string::npos)
      << all;
  EXPECT_TRUE(all.ends_with("0\r\n\r\n")) << all;
}

TEST_F(KeyEnd, AWatchOfAllEndsToo) {
  const auto watch = get("/v1/watch");
  watch->until("event: begin");
  revoke();
  EXPECT_NE(watch->until("\r\n0\r\n\r\n").find("event: error\ndata: {\"error\":\"" + revoked()),
            std::string::npos);
}

TEST_F(KeyEnd, AnExpiredKeyEndsWhatItHasOpenByItself) {
  const std::string job = submit_with_key();
  std::unique_ptr<Open> watch;
  for (int lifetime_ms = 2'000; watch == nullptr; lifetime_ms *= 2) {  // Longer where the machine is slow.
    make_key(R"("roles":[{"role":"viewer"}],"expires_after_ms":)" + std::to_string(lifetime_ms));
    watch = get("/v1/jobs/" + job + "/watch", "Connection: close\r\n");
    if (watch->until("event: job").find("event: job") == std::string::npos) watch.reset();
  }
  const std::string all = watch->until("\r\n0\r\n\r\n");
  EXPECT_NE(all.find("event: job"), std::string::npos) << all;
  EXPECT_NE(
      all.find("event: error\ndata: {\"error\":\"the API key " + id_ + " has expired; send another one"),
      std::string::npos)
      << all;
}

TEST_F(KeyEnd, ADeletedTenantsKeysEndWhatTheyHaveOpen) {
  const std::string tenant = field(as_admin("POST", "/v1/tenants", R"({"name":"vision"})").body, "tenant_id");
  make_key(R"("tenant_id":"vision","roles":[{"role":"viewer"}])");
  const auto watch = get("/v1/watch");
  watch->until("event: begin");
  EXPECT_EQ(as_admin("DELETE", "/v1/tenants/" + tenant).status, 200);
  EXPECT_NE(watch->until("\r\n0\r\n\r\n").find(revoked()), std::string::npos);
}

TEST_F(KeyEnd, ARoleThatIsTakenEndsWhatItAllowed) {
  const std::string job = submit_with_key();
  bind("viewer", false);
  const auto watch = get("/v1/jobs/" + job + "/watch");
  watch->until("event: job");
  bind("viewer", true);  // A user may see all that, too.
  bind("tenant_admin", false);
  EXPECT_EQ(as_admin("POST", "/v1/jobs/" + job + "/hold").status, 200);
  EXPECT_EQ(watch->until("\"held\":true").find("event: error"), std::string::npos);
  bind("user", true);
  bind("tenant_admin", true);
  const std::string all = watch->until("\r\n0\r\n\r\n");
  EXPECT_NE(all.find("was taken from the API key " + id_), std::string::npos) << all;
  EXPECT_NE(all.find("\"code\":\"permission_denied\""), std::string::npos) << all;
}

TEST_F(KeyEnd, AWaitIsAnsweredWithTheReason) {
  const auto wait = get("/v1/jobs/" + submit_with_key() + "?wait=5m", "Connection: close\r\n");
  http("GET", "/health");
  revoke();
  const std::string all = wait->until("");
  EXPECT_TRUE(all.starts_with("HTTP/1.1 401 ")) << all;
  EXPECT_NE(all.find(revoked()), std::string::npos) << all;
  EXPECT_NE(all.find("X-Request-Id: "), std::string::npos) << all;
}

TEST_F(KeyEnd, FollowedOutputEnds) {
  // It waits for the start of its job.
  const auto log = get("/v1/jobs/" + submit_with_key() + "/log?follow=true", "Connection: close\r\n");
  http("GET", "/health");
  revoke();
  const std::string all = log->until("");
  EXPECT_TRUE(all.starts_with("HTTP/1.1 401 ")) << all;
}

TEST_F(KeyEnd, AStreamOfLinesAnswersWhatItTookAndEnds) {
  const auto chunk = [](const std::string& text) {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    return size + text + "\r\n";
  };
  const std::string line = "{\"spec\":{\"command\":[\"true\"]}}\n";
  Open stream(server_->http_port(),
              "POST /v1/jobs:stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + with(secret_) +
                  "\r\n" + chunk(line));
  EXPECT_NE(stream.until("job-").find("200 OK"), std::string::npos);
  revoke();
  const std::string all = stream.until("\r\n0\r\n\r\n");
  EXPECT_NE(all.find("{\"error\":\"" + revoked() + "\",\"code\":\"unauthenticated\"}\n"), std::string::npos)
      << all;
  EXPECT_TRUE(all.ends_with("0\r\n\r\n")) << all;
}

TEST_F(KeyEnd, ASessionIsToldWhyAndClosed) {
  const auto session = get("/v1/jobs/" + submit_with_key() + "/session",
                           "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
  EXPECT_NE(session->until("\r\n\r\n").find(" 101 "), std::string::npos);
  revoke();
  const std::string all = session->until("");
  const std::string ended = R"({"type":"ended","error":")" + revoked() + R"(","code":"unauthenticated"})";
  EXPECT_TRUE(all.ends_with(
      websocket::encode_frame(websocket::Opcode::kText, ended) +
      websocket::encode_frame(websocket::Opcode::kClose,
                              websocket::close_payload(websocket::kPolicyViolation, revoked()))))
      << all;
}

TEST_F(KeyEnd, AWatchOverGrpcEnds) {
  const auto stub = v1::Scheduler::NewStub(channel_);
  const auto context = call_with_key();
  v1::GetJobRequest request;
  request.set_job_id(submit_with_key());
  const auto reader = stub->WatchJob(context.get(), request);
  v1::Job job;
  ASSERT_TRUE(reader->Read(&job));
  revoke();
  while (reader->Read(&job)) {
  }
  expect_revoked(reader->Finish());
}

TEST_F(KeyEnd, AStreamOfSubmissionsAnswersWhatItTookAndEnds) {
  const auto stub = v1::Scheduler::NewStub(channel_);
  const auto context = call_with_key();
  const auto stream = stub->SubmitJobStream(context.get());
  v1::SubmitJobsRequest request;
  request.add_jobs()->mutable_spec()->add_command("true");
  v1::SubmitJobsResponse response;
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.job_ids_size(), 1) << response.message();
  revoke();
  EXPECT_FALSE(stream->Read(&response));
  expect_revoked(stream->Finish());
}

TEST_F(KeyEnd, OthersGoOn) {
  const std::string job = submit_with_key();
  const std::string other_secret = secret_;
  const auto other = get("/v1/jobs/" + job + "/watch");
  other->until("event: job");
  const auto admin = std::make_unique<Open>(
      server_->http_port(), "GET /v1/jobs/" + job + "/watch HTTP/1.1\r\nHost: x\r\n" + with(kToken) + "\r\n");
  admin->until("event: job");
  make_key(R"("roles":[{"role":"user"}])");
  const auto ended = get("/v1/watch");
  ended->until("event: begin");
  revoke();
  ended->until("\r\n0\r\n\r\n");
  EXPECT_EQ(as_admin("POST", "/v1/jobs/" + job + "/cancel").status, 200);
  for (const auto& watch : {other.get(), admin.get()}) {
    const std::string& all = watch->until("\r\n0\r\n\r\n");
    EXPECT_NE(all.find("\"state\":\"cancelled\""), std::string::npos) << all;
    EXPECT_EQ(all.find("event: error"), std::string::npos) << all;
  }
}

}  // namespace
}  // namespace gpusched::api
