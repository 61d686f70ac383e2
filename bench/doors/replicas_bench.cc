// rooms: bench_load
//
// Three schedulers that are one, on one machine: durable submissions over the leader and over a follower,
// batches, fail-overs by kill -9 and by a clean stop under a stream of submissions, and the return of one
// that was away.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "load/load.h"

namespace gpusched::bench {
namespace {

constexpr std::size_t kReplicas = 3;
constexpr double kPatience_s = 60;
constexpr int kWriters = 16;
constexpr int64_t kWriterPause_ms = 16;  // Together about 1,000 submissions a second.

uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  expect(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0, "no free port");
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

struct ReplicaHealth {
  std::string role;  ///< Empty: it does not answer.
  int64_t leader = 0, commit = 0, applied = 0;
};

/// One of the schedulers, on a folder and ports of its own.
class Replica {
 public:
  Replica(std::size_t id, const std::string& folder)
      : id_(id),
        data_dir_(folder + "/" + std::to_string(id)),
        log_(folder + "/" + std::to_string(id) + ".log") {}

  void set_peers(const std::string& peers) {
    environment_ = {{"GPU_SCHEDULER_REPLICA_ID", std::to_string(id_)},
                    {"GPU_SCHEDULER_REPLICA_PEERS", peers}};
    add_ports(environment_);
  }
  /// Serves alone for a moment: the cluster begins with its state.
  void begin_alone() {
    Environment alone;
    add_ports(alone);
    process_ = Process({program("gpu-scheduler"), "--data-dir", data_dir_}, alone, log_);
    wait_until("the first scheduler", kPatience_s, [&] { return answers(http_); });
    expect(process_.kill(SIGTERM) == 0, "the first scheduler did not end cleanly");
  }
  void members(std::vector<std::string> words) {
    words.insert(words.begin(), {program("gpu-scheduler"), "members"});
    words.insert(words.end(), {"--data-dir", data_dir_});
    Process command(words, environment_, log_);
    expect(command.wait() == 0, "gpu-scheduler members " + words[2] + " failed; see " + log_);
  }
  void start() {
    process_ = Process({program("gpu-scheduler"), "--data-dir", data_dir_}, environment_, log_);
  }
  void end(int signal) { process_.kill(signal); }
  bool running() { return process_.running(); }

  ReplicaHealth health() const {
    Result<HttpClient> client = HttpClient::create({.url = url(metrics_), .connect_timeout = seconds(1)});
    expect(client.ok(), "no HTTP client");
    const Result<HttpAnswer> answer =
        client->request({.method = "GET", .target = "/health", .timeout = seconds(1)});
    const Result<Json> body = answer.ok() ? Json::parse(answer->body) : Result<Json>(answer.error());
    if (!body.ok()) return {};
    return {.role = (*body)["role"].text(),
            .leader = (*body)["leader"].integer(),
            .commit = (*body)["commit"].integer(),
            .applied = (*body)["applied"].integer()};
  }
  static bool answers(uint16_t port) {
    Result<HttpClient> client = HttpClient::create({.url = url(port), .connect_timeout = seconds(1)});
    const Result<HttpAnswer> answer =
        client->request({.method = "GET", .target = "/health", .timeout = seconds(3)});
    return answer.ok() && answer->status == 200;
  }

  std::size_t id() const { return id_; }
  const std::string& data_dir() const { return data_dir_; }
  uint16_t http() const { return http_; }
  std::string grpc_address() const { return "127.0.0.1:" + std::to_string(grpc_); }
  std::string peer() const { return std::to_string(id_) + "=127.0.0.1:" + std::to_string(link_); }
  static std::string url(uint16_t port) { return "http://127.0.0.1:" + std::to_string(port); }

 private:
  void add_ports(Environment& environment) const {
    environment.emplace_back("GPU_SCHEDULER_API_HTTP_PORT", std::to_string(http_));
    environment.emplace_back("GPU_SCHEDULER_API_GRPC_PORT", std::to_string(grpc_));
    environment.emplace_back("GPU_SCHEDULER_METRICS_PORT", std::to_string(metrics_));
    environment.emplace_back("GPU_SCHEDULER_SCHEDULER_MAX_QUEUE_SIZE", "8000000");
  }

