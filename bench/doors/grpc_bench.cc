// rooms: bench_load
//
// Durable unary submissions by gRPC: the native door with one job a call, and the jobs door. In turns with
// each, the same calls at a server of gRPC's own that answers at once: what gRPC leaves for the doors to
// reach.
#include <cstdlib>
#include <fstream>

#include "load/load.h"

namespace gpusched::bench {
namespace {

struct Sizes {
  int rounds;
  int64_t calls;
};

/// bench_echo on a port of its own.
class Echo {
 public:
  explicit Echo(const std::string& folder)
      : process_({program("../bench/bench_echo")}, {}, folder + "/echo.log") {
    wait_until("the echo's port", 10, [&] {
      expect(process_.running(), "bench_echo ended at its start");
      return static_cast<bool>(std::ifstream(folder + "/echo.log") >> port_);
    });
  }
  const Process& process() const { return process_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  Process process_;
  int port_ = 0;
};

/// The rounds of one server.
struct Rounds {
  std::vector<double> rates, p99s;

  LoadResult run(const char* name, const GrpcLoad& load, const Process& server, const char* server_name) {
    const CpuMeter meter({&server});
    LoadResult result = run_grpc_load(load);
    print_round(name, result);
    print_line("", meter.text({server_name}));
    rates.push_back(result.requests_per_second());
    p99s.push_back(result.latency.percentile_ms(0.99));
    return result;
  }
};

void run_door(const char* name, GrpcLoad load, Sizes sizes) {
  const WorkFolder folder;
  Scheduler scheduler(folder.path());
  const Echo echo(folder.path());
  GrpcLoad echo_load = load;
  load.address = scheduler.grpc_address();
  echo_load.address = echo.address();
  load.calls = echo_load.calls = sizes.calls / 10;
  std::vector<uint64_t> jobs = run_grpc_load(load).jobs;  // Warms up.
  run_grpc_load(echo_load);
  load.calls = echo_load.calls = sizes.calls;
  Rounds of_door, of_echo;
  for (int round = 0; round < sizes.rounds; ++round) {
    const LoadResult result = of_door.run(name, load, scheduler.process(), "scheduler");
    jobs.insert(jobs.end(), result.jobs.begin(), result.jobs.end());
    of_echo.run("gRPC's echo", echo_load, echo.process(), "echo");
  }
  check_all_there(scheduler, std::move(jobs));
  const double rate = median(of_door.rates), echo_rate = median(of_echo.rates);
  print_line("figure",
             text_of("%s: %.0f submissions/s, p99 %.2f ms; %.2f of gRPC's echo, %.0f calls/s, p99 %.2f ms; "
                     "medians of %d rounds of %lld (target >= 45000/s, or 0.60 of the echo; p99 < 10 ms)",
                     name, rate, median(of_door.p99s), rate / echo_rate, echo_rate, median(of_echo.p99s),
                     sizes.rounds, static_cast<long long>(sizes.calls)));
}

int run(Sizes sizes, int in_flight, int channels) {
  {
    const WorkFolder folder;
    print_head(folder.path());
  }
  print_line(
      "sizes",
      text_of("%d calls in flight over %d connections, one job a call, no node: the queue grows to %lld",
              in_flight, channels, static_cast<long long>(sizes.rounds * sizes.calls + sizes.calls / 10)));
  run_door("native door", {.door = GrpcLoad::Door::kNative, .in_flight = in_flight, .channels = channels},
           sizes);
  run_door("jobs door", {.door = GrpcLoad::Door::kJobs, .in_flight = in_flight, .channels = channels}, sizes);
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// grpc_bench [ROUNDS [CALLS [IN_FLIGHT [CONNECTIONS]]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(
      {.rounds = argc > 1 ? std::atoi(argv[1]) : 5, .calls = argc > 2 ? std::atoll(argv[2]) : 150'000},
      argc > 3 ? std::atoi(argv[3]) : 256, argc > 4 ? std::atoi(argv[4]) : 4);
}
