#include "shim/container/container_process.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "shim/container/container_plan.h"
#include "shim/processes.h"

namespace gpusched::shim {
namespace {

constexpr std::size_t kFileBytesMax = 64 * 1024;
constexpr std::size_t kPlanFrom = 2;  // Behind the program and the flag.

std::string read_of(pid_t pid, const char* file) {
  return read_small_file(("/proc/" + std::to_string(pid) + "/" + file).c_str(), kFileBytesMax);
}

/// In the line of all its numbers, from the machine's namespace inwards, the last is 1.
bool is_first_in_its_namespace(pid_t pid) {
  const std::string status = read_of(pid, "status");
  const std::size_t at = status.find("\nNSpid:");
  if (at == std::string::npos) return false;
  const std::string_view line = std::string_view(status).substr(at + 1, status.find('\n', at + 1) - at - 1);
  return line.ends_with("\t1") && std::count(line.begin(), line.end(), '\t') > 1;
}

/// Its control groups are named after the container, where it has some of its own.
bool is_of_container(pid_t pid, const std::string& id) {
  const std::string groups = read_of(pid, "cgroup");
  return groups.find("libpod-") == std::string::npos ||
         (!id.empty() && groups.find("libpod-" + id) != std::string::npos);
}

}  // namespace

Result<pid_t> container_init(const std::vector<std::string>& runner) {
  std::optional<ContainerPlan> plan;
  if (runner.size() > kPlanFrom)
    plan = parse_plan({runner.begin() + static_cast<std::ptrdiff_t>(kPlanFrom), runner.end()});
  if (!plan) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message =
                     "the job's container was started by another version of gpu-shim; sessions enter those "
                     "of jobs that start from now on"};
  }
  if (!uses_own_init(plan->client.runtime)) {
    const std::string runtime(to_string(plan->client.runtime));
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "the job runs in a container of " + runtime +
                            ", which sessions and copies cannot enter; use " + runtime +
                            " itself on the node"};
  }
  const std::string text = read_small_file(pid_file(*plan).c_str(), kFileBytesMax);
  std::string id = read_small_file((plan->folder + "/container-id").c_str(), kFileBytesMax);
  id.erase(std::find(id.begin(), id.end(), '\n'), id.end());
  pid_t pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  if (pid <= 1 || !is_first_in_its_namespace(pid) || !is_of_container(pid, id)) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "the job's container has not started yet, or has just ended"};
  }
  return pid;
}

pid_t container_command(pid_t init) {
  const std::vector<pid_t> children = children_of(init);
  const auto oldest = std::min_element(children.begin(), children.end(), [](pid_t a, pid_t b) {
    return start_ticks_of(a) < start_ticks_of(b);
  });
  return oldest == children.end() ? 0 : *oldest;
}

}  // namespace gpusched::shim
