#include "node/process/box_planner.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/errors.h"
#include "log/log.h"
#include "node/process/default_memory.h"
#include "ops/machine.h"
#include "shim/processes.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

constexpr int kCapabilitySysResource = 24;
constexpr int kExitCannotMount = 1;

struct LimitName {
  const char* name;
  int32_t resource;
};
constexpr LimitName kLimitNames[] = {
    {"as", RLIMIT_AS},           {"core", RLIMIT_CORE},         {"cpu", RLIMIT_CPU},
    {"data", RLIMIT_DATA},       {"fsize", RLIMIT_FSIZE},       {"locks", RLIMIT_LOCKS},
    {"memlock", RLIMIT_MEMLOCK}, {"msgqueue", RLIMIT_MSGQUEUE}, {"nice", RLIMIT_NICE},
    {"nofile", RLIMIT_NOFILE},   {"nproc", RLIMIT_NPROC},       {"rss", RLIMIT_RSS},
    {"rtprio", RLIMIT_RTPRIO},   {"rttime", RLIMIT_RTTIME},     {"sigpending", RLIMIT_SIGPENDING},
    {"stack", RLIMIT_STACK}};

std::optional<int32_t> limit_number(const std::string& name) {
  for (const LimitName& known : kLimitNames) {
    if (name == known.name) return known.resource;
  }
  return std::nullopt;
}

uint64_t limit_value(int64_t value) { return value < 0 ? RLIM_INFINITY : static_cast<uint64_t>(value); }

rlimit own_limit(int32_t resource) {
  rlimit value{};
  getrlimit(static_cast<__rlimit_resource>(resource), &value);
  return value;
}

bool has_capability(int number) {
  const std::string status = shim::read_small_file("/proc/self/status", 16 * 1024);
  const std::size_t at = status.find("\nCapEff:");
  if (at == std::string::npos) return false;
  return ((std::strtoull(status.c_str() + at + 8, nullptr, 16) >> number) & 1) != 0;
}

