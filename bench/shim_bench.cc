// rooms: node
//
// Starting and ending /bin/true with 64 in flight, in one run: bare (posix_spawn and waitpid), through the
// shim server alone, and through the whole node without the network: records on disk, shims, reports,
// acknowledgements;
// once with a new folder for each attempt, once with forgotten ones' folders.
//   shim_bench [JOBS]      (default: 5000)
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "node/core/node_core.h"
#include "node/output/attempt_log.h"
#include "node/output/folder_files.h"
#include "node/ports/system_clock.h"
#include "node/process/shim_spawner.h"

extern char** environ;

namespace gpusched {
namespace {

constexpr uint64_t kInFlight = 64;
constexpr int kRounds = 3;

using Clock_ = std::chrono::steady_clock;

struct Sample {
  std::string name;
  std::vector<double> rates;
  std::vector<double>
      cpu_us;  ///< Sum over all processes, for each job: it tells the cost on a busy machine, too.
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double cpu_seconds() {
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& part : {usage.ru_utime, usage.ru_stime}) {
      total += static_cast<double>(part.tv_sec) + static_cast<double>(part.tv_usec) / 1e6;
    }
  }
  return total;
}

template <typename Run>
void measure(Sample& sample, uint64_t jobs, Run run) {
  const double cpu = cpu_seconds();
  const Clock_::time_point start = Clock_::now();
  run(jobs);
  const double seconds = std::chrono::duration<double>(Clock_::now() - start).count();
  sample.rates.push_back(static_cast<double>(jobs) / seconds);
  sample.cpu_us.push_back((cpu_seconds() - cpu) * 1e6 / static_cast<double>(jobs));
}

void run_bare(uint64_t jobs) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::string path = "/bin/true";
  char* arguments[] = {path.data(), nullptr};
  uint64_t started = 0;
  uint64_t ended = 0;
  while (ended < jobs) {
    while (started < jobs && started - ended < kInFlight) {
      pid_t pid = 0;
      CHECK(posix_spawn(&pid, path.c_str(), &actions, nullptr, arguments, environ) == 0);
      ++started;
    }
    CHECK(waitpid(-1, nullptr, 0) > 0);
    ++ended;
  }
  posix_spawn_file_actions_destroy(&actions);
}

/// A data folder that goes away.
class Folder {
 public:
  Folder() {
    std::string name = "gpusched-bench-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = std::filesystem::absolute(name);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string shim_program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin/gpu-shim";
}

class CountingListener final : public ShimListener {
 public:
  void on_shim_started(const AttemptKey&, int64_t, int64_t) override {}
  void on_shim_ended(const AttemptKey&, const v1::Outcome& outcome) override {
    CHECK(outcome.cause() == v1::Outcome::EXITED);
    ++ended;
  }
  void on_shim_lost(const AttemptKey&, const std::string&) override { CHECK(false); }
  void on_shim_prepared(const AttemptKey&) override { CHECK(false); }
  void on_shim_saved(const AttemptKey&, int64_t) override { CHECK(false); }
  void on_shim_found(const AttemptKey&, int64_t, int64_t) override { CHECK(false); }
  uint64_t ended = 0;
};

void run_shims(uint64_t jobs) {
  const Folder folder;
  const SystemClock clock;
  CountingListener listener;
  auto spawner = ShimSpawner::open(
      {.shim_program = shim_program(), .data_folder = folder.path(), .instance = "bench"}, clock, listener);
  CHECK(spawner.ok());
  (*spawner)->adopt({});
  uint64_t started = 0;
  while (listener.ended < jobs) {
    for (; started < jobs && started - listener.ended < kInFlight; ++started) {
      (*spawner)->start(
          {.key = {JobId{started + 1}, 1, 0}, .arguments = {"/bin/true"}, .environment = {"PATH=/bin"}});
    }
    pollfd source{.fd = (*spawner)->descriptor(), .events = POLLIN, .revents = 0};
    poll(&source, 1, 5);
    (*spawner)->pump();
  }
}

/// A scheduler that acknowledges everything at once and keeps the node busy.
class BusyScheduler final : public NodeLink {
 public:
  void send(const v1::AgentMessage& message) override {
    if (!message.has_report()) return;
    acks.mutable_ack()->add_report_ids(message.report().id());
    if (message.report().has_ended()) ++ended;
  }
  v1::SchedulerMessage acks;
  uint64_t ended = 0;
};
class NoDevices final : public DeviceReader {
 public:
  std::optional<DeviceReading> read(uint32_t) override { return DeviceReading{}; }
};
class NoMeter final : public HostMeter {
 public:
  HostLoad load() override { return {}; }
};
class ToCore final : public ShimListener {
 public:
  void on_shim_started(const AttemptKey& key, int64_t pid, int64_t at) override {
    core->on_shim_started(key, pid, at);
  }
  void on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) override {
    core->on_shim_ended(key, outcome);
  }
  void on_shim_lost(const AttemptKey&, const std::string&) override { CHECK(false); }
  void on_shim_prepared(const AttemptKey&) override { CHECK(false); }
  void on_shim_saved(const AttemptKey&, int64_t) override { CHECK(false); }
  void on_shim_found(const AttemptKey&, int64_t, int64_t) override { CHECK(false); }
  NodeCore* core = nullptr;
};