  std::size_t id_;
  std::string data_dir_, log_;
  uint16_t http_ = free_port(), grpc_ = free_port(), metrics_ = free_port(), link_ = free_port();
  Environment environment_;
  Process process_;
};

class Replicas {
 public:
  explicit Replicas(const std::string& folder) {
    for (std::size_t id = 1; id <= kReplicas; ++id) all_.emplace_back(id, folder);
    std::string peers;
    for (const Replica& replica : all_) peers += (peers.empty() ? "" : ",") + replica.peer();
    for (Replica& replica : all_) replica.set_peers(peers);
    all_.front().begin_alone();
    all_.front().members({"init"});
    for (Replica& replica : all_) {
      if (replica.id() == 1) continue;
      const std::string file = folder + "/export-" + std::to_string(replica.id()) + ".tar";
      all_.front().members({"export", file, "--id", std::to_string(replica.id())});
      replica.members({"join", file});
    }
    for (Replica& replica : all_) replica.start();
    wait_for_all();
    std::ifstream in(all_.front().data_dir() + "/token");
    in >> token_;
  }

  const std::string& token() const { return token_; }
  std::vector<Replica>& all() { return all_; }
  Replica& leader() {
    Replica* found = nullptr;
    wait_until("a leader", kPatience_s, [&] {
      for (Replica& replica : all_) {
        if (replica.health().role == "leader" && Replica::answers(replica.http())) found = &replica;
      }
      return found != nullptr;
    });
    return *found;
  }
  Replica& follower() {
    const Replica& leader = this->leader();
    return *std::ranges::find_if(all_, [&](const Replica& replica) { return &replica != &leader; });
  }
  /// Until each has what the leader has committed by now; in seconds.
  double wait_for_all() {
    const int64_t begin = now_ns();
    const int64_t commit = leader().health().commit;
    for (Replica& replica : all_) {
      wait_until("all replicas", kPatience_s, [&] {
        expect(replica.running(), "replica " + std::to_string(replica.id()) + " ended by itself");
        const ReplicaHealth health = replica.health();
        return health.leader != 0 && health.applied >= commit;
      });
    }
    return seconds_between(begin, now_ns());
  }

 private:
  std::vector<Replica> all_;
  std::string token_;
};

/// Submits jobs by all three addresses until it is destroyed; each writer goes on to the next address when
/// one fails.
class Stream {
 public:
  explicit Stream(Replicas& replicas) : replicas_(replicas) {
    for (int number = 0; number < kWriters; ++number)
      threads_.emplace_back([this, number] { write(number); });
  }
  ~Stream() { stop(); }
  void stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  /// The longest time without an answer that ended behind `since`, in nanoseconds.
  int64_t longest_gap_after(int64_t since) {
    const std::lock_guard lock(mutex_);
    std::sort(answered_at_.begin(), answered_at_.end());
    int64_t longest = 0;
    for (std::size_t i = 1; i < answered_at_.size(); ++i) {
      if (answered_at_[i] > since) longest = std::max(longest, answered_at_[i] - answered_at_[i - 1]);
    }
    return longest;
  }
  std::size_t answered() {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
  }
  std::vector<std::string> jobs() {
    const std::lock_guard lock(mutex_);
    return jobs_;
  }

 private:
  void write(int number) {
    std::size_t at = static_cast<std::size_t>(number) % kReplicas;
    std::optional<HttpClient> client;
    while (!stopping_) {
      if (!client) {
        Result<HttpClient> made = HttpClient::create({.url = Replica::url(replicas_.all()[at].http()),
                                                      .token = replicas_.token(),
                                                      .connect_timeout = milliseconds(200)});
        expect(made.ok(), "no HTTP client");
        client.emplace(std::move(*made));
      }
      const Result<HttpAnswer> answer = client->request(
          {.method = "POST", .target = "/api/v1/jobs", .body = benchmark_job_json(), .timeout = seconds(3)});
      if (answer.ok() && answer->status == 201) {
        const Result<Json> body = Json::parse(answer->body);
        expect(body.ok(), "an answer is no JSON");
        const std::lock_guard lock(mutex_);
        answered_at_.push_back(now_ns());
        jobs_.push_back((*body)["job_id"].text());
      } else {
        client.reset();
        at = (at + 1) % kReplicas;
        sleep_ms(2);
        continue;
      }
      sleep_ms(kWriterPause_ms);
    }
  }

