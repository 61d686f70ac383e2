#include "main/commands/local_agent.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

extern char** environ;

namespace gpusched {
namespace {

/// The agent's program stands beside ours.
std::string agent_path() {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  return (failed ? std::filesystem::path("gpu-agent") : self.parent_path() / "gpu-agent").string();
}

std::vector<std::string> command_line(const LocalAgent& agent, const BoundPorts& ports) {
  std::vector<std::string> words = {agent_path(), "--scheduler", "127.0.0.1:" + std::to_string(ports.grpc),
                                    "--node",     agent.node,    "--data-dir",
                                    agent.folder, "--log",       agent.folder + ".log"};
  if (!agent.default_user.empty()) words.insert(words.end(), {"--default-user", agent.default_user});
  if (agent.root_jobs) words.emplace_back("--allow-root-jobs");
  if (!agent.sim_gpus.empty()) words.insert(words.end(), {"--sim-gpus", agent.sim_gpus});
  if (!ports.grpc_certificate.empty()) words.insert(words.end(), {"--ca", ports.grpc_certificate});
  if (agent.cpus > 0) words.insert(words.end(), {"--cpus", std::to_string(agent.cpus)});
  return words;
}

}  // namespace

Result<pid_t> start_agent(const LocalAgent& agent, const BoundPorts& ports) {
  std::vector<std::string> words = command_line(agent, ports);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // A group of its own keeps it from the terminal's Ctrl-C, and it must not inherit blocked signals.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  // It outlives us where we are killed, and would hold our ports.
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  pid_t started = -1;
  const int failed = posix_spawn(&started, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed == 0) return started;
  return Error{.code = ErrorCode::kUnavailable,
               .message = "cannot start " + words[0] + ": " + std::strerror(failed)};
}

void end_agent(pid_t agent) {
  constexpr int kPatienceMs = 30'000;
  constexpr int kStepMs = 20;
  kill(agent, SIGTERM);
  for (int waited = 0; waited < kPatienceMs; waited += kStepMs) {
    if (waitpid(agent, nullptr, WNOHANG) != 0) return;
    poll(nullptr, 0, kStepMs);
  }
  kill(agent, SIGKILL);
  waitpid(agent, nullptr, 0);
}

bool has_gpu_driver() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return false;
  dlclose(library);
  return true;
}

}  // namespace gpusched
