// rooms: bench_load sign
//
// Durable unary submissions by REST over keep-alive connections, with TLS and without, in turns.
#include <cstdlib>
#include <filesystem>

#include "load/load.h"
#include "sign/testing/certificates.h"

namespace gpusched::bench {
namespace {

/// One scheduler with what was measured of it.
struct Side {
  Side(const std::string& name_, const std::string& folder, Environment environment, std::string certificate_)
      : name(name_),
        certificate(std::move(certificate_)),
        scheduler(folder, std::move(environment), certificate) {}

  RestLoad load(int64_t requests, int connections) const {
    return {.port = scheduler.http_port(),
            .connections = connections,
            .requests = requests,
            .certificate = certificate};
  }
  void round(int64_t requests, int connections) {
    const CpuMeter meter({&scheduler.process()});
    const double before = scheduler.process().cpu_seconds();
    const LoadResult result = run_rest_load(load(requests, connections));
    print_round(name.c_str(), result);
    print_line("", meter.text({"scheduler"}));
    cpu_us.push_back((scheduler.process().cpu_seconds() - before) * 1e6 / static_cast<double>(requests));
    rates.push_back(result.requests_per_second());
    p99s.push_back(result.latency.percentile_ms(0.99));
  }

  std::string name, certificate;
  Scheduler scheduler;
  std::vector<double> rates, p99s, cpu_us;
};

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
  Side plain("plain", below(folder, "plain"), {}, "");
  Side tls("TLS", below(folder, "tls"),
           {{"GPU_SCHEDULER_API_ENABLE_TLS", "true"},
            {"GPU_SCHEDULER_API_TLS_CERT_PATH", files.certificate},
            {"GPU_SCHEDULER_API_TLS_KEY_PATH", files.key}},
           files.certificate);
  for (Side* const side : {&plain, &tls}) run_rest_load(side->load(requests / 10, connections));  // Warms up.
  for (int round = 0; round < rounds; ++round) {
    plain.round(requests, connections);
    tls.round(requests, connections);
  }
  print_line(
      "figure",
      text_of("%.0f submissions/s with TLS, %.0f without: %.2f of it (target >= 0.70); p99 %.2f and %.2f "
              "ms, medians of %d rounds of %lld in turns",
              median(tls.rates), median(plain.rates), median(tls.rates) / median(plain.rates),
              median(tls.p99s), median(plain.p99s), rounds, static_cast<long long>(requests)));
  print_line("",
             text_of("%.1f us of the scheduler's CPU a submission with TLS, %.1f without: %.2f of it",
                     median(tls.cpu_us), median(plain.cpu_us), median(plain.cpu_us) / median(tls.cpu_us)));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// tls_bench [ROUNDS [REQUESTS [CONNECTIONS]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atoll(argv[2]) : 100'000,
                              argc > 3 ? std::atoi(argv[3]) : 64);
}