/// Tried in a process of its own, since nothing else tells: a container may forbid it to root as well.
bool may_mount() {
  if (geteuid() != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    const bool good = unshare(CLONE_NEWNS) == 0 &&
                      mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0 &&
                      mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0;
    _exit(good ? 0 : kExitCannotMount);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::vector<uint32_t> usable_cores() {
  std::vector<uint32_t> cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (uint32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

BoxPlanner::BoxPlanner(BoxOptions options, BoxFacts facts, const Clock& clock)
    : options_(std::move(options)), facts_(std::move(facts)), users_(clock) {}

/// Leaves no empty folder behind; what is not empty is of running attempts.
BoxPlanner::~BoxPlanner() { cgroups_.remove_if_empty(); }

Result<std::unique_ptr<BoxPlanner>> BoxPlanner::open(BoxOptions options, BoxFacts facts, const Clock& clock) {
  std::unique_ptr<BoxPlanner> planner(new BoxPlanner(std::move(options), std::move(facts), clock));
  if (const Result<Unit> prepared = planner->prepare(); !prepared) return prepared.error();
  return planner;
}

Result<Unit> BoxPlanner::prepare_users() {
  policy_ = {.is_root = geteuid() == 0,
             .own_name = UserDirectory::own().name,
             .default_user = options_.default_user,
             .allow_root_jobs = options_.allow_root_jobs,
             .floor = ops::read_id_floor(),
             .allowed_users = options_.allowed_users};
  if (options_.user_min_uid) policy_.floor.uid = *options_.user_min_uid;
  for (const std::string& name : options_.allowed_groups) {
    const std::optional<uint32_t> group = group_number(name);
    if (!group) return invalid_argument("--allow-group '" + name + "' is not a group of this machine");
    policy_.allowed_groups.push_back(*group);
  }
  for (const std::string& name : options_.kept_groups) {
    if (const std::optional<uint32_t> group = group_number(name)) policy_.kept_groups.push_back(*group);
  }
  return Unit{};
}

Result<Unit> BoxPlanner::prepare() {
  if (const Result<Unit> users = prepare_users(); !users) return users;
  common_rules_ = common_device_rules();
  for (const std::string& text : options_.device_rules) {
    const std::optional<shim::DeviceRule> rule = parse_device_rule(text);
    if (!rule) {
      return invalid_argument("--device-allow '" + text +
                              "' is neither a rule such as 'c 10:237 rwm' nor a device node");
    }
    common_rules_.push_back(*rule);
  }
  for (const auto& [name, value] : options_.limits) {
    if (!limit_number(name))
      return invalid_argument("--limit '" + name + "' is not a resource limit (see man setrlimit)");
  }
  if (options_.use_cgroups) cgroups_ = CgroupTree::detect("gpusched-" + facts_.instance);
  gpu_places_ = find_gpu_places();
  can_mount_ = may_mount();
  can_raise_limits_ = has_capability(kCapabilitySysResource);
  std::vector<uint32_t> cores = usable_cores();
  if (options_.bind_cores && facts_.cpus_offered <= static_cast<int64_t>(cores.size())) {
    cores_ = std::make_unique<CorePool>(std::move(cores));
  }
  prepare_folders();
  std::string notes;
  for (const std::string& note : cgroups_.notes()) notes += (notes.empty() ? "" : "; ") + note;
  log_event(LogLevel::kInfo, "agent", "box", {},
            {{"cgroups", cgroups_.feature()},
             {"devices", fences_devices() ? "fenced" : "advisory"},
             {"users", policy_.is_root ? "switched" : policy_.own_name},
             {"private_mounts", can_mount_},
             {"own_cores", cores_ != nullptr},
             {"notes", notes}});
  return Unit{};
}

/// Makes the folders so that a job's user gets through to its own folders, and sees no others.
void BoxPlanner::prepare_folders() const {
  if (!policy_.is_root) return;
  for (const std::string& folder : {facts_.data_folder, facts_.data_folder + "/" + shim::kAttemptsFolder}) {
    struct stat facts{};
    if (stat(folder.c_str(), &facts) == 0) chmod(folder.c_str(), (facts.st_mode & 07777) | 0111);
  }
  if (const std::optional<std::string> closed = ops::closed_folder_above(facts_.data_folder, {})) {
    log_event(LogLevel::kWarning, "agent", "folder_closed", {},
              {{"folder", *closed},
               {"why", "jobs of other users cannot reach their own folders below " + facts_.data_folder},
               {"fix", "chmod o+x " + ops::shell_quoted(*closed) + ", or another --data-dir"}});
  }
}

Result<Unit> BoxPlanner::check_way_of(const UserFacts& user) const {
  const shim::Credentials& ids = user.credentials;
  if (!policy_.is_root || ids.uid == 0) return Unit{};
  const std::optional<std::string> closed =
      ops::closed_folder_above(facts_.data_folder, {.uid = ids.uid, .gid = ids.gid, .groups = ids.groups});
  if (!closed) return Unit{};
  return invalid_argument("user '" + user.name + "' cannot enter the folder " + *closed +
                          ", and the job's own folders are " + "below it: run `chmod o+x " + *closed +
                          "` on this node, or give its agent another --data-dir");
}

Result<BoxPlan> BoxPlanner::plan(const v1::StartAttempt& order, const v1::JobSpec& spec,
                                 const std::vector<MadeSlice>& slices) {
  const AttemptKey key = from_wire(order.key());
  const Result<UserFacts> user = choose_user(spec.user(), policy_, users_, spec.anonymous());
  if (!user) return user.error();
  if (const Result<Unit> reached = check_way_of(*user); !reached) return reached.error();
  Result<std::vector<shim::ResourceLimit>> limits = limits_of(spec);
  if (!limits) return limits.error();

  BoxPlan plan;
  shim::Box& box = plan.box;
  plan.identity = user->credentials;
  if (policy_.is_root && user->credentials.uid != 0) {
    box.user = user->credentials;
    plan.user = user->name;
  }
  box.limits = std::move(*limits);
  if (spec.has_umask()) box.umask = spec.umask() & 0777;
  box.oom_score = options_.oom_score;
  box.no_new_privileges = !options_.allow_set_user_id;
  if (policy_.is_root) box.login_uid = user->credentials.uid;
  box.own_folders = true;
  box.private_shm = options_.private_shm && can_mount_;
  box.private_ipc = box.private_shm;
  box.private_tmp = options_.private_tmp && can_mount_;
  box.shm_bytes_max = options_.shm_mb << 20;
  box.stdin_path = spec.stdin_path();
  box.stdout_path = spec.stdout_path();
  box.stderr_path = spec.stderr_path();
  box.memory_bytes_max = memory_mb_of(order, spec) << 20;
  box.processes_max = options_.processes_max;
  box.watched = !cgroups_.limits();
  if (cores_ != nullptr) {
    const auto count = static_cast<std::size_t>((order.cpu_milli() + 999) / 1'000);
    box.cpus = cores_->take(key, count, cores_near(order));
  }
  cgroups_.fill(shim::key_text(key),
                {.memory_bytes = box.memory_bytes_max,
                 .cpu_milli = order.cpu_milli(),
                 .cpu_is_most = options_.cpu_is_most,
                 .cpus = box.cpus,
                 .processes = box.processes_max,
                 .devices = devices_of(order, slices)},
                box);

  const std::string folder =
      facts_.data_folder + "/" + shim::kAttemptsFolder + "/" + shim::key_text(key) + "/" + shim::kTmpFolder;
  plan.environment = {{"HOME", user->home},
                      {"USER", user->name},
                      {"LOGNAME", user->name},
                      {"SHELL", user->shell},
                      {"TMPDIR", box.private_tmp ? "/tmp" : folder}};
  plan.tmp_folder = plan.environment["TMPDIR"];
  // A container has a TMPDIR of its own, which is not seen from here.
  if (spec.image().empty())
    plan.environment[shim::kCheckpointVariable] = plan.environment["TMPDIR"] + '/' + shim::kCheckpointFile;
  for (const auto& [name, value] : options_.environment) plan.environment[name] = value;
  plan.device_fence = box.devices.empty() ? "advisory" : "cgroup";
  return plan;
}

void BoxPlanner::keep(const AttemptKey& key, const std::vector<uint32_t>& cores) {
  if (cores_ != nullptr && !cores.empty()) cores_->keep(key, cores);
}

void BoxPlanner::release(const AttemptKey& key) {
  if (cores_ != nullptr) cores_->give_back(key);
}

std::vector<std::string> BoxPlanner::features() const {
  std::vector<std::string> features = {cgroups_.feature(),
                                       fences_devices() ? "device-fence" : "device-advisory"};
  if (!policy_.is_root) return features;
  features.emplace_back("user-switch");
  // The user of jobs that name none.
  if (policy_.default_user.empty()) {
    features.emplace_back(policy_.allow_root_jobs ? "default-user:root" : "default-user:none");
  } else {
    const Result<UserFacts> facts = UserDirectory::look_up_user(policy_.default_user);
    features.emplace_back(facts && facts->credentials.uid == 0 ? "default-user:root" : "default-user");
  }
  return features;
}

/// Only what the kernel holds a job to: one that is watched from time to time would be ended for a peak.
int64_t BoxPlanner::memory_mb_of(const v1::StartAttempt& order, const v1::JobSpec& spec) const {
  if (order.memory_mb() > 0 || spec.memory_unlimited()) return order.memory_mb();
  if (!options_.default_memory || !cgroups_.has(Controller::kMemory)) return 0;
  return default_memory_mb(order, {.total_mb = facts_.memory_mb_total,
                                   .offered_mb = facts_.memory_mb_offered,
                                   .cpu_milli = facts_.cpus_offered * 1'000,
                                   .device_count = static_cast<int64_t>(facts_.devices.size())});
}

/// Simulated GPUs share the cores in as many equal parts as there are GPUs, in their order.
std::vector<uint32_t> BoxPlanner::cores_near(const v1::StartAttempt& order) const {
  std::vector<uint32_t> near;
  for (const v1::GrantedDevice& device : order.devices()) {
    if (const auto place = gpu_places_.find(device.uuid()); place != gpu_places_.end()) {
      near.insert(near.end(), place->second.cores.begin(), place->second.cores.end());
    } else if (facts_.simulated_gpus && !facts_.devices.empty()) {
      const std::vector<uint32_t>& all = cores_->all();
      const std::size_t first = all.size() * device.index() / facts_.devices.size();
      const std::size_t last = all.size() * (device.index() + 1) / facts_.devices.size();
      for (std::size_t i = first; i < std::max(last, first + 1) && i < all.size(); ++i)
        near.push_back(all[i]);
    }
  }
  return near;
}

Result<std::vector<shim::ResourceLimit>> BoxPlanner::limits_of(const v1::JobSpec& spec) const {
  // Limits that nobody asks for are the agent's own, except these two.
  std::map<std::string, int64_t> wanted = {{"core", 0}, {"memlock", -1}};
  for (const auto& [name, value] : options_.limits) wanted[name] = value;
  for (const auto& [name, value] : spec.limits()) {
    if (!limit_number(name)) return invalid_argument("'" + name + "' is not a resource limit of this node");
    const auto bound = options_.limits.find(name);
    if (bound != options_.limits.end() && limit_value(value) > limit_value(bound->second)) {
      return invalid_argument("the job requests " + std::to_string(value) + " as its limit '" + name +
                              "', but this node allows at most " + std::to_string(bound->second));
    }
    wanted[name] = value;
  }
  std::vector<shim::ResourceLimit> limits;
  for (const auto& [name, value] : wanted) {
    const int32_t resource = *limit_number(name);
    const uint64_t hard_max = can_raise_limits_ ? RLIM_INFINITY : own_limit(resource).rlim_max;
    const uint64_t limit = limit_value(value);
    if (limit > hard_max && spec.limits().contains(name)) {
      return invalid_argument("the job requests " + std::to_string(value) + " as its limit '" + name +
                              "', but this node's agent can allow at most " + std::to_string(hard_max));
    }
    const uint64_t given = std::min(limit, hard_max);
    // A core dump's size may still be raised by the job itself.
    const bool soft_only = name == "core" && !spec.limits().contains(name) && !options_.limits.contains(name);
    limits.push_back(
        {.resource = resource, .soft = given, .hard = soft_only ? own_limit(resource).rlim_max : given});
  }
  return limits;
}

/// Nothing: there is no fence, or we do not know enough of a granted device to let it through.
std::optional<std::vector<shim::DeviceRule>> BoxPlanner::devices_of(const v1::StartAttempt& order,
                                                                    const std::vector<MadeSlice>& slices) {
  if (!fences_devices()) return std::nullopt;
  std::vector<shim::DeviceRule> rules = common_rules_;
  std::vector<NvidiaGrant> grants;
  for (int at = 0; at < order.devices_size(); ++at) {
    const v1::GrantedDevice& device = order.devices(at);
    const auto nodes = options_.gpu_nodes.find(device.index());
    const bool has_nodes = nodes != options_.gpu_nodes.end();
    for (const std::string& node : has_nodes ? nodes->second : std::vector<std::string>{}) {
      if (const auto rule = rule_of_node(node)) rules.push_back(*rule);
    }
    auto place = gpu_places_.find(device.uuid());
    if (place == gpu_places_.end() && !facts_.simulated_gpus) {
      gpu_places_ = find_gpu_places();  // The driver may have been loaded since.
      place = gpu_places_.find(device.uuid());
    }
    if (place != gpu_places_.end() && place->second.minor >= 0) {
      const auto slice = static_cast<std::size_t>(at);
      const MadeSlice made = slice < slices.size() ? slices[slice] : MadeSlice{};
      grants.push_back({.minor = place->second.minor,
                        .gpu_instance = made.gpu_instance,
                        .compute_instance = made.compute_instance});
    } else if (!facts_.simulated_gpus && !has_nodes) {
      return std::nullopt;
    }
  }
  const std::vector<shim::DeviceRule> nvidia = nvidia_device_rules(grants);
  rules.insert(rules.end(), nvidia.begin(), nvidia.end());
  return rules;
}

}  // namespace gpusched
