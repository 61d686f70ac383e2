// With real processes: the worker of an endpoint is the gpu-shim that ships; the endpoint is the test's.
#include "node/workers/worker_spawner.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "node/ports/system_clock.h"
#include "node/testing/testing.h"
#include "shim/endpoint/endpoint_worker.h"
#include "shim/processes.h"
#include "shim/worker/task_wire.h"

namespace gpusched {
namespace {

const std::string kInstance = "testworkers-" + std::to_string(getpid());

class Listener final : public ShimListener {
 public:
  void on_shim_started(const AttemptKey& key, int64_t, int64_t) override { started.insert(key); }
  void on_shim_prepared(const AttemptKey&) override {}
  void on_shim_saved(const AttemptKey&, int64_t) override {}
  void on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) override { ended[key] = outcome; }
  void on_shim_lost(const AttemptKey& key, const std::string&) override { lost.insert(key); }
  void on_shim_found(const AttemptKey& key, int64_t, int64_t) override { found.insert(key); }
  std::set<AttemptKey> started, lost, found;
  std::map<AttemptKey, v1::Outcome> ended;
};

/// Answers "done" when its gate is open.
class GatedServer {
 public:
  GatedServer() {
    sockaddr_in place{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof place;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    url = "http://127.0.0.1:" + std::to_string(ntohs(place.sin_port)) + "/v1/run";
    accepter_ = std::thread([this] {
      for (int client = accept(listener_, nullptr, nullptr); client >= 0;
           client = accept(listener_, nullptr, nullptr))
        threads_.emplace_back([this, client] { serve(client); });
    });
  }
  ~GatedServer() {
    gate = true;
    shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  std::string url;
  std::atomic<bool> gate = false;
  std::atomic<int> requests = 0;

 private:
  void serve(int client) {
    std::array<char, 4096> buffer;
    static_cast<void>(recv(client, buffer.data(), buffer.size(), 0));  // It is small.
    ++requests;
    while (!gate) poll(nullptr, 0, 5);
    const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
    static_cast<void>(send(client, answer.data(), answer.size(), MSG_NOSIGNAL));
    close(client);
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::thread accepter_;
  std::vector<std::thread> threads_;
};

class WorkerSpawnerTest : public ::testing::Test {
 protected:
  WorkerSpawnerTest() { open_spawner({}); }
  ~WorkerSpawnerTest() override {
    server_.gate = true;
    shims_.reset();
    workers_.reset();
    for (const pid_t pid : shim::all_processes()) {
      if (ours(pid)) kill(pid, SIGKILL);
    }
  }
  /// A new agent.
  void open_spawner(const std::vector<AttemptKey>& adopt) {
    shims_.reset();
    workers_.reset();
    listener_ = Listener();
    spares_ = std::make_unique<SpareFolders>(folder_.path());
    workers_ = std::make_unique<WorkerSpawner>(
        WorkerSpawnerOptions{.data_folder = folder_.path(), .spares = spares_.get()}, clock_, listener_);
    auto opened = ShimSpawner::open(
        {.shim_program = GPUSCHED_SHIM_PATH, .data_folder = folder_.path(), .instance = kInstance}, clock_,
        *workers_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    shims_ = std::move(*opened);
    workers_->begin(*shims_);
    workers_->adopt(adopt);
  }

  static AttemptKey key(uint64_t job) { return {JobId{job}, 1, 0}; }
  static bool ours(pid_t pid) {
    const std::vector<std::string> words = shim::command_line(pid);
    return words.size() > 1 && words[1].ends_with('@' + kInstance);
  }

  /// A task for the endpoint. Two with the same `match` may have the same worker.
  void start(uint64_t job, const std::string& match, uint32_t tasks_max = 2) {
    const std::string name = to_string(key(job));
    const std::string mark = "GPU_SCHEDULER_ATTEMPT=" + name + '@' + kInstance;
    auto plan = std::make_shared<WorkerPlan>();
    plan->match = match;
    plan->endpoint = server_.url;
    plan->tasks_max = tasks_max;
    plan->frame = "{\"id\":\"" + name + "\"}\n{}";
    plan->arguments = {"/proc/self/exe", shim::kEndpointFlag,
                       to_text(Endpoint{.url = server_.url, .retries = 0})};
    plan->environment = {mark, std::string(shim::kFrameVariable) + "=201",
                         std::string(shim::kTasksVariable) + '=' + std::to_string(tasks_max),
                         std::string(shim::kIdleVariable) + "=300"};
    SpawnRequest request{
        .key = key(job), .arguments = {"/bin/false"}, .environment = {mark}, .grace = seconds(5)};
    request.worker = std::move(plan);
    workers_->start(request);
  }

  template <typename Done>
  void pump_until(Done done) {
    const Time give_up = clock_.monotonic() + minutes(1);
    while (!done()) {
      ASSERT_LT(clock_.monotonic(), give_up) << "nothing happened";
      pollfd source{.fd = workers_->descriptor(), .events = POLLIN, .revents = 0};
      poll(&source, 1, 5);
      workers_->pump();
    }
  }
  void pump_for(Duration span) {
    const Time end = clock_.monotonic() + span;
    pump_until([&] { return clock_.monotonic() >= end; });
  }
  std::string output(uint64_t job) const {
    std::ifstream in(folder_.path() + "/attempts/" + shim::key_text(key(job)) + "/stdout");
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void expect_done(uint64_t job) {
    pump_until([&] { return listener_.ended.contains(key(job)) || listener_.lost.contains(key(job)); });
    ASSERT_TRUE(listener_.ended.contains(key(job)));
    EXPECT_EQ(listener_.ended.at(key(job)).cause(), v1::Outcome::EXITED);
    EXPECT_EQ(listener_.ended.at(key(job)).exit_code(), 0) << listener_.ended.at(key(job)).detail();
    EXPECT_EQ(output(job), "done");
  }

  GatedServer server_;
  TemporaryFolder folder_;
  SystemClock clock_;
  Listener listener_;
  std::unique_ptr<SpareFolders> spares_;
  std::unique_ptr<WorkerSpawner> workers_;
  std::unique_ptr<ShimSpawner> shims_;
};

TEST_F(WorkerSpawnerTest, AnEndpointHasSoManyTasksOfAllWorkersTogether) {
  start(1, "a");
  start(2, "b");
  start(3, "a");  // Its worker has room, and the endpoint has not.
  start(4, "c");
  pump_until([&] { return server_.requests == 2; });
  pump_for(milliseconds(200));
  EXPECT_EQ(server_.requests, 2);
  EXPECT_EQ(listener_.started, (std::set<AttemptKey>{key(1), key(2)}));
  const std::vector<Preparation> waiting = workers_->preparing();
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(waiting[0].message, "its endpoint has as many requests as it may on this node");
  workers_->stop(key(3), StopOrder(seconds(5)));
  pump_until([&] { return listener_.ended.contains(key(3)); });
  EXPECT_EQ(listener_.ended.at(key(3)).cause(), v1::Outcome::STOPPED);
  server_.gate = true;
  for (const uint64_t job : {1u, 2u, 4u}) expect_done(job);
  EXPECT_EQ(server_.requests, 3);
  pump_until([&] { return workers_->worker_count() == 0; });  // They had nothing to do.
}

TEST_F(WorkerSpawnerTest, ATaskTakesOverASpareFolderAndOneThatNeverBeganLeavesItsOwn) {
  const std::string spare = folder_.path() + "/spare/7";
  std::filesystem::create_directories(spare);
  std::ofstream(spare + "/stdout") << "an old output";
  open_spawner({});
  start(1, "a");
  pump_until([&] { return listener_.started.contains(key(1)); });
  EXPECT_FALSE(std::filesystem::exists(spare));
  EXPECT_EQ(output(1), "");
  server_.gate = true;
  expect_done(1);
  std::filesystem::create_directories(spare);
  open_spawner({});
  std::filesystem::create_directory(folder_.path() + "/attempts/2-1-0");  // It was begun before.
  start(2, "a");
  pump_until([&] { return listener_.ended.contains(key(2)); });
  EXPECT_EQ(spares_->take(), "7");
}

TEST_F(WorkerSpawnerTest, ANewAgentCountsTheTasksThatItFinds) {
  start(1, "a", 1);
  pump_until([&] { return server_.requests == 1; });
  open_spawner({key(1)});
  start(2, "a", 1);
  pump_until([&] { return listener_.found.contains(key(1)); });
  pump_for(milliseconds(200));
  EXPECT_EQ(server_.requests, 1);
  EXPECT_FALSE(listener_.started.contains(key(2)));
  server_.gate = true;
  for (const uint64_t job : {1u, 2u}) expect_done(job);
}

}  // namespace
}  // namespace gpusched
