// How much waits at the doors while something behind them is slow: ten times as much is asked as is kept.
#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/backend/host_backend.h"
#include "api/grpc/grpc_call.h"
#include "api/grpc_server.h"
#include "api/testing/host_proxy.h"
#include "base/queue_limits.h"
#include "gpusched/v1/node.grpc.pb.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

/// A host that deals with agents' messages when the test lets it, and counts them.
class CountingHost final : public HostProxy {
 public:
  using HostProxy::HostProxy;

  void node_received(SessionId session, v1::AgentMessage message, std::function<void()> handled) override {
    const std::lock_guard lock(mutex_);
    ++received_;
    bytes_ += message.ByteSizeLong();
    most_ = std::max(most_, ++waiting_);
    most_bytes_ = std::max(most_bytes_, bytes_);
    held_.push_back({session, std::move(message), std::move(handled)});
    changed_.notify_all();
  }
  /// Deals with the oldest message, once there is one.
  void handle_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !held_.empty(); });
    Held one = std::move(held_.front());
    held_.pop_front();
    --waiting_;
    bytes_ -= one.message.ByteSizeLong();
    lock.unlock();
    HostProxy::node_received(one.session, std::move(one.message), std::move(one.handled));
  }
  void wait_until_waiting(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  std::size_t most() const { return most_; }
  std::size_t most_bytes() const { return most_bytes_; }

 private:
  struct Held {
    SessionId session = 0;
    v1::AgentMessage message;
    std::function<void()> handled;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Held> held_;
  std::size_t received_ = 0, waiting_ = 0, most_ = 0, bytes_ = 0, most_bytes_ = 0;
};

class Bounds : public ::testing::Test {
 protected:
  Bounds() {
    char pattern[] = "/tmp/gpusched-bounds-XXXXXX";
    folder_ = mkdtemp(pattern);
    HostOptions options{.data_dir = folder_ + "/data"};
    auto host = Host::open(options);
    EXPECT_TRUE(host.ok());
    host_ = std::move(*host);
  }
  ~Bounds() override {
    host_->stop();
    host_.reset();  // Its journal prepares files in the folder until then.
    std::filesystem::remove_all(folder_);
  }
  std::string folder_;
  std::unique_ptr<Host> host_;
};

TEST_F(Bounds, QuestionsBeyondWhatWaitsAreRefusedWithATimeToComeAgain) {
  HostBackend backend(*host_, {});
  std::promise<void> reached, go;
  host_->observer().read(0, [&](const Observer::View&) {
    reached.set_value();
    go.get_future().wait();
  });
  reached.get_future().wait();
  std::atomic<std::size_t> answered{0};
  std::atomic<std::size_t> refused{0};
  const auto count = [&](const auto& answer) {
    const ErrorKind kind = answer.ok() ? ErrorKind::kInternal : answer.error().kind;
    const bool shed = kind == ErrorKind::kUnavailable || kind == ErrorKind::kCallerLimit;
    EXPECT_TRUE(!shed || answer.error().retry_after.ns > 0);
    ++(shed ? refused : answered);
  };
  constexpr std::size_t kReads = 10 * limits::kReadsWaitingMax;
  for (std::size_t i = 0; i < kReads; ++i)
    backend.get_job(shared_token_caller(), JobId{1'000}, "",
                    [&](const Answer<JobView>& answer) { count(answer); });
  EXPECT_GE(refused, kReads - limits::kReadsWaitingMax);
  EXPECT_LE(host_->observer().reads_waiting(), limits::kReadsWaitingMax);
  const std::size_t shed = refused;
  constexpr std::size_t kMetrics = 1'000;
  for (std::size_t i = 0; i < kMetrics; ++i)
    backend.get_metrics(shared_token_caller(), [&](const Answer<MetricsView>& answer) { count(answer); });
  EXPECT_GE(refused - shed, kMetrics - limits::kScansWaitingMax);
  EXPECT_LT(refused - shed, kMetrics);
  const std::size_t before = refused;
  constexpr std::size_t kScans = 10 * limits::kScansWaitingMax;
  for (std::size_t i = 0; i < kScans; ++i)
    backend.list_jobs(shared_token_caller(), {}, [&](const Answer<JobPage>& answer) { count(answer); });
  EXPECT_GE(refused - before, kScans - limits::kScansWaitingMax);
  EXPECT_LE(host_->observer().scans_waiting(), limits::kScansWaitingMax);
  go.set_value();
  std::promise<void> done;
  host_->observer().scan(0, [&](const Observer::View&) {
    if (answered + refused < kReads + kMetrics + kScans) return true;
    done.set_value();
    return false;
  });
  done.get_future().wait();
  // There is room again.
  std::promise<bool> last;
  backend.get_tenant(shared_token_caller(), "default",
                     [&](const Answer<TenantView>& answer) { last.set_value(answer.ok()); });
  EXPECT_TRUE(last.get_future().get());
}

v1::AgentMessage hello() {
  v1::AgentMessage message;
  message.mutable_hello()->set_nonce(std::string(32, 'n'));
  return message;
}

v1::AgentMessage registration() {
  v1::AgentMessage message;
  message.mutable_register_()->set_node_name("n1");
  message.mutable_register_()->set_instance("folder");
  message.mutable_register_()->set_boot_id("boot");
  return message;
}

TEST_F(Bounds, AnAgentIsNotReadFasterThanTheHostDealsWithWhatItSays) {
  HostBackend backend(*host_, {});
  CountingHost counting(*host_);
  GrpcServer server({.doorkeeper = {.everybody = shared_token_caller()}}, backend, counting);
  ASSERT_TRUE(server.start().ok());
  const auto channel =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(server.port()), grpc::InsecureChannelCredentials());
  for (const std::size_t bytes : {std::size_t{10}, std::size_t{200'000}}) {
    const auto stub = v1::NodeProtocol::NewStub(channel);
    grpc::ClientContext context;
    const auto stream = stub->Connect(&context);
    v1::SchedulerMessage answer;
    ASSERT_TRUE(stream->Write(hello()));
    ASSERT_TRUE(stream->Read(&answer));
    ASSERT_TRUE(stream->Write(registration()));
    counting.handle_one();
    ASSERT_TRUE(stream->Read(&answer));
    ASSERT_TRUE(answer.has_registered());
    constexpr int kMessages = 10 * static_cast<int>(limits::kAgentMessagesMax);
    std::thread agent([&] {
      v1::AgentMessage message;
      message.mutable_log_chunk()->set_data(std::string(bytes, 'x'));
      for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(stream->Write(message));
    });
    // As much as may wait is waiting before the first is dealt with.
    counting.wait_until_waiting(
        std::min(limits::kAgentMessagesMax, limits::kAgentMessageBytesMax / (bytes + 100) + 1));
    for (int i = 0; i < kMessages; ++i) counting.handle_one();
    agent.join();
    EXPECT_LE(counting.most(), limits::kAgentMessagesMax);
    EXPECT_LE(counting.most_bytes(), limits::kAgentMessageBytesMax + bytes + 1'000);
    stream->WritesDone();
    while (stream->Read(&answer)) {
    }
    stream->Finish();
  }
  server.shutdown();
}

/// Asks a server by hand, so that a message can be left out.
class RawClient {
 public:
  explicit RawClient(const GrpcServer& server)
      : channel_(grpc::CreateChannel("127.0.0.1:" + std::to_string(server.port()),
                                     grpc::InsecureChannelCredentials())) {}

  /// Begins a call, sends `message` where there is one, and waits for its end.
  grpc::Status call(const std::string& method, const std::optional<std::string>& message) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, method, &queue);
    const auto step = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
    };
    call->StartCall(nullptr);
    step();
    if (message) {
      const grpc::Slice slice(*message);
      call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
      step();
    }
    grpc::ByteBuffer answer;  // The status comes behind it.
    call->Read(&answer, nullptr);
    step();
    grpc::Status status;
    call->Finish(&status, nullptr);
    step();
    pushback_ms = 0;
    const auto& told = context.GetServerTrailingMetadata();
    if (const auto found = told.find("grpc-retry-pushback-ms"); found != told.end())
      pushback_ms = std::stoi(std::string(found->second.data(), found->second.size()));
    queue.Shutdown();
    return status;
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  int pushback_ms = 0;        ///< From the last call.
  std::string authorization;  ///< For the next calls.

 private:
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(Bounds, ACallWhoseMessageDoesNotComeIsEnded) {
  HostBackend backend(*host_, {});
  GrpcServer server({.doorkeeper = {.everybody = shared_token_caller()}, .message_wait = seconds(2)}, backend,
                    *host_);
  ASSERT_TRUE(server.start().ok());
  RawClient client(server);
  for (const char* const method : {"/gpusched.v1.Scheduler/SubmitJobs", "/gpusched.v1.Scheduler/WatchJob",
                                   "/scheduler.SchedulerService/GetJobStatus"}) {
    const grpc::Status status = client.call(method, std::nullopt);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << method;
    EXPECT_NE(status.error_message().find("message did not arrive"), std::string::npos) << method;
  }
  // An agent that does not say who it is.
  grpc::ClientContext context;
  const auto agent = v1::NodeProtocol::NewStub(client.channel())->Connect(&context);
  v1::SchedulerMessage told;
  ASSERT_TRUE(agent->Read(&told));
  EXPECT_EQ(told.refused().code(), "request_timeout");
  EXPECT_FALSE(agent->Read(&told));
  EXPECT_TRUE(agent->Finish().ok());
  // Others are answered meanwhile and afterwards.
  std::vector<std::thread> slow;
  for (int i = 0; i < 8; ++i) {
    slow.emplace_back([&server] {
      RawClient mine(server);
      EXPECT_EQ(mine.call("/gpusched.v1.Scheduler/GetJob", std::nullopt).error_code(),
                grpc::StatusCode::DEADLINE_EXCEEDED);
    });
  }
  // A machine that is busy may stall for longer than a message is waited for: then the call is asked again.
  const auto answered = [&client] {
    grpc::Status status;
    do {
      status = client.call("/gpusched.v1.Scheduler/GetCluster", "");
    } while (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
    return status.ok() ? "" : status.error_message();
  };
  EXPECT_EQ(answered(), "");
  for (std::thread& one : slow) one.join();
  EXPECT_EQ(answered(), "");
  EXPECT_EQ(client.call("/gpusched.v1.Scheduler/GetCluster", "\xff\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(client.call("/gpusched.v1.Scheduler/NoSuchCall", "").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  server.shutdown();
}

TEST_F(Bounds, ACallThatWaitsForItsMessageDoesNotHoldUpTheEnd) {
  HostBackend backend(*host_, {});
  GrpcServer server({.doorkeeper = {.everybody = shared_token_caller()}, .shutdown_wait = milliseconds(200)},
                    backend, *host_);
  ASSERT_TRUE(server.start().ok());
  std::vector<std::thread> slow;
  for (const char* const method : {"/gpusched.v1.Scheduler/SubmitJobs", "/gpusched.v1.Scheduler/WatchJob"}) {
    slow.emplace_back([&server, method] {
      RawClient client(server);
      EXPECT_FALSE(client.call(method, std::nullopt).ok());
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  server.shutdown();
  for (std::thread& one : slow) one.join();
}

TEST_F(Bounds, WhoCallsTooOftenIsRefusedBeforeItsTokenIsLookedAt) {
  HostBackend backend(*host_, {});
  Admission admission({.address_rate = {.per_second = 2}});
  GrpcServer server({.doorkeeper = {.token = "secret", .token_required = true}, .admission = &admission},
                    backend, *host_);
  ASSERT_TRUE(server.start().ok());
  RawClient client(server);
  int unauthenticated = 0;
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    const grpc::Status status =
        client.call(i % 2 == 0 ? "/gpusched.v1.Scheduler/GetCluster" : "/gpusched.v1.Scheduler/WatchJob", "");
    if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) ++unauthenticated;
    if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) continue;
    ++refused;
    EXPECT_EQ(status.error_message(),
              "too many requests from this address; send fewer requests, or submit jobs in batches");
    EXPECT_GE(client.pushback_ms, 1'000);
  }
  EXPECT_GE(unauthenticated, 2);
  EXPECT_GE(refused, 10);
  // It is one budget with REST's.
  EXPECT_TRUE(admission.take("127.0.0.1"));
  EXPECT_FALSE(admission.take("127.0.0.2"));
  server.shutdown();
}

TEST_F(Bounds, WrongCredentialsBeyondTheBudgetAreNotLookedAtAndGoodOnesAre) {
  HostBackend backend(*host_, {});
  Admission admission({.failed_rate = {.per_second = 0.001, .burst = 5}});
  GrpcServer server({.doorkeeper = {.token = "secret", .token_required = true, .keys = &backend.keys()},
                     .admission = &admission},
                    backend, *host_);
  ASSERT_TRUE(server.start().ok());
  RawClient client(server);
  constexpr const char* kCluster = "/gpusched.v1.Scheduler/GetCluster";
  for (int i = 0; i < 20; ++i) {
    client.authorization = "Bearer wrong" + std::to_string(i);
    const grpc::StatusCode code = client.call(kCluster, "").error_code();
    EXPECT_EQ(code, i < 5 ? grpc::StatusCode::UNAUTHENTICATED : grpc::StatusCode::RESOURCE_EXHAUSTED) << i;
    EXPECT_EQ(client.pushback_ms >= 1'000, i >= 5);
  }
  client.authorization = "Bearer secret";
  EXPECT_EQ(client.call(kCluster, "").error_message(), "");
  server.shutdown();
}

TEST_F(Bounds, StreamsOfOneCallerAreBoundedAndGivenBack) {
  HostBackend backend(*host_, {});
  Admission admission({.streams_max = 3});
  GrpcServer server({.doorkeeper = {.everybody = shared_token_caller()}, .admission = &admission}, backend,
                    *host_);
  ASSERT_TRUE(server.start().ok());
  backend.on_group_done([&server] { server.flush(); });  // Else the answer waits for the thread's next alarm.
  const RawClient client(server);
  const auto stub = v1::Scheduler::NewStub(client.channel());
  v1::SubmitJobsRequest submit;
  submit.add_jobs()->mutable_spec()->set_script("true");
  v1::SubmitJobsResponse submitted;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->SubmitJobs(&context, submit, &submitted).ok());
  v1::GetJobRequest request;
  request.set_job_id(submitted.job_ids(0));
  struct Watching {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Job>> stream;
  };
  v1::Job job;
  const auto watch = [&] {
    auto one = std::make_unique<Watching>();
    one->stream = stub->WatchJob(&one->context, request);
    return one;
  };
  std::vector<std::unique_ptr<Watching>> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(watch());
    ASSERT_TRUE(open.back()->stream->Read(&job));
  }
  for (int i = 0; i < 10; ++i) {
    const auto beyond = watch();
    EXPECT_FALSE(beyond->stream->Read(&job));
    const grpc::Status status = beyond->stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_NE(status.error_message().find("api.caller_streams_max"), std::string::npos);
  }
  EXPECT_EQ(admission.callers().refused(Refused::kStreams), 10u);
  // Calls that are answered at once go on, and a stream that ends makes room for another one.
  grpc::ClientContext asking;
  EXPECT_TRUE(stub->GetJob(&asking, request, &job).ok());
  open.back()->context.TryCancel();
  while (open.back()->stream->Read(&job)) {
  }
  for (bool read = false; !read;) {  // The server hears of it a little later.
    open.back() = watch();
    read = open.back()->stream->Read(&job);
  }
  for (const auto& one : open) one->context.TryCancel();
  open.clear();
  server.shutdown();
  host_->stop();  // It may call the server's hook until then.
  EXPECT_EQ(admission.callers().calls_open(CallRoom::kGrpc), 0u);
}

/// Every text is the token of an administrator of that name.
class AnyName final : public TokenHolders {
 public:
  Answer<CallerPtr> holder_of(std::string_view token) const override {
    access::Caller caller = *shared_token_caller();
    caller.kind = access::CallerKind::kPerson;
    caller.name = std::string(token);
    return std::make_shared<const access::Caller>(std::move(caller));
  }
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr&,
                                            std::function<void(const ApiError&)>) const override {
    return std::shared_ptr<void>();
  }
};

TEST_F(Bounds, AnOperatorsCallPassesWhileOthersFillTheRoomOfGrpc) {
  HostBackend backend(*host_, {});
  Admission admission(CallerLimits{});
  const AnyName everybody;
  GrpcServer server({.doorkeeper = {.token_required = true, .tokens = &everybody}, .admission = &admission},
                    backend, *host_);
  ASSERT_TRUE(server.start().ok());
  admission.callers().set_room(CallRoom::kGrpc, 32);  // Two places of them are for vital calls.
  backend.on_group_done([&server] { server.flush(); });
  RawClient client(server);
  const auto stub = v1::Scheduler::NewStub(client.channel());
  v1::SubmitJobsRequest submit;
  submit.add_jobs()->mutable_spec()->set_script("true");
  v1::SubmitJobsResponse submitted;
  grpc::ClientContext submitting;
  submitting.AddMetadata("authorization", "Bearer first");
  ASSERT_TRUE(stub->SubmitJobs(&submitting, submit, &submitted).ok());
  v1::GetJobRequest request;
  request.set_job_id(submitted.job_ids(0));
  struct Watching {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Job>> stream;
  };
  std::vector<std::unique_ptr<Watching>> open;
  v1::Job job;
  for (int i = 0; i < 12; ++i) {  // Each takes what it gets.
    for (bool taken = true; taken;) {
      auto one = std::make_unique<Watching>();
      one->context.AddMetadata("authorization", "Bearer flooder-" + std::to_string(i));
      one->stream = stub->WatchJob(&one->context, request);
      taken = one->stream->Read(&job);
      if (taken) {
        open.push_back(std::move(one));
      } else {
        EXPECT_EQ(one->stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      }
    }
  }
  EXPECT_EQ(open.size(), 29U);
  client.authorization = "Bearer operator";
  EXPECT_EQ(client.call("/gpusched.v1.Scheduler/GetCluster", "").error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(client.call("/gpusched.v1.Scheduler/ListNodes", "").error_message(), "");
  v1::DrainNodeRequest drain;
  drain.set_node_name("n1");
  const grpc::Status drained = client.call("/gpusched.v1.Scheduler/DrainNode", drain.SerializeAsString());
  EXPECT_EQ(drained.error_code(), grpc::StatusCode::NOT_FOUND) << drained.error_message();
  v1::CancelJobsRequest cancel;
  cancel.add_job_ids(submitted.job_ids(0));
  EXPECT_EQ(client.call("/gpusched.v1.Scheduler/CancelJobs", cancel.SerializeAsString()).error_message(), "");
  for (const auto& one : open) {  // They end with the job.
    while (one->stream->Read(&job)) {
    }
    EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  }
  server.shutdown();
  host_->stop();  // It may call the server's hook until then.
  EXPECT_EQ(admission.callers().calls_open(CallRoom::kGrpc), 0u);
}

TEST_F(Bounds, AGrpcConnectionWithoutCallsIsClosed) {
  HostBackend backend(*host_, {});
  GrpcServer server({.doorkeeper = {.everybody = shared_token_caller()}, .connection_idle = seconds(1)},
                    backend, *host_);
  ASSERT_TRUE(server.start().ok());
  const RawClient client(server);
  const auto patience = std::chrono::system_clock::now() + std::chrono::seconds(60);
  ASSERT_TRUE(client.channel()->WaitForConnected(patience));
  EXPECT_TRUE(client.channel()->WaitForStateChange(GRPC_CHANNEL_READY, patience));
  // It connects again by itself.
  RawClient again(server);
  EXPECT_EQ(again.call("/gpusched.v1.Scheduler/GetCluster", "").error_message(), "");
  server.shutdown();
}

/// A connection on which nothing is said.
class SilentClient {
 public:
  SilentClient(uint16_t port, const char* from) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~SilentClient() { close(socket_); }
  SilentClient(const SilentClient&) = delete;
  SilentClient& operator=(const SilentClient&) = delete;
  /// Whether gRPC says its first words: its settings.
  bool is_taken() const {
    char byte = 0;
    return recv(socket_, &byte, 1, 0) == 1;
  }

 private:
  const int socket_;
};

TEST_F(Bounds, AnAddressHasNoMoreGrpcConnectionsThanItMay) {
  HostBackend backend(*host_, {});
  GrpcServer server({.doorkeeper = {.everybody = shared_token_caller()},
                     .address_connections_max = 3,
                     .bounds_loopback = true},
                    backend, *host_);
  ASSERT_TRUE(server.start().ok());
  std::vector<std::unique_ptr<SilentClient>> open;
  const auto another = [&](const char* from) {
    open.push_back(std::make_unique<SilentClient>(server.port(), from));
    return open.back()->is_taken();
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(another("127.0.0.2")) << i;
  EXPECT_FALSE(another("127.0.0.2"));
  EXPECT_EQ(server.connections_turned_away(), 1U);
  // Others are answered as ever.
  EXPECT_TRUE(another("127.0.0.3"));
  RawClient client(server);
  EXPECT_EQ(client.call("/gpusched.v1.Scheduler/GetCluster", "").error_message(), "");
  // Once gRPC has noticed that one is gone there is room for another.
  open.erase(open.begin());
  bool is_taken = false;
  for (int i = 0; i < 200 && !is_taken; ++i) {
    usleep(50'000);
    is_taken = another("127.0.0.2");
  }
  EXPECT_TRUE(is_taken);
  EXPECT_FALSE(another("127.0.0.2"));
  server.shutdown();
}

TEST_F(Bounds, AllGrpcConnectionsTogetherHaveABoundAndOneAddressHalfOfIt) {
  HostBackend backend(*host_, {});
  GrpcServer server({.doorkeeper = {.everybody = shared_token_caller()},
                     .address_connections_max = 1'000,
                     .bounds_loopback = true},
                    backend, *host_);
  ASSERT_TRUE(server.start(4).ok());
  std::vector<std::unique_ptr<SilentClient>> open;
  const auto another = [&](const char* from) {
    open.push_back(std::make_unique<SilentClient>(server.port(), from));
    return open.back()->is_taken();
  };
  for (const char* const from : {"127.0.0.2", "127.0.0.3"}) {
    for (const bool expected : {true, true, false}) EXPECT_EQ(another(from), expected) << from;
  }
  EXPECT_FALSE(another("127.0.0.4"));
  server.shutdown();
}

TEST(CallMetadata, KnowsAddressesAsGrpcWritesThem) {
  EXPECT_EQ(address_of("ipv4:10.0.0.7:4711"), "10.0.0.7");
  EXPECT_EQ(address_of("ipv6:%5B::1%5D:4711"), "::1");
  EXPECT_EQ(address_of("ipv6:[fe80::1]:4711"), "fe80::1");
  EXPECT_EQ(address_of("unix:/x"), "unix:/x");
}

}  // namespace
}  // namespace gpusched::api
