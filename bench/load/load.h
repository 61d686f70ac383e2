#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/cluster.h"
#include "support/machine.h"

/// Load generators: closed loops that keep a number of requests in flight and measure each one.
namespace gpusched::bench {

struct LoadResult {
  double seconds = 0;
  Samples latency;             ///< One a request, from before its write to its whole answer.
  std::vector<uint64_t> jobs;  ///< Acknowledged ids, as they came.

  double requests_per_second() const { return static_cast<double>(latency.count()) / seconds; }
  double jobs_per_second() const { return static_cast<double>(jobs.size()) / seconds; }
};

/// The benchmark job, in the words of each door: a name, a command, two arguments, one label.
std::string benchmark_job_json();

/// POST /api/v1/jobs over keep-alive connections with one request in flight on each; one thread, raw sockets.
/// Any answer but 201 ends the benchmark.
struct RestLoad {
  uint16_t port = 0;
  int connections = 64;
  int64_t requests = 0;
  std::string certificate = {};  ///< The server's own; empty: without TLS.
  std::string token = {};        ///< Or a key; empty: its calls are anybody's.
};
LoadResult run_rest_load(const RestLoad& load);

/// Unary calls over gRPC; one thread on one completion queue. Any error ends the benchmark.
struct GrpcLoad {
  enum class Door { kNative, kJobs };
  std::string address;
  std::string token = {};  ///< Empty: its calls are anybody's.
  Door door = Door::kNative;
  int in_flight = 256;
  int channels = 4;       ///< TCP connections.
  int jobs_per_call = 1;  ///< More than one: native only.
  int64_t calls = 0;
};
LoadResult run_grpc_load(const GrpcLoad& load);

/// Submits `count` benchmark jobs in batches of 1,000.
LoadResult submit_batches(Scheduler& scheduler, int64_t count);
/// Submits `count` jobs that run `command`, with this many thousandths of a core each.
LoadResult submit_commands(Scheduler& scheduler, int64_t count, const std::vector<std::string>& command);

/// One round as a line: rate, latencies.
void print_round(const char* name, const LoadResult& result);

/// Ends the benchmark unless every acknowledged id is distinct and the scheduler counts exactly so many jobs,
/// now and after a kill -9 and restart.
void check_all_there(Scheduler& scheduler, std::vector<uint64_t> acknowledged);

}  // namespace gpusched::bench
