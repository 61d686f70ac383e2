// rooms: bench_support
//
// How long gpu-cli takes to list ten thousand jobs, from its start to its end, its output into /dev/null; and
// one page of them over TCP with the shared token and over the Unix socket, turn by turn.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "support/cluster.h"
#include "support/machine.h"

extern char** environ;

namespace gpusched::bench {
namespace {

constexpr int kBatch = 1'000;

struct Taken {
  int64_t wall_ns = 0;
  int64_t cpu_ns = 0;  ///< The command's own.
};

Taken run_command(const std::vector<std::string>& command) {
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
  rusage used{};
  expect(::wait4(pid, &status, 0, &used) == pid && status == 0,
         command[0] + " ended with " + std::to_string(status));
  posix_spawn_file_actions_destroy(&quiet);
  const auto ns = [](const timeval& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1'000;
  };
  return {.wall_ns = now_ns() - begin, .cpu_ns = ns(used.ru_utime) + ns(used.ru_stime)};
}

void submit(Scheduler& scheduler, int jobs) {
  for (int done = 0; done < jobs; done += kBatch) {
    std::string body = "{\"jobs\":[";
    for (int i = done; i < std::min(done + kBatch, jobs); ++i) {
      body += (i > done ? "," : "") + std::string(R"({"spec":{"name":"train-)") + std::to_string(i) +
              R"(","command":["./train.sh"],"labels":{"team":"vision"}},"resources":{"gpu_count":1}})";
    }
    expect(scheduler.post("/v1/jobs", body + "]}")["job_ids"].is_array(), "the jobs were not accepted");
  }
}

/// The two ways in turn, so that what else the machine does counts for both.
void compare_ways(const Scheduler& scheduler, const std::string& socket, int times) {
  const std::string cli = program("gpu-cli");
  const std::vector<std::string> tcp = {
      cli, "--api-url", scheduler.url(), "--token-file", scheduler.data_dir() + "/token", "list"};
  const std::vector<std::string> local = {cli, "--api-url", "unix://" + socket, "list"};
  Samples by_tcp, by_socket;
  for (int i = 0; i < times + 10; ++i) {
    const int64_t one = run_command(tcp).wall_ns, other = run_command(local).wall_ns;
    if (i < 10) continue;  // Warms up.
    by_tcp.add(one);
    by_socket.add(other);
  }
  print_line("also",
             text_of("gpu-cli list, one page, %d times in turn: over TCP with the token p50 %.2f ms, p99 "
                     "%.2f ms; over the Unix socket p50 %.2f ms, p99 %.2f ms",
                     times, by_tcp.percentile_ms(0.5), by_tcp.percentile_ms(0.99),
                     by_socket.percentile_ms(0.5), by_socket.percentile_ms(0.99)));
}

int run(int jobs, int times) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line("sizes", text_of("%d waiting jobs, no node; %d times", jobs, times));
  const std::string socket = folder.path() + "/api.sock";
  Scheduler scheduler(folder.path(), {{"GPU_SCHEDULER_API_UNIX_SOCKET", socket}});
  submit(scheduler, jobs);
  const std::string cli = program("gpu-cli");
  const std::vector<std::vector<std::string>> lists = {{"list", "--all"},
                                                       {"list", "--all", "--sort", "priority,name"},
                                                       {"list", "--all", "-o", "wide"},
                                                       {"list", "--all", "-o", "json"},
                                                       {"list"}};
  for (const std::vector<std::string>& list : lists) {
    std::vector<std::string> command = {cli, "--api-url", scheduler.url()};
    command.insert(command.end(), list.begin(), list.end());
    run_command(command);  // Warms up.
    Samples wall, cpu;
    for (int i = 0; i < times; ++i) {
      const Taken taken = run_command(command);
      wall.add(taken.wall_ns);
      cpu.add(taken.cpu_ns);
    }
    std::string words;
    for (const std::string& word : list) words += " " + word;
    print_line(list == lists.front() ? "figure" : "also",
               text_of("gpu-cli%s: p50 %.1f ms, p99 %.1f ms, its own processor time p50 %.1f ms%s",
                       words.c_str(), wall.percentile_ms(0.5), wall.percentile_ms(0.99),
                       cpu.percentile_ms(0.5), list == lists.front() ? " (target < 150 ms)" : ""));
  }
  compare_ways(scheduler, socket, times * 10);
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// list_bench [JOBS [TIMES]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 10'000, argc > 2 ? std::atoi(argv[2]) : 50);
}
