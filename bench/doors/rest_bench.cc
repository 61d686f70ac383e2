// rooms: bench_load
//
// Durable unary submissions by REST: POST /api/v1/jobs over keep-alive connections, one request in flight on
// each.
#include <cstdlib>

#include "load/load.h"

namespace gpusched::bench {
namespace {

int run(int rounds, int64_t requests, int connections) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line("sizes",
             text_of("%d connections (requests in flight), bodies of %zu B, no node: the queue grows to %lld",
                     connections, benchmark_job_json().size(),
                     static_cast<long long>(rounds * requests + requests / 10)));
  Scheduler scheduler(folder.path());
  RestLoad load{.port = scheduler.http_port(), .connections = connections, .requests = requests / 10};
  std::vector<uint64_t> jobs = run_rest_load(load).jobs;  // Warms up.
  load.requests = requests;
  std::vector<double> rates, p99s;
  for (int round = 0; round < rounds; ++round) {
    const CpuMeter meter({&scheduler.process()});
    const LoadResult result = run_rest_load(load);
    print_round("round", result);
    print_line("", meter.text({"scheduler"}));
    rates.push_back(result.requests_per_second());
    p99s.push_back(result.latency.percentile_ms(0.99));
    jobs.insert(jobs.end(), result.jobs.begin(), result.jobs.end());
  }
  check_all_there(scheduler, std::move(jobs));
  print_line("figure",
             text_of("%.0f submissions/s, p99 %.2f ms, medians of %d rounds of %lld (target >= 50000/s, "
                     "p99 < 10 ms)",
                     median(rates), median(p99s), rounds, static_cast<long long>(requests)));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// rest_bench [ROUNDS [REQUESTS [CONNECTIONS]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atoll(argv[2]) : 150'000,
                              argc > 3 ? std::atoi(argv[3]) : 64);
}
