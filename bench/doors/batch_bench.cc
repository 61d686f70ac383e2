// rooms: bench_load
//
// Durable batched submissions by gRPC: the native door, 100 jobs a call.
#include <cstdlib>

#include "load/load.h"

namespace gpusched::bench {
namespace {

int run(int rounds, int64_t calls, int in_flight, int jobs_per_call) {
  const WorkFolder folder;
  print_head(folder.path());
  const int64_t jobs_max = 3 * rounds * calls * jobs_per_call;
  print_line(
      "sizes",
      text_of("%d jobs a call, %d calls in flight over 2 connections, no node: the queue grows to %lld "
              "(max_queue_size raised to %lld for it)",
              jobs_per_call, in_flight, static_cast<long long>((rounds * calls + calls / 10) * jobs_per_call),
              static_cast<long long>(jobs_max)));
  Scheduler scheduler(folder.path(), {{"GPU_SCHEDULER_SCHEDULER_MAX_QUEUE_SIZE", std::to_string(jobs_max)}});
  GrpcLoad load{.address = scheduler.grpc_address(),
                .in_flight = in_flight,
                .channels = 2,
                .jobs_per_call = jobs_per_call,
                .calls = calls / 10};
  std::vector<uint64_t> jobs = run_grpc_load(load).jobs;  // Warms up.
  load.calls = calls;
  std::vector<double> rates, p99s;
  for (int round = 0; round < rounds; ++round) {
    const CpuMeter meter({&scheduler.process()});
    const LoadResult result = run_grpc_load(load);
    print_round("round", result);
    print_line("", meter.text({"scheduler"}));
    rates.push_back(result.jobs_per_second());
    p99s.push_back(result.latency.percentile_ms(0.99));
    jobs.insert(jobs.end(), result.jobs.begin(), result.jobs.end());
  }
  check_all_there(scheduler, std::move(jobs));
  print_line(
      "figure",
      text_of("%.0f jobs/s, p99 of a call %.2f ms, medians of %d rounds of %lld jobs (target >= 400000 "
              "jobs/s)",
              median(rates), median(p99s), rounds, static_cast<long long>(calls * jobs_per_call)));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// batch_bench [ROUNDS [CALLS [IN_FLIGHT [JOBS_PER_CALL]]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atoll(argv[2]) : 4'000,
                              argc > 3 ? std::atoi(argv[3]) : 16, argc > 4 ? std::atoi(argv[4]) : 100);
}
