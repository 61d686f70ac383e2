// rooms: bench_support
//
// How long one job takes on an idle cluster: from its submission by REST to its process's first instruction,
// and `gpu-cli submit --wait -- true` from start to end.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "support/cluster.h"
#include "support/machine.h"

extern char** environ;

namespace gpusched::bench {
namespace {

constexpr int kPauseMs = 8;  ///< Longer than a job takes, so that the cluster is idle between two.

std::string stamp_program() { return program("../bench/bench_stamp"); }

/// Submits a job that writes the time of its start, waits for its end, and takes the difference.
int64_t start_latency_ns(Scheduler& scheduler, const std::string& file) {
  const std::string body =
      R"({"name":"stamp","command":[")" + stamp_program() + R"("],"args":[")" + file + R"("]})";
  const int64_t begin = now_ns();
  const std::string job = scheduler.post("/api/v1/jobs", body)["job_id"].text();
  std::string state;
  while (state != "completed") {
    sleep_ms(kPauseMs);  // First: asking at once would disturb what is measured.
    state = scheduler.get("/api/v1/jobs/" + job)["state"].text();
    expect(state != "failed", job + " failed");
  }
  int64_t started = 0;
  std::ifstream(file) >> started;
  expect(started > begin, job + " left no time of its start");
  expect(::unlink(file.c_str()) == 0, "cannot remove " + file);
  return started - begin;
}

int64_t command_ns(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int64_t begin = now_ns();
  expect(::posix_spawn(&pid, words[0], &quiet, nullptr, words.data(), environ) == 0,
         "cannot start " + command[0]);
  int status = 0;
  expect(::waitpid(pid, &status, 0) == pid && status == 0,
         command[0] + " ended with " + std::to_string(status));
  const int64_t taken = now_ns() - begin;
  posix_spawn_file_actions_destroy(&quiet);
  return taken;
}

std::string latencies(const Samples& samples) {
  return text_of("p50 %.2f ms  p90 %.2f ms  p99 %.2f ms  worst %.2f ms  (%zu times)",
                 samples.percentile_ms(0.5), samples.percentile_ms(0.9), samples.percentile_ms(0.99),
                 samples.percentile_ms(1), samples.count());
}

int run(int times, int commands) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line("sizes", "one node, one job at a time, the next when it has ended; the job is a static program");
  Scheduler scheduler(folder.path());
  const Process agent = start_agent(folder.path(), scheduler, {});
  const std::string file = folder.path() + "/started";
  for (int i = 0; i < 20; ++i) start_latency_ns(scheduler, file);  // Warms up.

  Samples sync, started, bare;
  for (int i = 0; i < times; ++i) {  // In turns, so that a noisy moment meets them all.
    sync.add(measure_disk_sync(folder.path(), 4));
    bare.add(command_ns({stamp_program(), file}));
    started.add(start_latency_ns(scheduler, file));
  }
  const double goal = 2 * sync.percentile_ms(0.5) + 2.5;
  print_line("disk's sync", latencies(sync));
  print_line("bare process", latencies(bare));
  print_line("to started", latencies(started));
  print_line(
      "figure",
      text_of("submit to process started: p50 %.2f ms (target < %.2f ms = 2 x sync + 2.5 ms), p99 %.2f "
              "ms (target < 10 ms)",
              started.percentile_ms(0.5), goal, started.percentile_ms(0.99)));

  Samples cli, true_alone;
  const std::vector<std::string> submit = {program("gpu-cli"), "--api-url", scheduler.url(), "submit",
                                           "--wait",           "--",        "true"};
  for (int i = 0; i < commands; ++i) {
    cli.add(command_ns(submit));
    true_alone.add(command_ns({"/bin/true"}));
  }
  print_line("/bin/true", latencies(true_alone));
  print_line("gpu-cli", latencies(cli));
  print_line("figure",
             text_of("gpu-cli submit --wait -- true: p50 %.2f ms (target < 15 ms)", cli.percentile_ms(0.5)));
  const int64_t completed = scheduler.job_count("completed");
  expect(completed == 20 + times + commands, "not every job completed");
  print_line("checked", text_of("%lld jobs submitted, as many completed", static_cast<long long>(completed)));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// latency_bench [TIMES [COMMANDS]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 500, argc > 2 ? std::atoi(argv[2]) : 200);
}
