#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/http_client.h"
#include "client/json.h"

/// Real programs from build/bin on a temporary folder and free ports. A benchmark that cannot start them, or
/// whose check fails, says why and ends with status 1; what it started dies with it.
namespace gpusched::bench {

/// Says why and ends the program.
[[noreturn]] void fail(const std::string& why);
/// Ends the program with `why` unless `good`.
void expect(bool good, const std::string& why);

/// A fresh folder below `TMPDIR` (else /tmp), removed at the end.
class WorkFolder {
 public:
  WorkFolder();
  ~WorkFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Full path of a program beside this one's build: "gpu-scheduler".
std::string program(const std::string& name);

/// One child process, killed with its benchmark.
class Process {
 public:
  Process() = default;
  /// Standard output and error are appended to `log`.
  Process(const std::vector<std::string>& command,
          const std::vector<std::pair<std::string, std::string>>& environment, const std::string& log);
  Process(Process&& other) noexcept { *this = std::move(other); }
  Process& operator=(Process&& other) noexcept;
  ~Process() { kill(9); }

  pid_t pid() const { return pid_; }
  bool running();
  /// Sends the signal and waits for the end; returns the wait status. Again: does nothing.
  int kill(int signal);
  /// Waits for the end.
  int wait();
  /// User and system time so far, in seconds.
  double cpu_seconds() const;
  /// Now, in bytes.
  int64_t resident_bytes() const;
  int64_t resident_peak_bytes() const;

 private:
  pid_t pid_ = -1;
};

/// Measures who used the cores since its making.
class CpuMeter {
 public:
  explicit CpuMeter(std::vector<const Process*> processes);
  /// "cores used: 1.00 scheduler, 0.60 this, 0.10 others"; `names` are the processes'.
  std::string text(const std::vector<std::string>& names) const;

 private:
  std::vector<const Process*> processes_;
  std::vector<double> cpu_;  ///< Time of the processes, of this one and of the machine; in seconds.
  int64_t begin_ns_;
  std::vector<double> now() const;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

/// gpu-scheduler on FOLDER/scheduler.
class Scheduler {
 public:
  /// Returns once /health says 200. `environment` overrides settings; `certificate` is the one that it names.
  explicit Scheduler(const std::string& folder, Environment environment = {}, std::string certificate = {});

  /// Starts it (again) on the same folder; the time from exec to a healthy answer, in seconds.
  double start();
  void kill_hard();
  /// SIGTERM and its end; the time it took, in seconds.
  double stop_cleanly();

  Process& process() { return process_; }
  uint16_t http_port() const { return http_port_; }
  uint16_t grpc_port() const { return grpc_port_; }
  std::string grpc_address() const { return "127.0.0.1:" + std::to_string(grpc_port_); }
  std::string url() const {
    return (certificate_.empty() ? "http" : "https") + ("://127.0.0.1:" + std::to_string(http_port_));
  }
  std::string data_dir() const { return folder_ + "/scheduler"; }
  /// The shared token.
  std::string token() const;

  /// GET, answered 200.
  Json get(const std::string& target);
  /// POST, answered 2xx.
  Json post(const std::string& target, const std::string& body);
  /// Jobs in this state; empty: all.
  int64_t job_count(const std::string& state);

 private:
  HttpAnswer request(const HttpRequest& request);
  bool read_ports();

  std::string folder_;
  Environment environment_;
  std::string certificate_;
  Process process_;
  uint16_t http_port_ = 0;
  uint16_t grpc_port_ = 0;
  std::vector<HttpClient> client_;
};

/// gpu-agent on FOLDER/agent. Returns once its node is ready.
Process start_agent(const std::string& folder, Scheduler& scheduler, const std::vector<std::string>& flags);

/// Waits until `done` says true; fails with `what` after `seconds`.
template <typename Done>
void wait_until(const char* what, double seconds, const Done& done);

void sleep_ms(int64_t milliseconds);
int64_t deadline_clock_ns();

template <typename Done>
void wait_until(const char* what, double seconds, const Done& done) {
  const int64_t deadline = deadline_clock_ns() + static_cast<int64_t>(seconds * 1e9);
  while (!done()) {
    if (deadline_clock_ns() > deadline) fail(std::string("waited in vain for ") + what);
    sleep_ms(1);
  }
}

}  // namespace gpusched::bench
