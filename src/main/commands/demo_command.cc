#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/http_client.h"
#include "client/json.h"
#include "log/log.h"
#include "main/commands/dev_command.h"
#include "main/commands/local_agent.h"
#include "main/demo/demo_jobs.h"
#include "main/demo/demo_screen.h"
#include "main/demo/process_tree.h"
#include "main/serve.h"
#include "main/supervise.h"
#include "ops/machine.h"

namespace gpusched {
namespace {

constexpr const char* kSimGpus = "4xA100-SXM4-80GB";
constexpr int kGpusWanted = 2;  ///< One job of the demonstration has two.
constexpr double kStartLimitS = 15;
constexpr double kPlayLimitS = 50;
constexpr double kCancelAfterS = 3;
constexpr Duration kPollEvery = milliseconds(200);
constexpr Duration kStartPollEvery = milliseconds(30);
constexpr int kInterrupted = 130;

Error failure(const std::string& why) { return {.code = ErrorCode::kUnavailable, .message = why}; }

/// NVIDIA's devices of this machine: /dev/nvidia0, /dev/nvidia1 ...
int real_gpus() {
  int found = 0;
  for (const std::string& name : ops::names_in("/dev")) {
    found += name.starts_with("nvidia") && name.size() > 6 &&
             std::isdigit(static_cast<unsigned char>(name[6])) != 0;
  }
  return has_gpu_driver() ? found : 0;
}

/// A folder of its own with a scheduler in this process, and an agent. `clear` ends both and removes all of
/// it.
class Stage {
 public:
  Result<Unit> open();
  /// The answer's JSON, or its text where it is none; kUnavailable: refused, or the agent has ended.
  Result<std::string> call(const std::string& method, const std::string& target,
                           const std::string& body = {});
  Result<Json> ask(const std::string& method, const std::string& target, const std::string& body = {});
  /// An error when a signal came meanwhile, and `interrupted` from then on.
  Result<Unit> pause(Duration time);
  bool interrupted() const { return interrupted_; }
  const std::string& about_gpus() const { return about_gpus_; }
  const std::string& folder() const { return folder_; }
  /// Returns the names of processes that had to be killed.
  std::vector<std::string> clear();

 private:
  Result<Unit> make_folder();
  Result<Unit> start_scheduler();
  Result<Unit> start_node();
  Result<Unit> wait_for_gpus();
  std::optional<std::string> end_of_agent();