v1::SchedulerMessage start_order(uint64_t job) {
  v1::JobSpec spec;
  spec.add_command("/bin/true");
  v1::SchedulerMessage message;
  message.mutable_start()->mutable_key()->set_job(job);
  message.mutable_start()->mutable_key()->set_attempt(1);
  message.mutable_start()->set_spec(spec.SerializeAsString());
  message.mutable_start()->set_job_name("job-" + std::to_string(job));
  return message;
}

void run_node(uint64_t jobs, std::size_t finished_kept) {
  const Folder folder;
  const SystemClock clock;
  ToCore listener;
  auto log = AttemptLog::open(folder.path());
  CHECK(log.ok());
  SpareFolders spares(folder.path());
  FolderFiles files({.data_folder = folder.path(), .spares = &spares});
  auto spawner = ShimSpawner::open(
      {.shim_program = shim_program(), .data_folder = folder.path(), .instance = "bench", .spares = &spares},
      clock, listener);
  CHECK(spawner.ok());
  BusyScheduler scheduler;
  NoDevices devices;
  NoMeter meter;
  NodeCore core(
      {.node_name = "bench", .instance = "bench", .boot_id = "boot", .finished_kept = finished_kept},
      {.clock = clock,
       .link = scheduler,
       .spawner = **spawner,
       .store = **log,
       .files = files,
       .devices = devices,
       .host = meter},
      (*log)->image());
  listener.core = &core;
  v1::SchedulerMessage registered;
  registered.mutable_registered();
  core.on_link_up();
  core.on_message(registered);
  uint64_t started = 0;
  while (scheduler.ended < jobs) {
    for (; started < jobs && started - scheduler.ended < kInFlight; ++started)
      core.on_message(start_order(started + 1));
    core.settle();
    pollfd sources[2] = {{.fd = (*spawner)->descriptor(), .events = POLLIN, .revents = 0},
                         {.fd = (*log)->synced_event(), .events = POLLIN, .revents = 0}};
    poll(sources, 2, 5);
    (*spawner)->pump();
    uint64_t count = 0;
    if (read((*log)->synced_event(), &count, sizeof count) > 0) core.on_synced((*log)->synced_position());
    core.settle();
    if (scheduler.acks.ack().report_ids_size() > 0) core.on_message(std::exchange(scheduler.acks, {}));
  }
}

void print(const Sample& sample, const Sample& bare) {
  std::printf("%-30s median %6.0f/s (", sample.name.c_str(), median(sample.rates));
  for (const double rate : sample.rates) std::printf(" %.0f", rate);
  std::printf(" ), %.2f of bare; %4.0f us of CPU each, %.2f of bare\n",
              median(sample.rates) / median(bare.rates), median(sample.cpu_us),
              median(sample.cpu_us) / median(bare.cpu_us));
}

int run(uint64_t jobs) {
  utsname machine{};
  uname(&machine);
  std::printf(
      "machine: %s %s, %u cores; %llu x /bin/true, %llu in flight, %d rounds in turns; outcomes synced in "
      "groups\n",
      machine.sysname, machine.release, std::thread::hardware_concurrency(),
      static_cast<unsigned long long>(jobs), static_cast<unsigned long long>(kInFlight), kRounds);
  Sample bare{.name = "bare posix_spawn + waitpid"};
  Sample shims{.name = "shim server"};
  Sample node{.name = "node: records, shims, reports"};
  Sample reuse{.name = "node, folders used again"};
  for (int round = 0; round < kRounds; ++round) {
    measure(bare, jobs, run_bare);
    measure(shims, jobs, run_shims);
    measure(node, jobs, [](uint64_t count) { run_node(count, count); });
    measure(reuse, jobs, [](uint64_t count) { run_node(count, 64); });
  }
  for (const Sample* sample : {&bare, &shims, &node, &reuse}) print(*sample, bare);
  return 0;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  const long jobs = argc > 1 ? std::atol(argv[1]) : 5'000;
  if (jobs <= 0) {
    std::fprintf(stderr, "shim_bench: JOBS must be a positive number\n");
    return 2;
  }
  return gpusched::run(static_cast<uint64_t>(jobs));
}
