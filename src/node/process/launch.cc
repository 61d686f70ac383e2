#include "node/process/launch.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>

#include "base/errors.h"
#include "base/job_labels.h"
#include "base/limits.h"
#include "base/text/file_pattern.h"
#include "base/text/task_payload.h"
#include "base/text/trace_variable.h"
#include "gpusched/v1/types.pb.h"
#include "node/process/slurm_variables.h"
#include "node/tasks/worker_plan.h"
#include "shim/container/container_runner.h"
#include "shim/protocol.h"
#include "shim/script_file.h"

namespace gpusched {
namespace {

constexpr std::size_t kNamesBytesMax = 100'000;  // A variable has less than 128 KiB.
constexpr int64_t kMillisecondsMax = limits::kRuntimeMax.ns / 1'000'000;

bool has_zero_byte(std::string_view text) { return text.find('\0') != std::string_view::npos; }

Duration bounded_ms(int64_t ms) { return milliseconds(std::clamp<int64_t>(ms, 0, kMillisecondsMax)); }

Result<Unit> check_spec(const v1::JobSpec& spec, const LaunchDefaults& defaults) {
  if (!spec.image().empty() && defaults.containers == nullptr) {
    return invalid_argument("this node cannot run container images, but the job requests '" + spec.image() +
                            "'");
  }
  if (spec.command_size() == 0 && spec.script().empty() && spec.image().empty())
    return invalid_argument("the job has neither a command nor a script");
  if (!spec.working_directory().empty() && !spec.working_directory().starts_with('/')) {
    return invalid_argument("the working directory '" + spec.working_directory() + "' is not absolute");
  }
  bool zero = has_zero_byte(spec.script()) || has_zero_byte(spec.working_directory());
  for (const std::string* text : {&spec.stdin_path(), &spec.stdout_path(), &spec.stderr_path()}) {
    zero = zero || has_zero_byte(*text);
  }
  for (const std::string& word : spec.command()) zero = zero || has_zero_byte(word);
  for (const std::string& word : spec.args()) zero = zero || has_zero_byte(word);
  for (const auto& [name, value] : spec.environment()) {
    zero = zero || has_zero_byte(name) || has_zero_byte(value);
    if (name.empty() || name.find('=') != std::string::npos) {
      return invalid_argument("'" + name + "' is not a valid name of an environment variable");
    }
  }
  if (zero)
    return invalid_argument("command, script, working directory and environment must not contain a NUL byte");
  return Unit{};
}

Result<Unit> check_devices(const v1::StartAttempt& order, const std::vector<std::string>& devices) {
  for (const v1::GrantedDevice& granted : order.devices()) {
    if (granted.index() >= devices.size()) {
      return invalid_argument("device " + std::to_string(granted.index()) +
                              " is allocated, but this node has " + std::to_string(devices.size()) +
                              " devices");
    }
    if (granted.uuid() != devices[granted.index()]) {
      return invalid_argument("device " + std::to_string(granted.index()) + " is " +
                              devices[granted.index()] + " here, but the allocation names " + granted.uuid());
    }
  }
  return Unit{};
}

/// `script_argument`: the word that the shim replaces by the path of the script's file; 0: none.
std::vector<std::string> command_words(const v1::JobSpec& spec, uint32_t& script_argument) {
  std::vector<std::string> words = shim::interpreter_words(spec.script());
  if (!words.empty()) {
    script_argument = static_cast<uint32_t>(words.size());
    words.emplace_back();  // The shim knows the path.
  } else if (spec.command_size() == 0) {
    words = {"/bin/sh", "-c", spec.script()};
    if (spec.args_size() > 0)
      words.push_back("script");  // The shell's name of $0: the job's args begin at $1, not at $0.
  } else {
    words.assign(spec.command().begin(), spec.command().end());
  }
  words.insert(words.end(), spec.args().begin(), spec.args().end());
  return words;
}

/// Values of "%j" and the like in the paths of the job's files.
FileWords file_words(const v1::StartAttempt& order, const v1::JobSpec& spec, const LaunchDefaults& defaults,
                     const BoxPlan& box) {
  const auto value = [](const auto& map, const char* name, const std::string& otherwise) {
    const auto found = map.find(name);
    return found == map.end() ? otherwise : found->second;
  };
  return {.job = order.job_name(),
          .array = value(spec.environment(), "GPU_SCHEDULER_ARRAY_ID", order.job_name()),
          .array_index = value(spec.environment(), "GPU_SCHEDULER_ARRAY_INDEX", "0"),
          .member = std::to_string(order.key().member()),
          .name = spec.name(),
          .user = value(box.environment, "USER", defaults.user),
          .node = defaults.node};
}

/// A gang's part on one node.
struct GangNode {
  std::string name;
  std::string address;
  int32_t gpus = 0;
  uint32_t members = 0;
};

/// In the order of their first members.
std::vector<GangNode> nodes_of(const v1::Gang& gang) {
  std::vector<GangNode> nodes;
  std::map<std::string_view, std::size_t> places;
  for (const v1::Gang::Member& member : gang.members()) {
    const auto [place, fresh] = places.try_emplace(member.node(), nodes.size());
    if (fresh) nodes.push_back({.name = member.node(), .address = member.address()});
    nodes[place->second].gpus += member.gpus();
    nodes[place->second].members += 1;
  }
  return nodes;
}

/// One line a node, as Open MPI and DeepSpeed read it.
std::string hosts_of(const v1::Gang& gang) {
  std::string lines;
  for (const GangNode& node : nodes_of(gang)) {
    const uint32_t slots = std::max(static_cast<uint32_t>(std::max(node.gpus, 0)), node.members);
    lines += node.address + " slots=" + std::to_string(slots) + '\n';
  }
  return lines;
}

/// Variables for launchers of distributed programs. MASTER_ADDR and MASTER_PORT may be the job's own.
void add_gang(std::map<std::string, std::string>& variables, const v1::Gang& gang, uint32_t member) {
  const auto rank = static_cast<int>(member);
  if (rank >= gang.members_size()) return;
  const std::vector<GangNode> nodes = nodes_of(gang);
  const std::string& own = gang.members(rank).node();
  const auto node =
      std::find_if(nodes.begin(), nodes.end(), [&](const GangNode& one) { return one.name == own; });
  const auto before = std::count_if(gang.members().begin(), gang.members().begin() + rank,
                                    [&](const v1::Gang::Member& one) { return one.node() == own; });
  std::string names;
  for (const GangNode& one : nodes) names += (names.empty() ? "" : ",") + one.name;
  variables["RANK"] = std::to_string(rank);
  variables["WORLD_SIZE"] = std::to_string(gang.members_size());
  variables["LOCAL_RANK"] = std::to_string(before);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(node->members);
  variables["NODE_RANK"] = std::to_string(node - nodes.begin());
  variables["GPUS_PER_NODE"] = std::to_string(node->gpus);
  variables.try_emplace("MASTER_ADDR", gang.members(0).address());
  variables.try_emplace("MASTER_PORT", std::to_string(gang.master_port()));
  variables["GPU_SCHEDULER_NODE_COUNT"] = std::to_string(nodes.size());
  // The kernel starts nothing with a longer variable; the file of hosts has all of them.
  if (names.size() <= kNamesBytesMax) {
    variables["GPU_SCHEDULER_NODES"] = names;
  } else {
    variables.erase("GPU_SCHEDULER_NODES");
  }
  variables["GPU_SCHEDULER_PART"] = std::to_string(gang.members(rank).part());
}

/// Asks the shim for a port for a replica of a service that has one; PORT is nobody else's. A gang is reached
/// at its first member.
void ask_for_port(SpawnRequest& request, const v1::StartAttempt& order, const v1::JobSpec& spec,
                  const PortRange& ports) {
  const auto label = [&spec](std::string_view name) {
    const auto found = spec.labels().find(std::string(name));
    return found == spec.labels().end() ? std::string_view() : std::string_view(found->second);
  };
  const bool is_reached = order.key().member() == 0 && !label(kReplicaLabel).empty();
  if (!is_reached || label(kServicePortLabel) != kServiceHasPort) return;
  ServicePort wish{.ports = ports, .probe = parse_ready_probe(label(kServiceProbeLabel))};
  if (wish.probe) {
    const auto number = [&label](std::string_view name, int64_t otherwise) {
      int64_t value = 0;
      const std::string_view text = label(name);
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      return error == std::errc{} && value > 0 ? value : otherwise;
    };
    ReadyProbe& probe = *wish.probe;
    probe.period = bounded_ms(number(kServiceProbePeriodLabel, probe.period.ms()));
    probe.timeout = bounded_ms(number(kServiceProbeTimeoutLabel, probe.timeout.ms()));
    probe.failures = number(kServiceProbeFailuresLabel, probe.failures);
  }
  const std::string own = std::string(shim::kPortVariable) + '=';
  std::erase_if(request.environment, [&own](const std::string& entry) {
    return entry.starts_with(own) || entry.starts_with(shim::kJobEntryMark + own);
  });
  request.environment.push_back(std::string(shim::kPortWishVariable) + '=' + to_line(wish));
}

/// "%j" and the like in the paths of the job's files, where it names any.
void fill_paths(BoxPlan& box, const v1::StartAttempt& order, const v1::JobSpec& spec,
                const LaunchDefaults& defaults) {
  const std::array<std::string*, 3> paths = {&box.box.stdin_path, &box.box.stdout_path, &box.box.stderr_path};
  if (std::all_of(paths.begin(), paths.end(), [](const std::string* path) { return path->empty(); })) return;
  const FileWords words = file_words(order, spec, defaults, box);
  for (std::string* path : paths) *path = fill_file_pattern(*path, words);
}

/// A worker's task has no process of its own: its variables are in its frame, and only what the log tells of
/// its start stays beside that.
void plan_task(SpawnRequest& request, const v1::StartAttempt& order, v1::JobSpec& spec,
               const LaunchDefaults& defaults, const BoxPlan& box) {
  std::vector<std::string> told;
  for (const std::string_view name : {kTraceVariable, kRequestVariable}) {
    const auto found = spec.environment().find(std::string(name));
    if (found != spec.environment().end()) told.push_back(found->first + '=' + found->second);
  }
  request.worker = plan_worker(order, spec, box.user,
                               build_environment(order, v1::JobSpec::default_instance(), defaults, box));
  if (request.worker != nullptr) request.environment = std::move(told);
}

}  // namespace

Result<SpawnRequest> plan_launch(const v1::StartAttempt& order, const std::vector<std::string>& devices,
                                 const LaunchDefaults& defaults, BoxMaker* boxes,
                                 const std::vector<MadeSlice>& slices) {
  v1::JobSpec spec;
  if (!spec.ParseFromString(order.spec()))
    return invalid_argument("the job's specification cannot be decoded");
  if (const Result<Unit> good = check_spec(spec, defaults); !good) return good.error();
  if (const Result<Unit> good = check_devices(order, devices); !good) return good.error();
  BoxPlan box;
  if (boxes != nullptr) {
    Result<BoxPlan> planned = boxes->plan(order, spec, slices);
    if (!planned) return planned.error();
    box = std::move(*planned);
    fill_paths(box, order, spec, defaults);
    box.environment["GPU_SCHEDULER_DEVICE_FENCE"] = box.device_fence;
  } else {
    box.box.limits = {{.resource = RLIMIT_CORE, .soft = 0, .hard = 0}};
  }
  uint32_t script_argument = 0;
  SpawnRequest request{.key = from_wire(order.key()),
                       .arguments = command_words(spec, script_argument),
                       .environment = {},
                       .working_directory = spec.working_directory(),
                       .working_directory_optional = spec.working_directory_optional(),
                       .grace = order.grace_ms() > 0 ? bounded_ms(order.grace_ms()) : defaults.grace,
                       .max_runtime = bounded_ms(order.max_runtime_ms()),
                       .lost_contact = bounded_ms(order.kill_after_lost_contact_ms())};
  request.devices = held_devices_of(order);
  request.script_argument = script_argument;
  if (script_argument > 0) request.script = spec.script();
  if (order.has_gang()) {
    request.gated = true;
    request.hosts = hosts_of(order.gang());
    if (order.key().member() == 0) request.port = order.gang().master_port();
  }
  request.payload_bytes = static_cast<uint32_t>(order.payload().size());
  if (is_for_worker(order, spec)) plan_task(request, order, spec, defaults, box);
  if (request.worker == nullptr) request.environment = build_environment(order, spec, defaults, box, slices);
  request.box = std::move(box.box);
  request.user = std::move(box.user);
  request.identity = std::move(box.identity);
  if (!spec.image().empty()) {
    if (const Result<Unit> good = plan_container(request, order, spec, *defaults.containers, slices); !good)
      return good.error();
  }
  ask_for_port(request, order, spec, defaults.ports);
  return request;
}

std::vector<std::string> build_environment(const v1::StartAttempt& order, const v1::JobSpec& spec,
                                           const LaunchDefaults& defaults, const BoxPlan& box,
                                           const std::vector<MadeSlice>& slices) {
  std::map<std::string, std::string> variables = {{"PATH", defaults.path},
                                                  {"HOME", defaults.home},
                                                  {"USER", defaults.user},
                                                  {"LANG", "C.UTF-8"},
                                                  {"TMPDIR", "/tmp"}};
  for (const auto& [name, value] : box.environment) variables[name] = value;
  for (const auto& [name, value] : spec.environment()) variables[name] = value;

  // From here on ours, whatever the job says: another device's name in any of these would break a promise.
  std::string uuids;
  for (int i = 0; i < order.devices_size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool sliced = at < slices.size() && !slices[at].uuid.empty();
    if (!uuids.empty()) uuids += ',';
    uuids += sliced ? slices[at].uuid : order.devices(i).uuid();
  }
  for (const char* name : {"GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})
    variables.erase(name);
  variables.erase(std::string(shim::kPortWishVariable));
  variables.erase(std::string(kTaskPayloadBytesVariable));
  if (!order.payload().empty())
    variables[std::string(kTaskPayloadBytesVariable)] = std::to_string(order.payload().size());
  variables["CUDA_VISIBLE_DEVICES"] = uuids;
  variables["NVIDIA_VISIBLE_DEVICES"] = uuids.empty() ? "void" : uuids;
  variables["GPU_SCHEDULER_JOB_ID"] = order.job_name();
  if (order.has_gang()) add_gang(variables, order.gang(), order.key().member());
  variables["GPU_SCHEDULER_GPU_COUNT"] = std::to_string(order.devices_size());
  // CUDA's multi-process service, where one runs, holds a share to these; elsewhere nobody reads them. A MIG
  // slice has its memory by itself.
  for (const char* name :
       {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "GPU_SCHEDULER_GPU_MILLI",
        "GPU_SCHEDULER_GPU_MEMORY_MB", "GPU_SCHEDULER_MIG_PROFILE"})
    variables.erase(name);
  if (order.devices_size() == 1 && order.devices(0).share_milli() > 0) {
    const v1::GrantedDevice& share = order.devices(0);
    const std::string memory_mb = std::to_string(share.share_memory_mb());
    variables["GPU_SCHEDULER_GPU_MILLI"] = std::to_string(share.share_milli());
    variables["GPU_SCHEDULER_GPU_MEMORY_MB"] = memory_mb;
    if (share.mig_profile().empty()) {
      variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = "0=" + memory_mb + "M";
      variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = std::to_string(std::max(share.share_milli() / 10, 1));
    } else {
      variables["GPU_SCHEDULER_MIG_PROFILE"] = share.mig_profile();
    }
  }
  std::string tmp = box.tmp_folder.empty() ? variables["TMPDIR"] : box.tmp_folder;
  if (!spec.image().empty()) tmp = shim::kContainerTmpFolder;
  add_slurm_variables(variables, order, spec, {.name = defaults.node, .tmp = tmp});
  variables[std::string(shim::kMarkerVariable)] = to_string(from_wire(order.key())) + '@' + defaults.instance;

  std::vector<std::string> entries;
  entries.reserve(variables.size());
  for (const auto& [name, value] : variables) entries.push_back(name + '=' + value);
  return entries;
}

}  // namespace gpusched