  std::string folder_;
  std::string about_gpus_;
  std::unique_ptr<Service> service_;
  std::optional<pid_t> agent_;
  std::optional<HttpClient> client_;
  bool interrupted_ = false;
};

Result<Unit> Stage::pause(Duration time) {
  if (wait_for_signal(time) == 0) return Unit{};
  interrupted_ = true;
  return failure("interrupted");
}

Result<Unit> Stage::make_folder() {
  std::error_code failed;
  std::filesystem::path place = std::filesystem::temp_directory_path(failed);
  std::string name = ((failed ? "/tmp" : place) / "gpu-scheduler-demo-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return failure("cannot make a folder " + name);
  folder_ = name;
  return Unit{};
}

Result<Unit> Stage::start_scheduler() {
  const Result<Unit> logging = log_set_up({.path = folder_ + "/scheduler.log", .level = LogLevel::kInfo});
  if (!logging.ok()) return logging;
  Config config;  // Nobody's configuration: free ports, and no socket in a place that others know.
  config.api.http_port = 0;
  config.api.grpc_port = 0;
  config.metrics.enabled = false;
  config.api.unix_socket.clear();
  config.agent.unix_socket.clear();
  Result<std::unique_ptr<Service>> service = Service::start(config, folder_ + "/scheduler");
  if (!service.ok()) return service.error();
  service_ = std::move(*service);
  Result<HttpClient> client =
      HttpClient::create({.url = "http://127.0.0.1:" + std::to_string(service_->ports().http),
                          .token = ops::read_line(folder_ + "/scheduler/token").value_or("")});
  if (!client.ok()) return client.error();
  client_.emplace(std::move(*client));
  return Unit{};
}

Result<Unit> Stage::start_node() {
  const bool simulated = real_gpus() < kGpusWanted;
  about_gpus_ = simulated ? "simulated GPUs" : "GPUs of this machine";
  const Result<pid_t> agent = start_agent({.node = "demo",
                                           .folder = folder_ + "/agent",
                                           .sim_gpus = simulated ? kSimGpus : "",
                                           .default_user = {},
                                           .root_jobs = true},
                                          service_->ports());
  if (!agent.ok()) return agent.error();
  agent_ = *agent;
  return Unit{};
}

std::optional<std::string> Stage::end_of_agent() {
  int status = 0;
  if (!agent_ || waitpid(*agent_, &status, WNOHANG) != *agent_) return std::nullopt;
  agent_.reset();
  constexpr std::size_t kTailBytes = 2'000;
  const std::string log = ops::read_text(folder_ + "/agent.log").value_or("");
  return "gpu-agent ended by itself (exit status " + std::to_string(WEXITSTATUS(status)) +
         "); the end of its log:\n" + log.substr(log.size() - std::min(log.size(), kTailBytes));
}

Result<Unit> Stage::wait_for_gpus() {
  for (double waited = 0; waited < kStartLimitS; waited += static_cast<double>(kStartPollEvery.ns) / 1e9) {
    const Result<Json> cluster = ask("GET", "/api/v1/cluster/status");
    if (!cluster.ok()) return cluster.error();
    const int64_t gpus = (*cluster)["available_gpus"].integer();
    if (gpus >= kGpusWanted) {
      about_gpus_ = std::to_string(gpus) + " " + about_gpus_;
      return Unit{};
    }
    if (const Result<Unit> paused = pause(kStartPollEvery); !paused.ok()) return paused;
  }
  return failure("the agent did not register with two GPUs within 15 s; its log:\n" +
                 ops::read_text(folder_ + "/agent.log").value_or(""));
}

Result<Unit> Stage::open() {
  for (const auto step :
       {&Stage::make_folder, &Stage::start_scheduler, &Stage::start_node, &Stage::wait_for_gpus}) {
    if (const Result<Unit> done = (this->*step)(); !done.ok()) return done;
  }
  return Unit{};
}

Result<std::string> Stage::call(const std::string& method, const std::string& target,
                                const std::string& body) {
  if (const std::optional<std::string> ended = end_of_agent()) return failure(*ended);
  const Result<HttpAnswer> answer =
      client_->request({.method = method, .target = target, .body = body, .repeatable = method == "GET"});
  if (!answer.ok()) return answer.error();
  if (answer->status / 100 == 2) return answer->body;
  return failure(method + " " + target + " was refused with HTTP status " + std::to_string(answer->status) +
                 ": " + answer->body);
}

Result<Json> Stage::ask(const std::string& method, const std::string& target, const std::string& body) {
  const Result<std::string> answer = call(method, target, body);
  if (!answer.ok()) return answer.error();
  return Json::parse(*answer);
}

std::vector<std::string> Stage::clear() {
  if (agent_) end_agent(*agent_);
  client_.reset();
  if (service_) service_->stop();
  service_.reset();
  log_shut_down();
  const std::vector<std::string> killed = end_descendants();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  return killed;
}

/// The job's new state and output. What was written by a job that waits is nothing.
Result<Unit> refresh(Stage& stage, DemoJob& job) {
  const std::string target = "/api/v1/jobs/" + job.id;
  const Result<Json> answer = stage.ask("GET", target);
  if (!answer.ok()) return answer.error();
  const std::string state = (*answer)["state"].text();
  const bool started = state != "pending" && state != "scheduled";
  const Result<std::string> output = started ? stage.call("GET", target + "/logs") : std::string();
  update_job(job, *answer, output.ok() ? *output : std::string());
  return Unit{};
}

Result<Unit> submit_all(Stage& stage, std::vector<DemoJob>& jobs, DemoScreen& screen) {
  for (DemoJob& job : jobs) {
    const Result<Json> answer = stage.ask("POST", "/api/v1/jobs", job.request);
    if (!answer.ok()) return answer.error();
    job.id = (*answer)["job_id"].text();
    job.state = "pending";
    screen.draw(jobs);
  }
  return Unit{};
}

Result<Unit> play(Stage& stage, std::vector<DemoJob>& jobs, DemoScreen& screen) {
  if (const Result<Unit> submitted = submit_all(stage, jobs, screen); !submitted.ok()) return submitted;
  DemoJob& forever = jobs.at(2);
  const DemoJob& broken = jobs.at(3);
  bool cancelled = false;
  for (;;) {
    bool all_ended = true;
    for (DemoJob& job : jobs) {
      if (job.ended()) continue;
      if (const Result<Unit> seen = refresh(stage, job); !seen.ok()) return seen;
      all_ended = all_ended && job.ended();
    }
    screen.draw(jobs);
    if (all_ended) return Unit{};
    if (screen.seconds_since_start() > kPlayLimitS) return failure("not every job had ended after 50 s");
    // The failed job has been seen by then: the endless one may go.
    if (!cancelled && forever.state == "running" && broken.ended() &&
        screen.seconds_since_start() > kCancelAfterS) {
      if (const auto sent = stage.call("DELETE", "/api/v1/jobs/" + forever.id); !sent.ok())
        return sent.error();
      cancelled = true;
    }
    if (const Result<Unit> paused = stage.pause(kPollEvery); !paused.ok()) return paused;
  }
}

/// Plays it on an open stage; returns the exit status.
int perform(Stage& stage) {
  if (const Result<Unit> opened = stage.open(); !opened.ok()) {
    std::fprintf(stderr, "gpu-scheduler demo: %s\n", opened.error().message.c_str());
    return stage.interrupted() ? kInterrupted : 1;
  }
  std::printf("A scheduler and an agent on loopback, in %s\nReady: %s on node demo. Five jobs:\n\n",
              stage.folder().c_str(), stage.about_gpus().c_str());
  const char* const terminal = std::getenv("TERM");
  DemoScreen screen(stdout,
                    isatty(STDOUT_FILENO) != 0 && terminal != nullptr && std::string(terminal) != "dumb");
  std::vector<DemoJob> jobs = demo_jobs();
  if (const Result<Unit> played = play(stage, jobs, screen); !played.ok()) {
    std::fprintf(stderr, "\ngpu-scheduler demo: %s\n", played.error().message.c_str());
    return stage.interrupted() ? kInterrupted : 1;
  }
  int status = 0;
  for (const DemoJob& job : jobs) {
    if (job.verdict == DemoVerdict::kRight) continue;
    std::fprintf(stderr, "\ngpu-scheduler demo: %s\n", describe_wrong(job).c_str());
    status = 1;
  }
  return status;
}

/// The programs as they are typed here: by their names, or by their folder where the shell would not find
/// them.
void print_what_next() {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  const bool found = failed || !ops::find_program(self.filename().string()).empty();
  const std::string in = found ? "" : ops::shell_quoted(self.parent_path().string()) + "/";
  std::printf(
      "\nEvery job ended as it should; every process and file of this demonstration is gone.\n"
      "What next:\n"
      "  %sgpu-scheduler dev                               a scheduler and an agent that stay up\n"
      "  %sgpu-cli submit --gpus 1 --wait --logs -- env    your first job (in another terminal)\n"
      "  %sgpu-cli list                                    what there is\n"
      "  %sgpu-cli --help                                  everything else\n",
      in.c_str(), in.c_str(), in.c_str(), in.c_str());
}

int run_demo() {
  adopt_orphans();  // Shims outlive their agent by design: none may be missed.
  block_signals();
  Stage stage;
  int status = perform(stage);
  const std::vector<std::string> killed = stage.clear();
  if (status != 0) return status;
  if (!killed.empty()) {
    std::string names;
    for (const std::string& name : killed) names += (names.empty() ? "" : ", ") + name;
    std::fprintf(stderr, "gpu-scheduler demo: these processes had to be killed: %s\n", names.c_str());
    return 1;
  }
  print_what_next();
  return 0;
}

ProgramAction define_demo(Grammar& grammar) {
  grammar.details(
      "Five jobs run on this machine's GPUs, or on four simulated ones where it has fewer than two: one with "
      "output, one "
      "on two GPUs, one that is cancelled, one that fails, one that waits. Takes seconds, on loopback, in a "
      "temporary "
      "folder; every process and file of it is gone afterwards. Exit status 0: every job ended as it "
      "should.");
  return [](const std::vector<std::string>&) { return run_demo(); };
}

}  // namespace

ProgramCommand demo_command() {
  return {.path = "demo",
          .summary = "Run five jobs on this machine, show them, and leave nothing behind",
          .define = define_demo};
}

}  // namespace gpusched
