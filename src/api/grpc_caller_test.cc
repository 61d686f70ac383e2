// How often a gRPC call's credential is looked at.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "api/backend/host_backend.h"
#include "api/grpc/grpc_call.h"
#include "api/grpc_server.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

const std::string kKey = "gsk_aaaaaaaaaaaa." + std::string(64, '0');

/// One key, which counts how often somebody asks whose it is.
class CountedKey final : public KeyHolders {
 public:
  Answer<CallerPtr> holder_of(const sign::ApiKeyParts&) const override {
    ++looked_up;
    if (ended) return unknown_credential();
    return std::make_shared<const access::Caller>(
        access::Caller{.kind = access::CallerKind::kService,
                       .name = "ci",
                       .key_id = "aaaaaaaaaaaa",
                       .bindings = {{.tenant = TenantId{}, .role = Role::kAdmin}}});
  }
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr&, std::optional<access::Action>,
                                            std::function<void(const ApiError&)>) const override {
    if (ended) return unknown_credential();
    return std::shared_ptr<void>();
  }
  bool is_there(std::string_view) const override { return true; }

  mutable std::atomic<int> looked_up{0};
  std::atomic<bool> ended{false};
};

class GrpcCallers : public ::testing::Test {
 protected:
  GrpcCallers() {
    folder_ = (std::filesystem::temp_directory_path() / "gpusched_callers_XXXXXX").string();
    CHECK(mkdtemp(folder_.data()) != nullptr);
    auto host = Host::open({.data_dir = folder_ + "/data"});
    CHECK(host.ok());
    host_ = std::move(*host);
    backend_ = std::make_unique<HostBackend>(*host_, HostBackendOptions{});
    server_ = std::make_unique<GrpcServer>(
        GrpcServerOptions{.doorkeeper = {.token = std::string(64, 't'), .keys = &key_},
                          .admission = &admission_},
        *backend_, *host_);
    CHECK(server_->start().ok());
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                   grpc::InsecureChannelCredentials());
  }
  ~GrpcCallers() override {
    server_->shutdown();
    host_->stop();
    server_.reset();
    backend_.reset();
    host_.reset();
    std::filesystem::remove_all(folder_);
  }
  static void show_key(grpc::ClientContext& context) {
    context.AddMetadata("authorization", "Bearer " + kKey);
  }

  std::string folder_;
  CountedKey key_;
  Admission admission_{CallerLimits{}};
  std::unique_ptr<Host> host_;
  std::unique_ptr<HostBackend> backend_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcCallers, ACallsCredentialIsLookedUpOnce) {
  const auto native = v1::Scheduler::NewStub(channel_);
  constexpr int kCalls = 20;
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext context;
    show_key(context);
    v1::Cluster answer;
    const grpc::Status status = native->GetCluster(&context, {}, &answer);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(key_.looked_up, kCalls);
}

TEST_F(GrpcCallers, AStreamsCredentialIsLookedUpOnce) {
  const auto native = v1::Scheduler::NewStub(channel_);
  grpc::ClientContext context;
  show_key(context);
  v1::GetJobRequest request;
  request.set_job_id("job-1");
  v1::Job job;
  const auto watch = native->WatchJob(&context, request);
  EXPECT_FALSE(watch->Read(&job));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(key_.looked_up, 1);

  grpc::ClientContext submitting;
  show_key(submitting);
  const auto submit = native->SubmitJobStream(&submitting);
  submit->WritesDone();
  EXPECT_TRUE(submit->Finish().ok());
  EXPECT_EQ(key_.looked_up, 2);
}

TEST_F(GrpcCallers, AKeyThatEndsWhileTheMessageIsOnItsWayIsFoundToHaveEnded) {
  grpc::ClientContext context;
  show_key(context);
  // By hand: the headers now, the message later.
  grpc::CompletionQueue queue;
  grpc::GenericStub generic(channel_);
  const auto call = generic.PrepareCall(&context, "/gpusched.v1.Scheduler/GetCluster", &queue);
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
  };
  call->StartCall(nullptr);
  step();
  while (key_.looked_up == 0) std::this_thread::yield();
  key_.ended = true;
  std::this_thread::sleep_for(kCallerHolds + std::chrono::milliseconds(200));
  const grpc::Slice nothing;
  call->WriteLast(grpc::ByteBuffer(&nothing, 1), {}, nullptr);
  step();
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  step();
  grpc::Status status;
  call->Finish(&status, nullptr);
  step();
  queue.Shutdown();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
}

}  // namespace
}  // namespace gpusched::api
