// rooms: bench_load
//
// Durable unary submissions by gRPC: the native door with one job a call, and the jobs door.
#include <cstdlib>

#include "load/load.h"

namespace gpusched::bench {
namespace {

void run_door(const char* name, GrpcLoad load, int rounds, int64_t calls) {
  const WorkFolder folder;
  Scheduler scheduler(folder.path());
  load.address = scheduler.grpc_address();
  load.calls = calls / 10;
  std::vector<uint64_t> jobs = run_grpc_load(load).jobs;  // Warms up.
  load.calls = calls;
  std::vector<double> rates, p99s;
  for (int round = 0; round < rounds; ++round) {
    const CpuMeter meter({&scheduler.process()});
    const LoadResult result = run_grpc_load(load);
    print_round(name, result);
    print_line("", meter.text({"scheduler"}));
    rates.push_back(result.requests_per_second());
    p99s.push_back(result.latency.percentile_ms(0.99));
    jobs.insert(jobs.end(), result.jobs.begin(), result.jobs.end());
  }
  check_all_there(scheduler, std::move(jobs));
  print_line("figure",
             text_of("%s: %.0f submissions/s, p99 %.2f ms, medians of %d rounds of %lld (target >= 40000/s, "
                     "aim 50000; p99 < 10 ms)",
                     name, median(rates), median(p99s), rounds, static_cast<long long>(calls)));
}

int run(int rounds, int64_t calls, int in_flight, int channels) {
  {
    const WorkFolder folder;
    print_head(folder.path());
  }
  print_line(
      "sizes",
      text_of("%d calls in flight over %d connections, one job a call, no node: the queue grows to %lld",
              in_flight, channels, static_cast<long long>(rounds * calls + calls / 10)));
  run_door("native door", {.door = GrpcLoad::Door::kNative, .in_flight = in_flight, .channels = channels},
           rounds, calls);
  run_door("jobs door", {.door = GrpcLoad::Door::kJobs, .in_flight = in_flight, .channels = channels}, rounds,
           calls);
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// grpc_bench [ROUNDS [CALLS [IN_FLIGHT [CONNECTIONS]]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atoll(argv[2]) : 150'000,
                              argc > 3 ? std::atoi(argv[3]) : 256, argc > 4 ? std::atoi(argv[4]) : 4);
}
