#include "support/cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "support/machine.h"

namespace gpusched::bench {
namespace {

constexpr double kStartPatience = 120;

std::string whole_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

int64_t status_kilobytes(pid_t pid, const std::string& key) {
  std::istringstream lines(whole_file("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key + ":")) return std::atoll(line.c_str() + key.size() + 1);
  }
  return 0;
}

std::vector<std::string>& folders_in_use() {
  static std::vector<std::string> folders;
  return folders;
}

void remove_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

void fail(const std::string& why) {
  std::fflush(stdout);
  std::fprintf(stderr, "failed: %s\n", why.c_str());
  for (const std::string& folder : folders_in_use()) {
    const std::string log = whole_file(folder + "/scheduler.log") + whole_file(folder + "/agent.log");
    std::fprintf(stderr, "%s\n", log.substr(log.size() > 2'000 ? log.size() - 2'000 : 0).c_str());
    remove_folder(folder);
  }
  std::_Exit(1);  // The children die with us (PR_SET_PDEATHSIG).
}

void expect(bool good, const std::string& why) {
  if (!good) fail(why);
}

WorkFolder::WorkFolder() {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base == nullptr ? "/tmp" : base) + "/gpusched_bench_XXXXXX";
  expect(::mkdtemp(path_.data()) != nullptr, "cannot make " + path_ + ": " + std::strerror(errno));
  folders_in_use().push_back(path_);
}
WorkFolder::~WorkFolder() {
  std::erase(folders_in_use(), path_);
  remove_folder(path_);
}

std::string program(const std::string& name) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string path = (self.parent_path().parent_path() / "bin" / name).string();
  expect(::access(path.c_str(), X_OK) == 0, path + " is not there; run make build");
  return path;
}

Process::Process(const std::vector<std::string>& command, const Environment& environment,
                 const std::string& log) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::fflush(stdout);
  pid_ = ::fork();
  expect(pid_ >= 0, std::string("cannot fork: ") + std::strerror(errno));
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(out, 1);
  ::dup2(out, 2);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::execv(words[0], words.data());
  ::_exit(127);
}

Process& Process::operator=(Process&& other) noexcept {
  kill(SIGKILL);
  pid_ = std::exchange(other.pid_, -1);
  return *this;
}

bool Process::running() {
  if (pid_ < 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == 0) return true;
  pid_ = -1;
  return false;
}

int Process::kill(int signal) {
  if (pid_ < 0) return 0;
  ::kill(pid_, signal);
  return wait();
}

