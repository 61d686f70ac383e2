#include "node/gpu/gpu_daemons.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>

#include "ops/machine.h"

namespace gpusched {
namespace {

/// The kernel keeps so many bytes of a command's name.
constexpr std::size_t kCommandNameBytes = 15;
constexpr std::string_view kDeleted = " (deleted)";
constexpr std::string_view kMpsVariable = "CUDA_MPS_PIPE_DIRECTORY=";
constexpr std::size_t kEnvironmentBytesMax = 64 * 1024;

std::string mps_directory_of(const std::string& folder) {
  const std::optional<std::string> environment = ops::read_text(folder + "/environ", kEnvironmentBytesMax);
  std::string_view rest = environment ? std::string_view(*environment) : std::string_view();
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.starts_with(kMpsVariable)) return std::string(entry.substr(kMpsVariable.size()));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
  }
  return {};
}

}  // namespace

std::vector<std::string> default_gpu_daemons() {
  return {kMpsServer,    "nvidia-cuda-mps-control", "nv-hostengine", "dcgm-exporter", "Xorg", "Xwayland",
          "gnome-shell", "nvidia-persistenced",     "nvidia-smi"};
}

// A job may name its program like a daemon. A process whose executable is root's alone, and not to be written
// by others, is no job's; where the link cannot be read, the process is another user's than an agent without
// root runs jobs as.
std::optional<ProgramFacts> program_of_process(int64_t pid, const std::string& proc_folder) {
  const std::string folder = proc_folder + "/" + std::to_string(pid);
  struct stat process{};
  if (stat(folder.c_str(), &process) != 0) return std::nullopt;
  std::array<char, PATH_MAX> target;
  const ssize_t size = readlink((folder + "/exe").c_str(), target.data(), target.size());
  if (size <= 0) {
    const std::optional<std::string> name = ops::read_line(folder + "/comm");
    if (!name) return std::nullopt;
    return ProgramFacts{.name = *name, .trusted = geteuid() != 0 && process.st_uid != geteuid()};
  }
  std::string_view path(target.data(), static_cast<std::size_t>(size));
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  struct stat file{};
  const bool known = stat((folder + "/exe").c_str(), &file) == 0;
  return ProgramFacts{.name = std::string(path.substr(path.rfind('/') + 1)),
                      .trusted = known && file.st_uid == 0 && (file.st_mode & (S_IWGRP | S_IWOTH)) == 0,
                      .mps_directory = mps_directory_of(folder)};
}

std::optional<DaemonReading> detail::daemon_of(const std::optional<ProgramFacts>& program,
                                               const std::vector<std::string>& names) {
  if (!program || !program->trusted || program->name.empty()) return std::nullopt;
  for (const std::string& name : names) {
    const bool cut = program->name.size() == kCommandNameBytes && name.starts_with(program->name);
    if (name == program->name || cut)
      return DaemonReading{.program = name, .mps_directory = program->mps_directory};
  }
  return std::nullopt;
}

}  // namespace gpusched
