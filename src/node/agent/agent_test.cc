// The whole agent with real processes, against a scheduler of a few lines over real gRPC.
#include "node/agent/agent.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "gpusched/v1/node.grpc.pb.h"
#include "node/testing/attempt_key.h"
#include "node/testing/testing.h"
#include "sign/keys/token_proof.h"

namespace gpusched {
namespace {

const std::string kToken = "0123456789abcdef0123456789abcdef";

/// Speaks the protocol's first words, acknowledges every report, and remembers everything.
class FakeScheduler final : public v1::NodeProtocol::Service {
 public:
  explicit FakeScheduler(std::string token = "") : token_(std::move(token)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeScheduler() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  void send(const v1::SchedulerMessage& message) {
    const std::lock_guard lock(mutex_);
    ASSERT_NE(stream_, nullptr);
    v1::SchedulerMessage told = message;
    told.set_term(term);
    stream_->Write(told);
  }
  void cut_connection() {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  /// Waits until something received satisfies `fits`, and returns it. Gives up after a minute, as a hang.
  v1::AgentMessage wait_for(const std::function<bool(const v1::AgentMessage&)>& fits) {
    std::unique_lock lock(mutex_);
    v1::AgentMessage found;
    const bool came = changed_.wait_for(lock, std::chrono::minutes(1), [&] {
      for (const v1::AgentMessage& message : received_) {
        if (!fits(message)) continue;
        found = message;
        return true;
      }
      return false;
    });
    EXPECT_TRUE(came) << "nothing came";
    return found;
  }
  /// The registration of that number, in the order in which they came.
  v1::AgentMessage wait_for_register(int count = 1, std::chrono::seconds patience = std::chrono::minutes(1)) {
    std::unique_lock lock(mutex_);
    v1::AgentMessage found;
    const bool came = changed_.wait_for(lock, patience, [&] {
      int seen = 0;
      for (const v1::AgentMessage& message : received_) {
        if (!message.has_register_() || ++seen < count) continue;
        found = message;
        return true;
      }
      return false;
    });
    EXPECT_TRUE(came) << "no registration came";
    return found;
  }
  v1::Ended wait_for_end() {
    return wait_for([](const v1::AgentMessage& message) { return message.report().has_ended(); })
        .report()
        .ended();
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    received_.clear();
  }
  bool acknowledge = true;
  int64_t lease_ms = 0;  ///< With a lease an agent expects answers to its heartbeats, which never come.
  bool checks_proofs = true;
  std::atomic<uint64_t> term = 0;  ///< Told with the registration and each order.

  grpc::Status Connect(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::SchedulerMessage, v1::AgentMessage>* stream) override {
    v1::AgentMessage in;
    if (!stream->Read(&in) || !in.has_hello()) return {grpc::StatusCode::INVALID_ARGUMENT, "no hello"};
    const std::string nonce = sign::make_nonce();
    v1::SchedulerMessage out;
    out.mutable_challenge()->set_nonce(nonce);
    out.mutable_challenge()->set_handshake(sign::kHandshake);
    stream->Write(out);
    const std::string both = in.hello().nonce() + nonce;
    if (!stream->Read(&in) || !in.has_prove()) return {grpc::StatusCode::INVALID_ARGUMENT, "no proof"};
    if (!token_.empty() && checks_proofs &&
        !sign::proves(in.prove().proof(), token_, sign::kAgentLabel, both)) {
      out.mutable_refused()->set_code("unauthenticated");
      stream->Write(out);
      return grpc::Status::OK;
    }
    out.mutable_proven()->set_proof(sign::prove(token_, sign::kSchedulerLabel, both));
    stream->Write(out);
    if (!stream->Read(&in) || !in.has_register_()) return {grpc::StatusCode::INVALID_ARGUMENT, "no register"};
    out.mutable_registered()->set_heartbeat_ms(200);
    out.mutable_registered()->set_lease_ms(lease_ms);
    out.set_term(term);
    stream->Write(out);
    remember(in, context, stream);
    while (stream->Read(&in)) {
      remember(in, context, stream);
      if (!in.has_report() || !acknowledge) continue;
      v1::SchedulerMessage ack;
      ack.mutable_ack()->add_report_ids(in.report().id());
      const std::lock_guard lock(mutex_);
      stream->Write(ack);
    }
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
    context_ = nullptr;
    return grpc::Status::OK;
  }

 private:
  void remember(const v1::AgentMessage& message, grpc::ServerContext* context,
                grpc::ServerReaderWriter<v1::SchedulerMessage, v1::AgentMessage>* stream) {
    {
      const std::lock_guard lock(mutex_);
      stream_ = stream;
      context_ = context;
      received_.push_back(message);
    }
    changed_.notify_all();
  }

  const std::string token_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::AgentMessage> received_;
  grpc::ServerReaderWriter<v1::SchedulerMessage, v1::AgentMessage>* stream_ = nullptr;
  grpc::ServerContext* context_ = nullptr;
};

/// An agent on a thread of its own.
class RunningAgent {
 public:
  explicit RunningAgent(AgentOptions options) {
    Result<std::unique_ptr<Agent>> opened = Agent::open(std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    agent_ = std::move(*opened);
    thread_ = std::thread([this] { agent_->run(); });
  }
  ~RunningAgent() {
    agent_->stop();
    thread_.join();
  }

 private:
  std::unique_ptr<Agent> agent_;
  std::thread thread_;
};

class AgentTest : public ::testing::Test {
 protected:
  AgentOptions options(const FakeScheduler& scheduler) const {
    return {.scheduler = scheduler.address(),
            .node_name = "n1",
            .data_folder = folder_.path() + "/data",
            .version = "test",
            .sim_gpus = "2xA100-SXM4-80GB",
            .shim_program = GPUSCHED_SHIM_PATH,
            .box = {.allow_root_jobs = true}};
  }
  static v1::SchedulerMessage start_order(const std::string& script, const AttemptKey& key = kKey) {
    v1::JobSpec spec;
    spec.set_script(script);
    (*spec.mutable_environment())["CUDA_VISIBLE_DEVICES"] = "0";
    v1::SchedulerMessage message;
    v1::StartAttempt& start = *message.mutable_start();
    *start.mutable_key() = to_wire(key);
    start.set_job_name("job-7");
    start.set_spec(spec.SerializeAsString());
    v1::GrantedDevice& device = *start.add_devices();
    device.set_index(1);
    device.set_generation(3);
    device.set_uuid("GPU-sim-n1-1");
    return message;
  }
  static v1::SchedulerMessage read_order(int64_t wait_ms) {
    v1::SchedulerMessage message;
    v1::ReadLog& read = *message.mutable_read_log();
    read.set_request(5);
    *read.mutable_key() = to_wire(kKey);
    read.set_wait_ms(wait_ms);
    return message;
  }

  TemporaryFolder folder_;
};

TEST_F(AgentTest, RunsAJobWithItsDeviceAndReportsStartOutputEndAndRelease) {
  FakeScheduler scheduler;
  RunningAgent agent(options(scheduler));
  const v1::Register registered = scheduler.wait_for_register().register_();
  EXPECT_EQ(registered.devices_size(), 2);
  EXPECT_FALSE(registered.boot_id().empty());
  scheduler.send(start_order("echo $CUDA_VISIBLE_DEVICES; exit 3"));
  scheduler.wait_for([](const v1::AgentMessage& message) { return message.report().has_started(); });
  EXPECT_EQ(scheduler.wait_for_end().outcome().exit_code(), 3);
  const v1::AgentMessage released =
      scheduler.wait_for([](const v1::AgentMessage& message) { return message.report().has_released(); });
  EXPECT_EQ(released.report().released().generation(), 3u);
  scheduler.send(read_order(0));
  const v1::AgentMessage chunk =
      scheduler.wait_for([](const v1::AgentMessage& message) { return message.has_log_chunk(); });
  EXPECT_EQ(chunk.log_chunk().data(), "GPU-sim-n1-1\n");
  EXPECT_TRUE(chunk.log_chunk().at_end());
}

TEST_F(AgentTest, ReconnectsAndSaysAgainWhatWasNotAcknowledged) {
  FakeScheduler scheduler;
  scheduler.acknowledge = false;
  RunningAgent agent(options(scheduler));
  scheduler.wait_for_register();
  scheduler.send(start_order("exit 4"));
  const v1::Ended first = scheduler.wait_for_end();
  scheduler.cut_connection();
  scheduler.wait_for_register(2);
  scheduler.forget();
  const v1::Ended second = scheduler.wait_for_end();
  EXPECT_EQ(second.SerializeAsString(), first.SerializeAsString());
}

TEST_F(AgentTest, HeartbeatsCarryEveryDevice) {
  FakeScheduler scheduler;
  RunningAgent agent(options(scheduler));
  const v1::AgentMessage beat = scheduler.wait_for([](const v1::AgentMessage& message) {
    return message.has_heartbeat() && message.heartbeat().sequence() == 2;
  });
  EXPECT_EQ(beat.heartbeat().devices_size(), 2);
}

TEST_F(AgentTest, ConnectsAgainWhenAnOrderCannotBeRead) {
  FakeScheduler scheduler;
  RunningAgent agent(options(scheduler));
  scheduler.wait_for_register();
  v1::SchedulerMessage order;
  order.mutable_read_file()->set_request(1);
  order.mutable_read_file()->set_path("\xFF");  // No text: the agent's parser takes no such message.
  scheduler.send(order);
  scheduler.wait_for_register(2, std::chrono::seconds(15));
  scheduler.send(start_order("exit 3"));
  EXPECT_EQ(scheduler.wait_for_end().outcome().exit_code(), 3);
}

TEST_F(AgentTest, ConnectsAgainWhenNobodyAnswersItsHeartbeats) {
  FakeScheduler scheduler;
  scheduler.lease_ms = 500;
  RunningAgent agent(options(scheduler));
  scheduler.wait_for_register(2, std::chrono::seconds(15));
}

TEST_F(AgentTest, TheNextAgentAdoptsTheRunningJobAndReportsItsExitCode) {
  FakeScheduler scheduler;
  {
    RunningAgent agent(options(scheduler));
    scheduler.wait_for_register();
    scheduler.send(start_order("echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 6"));
    scheduler.wait_for([](const v1::AgentMessage& message) { return message.report().has_started(); });
  }
  scheduler.forget();
  RunningAgent agent(options(scheduler));
  const v1::Register registered = scheduler.wait_for_register().register_();
  ASSERT_EQ(registered.attempts_size(), 1);
  EXPECT_FALSE(registered.attempts(0).ended());
  std::ofstream(folder_.path() + "/data/attempts/7-1-0/work/go") << "now";
  EXPECT_EQ(scheduler.wait_for_end().outcome().exit_code(), 6);
  scheduler.wait_for([](const v1::AgentMessage& message) { return message.report().has_released(); });
}

TEST_F(AgentTest, WithATokenBothSidesProveIt) {
  const std::string token_file = folder_.path() + "/token";
  std::ofstream(token_file) << kToken << "\n";
  ASSERT_EQ(chmod(token_file.c_str(), 0600), 0);
  FakeScheduler scheduler(kToken);
  AgentOptions with_token = options(scheduler);
  with_token.token_file = token_file;
  RunningAgent agent(with_token);
  EXPECT_TRUE(scheduler.wait_for_register().has_register_());  // Read behind a proof that holds.
}

TEST_F(AgentTest, AnAgentWithATokenObeysNoSchedulerWithoutIt) {
  const std::string token_file = folder_.path() + "/token";
  std::ofstream(token_file) << kToken << "\n";
  ASSERT_EQ(chmod(token_file.c_str(), 0600), 0);
  FakeScheduler impostor("another token of enough bytes");
  impostor.checks_proofs = false;
  GrpcLink link({.token = kToken, .node_name = "n1", .version = "test"});
  link.connect(impostor.address());
  std::vector<GrpcLink::Input> inputs;
  while (inputs.empty()) {
    wait_readable(link.event());
    inputs = link.take();
  }
  ASSERT_EQ(inputs.size(), 1u);
  EXPECT_EQ(inputs[0].kind, GrpcLink::Input::Kind::kDown);
  EXPECT_NE(inputs[0].why.find("does not know this agent's token"), std::string::npos);
}

/// Accepts connections and closes each at once, as a scheduler that does not lead and knows no leader.
class ClosingPort {
 public:
  ClosingPort() {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    socklen_t size = sizeof place;
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&place), &size), 0);
    port_ = ntohs(place.sin_port);
    thread_ = std::thread([this] {
      for (int one = 0; (one = ::accept(socket_, nullptr, nullptr)) >= 0; ++closed_) ::close(one);
    });
  }
  ~ClosingPort() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int closed() const { return closed_; }

