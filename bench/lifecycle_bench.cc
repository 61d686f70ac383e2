// rooms: bench_load
//
// Whole lives of `/bin/true` jobs on one node, from submission to a durable end that the API shows, against
// this machine's bare rate of starting and reaping /bin/true with as many in flight, in turns in the same
// run.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "load/load.h"

extern char** environ;

namespace gpusched::bench {
namespace {

/// Starts and reaps /bin/true with up to `in_flight` at a time; times a second.
double bare_rate(int64_t count, int in_flight) {
  char path[] = "/bin/true";
  char* words[] = {path, nullptr};
  int64_t started = 0;
  int64_t ended = 0;
  const int64_t begin = now_ns();
  while (ended < count) {
    if (started < count && started - ended < in_flight) {
      pid_t pid = -1;
      expect(::posix_spawn(&pid, path, nullptr, nullptr, words, environ) == 0, "cannot start /bin/true");
      ++started;
      continue;
    }
    int status = 0;
    expect(::waitpid(-1, &status, 0) > 0 && status == 0, "/bin/true failed");
    ++ended;
  }
  return static_cast<double>(count) / seconds_between(begin, now_ns());
}

struct Lives {
  double rate = 0;
  std::string cores;
};

/// Submits `count` jobs at once; the rate at which they lived, from the first submission to the last end.
Lives lifecycle_rate(Scheduler& scheduler, const Process& agent, int64_t count) {
  const int64_t before = scheduler.job_count("completed");
  const CpuMeter meter({&scheduler.process(), &agent});
  const int64_t begin = now_ns();
  const LoadResult submitted = submit_commands(scheduler, count, {"/bin/true"});
  expect(static_cast<int64_t>(submitted.jobs.size()) == count, "not every job was accepted");
  wait_until("the jobs' ends", 600, [&] {
    sleep_ms(20);
    const Json cluster = scheduler.get("/api/v1/cluster/status");
    return cluster["pending_jobs"].integer() == 0 && cluster["running_jobs"].integer() == 0 &&
           scheduler.job_count("completed") + scheduler.job_count("failed") == before + count;
  });
  const double seconds = seconds_between(begin, now_ns());
  const int64_t completed = scheduler.job_count("completed") - before;
  expect(completed == count, text_of("%lld of %lld jobs completed", static_cast<long long>(completed),
                                     static_cast<long long>(count)));
  return {.rate = static_cast<double>(count) / seconds, .cores = meter.text({"scheduler", "agent"})};
}

int run(int rounds, int64_t jobs, int in_flight) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line(
      "sizes",
      text_of("%d rounds of %lld jobs, %d in flight (one node that offers as many cores), output to files, "
              "ends synced on the node's disk and in the scheduler's journal",
              rounds, static_cast<long long>(jobs), in_flight));
  Scheduler scheduler(folder.path());
  const Process agent = start_agent(folder.path(), scheduler, {"--cpus", std::to_string(in_flight)});
  lifecycle_rate(scheduler, agent, jobs / 10);  // Warms up.
  std::vector<double> ratios, rates, bares;
  for (int round = 0; round < rounds; ++round) {
    const double before = bare_rate(jobs / 2, in_flight);
    const Lives lives = lifecycle_rate(scheduler, agent, jobs);
    const double after = bare_rate(jobs / 2, in_flight);
    const double bare = 2 / (1 / before + 1 / after);
    bares.push_back(bare);
    rates.push_back(lives.rate);
    ratios.push_back(lives.rate / bare);
    print_line("round",
               text_of("bare %6.0f/s  lifecycles %6.0f/s  ratio %.3f  ", bare, lives.rate, ratios.back()) +
                   lives.cores);
  }
  print_line("checked", text_of("every job of every round is completed by the API (%lld)",
                                static_cast<long long>(scheduler.job_count("completed"))));
  print_line("figure",
             text_of("%.0f lifecycles/s, bare %.0f/s, ratio %.3f, medians of %d rounds (target >= 0.6)",
                     median(rates), median(bares), median(ratios), rounds));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// lifecycle_bench [ROUNDS [JOBS [IN_FLIGHT]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 3, argc > 2 ? std::atoll(argv[2]) : 20'000,
                              argc > 3 ? std::atoi(argv[3]) : 64);
}
