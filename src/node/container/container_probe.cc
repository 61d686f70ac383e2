#include "node/container/container_probe.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "ops/run_command.h"

namespace gpusched {
namespace {

using shim::ContainerRuntime;

constexpr Duration kProbePatience = seconds(10);
constexpr const char* kTrouble = "; see docs/operate/containers.md";

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
  std::vector<std::string> broken;
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
      if (!support.client.program.empty()) broken.push_back(trouble);
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
  found.broken = std::move(broken);
  if (found.works) return found;
  if (options.runtime == "none") troubles = "containers are switched off (--container-runtime none)";
  found.why_not = troubles + kTrouble;
  return found;
}

}  // namespace gpusched
