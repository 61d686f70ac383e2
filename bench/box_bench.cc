// rooms: node
//
// Cost of a box for a start: /bin/true through the shim server one after the other, some bare and some boxed
// in turns, from the order to the word that the command runs, and to its end with nothing left in the box.
// The box has every cgroup that this machine lets us make, another user, folders of its own and a private
// /dev/shm. Needs root for all of it; missing parts are named. On a busy machine the lower percentiles are
// those of the undisturbed starts.
//   box_bench [JOBS]      (default: 1000 of each)
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
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
#include "node/ports/system_clock.h"
#include "node/process/box_planner.h"
#include "node/process/shim_spawner.h"

namespace gpusched {
namespace {

constexpr int64_t kMemoryMb = 256;
constexpr int64_t kCpuMilli =
    256'000;  ///< So much that other work of the machine does not decide the figure.
using Steady = std::chrono::steady_clock;

class Listener final : public ShimListener {
 public:
  void on_shim_started(const AttemptKey&, int64_t, int64_t) override { started = true; }
  void on_shim_ended(const AttemptKey&, const v1::Outcome& outcome) override {
    if (outcome.cause() != v1::Outcome::EXITED) std::fprintf(stderr, "%s\n", outcome.detail().c_str());
    CHECK(outcome.cause() == v1::Outcome::EXITED);
    ended = true;
  }
  void on_shim_lost(const AttemptKey&, const std::string&) override { CHECK(false); }
  void on_shim_prepared(const AttemptKey&) override { CHECK(false); }
  void on_shim_saved(const AttemptKey&, int64_t) override { CHECK(false); }
  void on_shim_found(const AttemptKey&, int64_t, int64_t) override { CHECK(false); }
  bool started = false;
  bool ended = false;
};

constexpr uint64_t kTurn = 20;

struct Sample {
  std::vector<double> start_us;
  std::vector<double> end_us;
};

double at(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(static_cast<double>(values.size() - 1) * part)];
}

void measure(ShimSpawner& spawner, Listener& listener, BoxMaker* boxes, uint64_t job, Sample& sample) {
  listener.started = listener.ended = false;
  SpawnRequest request{.key = {JobId{job}, 1, 0}, .arguments = {"/bin/true"}, .environment = {"PATH=/bin"}};
  const Steady::time_point begun = Steady::now();
  if (boxes != nullptr) {
    v1::StartAttempt order;
    *order.mutable_key() = to_wire(request.key);
    order.set_cpu_milli(kCpuMilli);
    order.set_memory_mb(kMemoryMb);
    v1::JobSpec spec;
    if (geteuid() == 0) spec.set_user("nobody");
    Result<BoxPlan> plan = boxes->plan(order, spec, {});
    CHECK(plan.ok());
    request.box = std::move(plan->box);
  }
  spawner.start(request);
  const auto wait_for = [&](const bool& done) {
    while (!done) {
      pollfd source{.fd = spawner.descriptor(), .events = POLLIN, .revents = 0};
      poll(&source, 1, 5);
      spawner.pump();
    }
    return std::chrono::duration<double, std::micro>(Steady::now() - begun).count();
  };
  sample.start_us.push_back(wait_for(listener.started));
  sample.end_us.push_back(wait_for(listener.ended));
  if (boxes != nullptr) boxes->release(request.key);
}

int run(uint64_t jobs) {
  std::string folder = "/var/tmp/gpusched-bench-XXXXXX";
  CHECK(mkdtemp(folder.data()) != nullptr);
  utsname machine{};
  uname(&machine);
  std::printf("machine: %s %s, %u cores; %llu x /bin/true of each, one at a time, in turns\n",
              machine.sysname, machine.release, std::thread::hardware_concurrency(),
              static_cast<unsigned long long>(jobs));
  {
    const SystemClock clock;
    Listener listener;
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin/gpu-shim";
    auto spawner = ShimSpawner::open({.shim_program = program, .data_folder = folder, .instance = "boxbench"},
                                     clock, listener);
    CHECK(spawner.ok());
    (*spawner)->adopt({});
    auto boxes = BoxPlanner::open({.allow_root_jobs = true},
                                  {.data_folder = folder, .instance = "boxbench", .cpus_offered = 1}, clock);
    CHECK(boxes.ok());
    std::printf("box: %s, devices %s, %s, %s\n", (*boxes)->cgroups().feature().c_str(),
                (*boxes)->fences_devices() ? "fenced" : "advisory",
                (*boxes)->switches_users() ? "another user" : "the same user",
                (*boxes)->mounts_private() ? "private /dev/shm" : "no mounts");
    Sample bare;
    Sample boxed;
    for (uint64_t job = 0; job < 2 * jobs;) {
      for (uint64_t i = 0; i < kTurn; ++i) measure(**spawner, listener, nullptr, ++job, bare);
      for (uint64_t i = 0; i < kTurn; ++i) measure(**spawner, listener, boxes->get(), ++job, boxed);
    }
    for (const double part : {0.1, 0.25, 0.5, 0.9}) {
      std::printf(
          "p%.0f: start bare %.0f us, boxed %.0f us, box %+.0f us; to the end bare %.0f us, boxed %.0f us, "
          "box %+.0f us\n",
          part * 100, at(bare.start_us, part), at(boxed.start_us, part),
          at(boxed.start_us, part) - at(bare.start_us, part), at(bare.end_us, part), at(boxed.end_us, part),
          at(boxed.end_us, part) - at(bare.end_us, part));
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return 0;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  const long jobs = argc > 1 ? std::atol(argv[1]) : 1000;
  if (jobs <= 0) {
    std::fprintf(stderr, "box_bench: JOBS must be a positive number\n");
    return 2;
  }
  return gpusched::run(static_cast<uint64_t>(jobs));
}
