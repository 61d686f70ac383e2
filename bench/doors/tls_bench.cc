// rooms: bench_load sign
//
// Durable unary submissions by REST over keep-alive connections, plain, with TLS, and with TLS and an
// API key, in turns.
#include <array>
#include <cstdlib>
#include <filesystem>

#include "load/load.h"
#include "sign/testing/certificates.h"

namespace gpusched::bench {
namespace {

/// One kind of call with what was measured of it.
struct Side {
  std::string name;
  Scheduler* scheduler = nullptr;
  std::string certificate, key;
  std::vector<double> rates = {}, p99s = {}, cpu_us = {};

  RestLoad load(int64_t requests, int connections) const {
    return {.port = scheduler->http_port(),
            .connections = connections,
            .requests = requests,
            .certificate = certificate,
            .token = key};
  }
  void round(int64_t requests, int connections) {
    const CpuMeter meter({&scheduler->process()});
    const double before = scheduler->process().cpu_seconds();
    const LoadResult result = run_rest_load(load(requests, connections));
    print_round(name.c_str(), result);
    print_line("", meter.text({"scheduler"}));
    cpu_us.push_back((scheduler->process().cpu_seconds() - before) * 1e6 / static_cast<double>(requests));
    rates.push_back(result.requests_per_second());
    p99s.push_back(result.latency.percentile_ms(0.99));
  }
  /// Beside plain calls without a credential, by the target.
  void print_beside(const Side& plain, int rounds, int64_t requests) const {
    print_line("figure",
               text_of("%.0f submissions/s by %s, %.0f plain: %.2f of it (target >= 0.70); p99 %.2f and %.2f "
                       "ms, medians of %d rounds of %lld in turns",
                       median(rates), name.c_str(), median(plain.rates), median(rates) / median(plain.rates),
                       median(p99s), median(plain.p99s), rounds, static_cast<long long>(requests)));
    print_line("", text_of("%.1f us of the scheduler's CPU a submission by %s, %.1f plain: %.2f of it",
                           median(cpu_us), name.c_str(), median(plain.cpu_us),
                           median(plain.cpu_us) / median(cpu_us)));
  }
};

/// A key that is looked for among as many as a cluster has.
std::string make_keys(Scheduler& scheduler) {
  constexpr int kKeys = 500;
  std::string key;
  for (int i = 0; i < kKeys; ++i) {
    key = scheduler
              .post("/v1/keys",
                    R"({"name":"k)" + std::to_string(i) + R"(","roles":[{"role":"user"}]})")["secret"]
              .text();
  }
  return key;
}

std::string below(const WorkFolder& folder, const char* name) {
  const std::string path = folder.path() + "/" + name;
  std::filesystem::create_directory(path);
  return path;
}

int run(int rounds, int64_t requests, int connections) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line("sizes",
             text_of("%d connections (requests in flight), bodies of %zu B, TLS 1.3 with a P-256 key",
                     connections, benchmark_job_json().size()));
  sign::TestAuthority authority;
  const sign::TestAuthority::Files files = authority.sign("bench", "IP:127.0.0.1", -3'600, 24 * 3'600);
  Scheduler without(below(folder, "plain"), {});
  Scheduler with(below(folder, "tls"),
                 {{"GPU_SCHEDULER_API_ENABLE_TLS", "true"},
                  {"GPU_SCHEDULER_API_TLS_CERT_PATH", files.certificate},
                  {"GPU_SCHEDULER_API_TLS_KEY_PATH", files.key}},
                 files.certificate);
  std::array<Side, 3> sides = {
      Side{.name = "plain", .scheduler = &without, .certificate = {}, .key = {}},
      Side{.name = "TLS", .scheduler = &with, .certificate = files.certificate, .key = {}},
      Side{.name = "TLS and a key",
           .scheduler = &with,
           .certificate = files.certificate,
           .key = make_keys(with)}};
  for (const Side& side : sides) run_rest_load(side.load(requests / 10, connections));  // Warms up.
  for (int round = 0; round < rounds; ++round) {
    for (Side& side : sides) side.round(requests, connections);
  }
  for (const Side& side : {sides[1], sides[2]}) side.print_beside(sides[0], rounds, requests);
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// tls_bench [ROUNDS [REQUESTS [CONNECTIONS]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atoll(argv[2]) : 100'000,
                              argc > 3 ? std::atoi(argv[3]) : 64);
}