int Process::wait() {
  if (pid_ < 0) return 0;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

double Process::cpu_seconds() const {
  const std::string stat = whole_file("/proc/" + std::to_string(pid_) + "/stat");
  std::istringstream words(stat.substr(stat.rfind(')') + 2));
  std::string word;
  int64_t user = 0;
  int64_t system = 0;
  for (int field = 3; field < 14; ++field) words >> word;
  words >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

int64_t Process::resident_bytes() const { return status_kilobytes(pid_, "VmRSS") * 1024; }
int64_t Process::resident_peak_bytes() const { return status_kilobytes(pid_, "VmHWM") * 1024; }

CpuMeter::CpuMeter(std::vector<const Process*> processes)
    : processes_(std::move(processes)), cpu_(now()), begin_ns_(now_ns()) {}

std::vector<double> CpuMeter::now() const {
  std::vector<double> seconds;
  for (const Process* process : processes_) seconds.push_back(process->cpu_seconds());
  timespec own{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  seconds.push_back(static_cast<double>(own.tv_sec) + static_cast<double>(own.tv_nsec) / 1e9);
  std::istringstream stat(whole_file("/proc/stat"));
  std::string word;
  int64_t user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0;
  stat >> word >> user >> nice >> system >> idle >> waiting >> irq >> softirq;
  const int64_t busy = user + nice + system + irq + softirq;
  seconds.push_back(static_cast<double>(busy) / static_cast<double>(::sysconf(_SC_CLK_TCK)));
  return seconds;
}

std::string CpuMeter::text(const std::vector<std::string>& names) const {
  const double taken = seconds_between(begin_ns_, now_ns());
  std::vector<double> used = now();
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = (used[i] - cpu_[i]) / taken;
  std::string text = "cores used:";
  double others = used.back();
  for (std::size_t i = 0; i + 1 < used.size(); ++i) {
    text += text_of(" %.2f %s,", used[i], i < names.size() ? names[i].c_str() : "this");
    others -= used[i];
  }
  return text + text_of(" %.2f others", std::max(others, 0.0));
}

Scheduler::Scheduler(const std::string& folder, Environment environment, std::string certificate)
    : folder_(folder), environment_(std::move(environment)), certificate_(std::move(certificate)) {
  for (const char* key : {"API_HTTP_PORT", "API_GRPC_PORT", "METRICS_PORT"}) {
    environment_.emplace_back(std::string("GPU_SCHEDULER_") + key, "0");
  }
  // One tenant has half of the places at most, and all jobs of a benchmark are one tenant's.
  const std::string places = "GPU_SCHEDULER_SCHEDULER_MAX_QUEUE_SIZE";
  if (std::ranges::none_of(environment_, [&](const auto& setting) { return setting.first == places; }))
    environment_.emplace_back(places, "4000000");
  start();
}

bool Scheduler::read_ports() {
  const Result<Json> ports = Json::parse(whole_file(data_dir() + "/ports.json"));
  if (!ports.ok() || !(*ports)["http"].is_number()) return false;
  if ((*ports)["pid"].integer() != process_.pid()) return false;
  http_port_ = static_cast<uint16_t>((*ports)["http"].integer());
  grpc_port_ = static_cast<uint16_t>((*ports)["grpc"].integer());
  return true;
}

double Scheduler::start() {
  const int64_t begin = now_ns();
  process_ =
      Process({program("gpu-scheduler"), "--data-dir", data_dir()}, environment_, folder_ + "/scheduler.log");
  wait_until("the scheduler's ports", kStartPatience, [this] {
    expect(process_.running(), "the scheduler ended at its start");
    return read_ports();
  });
  client_.clear();
  Result<HttpClient> client =
      HttpClient::create({.url = url(), .token = token(), .server_certificate = certificate_});
  expect(client.ok(), "no HTTP client");
  client_.push_back(std::move(*client));
  wait_until("a healthy scheduler", kStartPatience, [this] {
    const Result<HttpAnswer> answer = client_.front().request({.method = "GET", .target = "/health"});
    return answer.ok() && answer->status == 200;
  });
  return seconds_between(begin, now_ns());
}

std::string Scheduler::token() const {
  std::ifstream in(data_dir() + "/token");
  std::string token;
  in >> token;
  return token;
}

void Scheduler::kill_hard() { process_.kill(SIGKILL); }

double Scheduler::stop_cleanly() {
  const int64_t begin = now_ns();
  const int status = process_.kill(SIGTERM);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0,
         "the scheduler did not end cleanly: wait status " + std::to_string(status));
  return seconds_between(begin, now_ns());
}

HttpAnswer Scheduler::request(const HttpRequest& request) {
  Result<HttpAnswer> answer = client_.front().request(request);
  if (!answer.ok()) fail(request.method + " " + request.target + ": " + answer.error().message);
  expect(answer->status / 100 == 2, request.method + " " + request.target + ": " + answer->body);
  return std::move(*answer);
}

Json Scheduler::get(const std::string& target) {
  const Result<Json> body = Json::parse(
      request({.method = "GET", .target = target, .timeout = minutes(10), .repeatable = true}).body);
  expect(body.ok(), target + ": the answer is no JSON");
  return *body;
}

Json Scheduler::post(const std::string& target, const std::string& body) {
  const Result<Json> answer = Json::parse(request({.method = "POST", .target = target, .body = body}).body);
  expect(answer.ok(), target + ": the answer is no JSON");
  return *answer;
}

int64_t Scheduler::job_count(const std::string& state) {
  return get("/api/v1/jobs?limit=1" + (state.empty() ? "" : "&state=" + state))["total"].integer();
}

Process start_agent(const std::string& folder, Scheduler& scheduler, const std::vector<std::string>& flags) {
  std::vector<std::string> command = {
      program("gpu-agent"), "--scheduler",     scheduler.grpc_address(), "--node", "bench",
      "--data-dir",         folder + "/agent", "--allow-root-jobs"};
  command.insert(command.end(), flags.begin(), flags.end());
  Process agent(command, {}, folder + "/agent.log");
  wait_until("the agent's node", kStartPatience, [&] {
    expect(agent.running(), "the agent ended at its start");
    sleep_ms(10);
    return scheduler.get("/api/v1/cluster/status")["online_nodes"].integer() == 1;
  });
  return agent;
}

void sleep_ms(int64_t milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }
int64_t deadline_clock_ns() { return now_ns(); }

}  // namespace gpusched::bench
