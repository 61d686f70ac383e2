// rooms: bench_support
//
// Cost of many clients that follow many jobs' output: as many jobs as clients, each job writing lines at a
// steady pace, each client following one of them by REST. Checked: every client gets every line, once and in
// order.
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "support/cluster.h"
#include "support/machine.h"

namespace gpusched::bench {
namespace {

/// Reads lines of bench_chatter; counts what is wrong with them.
class LineCheck {
 public:
  void take(std::string_view data, Samples& latencies) {
    const int64_t now = now_ns();
    text_ += data;
    std::size_t at = 0;
    for (std::size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', at)) {
      const std::string line = text_.substr(at, end - at);
      at = end + 1;
      if (std::atoll(line.c_str()) != lines) wrong += 1;
      lines += 1;
      latencies.add(now - std::atoll(line.c_str() + 11));
    }
    text_.erase(0, at);
  }
  int64_t lines = 0;
  int64_t wrong = 0;

 private:
  std::string text_;
};

struct Followers {
  std::atomic<int64_t> lines{0};
  std::atomic<int64_t> wrong{0};
  std::atomic<int64_t> broken{0};
  std::mutex mutex;
  Samples latencies;
};

void follow(const std::string& url, const std::string& job, int64_t lines, Followers& all) {
  Result<HttpClient> client = HttpClient::create({.url = url});
  LineCheck check;
  Samples latencies;
  const Result<HttpAnswer> answer = client->stream(
      {.method = "GET", .target = "/api/v1/jobs/" + job + "/logs?follow=true"}, [&](std::string_view data) {
        check.take(data, latencies);
        return true;
      });
  if (!answer.ok() || answer->status != 200) all.broken += 1;
  all.lines += check.lines;
  all.wrong += check.wrong + (check.lines == lines ? 0 : 1);
  const std::lock_guard lock(all.mutex);
  all.latencies.add(latencies);
}

int run(int jobs, int per_second, int seconds) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line("sizes",
             text_of("%d jobs of one node, each %d lines of 100 bytes a second for %d s; %d clients by REST",
                     jobs, per_second, seconds, jobs));
  Scheduler scheduler(folder.path(), {{"GPU_SCHEDULER_API_RATE_LIMIT_RPS", "0"}});
  const Process agent = start_agent(folder.path(), scheduler, {"--cpus", std::to_string(jobs)});
  const int64_t lines = int64_t{per_second} * seconds;
  std::vector<std::string> ids;
  for (int i = 0; i < jobs; ++i) {
    const std::string body = R"({"name":"chatter","command":[")" + program("../bench/bench_chatter") +
                             R"("],"args":[")" + std::to_string(lines) + R"(",")" +
                             std::to_string(per_second) + R"("]})";
    ids.push_back(scheduler.post("/api/v1/jobs", body)["job_id"].text());
  }
  wait_until("all jobs to run", 60, [&] { return scheduler.job_count("running") == jobs; });
  Followers all;
  std::vector<std::thread> threads;
  for (const std::string& id : ids)
    threads.emplace_back([&, id] { follow(scheduler.url(), id, lines, all); });
  sleep_ms(2'000);  // Lines that were written before are read.
  const CpuMeter meter({&scheduler.process(), &agent});
  const double before = scheduler.process().cpu_seconds() + agent.cpu_seconds();
  const int64_t begin = now_ns();
  sleep_ms((seconds - 4) * 1'000L);
  const double used =
      (scheduler.process().cpu_seconds() + agent.cpu_seconds() - before) / seconds_between(begin, now_ns());
  const std::string cores = meter.text({"scheduler", "agent"});
  for (std::thread& thread : threads) thread.join();
  expect(all.broken == 0, text_of("%lld streams broke", static_cast<long long>(all.broken.load())));
  expect(all.wrong == 0 && all.lines == lines * jobs,
         text_of("%lld lines came and %lld clients saw a wrong one", static_cast<long long>(all.lines.load()),
                 static_cast<long long>(all.wrong.load())));
  print_line("cores", cores);
  print_line("a line's way",
             text_of("p50 %.1f ms  p99 %.1f ms  (from its writing to its client, those from before "
                     "the client came included)",
                     all.latencies.percentile_ms(0.5), all.latencies.percentile_ms(0.99)));
  print_line("figure",
             text_of("%d jobs followed by %d clients: %.2f of a core in scheduler and agent (target < 1)",
                     jobs, jobs, used));
  print_line("checked",
             text_of("%lld lines, each once and in order", static_cast<long long>(all.lines.load())));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// follow_bench [JOBS [LINES_PER_SECOND [SECONDS]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 200, argc > 2 ? std::atoi(argv[2]) : 10,
                              argc > 3 ? std::max(std::atoi(argv[3]), 6) : 30);
}
