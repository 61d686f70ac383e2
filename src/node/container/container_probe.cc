#include "node/container/container_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <sstream>

namespace gpusched {
namespace {

using shim::ContainerRuntime;

constexpr Duration kProbePatience = seconds(10);
constexpr int kLookMs = 50;
constexpr std::size_t kOutputMax = 1024 * 1024;
constexpr const char* kTrouble = "; see docs/operate/containers.md";

Time monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Time{int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> found;
  for (const std::string& word : words) found.push_back(const_cast<char*>(word.c_str()));
  found.push_back(nullptr);
  return found;
}

std::string find_program(const std::string& name, const std::string& search_path) {
  std::istringstream folders(search_path);
  std::string folder;
  while (std::getline(folders, folder, ':')) {
    std::string path = folder + '/' + name;
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::string first_line(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \n\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, std::min<std::size_t>(text.find('\n', begin) - begin, 400));
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> found;
  std::istringstream in(text);
  std::string piece;
  while (std::getline(in, piece, mark)) found.push_back(piece);
  return found;
}

/// Version 1 controllers with a version 2 tree beside them, which crun does not take.
bool has_hybrid_cgroups() {
  return access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0 &&
         access("/sys/fs/cgroup/memory", F_OK) == 0;
}

std::string refusal(const shim::RuntimeClient& client, const CommandResult& result) {
  std::string text = client.program;
  text += result.exit_code < 0 ? " does not answer" : " does not work: " + first_line(result.errors);
  return text;
}

/// Empty, or why it does not work.
std::string probe_podman(ContainerSupport& support, const std::string& search_path) {
  std::vector<std::string> words = {support.client.program};
  words.insert(words.end(), support.client.options.begin(), support.client.options.end());
  words.insert(words.end(), {"info", "--format",
                             "{{.Host.OCIRuntime.Name}}|{{.Store.GraphRoot}}|{{.Store.GraphDriverName}}|"
                             "{{.Host.Security.Rootless}}|{{.Version.Version}}"});
  const CommandResult result = run_command(words, support.client.environment, kProbePatience);
  const std::vector<std::string> facts = split(first_line(result.output), '|');
  if (result.exit_code != 0 || facts.size() != 5) return refusal(support.client, result);
  if (facts[0] == "crun" && has_hybrid_cgroups()) {
    if (find_program("runc", search_path).empty())
      return "podman uses crun, which does not support this machine's mixed cgroup versions; install runc";
    support.client.options.push_back("--runtime=runc");
  }
  support.images_stamp = facts[1] + '/' + facts[2] + "-images/images.json";
  support.rootless = facts[3] == "true";
  support.version = facts[4];
  return "";
}

std::string probe_other(ContainerSupport& support) {
  std::vector<std::string> words = {support.client.program};
  words.insert(words.end(), support.client.options.begin(), support.client.options.end());
  if (support.client.runtime == ContainerRuntime::kDocker)
    words.insert(words.end(), {"info", "--format", "{{.ServerVersion}}"});
  else
    words.push_back("--version");
  const CommandResult result = run_command(words, support.client.environment, kProbePatience);
  support.version = first_line(result.output);
  if (result.exit_code != 0 || support.version.empty()) return refusal(support.client, result);
  return "";
}

std::vector<ContainerRuntime> wanted_runtimes(const std::string& name) {
  if (const std::optional<ContainerRuntime> one = shim::parse_runtime(name)) return {*one};
  if (name == "none") return {};
  return {ContainerRuntime::kPodman, ContainerRuntime::kDocker, ContainerRuntime::kApptainer};
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                          Duration patience, const std::atomic<bool>* stop) {
  CommandResult result;
  std::array<int, 2> output{-1, -1};
  std::array<int, 2> errors{-1, -1};
  if (pipe2(output.data(), O_CLOEXEC) != 0 || pipe2(errors.data(), O_CLOEXEC) != 0) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, words.front().c_str(), &actions, &attributes, pointers(words).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(output[1]);
  close(errors[1]);
  const Time give_up = monotonic_now() + patience;
  bool killed = false;
  std::array<pollfd, 2> sources = {pollfd{.fd = output[0], .events = POLLIN, .revents = 0},
                                   pollfd{.fd = errors[0], .events = POLLIN, .revents = 0}};
  while (error == 0) {
    poll(sources.data(), sources.size(), kLookMs);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].revents == 0) continue;
      std::array<char, 4096> buffer{};
      const ssize_t size = read(sources[i].fd, buffer.data(), buffer.size());
      if (size <= 0) sources[i].fd = -1;
      std::string& sink = i == 0 ? result.output : result.errors;
      if (size > 0 && sink.size() < kOutputMax) sink.append(buffer.data(), static_cast<std::size_t>(size));
    }
    const bool late = monotonic_now() >= give_up || (stop != nullptr && stop->load());
    if (late && !killed) {
      kill(-pid, SIGKILL);  // It leads a session of its own.
      killed = true;
    }
    if (sources[0].fd >= 0 && sources[1].fd >= 0 && !killed) continue;
    int status = 0;
    const pid_t ended = waitpid(pid, &status, killed ? 0 : WNOHANG);
    if (ended == 0) continue;
    if (ended == pid && !killed && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    break;
  }
  close(output[0]);
  close(errors[0]);
  return result;
}

std::vector<std::string> client_environment() {
  std::vector<std::string> entries;
  for (const char* name :
       {"PATH", "HOME", "USER", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CONTAINERS_CONF",
        "CONTAINERS_REGISTRIES_CONF", "DOCKER_HOST", "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "HTTPS_PROXY",
        "HTTP_PROXY", "NO_PROXY"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) entries.push_back(std::string(name) + '=' + value);
  }
  return entries;
}

ContainerSupport probe_containers(const ContainerOptions& options, const std::string& search_path) {
  ContainerSupport found;
  std::string troubles;
  for (const ContainerRuntime runtime : wanted_runtimes(options.runtime)) {
    ContainerSupport support;
    const std::string name(shim::to_string(runtime));
    support.client = {.runtime = runtime,
                      .program = find_program(name, search_path),
                      .options = options.client_options,
                      .environment = client_environment()};
    std::string trouble = "no " + name + " in " + search_path;
    if (!support.client.program.empty())
      trouble =
          runtime == ContainerRuntime::kPodman ? probe_podman(support, search_path) : probe_other(support);
    if (!trouble.empty()) {
      troubles += (troubles.empty() ? "" : "; ") + trouble;
      continue;
    }
    std::vector<std::string> features = found.features;
    if (features.empty()) features.push_back("container");
    features.push_back("container:" + name);
    if (!found.works) found = std::move(support);
    found.works = true;
    found.features = std::move(features);
  }
  if (found.works) return found;
  if (options.runtime == "none") troubles = "containers are switched off (--container-runtime none)";
  found.why_not = troubles + kTrouble;
  return found;
}

}  // namespace gpusched
