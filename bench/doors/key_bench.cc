// rooms: bench_load
//
// Durable unary submissions by REST over keep-alive connections, with an API key, with the shared token and
// with no credential, in turns.
#include <array>
#include <cstdlib>

#include "load/load.h"

namespace gpusched::bench {
namespace {

/// One kind of caller with what was measured of it.
struct Side {
  const char* name;
  std::string token;
  std::vector<double> rates = {}, p99s = {}, cpu_us = {};

  void round(Scheduler& scheduler, int64_t requests, int connections) {
    const double before = scheduler.process().cpu_seconds();
    const LoadResult result = run_rest_load({.port = scheduler.http_port(),
                                             .connections = connections,
                                             .requests = requests,
                                             .certificate = {},
                                             .token = token});
    print_round(name, result);
    cpu_us.push_back((scheduler.process().cpu_seconds() - before) * 1e6 / static_cast<double>(requests));
    rates.push_back(result.requests_per_second());
    p99s.push_back(result.latency.percentile_ms(0.99));
  }
};

int run(int rounds, int64_t requests, int connections) {
  const WorkFolder folder;
  print_head(folder.path());
  Scheduler scheduler(folder.path());
  // As many as a cluster has: the key is looked for among them.
  constexpr int kOthers = 500;
  std::string key;
  for (int i = 0; i <= kOthers; ++i) {
    key = scheduler
              .post("/v1/keys",
                    R"({"name":"k)" + std::to_string(i) + R"(","roles":[{"role":"user"}]})")["secret"]
              .text();
  }
  print_line("sizes", text_of("%d connections (requests in flight), bodies of %zu B, %d keys", connections,
                              benchmark_job_json().size(), kOthers + 1));
  std::array<Side, 3> sides = {Side{"key", key}, Side{"token", scheduler.token()}, Side{"nobody", ""}};
  for (Side& side : sides) Side(side).round(scheduler, requests / 10, connections);  // Warms up.
  for (int round = 0; round < rounds; ++round) {
    for (Side& side : sides) side.round(scheduler, requests, connections);
  }
  const auto& [with_key, with_token, with_none] = sides;
  print_line(
      "figure",
      text_of("%.0f submissions/s with a key, %.0f with the token: %.2f of it; %.0f without a "
              "credential: %.2f of it (target >= 0.90); p99 %.2f, %.2f and %.2f ms, medians of "
              "%d rounds of %lld in turns",
              median(with_key.rates), median(with_token.rates),
              median(with_key.rates) / median(with_token.rates), median(with_none.rates),
              median(with_key.rates) / median(with_none.rates), median(with_key.p99s),
              median(with_token.p99s), median(with_none.p99s), rounds, static_cast<long long>(requests)));
  print_line("", text_of("%.1f us of the scheduler's CPU a submission with a key, %.1f with the token, %.1f "
                         "without",
                         median(with_key.cpu_us), median(with_token.cpu_us), median(with_none.cpu_us)));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// key_bench [ROUNDS [REQUESTS [CONNECTIONS]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atoll(argv[2]) : 100'000,
                              argc > 3 ? std::atoi(argv[3]) : 64);
}