  Replicas& replicas_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<int64_t> answered_at_;
  std::vector<std::string> jobs_;
  std::vector<std::thread> threads_;
};

/// Ends the leader `times` times under a stream of submissions; returns the longest times without an answer.
Samples end_leaders(Replicas& replicas, Stream& stream, int signal, int times) {
  Samples gaps;
  for (int time = 0; time < times; ++time) {
    replicas.wait_for_all();
    sleep_ms(1'000);
    Replica& leader = replicas.leader();
    const int64_t at = now_ns();
    const std::size_t before = stream.answered();
    leader.end(signal);
    wait_until("answers of another one", kPatience_s, [&] { return stream.answered() > before + 500; });
    gaps.add(stream.longest_gap_after(at));
    leader.start();
  }
  replicas.wait_for_all();
  return gaps;
}

void print_gaps(const char* name, const Samples& gaps, const char* wanted) {
  print_line(name, text_of("%zu times; without an answer p50 %.0f ms, p99 %.0f ms, at most %.0f ms (%s)",
                           gaps.count(), gaps.percentile_ms(0.5), gaps.percentile_ms(0.99),
                           gaps.percentile_ms(1), wanted));
}

void check_all_are_there(Replicas& replicas, std::vector<std::string> jobs) {
  std::sort(jobs.begin(), jobs.end());
  expect(std::adjacent_find(jobs.begin(), jobs.end()) == jobs.end(), "two submissions were given one id");
  Result<HttpClient> client =
      HttpClient::create({.url = Replica::url(replicas.leader().http()), .token = replicas.token()});
  expect(client.ok(), "no HTTP client");
  for (const std::string& job : jobs) {
    const Result<HttpAnswer> answer = client->request({.method = "GET", .target = "/api/v1/jobs/" + job});
    expect(answer.ok() && answer->status == 200, job + " was acknowledged and is not there");
  }
  print_line("checked",
             text_of("%zu submissions were acknowledged during the fail-overs; each is there, with its own "
                     "id",
                     jobs.size()));
}

int run(int kills, int64_t away_jobs) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line("sizes",
             text_of("3 schedulers and the clients on one machine; bodies of %zu B; no node: the queue grows",
                     benchmark_job_json().size()));
  Replicas replicas(folder.path());

  const auto rest = [&](const char* name, uint16_t port, int connections, int64_t requests) {
    RestLoad load{
        .port = port, .connections = connections, .requests = requests / 10, .token = replicas.token()};
    run_rest_load(load);  // Warms up.
    load.requests = requests;
    print_round(name, run_rest_load(load));
  };
  rest("one in flight", replicas.leader().http(), 1, 3'000);
  rest("256 in flight", replicas.leader().http(), 256, 100'000);
  rest("by a follower", replicas.follower().http(), 256, 100'000);
  const auto batches = [&](int64_t jobs) {
    return run_grpc_load({.address = replicas.leader().grpc_address(),
                          .token = replicas.token(),
                          .in_flight = 8,
                          .jobs_per_call = 1'000,
                          .calls = jobs / 1'000});
  };
  const LoadResult batch = batches(500'000);
  print_line("batches of 1,000", text_of("%.0f jobs/s", batch.jobs_per_second()));

  Replica& away = replicas.follower();
  away.end(SIGKILL);
  batches(away_jobs);
  away.start();
  const double back_s = replicas.wait_for_all();
  print_line("one that was away", text_of("for %lld jobs: has all of them again %.1f s behind its start",
                                          static_cast<long long>(away_jobs), back_s));

  Stream stream(replicas);
  const Samples killed = end_leaders(replicas, stream, SIGKILL, kills);
  const Samples stopped = end_leaders(replicas, stream, SIGTERM, std::max(kills / 4, 1));
  stream.stop();
  check_all_are_there(replicas, stream.jobs());
  print_gaps("kill -9 of leader", killed, "wanted: p50 < 600 ms, p99 < 1,000 ms");
  print_gaps("stop of leader", stopped, "wanted: < 100 ms");
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// replicas_bench [KILLS [JOBS THAT ONE IS AWAY FOR]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 20, argc > 2 ? std::atoll(argv[2]) : 1'000'000);
}
