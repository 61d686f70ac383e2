// rooms: node
//
// Starting and ending /bin/true in a container, in turns: `podman run` itself, and an attempt through shim
// and runner with the same options. "Start" is until the command runs (podman: its first output; ours: what
// the agent is told), "whole" is until the client ended or the outcome is recorded.
//   container_bench [ROUNDS]      (default: 20; needs root, podman, runc and a static /bin/busybox)
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "gpusched/v1/types.pb.h"
#include "node/container/container_launch.h"
#include "node/ports/system_clock.h"
#include "node/process/launch.h"
#include "node/process/shim_spawner.h"

extern char** environ;

namespace gpusched {
namespace {

namespace fs = std::filesystem;
using Clock_ = std::chrono::steady_clock;

constexpr const char* kImage = "localhost/bench:1";

double ms_since(Clock_::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock_::now() - start).count();
}

struct Sample {
  std::vector<double> start_ms;
  std::vector<double> whole_ms;
};

double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(at * static_cast<double>(values.size() - 1))];
}

/// A folder with podman's storage, an image of one program, and an agent's data.
class Place {
 public:
  Place() {
    std::string name = "/tmp/gpusched-container-bench-XXXXXX";
    CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
    const std::string tree = path_ + "/tree";
    fs::create_directories(tree + "/bin");
    fs::copy_file("/bin/busybox", tree + "/bin/busybox");
    for (const char* link : {"true", "echo", "sh"}) fs::create_symlink("busybox", tree + "/bin/" + link);
    const std::string import = "tar -C " + tree + " -c . | podman " + joined() + " import - " + kImage +
                               " >/dev/null 2>" + path_ + "/import.log";
    CHECK(std::system(import.c_str()) == 0);
  }
  ~Place() {
    static_cast<void>(std::system(("podman " + joined() + " rm --all --force >/dev/null 2>&1").c_str()));
    static_cast<void>(std::system(("umount -l " + path_ + "/root/overlay >/dev/null 2>&1").c_str()));
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> options() const {
    return {"--root=" + path_ + "/root", "--runroot=" + path_ + "/run", "--runtime=runc",
            "--cgroup-manager=cgroupfs", "--events-backend=file"};
  }

 private:
  std::string joined() const {
    std::string line;
    for (const std::string& option : options()) line += option + ' ';
    return line;
  }
  std::string path_;
};

/// `podman run` with the options that the runner gives it, but for what makes it the runner's.
void run_podman(const shim::ContainerPlan& plan, Sample& sample) {
  std::vector<std::string> words = {plan.client.program};
  words.insert(words.end(), plan.client.options.begin(), plan.client.options.end());
  words.insert(words.end(), {"run", "--rm", "--log-driver", "passthrough"});
  words.insert(words.end(), plan.options.begin(), plan.options.end());
  words.insert(words.end(), {"--entrypoint", "/bin/echo", kImage, "x"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> ends{-1, -1};
  CHECK(pipe2(ends.data(), O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t pid = -1;
  const Clock_::time_point start = Clock_::now();
  CHECK(posix_spawn(&pid, arguments.front(), &actions, nullptr, arguments.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == 1);
  sample.start_ms.push_back(ms_since(start));
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  sample.whole_ms.push_back(ms_since(start));
  close(ends[0]);
}

class TimingListener final : public ShimListener {
 public:
  void on_shim_started(const AttemptKey&, int64_t, int64_t) override { started_ms = ms_since(ordered); }
  void on_shim_ended(const AttemptKey&, const v1::Outcome& outcome) override {
    CHECK(outcome.cause() == v1::Outcome::EXITED && outcome.exit_code() == 0);
    ended_ms = ms_since(ordered);
  }
  void on_shim_lost(const AttemptKey&, const std::string&) override { CHECK(false); }
  void on_shim_prepared(const AttemptKey&) override { CHECK(false); }
  void on_shim_saved(const AttemptKey&, int64_t) override { CHECK(false); }
  void on_shim_found(const AttemptKey&, int64_t, int64_t) override { CHECK(false); }
  Clock_::time_point ordered;
  double started_ms = 0;
  double ended_ms = 0;
};

SpawnRequest plan_attempt(const std::shared_ptr<const ContainerNode>& node, uint64_t job) {
  v1::JobSpec spec;
  spec.set_image(kImage);
  spec.add_command("/bin/echo");
  spec.add_args("x");
  v1::StartAttempt order;
  order.mutable_key()->set_job(job);
  order.mutable_key()->set_attempt(1);
  *order.mutable_spec() = spec.SerializeAsString();
  order.set_job_name("job-" + std::to_string(job));
  LaunchDefaults defaults;
  defaults.instance = "bench";
  defaults.containers = node;
  Result<SpawnRequest> request = plan_launch(order, {}, defaults);
  CHECK(request.ok());
  return std::move(*request);
}

void run_attempt(ShimSpawner& spawner, TimingListener& listener,
                 const std::shared_ptr<const ContainerNode>& node, uint64_t job, Sample& sample) {
  listener.started_ms = listener.ended_ms = 0;
  listener.ordered = Clock_::now();
  spawner.start(plan_attempt(node, job));
  while (listener.ended_ms == 0) {
    pollfd source{.fd = spawner.descriptor(), .events = POLLIN, .revents = 0};
    poll(&source, 1, 5);
    spawner.pump();
  }
  sample.start_ms.push_back(listener.started_ms);
  sample.whole_ms.push_back(listener.ended_ms);
}

void print(const char* name, const Sample& sample) {
  std::printf("%-10s start p50 %6.1f ms  p90 %6.1f    whole p50 %6.1f ms  p90 %6.1f\n", name,
              quantile(sample.start_ms, 0.5), quantile(sample.start_ms, 0.9), quantile(sample.whole_ms, 0.5),
              quantile(sample.whole_ms, 0.9));
}

int bench(int rounds) {
  const Place place;
  auto node = std::make_shared<ContainerNode>();
  node->options.runtime = "podman";
  node->options.client_options = place.options();
  node->support = probe_containers(node->options, "/usr/local/bin:/usr/bin:/bin");
  if (!node->support.works) {
    std::printf("skipped: %s\n", node->support.why_not.c_str());
    return 0;
  }
  node->data_folder = place.path() + "/data";
  node->instance = "bench";
  node->shim_program = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin/gpu-shim";
  fs::create_directories(node->data_folder);
  const SystemClock clock;
  TimingListener listener;
  auto spawner = ShimSpawner::open(
      {.shim_program = node->shim_program, .data_folder = node->data_folder, .instance = "bench"}, clock,
      listener);
  CHECK(spawner.ok());
  (*spawner)->adopt({});
  Sample podman;
  Sample ours;
  Sample ignored;
  const SpawnRequest request = plan_attempt(node, 1'000'000);
  const auto plan = shim::parse_plan({request.arguments.begin() + 2, request.arguments.end()});
  CHECK(plan.has_value());
  run_attempt(**spawner, listener, node, 1'000'001, ignored);
  run_podman(*plan, ignored);
  for (int round = 0; round < rounds; ++round) {
    run_podman(*plan, podman);
    run_attempt(**spawner, listener, node, static_cast<uint64_t>(round) + 1, ours);
  }
  utsname machine{};
  uname(&machine);
  std::printf("%u cores, %s %s, podman %s with runc, host network; %d rounds in turns, one at a time\n",
              std::thread::hardware_concurrency(), machine.sysname, machine.release,
              node->support.version.c_str(), rounds);
  print("podman", podman);
  print("attempt", ours);
  std::printf("ratio      start %.3f  whole %.3f (target: start at most 1.15)\n",
              quantile(ours.start_ms, 0.5) / quantile(podman.start_ms, 0.5),
              quantile(ours.whole_ms, 0.5) / quantile(podman.whole_ms, 0.5));
  return 0;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  if (geteuid() != 0 || access("/usr/bin/podman", X_OK) != 0 || access("/bin/busybox", X_OK) != 0) {
    std::printf("skipped: it needs root, podman, runc and a static /bin/busybox\n");
    return 0;
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: container_bench [ROUNDS]\n");
    return 2;
  }
  return gpusched::bench(rounds);
}
