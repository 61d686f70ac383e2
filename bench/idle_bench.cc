// rooms: bench_load node
//
// Cost of an idle scheduler with connected agents. The agents are gRPC streams of this process that speak the
// node protocol: each registers a node with 8 devices and sends heartbeats with their telemetry as often as
// it is told to. With SCRAPES also what reading the metrics of all devices costs, and what submissions cost
// beside it: they go through the engine, which a scrape must not stop.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "client/http_client.h"
#include "gpusched/v1/node.grpc.pb.h"
#include "node/link/trust.h"
#include "sign/keys/token_proof.h"
#include "support/cluster.h"
#include "support/machine.h"

namespace gpusched::bench {
namespace {

constexpr int kDevices = 8;

std::shared_ptr<grpc::Channel> own_connection(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // As many TCP connections as agents.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

/// One agent's side of the node protocol, without jobs.
class AgentStream final : public grpc::ClientBidiReactor<v1::AgentMessage, v1::SchedulerMessage> {
 public:
  AgentStream(const std::string& address, std::string name, std::string token)
      : name_(std::move(name)),
        token_(std::move(token)),
        stub_(v1::NodeProtocol::NewStub(own_connection(address))) {
    stub_->async()->Connect(&context_, this);
    AddHold();
    StartRead(&incoming_);
    outgoing_.mutable_hello()->set_node_name(name_);
    outgoing_.mutable_hello()->set_nonce(std::string(32, 'n'));
    outgoing_.mutable_hello()->set_handshake(sign::kHandshake);
    StartWrite(&outgoing_);
    StartCall();
  }

  /// 0 until registered.
  int64_t heartbeat_ms() const { return heartbeat_ms_.load(); }

  /// After registration, by one thread.
  void beat(uint64_t sequence) {
    v1::AgentMessage message;
    v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
    heartbeat.set_sequence(sequence);
    heartbeat.set_cpu_utilization(0.05);
    heartbeat.set_memory_utilization(0.2);
    for (uint32_t i = 0; i < kDevices; ++i) {
      v1::DeviceTelemetry& device = *heartbeat.add_devices();
      device.set_index(i);
      device.set_utilization_percent(static_cast<int32_t>(sequence % 7));
      device.set_memory_used_mb(450);
      device.set_temperature_celsius(31);
      device.set_power_watts(62);
    }
    if (!send(std::move(message))) fail(name_ + ": a heartbeat did not leave before the next one was due");
  }

  void end() {
    context_.TryCancel();
    RemoveHold();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

  void OnReadDone(bool good) override {
    if (!good) return;
    if (incoming_.has_refused()) fail(name_ + " was refused: " + incoming_.refused().message());
    if (incoming_.has_challenge()) prove_token();
    if (incoming_.has_proven()) register_node();
    if (incoming_.has_registered()) heartbeat_ms_ = incoming_.registered().heartbeat_ms();
    StartRead(&incoming_);
  }
  void OnWriteDone(bool good) override {
    const std::lock_guard lock(mutex_);
    writing_ = good && next_.has_value();
    if (!writing_) return;
    outgoing_ = *std::exchange(next_, std::nullopt);
    StartWrite(&outgoing_);
  }
  void OnDone(const grpc::Status&) override {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_one();
  }

 private:
  /// Writes it now, or as soon as the one before it has left. False: another one waits for that already.
  /// Never waits itself: gRPC has few threads, and one of them tells that a message has left.
  bool send(v1::AgentMessage message) {
    const std::lock_guard lock(mutex_);
    if (writing_) return !std::exchange(next_, std::move(message)).has_value();
    writing_ = true;
    outgoing_ = std::move(message);
    StartWrite(&outgoing_);
    return true;
  }
  void prove_token() {
    v1::AgentMessage message;
    message.mutable_prove()->set_proof(
        sign::prove(token_, sign::kAgentLabel, std::string(32, 'n') + incoming_.challenge().nonce()));
    send(std::move(message));
  }
  void register_node() {
    v1::AgentMessage outgoing;
    v1::Register& message = *outgoing.mutable_register_();
    message.set_node_name(name_);
    message.set_instance(name_ + "-instance");
    message.set_boot_id("boot");
    message.set_cpu_milli(64'000);
    message.set_memory_mb(512'000);
    for (int i = 0; i < kDevices; ++i) {
      v1::Device& device = *message.add_devices();
      device.set_uuid(name_ + "-uuid-" + std::to_string(i));
      device.set_model("NVIDIA A100-SXM4-80GB");
      device.set_memory_mb(81'920);
      device.set_condition(v1::DEVICE_CONDITION_OK);
    }
    send(std::move(outgoing));
  }

  const std::string name_, token_;
  std::unique_ptr<v1::NodeProtocol::Stub> stub_;
  grpc::ClientContext context_;
  v1::AgentMessage outgoing_;
  v1::SchedulerMessage incoming_;
  std::atomic<int64_t> heartbeat_ms_{0};
  std::mutex mutex_;
  bool writing_ = true;                   ///< Its Hello, from the start.
  std::optional<v1::AgentMessage> next_;  ///< Is written behind that.
  std::condition_variable changed_;
  bool done_ = false;
};

/// Every agent's heartbeat in turn, spread over the interval, until destroyed.
class Heartbeats {
 public:
  explicit Heartbeats(std::vector<std::unique_ptr<AgentStream>>& agents)
      : thread_([this, &agents] { run(agents); }) {}
  ~Heartbeats() {
    stopping_ = true;
    thread_.join();
  }
  uint64_t sent() const { return sent_.load(); }

 private:
  void run(std::vector<std::unique_ptr<AgentStream>>& agents) {
    const int64_t interval_ns = agents.front()->heartbeat_ms() * 1'000'000;
    const int64_t begin = now_ns();
    for (uint64_t sequence = 1; !stopping_; ++sequence) {
      for (std::size_t i = 0; i < agents.size() && !stopping_; ++i) {
        const auto turn = static_cast<int64_t>((sequence - 1) * agents.size() + i);
        const int64_t due = begin + turn * interval_ns / static_cast<int64_t>(agents.size());
        std::this_thread::sleep_for(std::chrono::nanoseconds(due - now_ns()));
        agents[i]->beat(sequence);
        ++sent_;
      }
    }
  }

  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> sent_{0};
  std::thread thread_;
};

/// Reads of the metrics, one behind another on a thread of its own.
class Scrapes {
 public:
  Scrapes(Scheduler& scheduler, int count)
      : thread_([this, url = scheduler.url(), token = scheduler.token(), count] { run(url, token, count); }) {
  }
  ~Scrapes() { thread_.join(); }
  bool over() const { return over_.load(); }
  const Samples& times() const { return times_; }  ///< Once it is over.
  std::size_t bytes() const { return bytes_; }     ///< Size of the last answer; once it is over.

 private:
  void run(const std::string& url, const std::string& token, int count) {
    Result<HttpClient> client = HttpClient::create({.url = url, .token = token});
    expect(client.ok(), "no HTTP client");
    for (int i = 0; i < count; ++i) {
      const int64_t begin = now_ns();
      const Result<HttpAnswer> answer = client->request({.method = "GET", .target = "/api/v1/metrics"});
      times_.add(now_ns() - begin);
      expect(answer.ok() && answer->status == 200, "the metrics were not answered");
      bytes_ = answer->body.size();
    }
    over_ = true;
  }

  Samples times_;
  std::size_t bytes_ = 0;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// Submits jobs that no node can run, until told to stop; the time that each took.
Samples submit_while(Scheduler& scheduler, const std::function<bool()>& go_on) {
  Samples times;
  while (go_on()) {
    const int64_t begin = now_ns();
    scheduler.post("/api/v1/jobs", R"({"script":"true","gpu_count":64,"gpu_model":"none"})");
    times.add(now_ns() - begin);
  }
  return times;
}

void measure_scrapes(Scheduler& scheduler, int devices, int count) {
  const int64_t end = now_ns() + 3'000'000'000;
  const Samples alone = submit_while(scheduler, [end] { return now_ns() < end; });
  Scrapes scrapes(scheduler, count);
  const Samples beside = submit_while(scheduler, [&] { return !scrapes.over(); });
  print_line("figure",
             text_of("a scrape of %d devices: p50 %.0f ms, worst %.0f ms of %zu (target < 300 ms), %.1f MB",
                     devices, scrapes.times().percentile_ms(0.5), scrapes.times().percentile_ms(1),
                     scrapes.times().count(), static_cast<double>(scrapes.bytes()) / 1e6));
  print_line(
      "figure",
      text_of("a submission beside one scrape behind another: p50 %.2f ms, p99 %.2f ms, worst %.2f ms; "
              "without scrapes %.2f, %.2f and %.2f ms",
              beside.percentile_ms(0.5), beside.percentile_ms(0.99), beside.percentile_ms(1),
              alone.percentile_ms(0.5), alone.percentile_ms(0.99), alone.percentile_ms(1)));
}

int run(int count, int seconds, int scrapes) {
  const WorkFolder folder;
  print_head(folder.path());
  Scheduler scheduler(folder.path());
  const int64_t empty = scheduler.process().resident_bytes();
  std::vector<std::unique_ptr<AgentStream>> agents;
  const Result<std::string> token = read_token(scheduler.data_dir() + "/token");
  if (!token) fail(token.error().message);
  for (int i = 0; i < count; ++i) {
    agents.push_back(
        std::make_unique<AgentStream>(scheduler.grpc_address(), "bench-" + std::to_string(i), *token));
  }
  wait_until("the agents' registration", 60, [&] {
    for (const auto& agent : agents) {
      if (agent->heartbeat_ms() == 0) return false;
    }
    return true;
  });
  print_line(
      "sizes",
      text_of("%d agents with %d devices each, a heartbeat with telemetry every %lld ms as told, measured "
              "over %d s without a request",
              count, kDevices, static_cast<long long>(agents.front()->heartbeat_ms()), seconds));
  double cores = 0;
  int64_t resident = 0;
  {
    const Heartbeats heartbeats(agents);
    sleep_ms(agents.front()->heartbeat_ms() + 1'000);  // Each has sent one.
    const uint64_t sent = heartbeats.sent();
    const double cpu = scheduler.process().cpu_seconds();
    const int64_t begin = now_ns();
    sleep_ms(int64_t{seconds} * 1'000);
    cores = (scheduler.process().cpu_seconds() - cpu) / seconds_between(begin, now_ns());
    resident = scheduler.process().resident_bytes();
    print_line("measured",
               text_of("%llu heartbeats", static_cast<unsigned long long>(heartbeats.sent() - sent)));
    if (scrapes > 0) measure_scrapes(scheduler, count * kDevices, scrapes);
  }
  const int64_t online = scheduler.get("/api/v1/cluster/status")["online_nodes"].integer();
  expect(online == count, text_of("only %lld nodes are online", static_cast<long long>(online)));
  print_line("checked", text_of("%lld nodes are online by the API", static_cast<long long>(online)));
  print_line(
      "figure",
      text_of("%.2f %% of a core (target < 1 %%), %.1f MB resident (target < 100 MB; %.1f MB before they "
              "came)",
              cores * 100, static_cast<double>(resident) / 1e6, static_cast<double>(empty) / 1e6));
  for (const auto& agent : agents) agent->end();
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// idle_bench [AGENTS [SECONDS [SCRAPES]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 100, argc > 2 ? std::atoi(argv[2]) : 20,
                              argc > 3 ? std::atoi(argv[3]) : 0);
}