 private:
  int socket_ = -1;
  uint16_t port_ = 0;
  std::atomic<int> closed_ = 0;
  std::thread thread_;
};

TEST_F(AgentTest, FindsTheSchedulerAmongSeveralAddressesAndFollowsIt) {
  auto first = std::make_unique<FakeScheduler>();
  FakeScheduler second;
  const ClosingPort closing;
  AgentOptions of_all = options(second);
  of_all.scheduler = "127.0.0.1:1," + closing.address() + "," + first->address() + "," + second.address();
  RunningAgent agent(of_all);
  first->wait_for_register();
  EXPECT_EQ(closing.closed(), 1);
  first->send(start_order("while [ ! -e go ]; do sleep 0.01; done; exit 6"));
  first->wait_for([](const v1::AgentMessage& message) { return message.report().has_started(); });
  first.reset();
  const v1::Register registered = second.wait_for_register(1, std::chrono::seconds(10)).register_();
  ASSERT_EQ(registered.attempts_size(), 1);
  EXPECT_FALSE(registered.attempts(0).ended()) << "what runs goes on without its scheduler";
  std::ofstream(folder_.path() + "/data/attempts/7-1-0/work/go") << "now";
  EXPECT_EQ(second.wait_for_end().outcome().exit_code(), 6);
}

TEST_F(AgentTest, ObeysNoLeaderOfAnEarlierTermAlsoAfterItsOwnRestart) {
  FakeScheduler old, present;
  old.term = 4;
  present.term = 5;
  {
    AgentOptions of_both = options(present);
    of_both.scheduler = present.address() + "," + old.address();
    RunningAgent agent(of_both);
    present.wait_for_register();
    present.cut_connection();
    old.wait_for_register();       // It is passed over at its first word,
    present.wait_for_register(2);  // back to the one that leads.
  }
  present.forget();
  RunningAgent agent(options(old));
  old.wait_for_register(3);
  old.term = 6;
  old.forget();
  old.wait_for([](const v1::AgentMessage& message) { return message.has_heartbeat(); });
  old.send(start_order("exit 3"));
  EXPECT_EQ(old.wait_for_end().outcome().exit_code(), 3);
}

TEST_F(AgentTest, ASecondAgentOnOneFolderIsRefusedNamingTheHolder) {
  FakeScheduler scheduler;
  RunningAgent agent(options(scheduler));
  const Result<std::unique_ptr<Agent>> second = Agent::open(options(scheduler));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
  EXPECT_NE(second.error().message.find("pid " + std::to_string(getpid())), std::string::npos);
}

TEST_F(AgentTest, ASecondAgentIsRefusedThoughTheLockFileWasRemoved) {
  FakeScheduler scheduler;
  RunningAgent agent(options(scheduler));
  ASSERT_TRUE(std::filesystem::remove(options(scheduler).data_folder + "/agent.lock"));
  const Result<std::unique_ptr<Agent>> second = Agent::open(options(scheduler));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
}

TEST_F(AgentTest, AnAddressElsewhereNeedsAToken) {
  FakeScheduler scheduler;
  AgentOptions elsewhere = options(scheduler);
  elsewhere.scheduler = "192.0.2.1:9090";
  const Result<std::unique_ptr<Agent>> agent = Agent::open(elsewhere);
  ASSERT_FALSE(agent.ok());
  EXPECT_EQ(agent.error().code, ErrorCode::kPermissionDenied);
}

}  // namespace
}  // namespace gpusched
