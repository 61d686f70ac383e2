// rooms: bench_support sign
//
// Cost of an idle agent, without TLS and with it, and the time that a restarted one takes to find its running
// jobs again.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "sign/testing/certificates.h"
#include "support/cluster.h"
#include "support/machine.h"

namespace gpusched::bench {
namespace {

std::string log_text(const std::string& folder) {
  std::ostringstream text;
  text << std::ifstream(folder + "/agent.log").rdbuf();
  return text.str();
}

/// A line of /proc/PID/smaps_rollup, in MB.
double memory_mb(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stod(line.substr(name.size() + 1)) * 1024 / 1e6;
  }
  fail("/proc/" + std::to_string(pid) + "/smaps_rollup has no " + name);
}

std::string memory_text(pid_t pid) {
  return text_of("%.1f MB resident, %.1f MB proportional (PSS), %.1f MB of its own (anonymous)",
                 memory_mb(pid, "Rss"), memory_mb(pid, "Pss"), memory_mb(pid, "Anonymous"));
}

/// The small process that shims are forked from; 0: there is none.
pid_t shim_server(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::string words{std::istreambuf_iterator<char>(file), {}};
    std::replace(words.begin(), words.end(), '\0', ' ');
    const bool is_server = words.find("gpu-shim --server") != std::string::npos;
    if (is_server && words.find(folder) != std::string::npos)
      return static_cast<pid_t>(std::stol(entry.path().filename()));
  }
  return 0;
}

void measure_idle(const std::string& folder, Scheduler& scheduler, const std::string& ca_file, int seconds) {
  std::vector<std::string> flags = {"--sim-gpus", "8xA100-SXM4-80GB"};
  if (!ca_file.empty()) flags.insert(flags.end(), {"--ca-file", ca_file});
  const Process agent = start_agent(folder, scheduler, flags);
  sleep_ms(3'000);
  const double before = agent.cpu_seconds();
  const int64_t begin = now_ns();
  sleep_ms(seconds * 1'000L);
  const double share = (agent.cpu_seconds() - before) / seconds_between(begin, now_ns());
  print_line("figure",
             text_of("idle agent with 8 simulated GPUs%s: %.2f %% of a core over %d s (target < 0.2 %%), %s "
                     "(target < %d MB resident)",
                     ca_file.empty() ? "" : ", over TLS", share * 100, seconds,
                     memory_text(agent.pid()).c_str(), ca_file.empty() ? 15 : 17));
}

void cancel_all(Scheduler& scheduler, const std::vector<std::string>& ids) {
  Result<HttpClient> client = HttpClient::create({.url = scheduler.url(), .token = scheduler.token()});
  for (const std::string& id : ids) {
    const Result<HttpAnswer> answer = client->request({.method = "DELETE", .target = "/api/v1/jobs/" + id});
    expect(answer.ok() && answer->status == 200, "cannot cancel " + id);
  }
  wait_until("all jobs to end", 120, [&] { return scheduler.job_count("running") == 0; });
}

void measure_adoption(const std::string& folder, Scheduler& scheduler, int jobs, int rounds) {
  const std::vector<std::string> flags = {"--cpus", std::to_string(jobs)};
  Process agent = start_agent(folder, scheduler, flags);
  const std::string body =
      R"({"name":"sleeper","command":[")" + program("../bench/bench_chatter") + R"("],"args":["3600","0"]})";
  std::vector<std::string> ids;
  for (int i = 0; i < jobs; ++i) ids.push_back(scheduler.post("/api/v1/jobs", body)["job_id"].text());
  wait_until("all jobs to run", 120, [&] { return scheduler.job_count("running") == jobs; });
  print_line("agent", memory_text(agent.pid()) + text_of(" with %d running jobs", jobs));
  if (const pid_t server = shim_server(folder); server != 0)
    print_line("its fork server", memory_text(server) + "; it begins with the first job");
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    agent.kill(9);
    const std::size_t logged = log_text(folder).size();
    const int64_t begin = now_ns();
    std::vector<std::string> command = {
        program("gpu-agent"), "--scheduler",    scheduler.grpc_address(), "--node", "bench",
        "--data-dir",         folder + "/agent"};
    command.insert(command.end(), flags.begin(), flags.end());
    agent = Process(command, {}, folder + "/agent.log");
    const std::string wanted = "\"adopted\":" + std::to_string(jobs);
    wait_until("the jobs to be adopted", 60,
               [&] { return log_text(folder).find(wanted, logged) != std::string::npos; });
    times.push_back(seconds_between(begin, now_ns()));
  }
  expect(scheduler.job_count("running") == jobs, "a job ended");
  print_line("figure",
             text_of("%d running jobs adopted by a restarted agent: %.3f s, median of %d (target < 1 s)",
                     jobs, median(times), rounds));
  cancel_all(scheduler, ids);
  agent.kill(15);
}

int run(int jobs, int seconds) {
  const WorkFolder idle;
  print_head(idle.path());
  print_line("sizes", text_of("one agent; idle for %d s, without TLS and with it; %d running jobs, the agent "
                              "killed and started again 5 times",
                              seconds, jobs));
  {
    Scheduler scheduler(idle.path());
    measure_idle(idle.path(), scheduler, "", seconds);
  }
  {
    const WorkFolder secure;
    sign::TestAuthority authority;
    const sign::TestAuthority::Files files = authority.sign("bench", "IP:127.0.0.1", -3'600, 24 * 3'600);
    Scheduler scheduler(secure.path(),
                        {{"GPU_SCHEDULER_API_ENABLE_TLS", "true"},
                         {"GPU_SCHEDULER_API_TLS_CERT_PATH", files.certificate},
                         {"GPU_SCHEDULER_API_TLS_KEY_PATH", files.key}},
                        files.certificate);
    measure_idle(secure.path(), scheduler, authority.file(), seconds);
  }
  const WorkFolder busy;
  Scheduler scheduler(busy.path(), {{"GPU_SCHEDULER_API_RATE_LIMIT_RPS", "0"}});
  measure_adoption(busy.path(), scheduler, jobs, 5);
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// agent_bench [JOBS [SECONDS]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 1'000, argc > 2 ? std::atoi(argv[2]) : 60);
}
