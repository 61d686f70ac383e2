#include "node/container/container_launch.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/limits.h"
#include "node/process/hang_tolerant_calls.h"
#include "shim/container/container_runner.h"
#include "shim/protocol.h"
#include "shim/script_file.h"

namespace gpusched {
namespace {

/// For a path to be resolved; a file system that answers does so in milliseconds.
constexpr Duration kAnswerPatience = milliseconds(500);

using shim::ContainerRuntime;

constexpr std::array<std::pair<std::string_view, int>, 14> kLimitNames = {{{"core", RLIMIT_CORE},
                                                                           {"cpu", RLIMIT_CPU},
                                                                           {"data", RLIMIT_DATA},
                                                                           {"fsize", RLIMIT_FSIZE},
                                                                           {"locks", RLIMIT_LOCKS},
                                                                           {"memlock", RLIMIT_MEMLOCK},
                                                                           {"msgqueue", RLIMIT_MSGQUEUE},
                                                                           {"nice", RLIMIT_NICE},
                                                                           {"nofile", RLIMIT_NOFILE},
                                                                           {"nproc", RLIMIT_NPROC},
                                                                           {"rss", RLIMIT_RSS},
                                                                           {"rtprio", RLIMIT_RTPRIO},
                                                                           {"sigpending", RLIMIT_SIGPENDING},
                                                                           {"stack", RLIMIT_STACK}}};
/// Variables that a process's environment begins with, and that an image's own values replace.
constexpr std::array<std::string_view, 8> kImagesOwn = {"PATH", "HOME",   "USER",  "LOGNAME",
                                                        "LANG", "TMPDIR", "SHELL", "PWD"};

Error deny(std::string message) {
  return Error{.code = ErrorCode::kPermissionDenied, .message = std::move(message)};
}
bool is_below(std::string_view path, std::string_view folder) {
  while (folder.ends_with('/') && folder.size() > 1) folder.remove_suffix(1);
  if (folder == "/") return true;
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// The path without links; empty: it is not there.
/// The path without links; empty: there is none. Nothing: its file system does not answer.
std::optional<std::string> real_path(const std::string& path) {
  static HangTolerantCalls calls;
  return calls.ask(
      path,
      [path] {
        char* const found = realpath(path.c_str(), nullptr);
        std::string text(found == nullptr ? "" : found);
        free(found);
        return text;
      },
      kAnswerPatience);
}

bool is_plain_name(std::string_view name) {
  const bool plain = !name.empty() && name.size() <= limits::kNameBytesMax && name.front() != '.';
  return plain && name.find_first_of(std::string_view("/\\\0\n", 4)) == std::string_view::npos;
}

/// Podman lowers its own limits of files and processes to the largest process number. Beyond that, a
/// container's can only be set by who may raise limits; for processes it would mean nothing.
rlim_t runtime_limit_max() {
  std::ifstream in("/proc/sys/kernel/pid_max");
  rlim_t value = RLIM_INFINITY;
  in >> value;
  return value == 0 ? RLIM_INFINITY : value;
}

bool may_raise_limits() {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with("CapEff:"))
      return (std::strtoull(line.c_str() + 7, nullptr, 16) & (uint64_t{1} << CAP_SYS_RESOURCE)) != 0;
  }
  return false;
}

/// "1000:100:100,44"
std::string user_text(const shim::Credentials& user) {
  std::string text = std::to_string(user.uid) + ':' + std::to_string(user.gid);
  for (std::size_t i = 0; i < user.groups.size(); ++i)
    text += (i == 0 ? ':' : ',') + std::to_string(user.groups[i]);
  return text;
}

/// Whether a runtime looks for the image in a registry, or among those from one that it has: by the grammar
/// of names, and by no transport of its own.
bool is_of_registry(std::string_view image, bool apptainer) {
  for (const std::string_view scheme : {"docker://", "oras://", "library://"}) {
    if (!image.starts_with(scheme)) continue;
    if (scheme != "docker://" && !apptainer) return false;
    image.remove_prefix(scheme.size());
    break;
  }
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-/:@+").find(c) != std::string_view::npos;
  };
  const bool plain = !image.empty() && std::all_of(image.begin(), image.end(), is_plain) &&
                     image.front() != '/' && image.find("//") == std::string_view::npos &&
                     image.find("..") == std::string_view::npos;
  const std::size_t colon = image.find(':');
  const std::size_t slash = image.find('/');
  if (!plain || colon == std::string_view::npos || slash < colon) return plain;
  // "localhost:5000/name" has a port there, "name:tag" a tag; "dir:/path" and "oci:name" are transports.
  constexpr std::array<std::string_view, 13> kTransports = {
      "atomic", "containers-storage", "dir",    "docker", "docker-archive", "docker-daemon", "http", "https",
      "oci",    "oci-archive",        "ostree", "sif",    "tarball"};
  if (std::find(kTransports.begin(), kTransports.end(), image.substr(0, colon)) != kTransports.end())
    return false;
  if (slash == std::string_view::npos) return true;
  const std::string_view port = image.substr(colon + 1, slash - colon - 1);
  return !port.empty() && port.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Names that runtimes' options would cut into pieces.
bool cuts_options(std::string_view path) { return path.find_first_of(":,\"\n") != std::string_view::npos; }

class ContainerPlanner {
 public:
  ContainerPlanner(SpawnRequest& request, const v1::StartAttempt& order, const v1::JobSpec& spec,
                   const ContainerNode& node, const std::vector<MadeSlice>& slices)
      : request_(request),
        order_(order),
        spec_(spec),
        node_(node),
        slices_(slices),
        runtime_(node.support.client.runtime) {}

  Result<Unit> plan() {
    if (!node_.support.works) {
      return invalid_argument("this node cannot run container images, and the job asks for '" +
                              spec_.image() + "': " + node_.support.why_not);
    }
    add_identity();
    // A wish that is not allowed is the job's own mistake: its error output says so, and no retry is spent.
    if (const Result<Unit> good = add_wishes(); !good) plan_.refusal = good.error().message;
    finish();
    return Unit{};
  }

 private:
  bool is_apptainer() const { return runtime_ == ContainerRuntime::kApptainer; }
  void add(std::initializer_list<std::string> words) {
    plan_.options.insert(plan_.options.end(), words.begin(), words.end());
  }

  Result<Unit> add_wishes() {
    if (const Result<Unit> good = add_image(); !good) return good;
    add_command();
    add_limits();
    if (const Result<Unit> good = add_mounts(); !good) return good;
    if (const Result<Unit> good = add_working_directory(); !good) return good;
    if (const Result<Unit> good = add_job_options(); !good) return good;
    add_gpus();
    return Unit{};
  }

  Result<Unit> add_image() {
    const std::string& image = spec_.image();
    if (image.starts_with('-') || image.find_first_of(" \t\r\n\"'\\") != std::string::npos)
      return invalid_argument("'" + image + "' is not the name of an image");
    if (!image.starts_with('/') && !is_of_registry(image, is_apptainer())) {
      return invalid_argument(
          "'" + image +
          "' is not the name of an image in a registry; other sources, such as files, would be "
          "read as the agent's user; write HOST/NAME:TAG");
    }
    if (!spec_.image_digest().empty() && !spec_.image_digest().starts_with("sha256:"))
      return invalid_argument("the image's digest '" + spec_.image_digest() +
                              "' does not begin with sha256:");
    plan_.image = image;
    if (image.starts_with('/')) {  // A file of the node's own: only apptainer runs these.
      if (!is_apptainer())
        return invalid_argument("'" + image +
                                "' is a file, but this node's runtime accepts only names of images");
      if (const Result<Unit> good = check_mount(node_.options.mounts, plan_.image, true); !good) return good;
    }
    plan_.digest = spec_.image_digest();
    if (order_.image_digest().starts_with("sha256:")) plan_.earlier_digest = order_.image_digest();
    switch (spec_.pull()) {
      case v1::PULL_POLICY_ALWAYS:
        plan_.pull = shim::PullMode::kAlways;
        break;
      case v1::PULL_POLICY_NEVER:
        plan_.pull = shim::PullMode::kNever;
        break;
      default:
        plan_.pull = shim::PullMode::kIfMissing;
    }
    plan_.pull_patience_ms = node_.options.pull_patience_ms;
    return add_credential();
  }

  Result<Unit> add_credential() {
    const bool named = !spec_.registry_credential().empty();
    const std::string name = named ? spec_.registry_credential() : "default";
    Result<std::string> file = find_credential(node_.options.credentials_folder, order_.tenant(), name);
    if (file) plan_.auth_file = std::move(*file);
    if (!file && (named || file.error().code != ErrorCode::kNotFound)) return file.error();
    return Unit{};
  }

  void add_command() {
    plan_.command = shim::interpreter_words(spec_.script());
    if (!plan_.command.empty()) {
      plan_.command.push_back(std::string(shim::kContainerTmpFolder) + '/' + shim::kScriptFile);
    } else if (!spec_.script().empty()) {
      plan_.command = {"/bin/sh", "-c", spec_.script()};
      if (spec_.args_size() > 0) plan_.command.push_back("script");
    } else {
      plan_.command.assign(spec_.command().begin(), spec_.command().end());
    }
    plan_.arguments.assign(spec_.args().begin(), spec_.args().end());
  }

  void add_identity() {
    plan_.key = shim::key_text(request_.key);
    plan_.name = container_name(request_.key, node_.instance);
    plan_.folder = node_.data_folder + '/' + shim::kAttemptsFolder + '/' + plan_.key;
    plan_.images_folder = node_.data_folder + "/images";
    plan_.images_stamp = node_.support.images_stamp;
    plan_.stdin_path = request_.box.stdin_path;
    plan_.stdout_path = request_.box.stdout_path;
    plan_.stderr_path = request_.box.stderr_path;
    const std::optional<shim::Credentials>& user = request_.box.user;
    if (user) plan_.user = user_text(*user);
    if (is_apptainer()) {
      for (const shim::CgroupFolder& folder : request_.box.cgroups) plan_.enter.push_back(folder.path);
      return add({"--containall", "--no-home"});
    }
    add({"--label", "gpu-scheduler.attempt=" + plan_.key, "--label",
         "gpu-scheduler.instance=" + node_.instance, "--label", "gpu-scheduler.job=" + order_.job_name()});
    const auto is_network = [](const std::string& option) { return option.starts_with("--network="); };
    if (std::none_of(spec_.container_arguments().begin(), spec_.container_arguments().end(), is_network))
      add({"--network", node_.options.network.empty() ? "host" : node_.options.network});
    // Docker's daemon may want names of systemd's instead: its containers have their limits by its options.
    if (runtime_ == ContainerRuntime::kPodman) plan_.cgroup_parent = group_name(request_.box.cgroups);
    if (user) {
      add({"--user", std::to_string(user->uid) + ':' + std::to_string(user->gid)});
      for (const uint32_t group : user->groups) {
        if (group != user->gid) add({"--group-add", std::to_string(group)});
      }
    }
    if (node_.support.rootless && runtime_ == ContainerRuntime::kPodman) add({"--userns", "keep-id"});
    if (request_.box.no_new_privileges || user) add({"--security-opt", "no-new-privileges"});
    // Root's in a container are root's on the machine.
    if (!node_.support.rootless) add({"--cap-drop", "all"});
  }

  void add_limits() {
    if (is_apptainer()) return;  // Its processes are in the attempt's own box.
    for (const auto& [name, resource] : kLimitNames) {
      rlimit own{};
      bool wanted = resource == RLIMIT_NOFILE || resource == RLIMIT_NPROC;  // Else runtimes raise these.
      if (wanted) getrlimit(static_cast<__rlimit_resource>(resource), &own);
      if (resource == RLIMIT_CORE) wanted = true;
      for (const shim::ResourceLimit& limit : request_.box.limits) {
        if (limit.resource != resource) continue;
        own = {.rlim_cur = limit.soft, .rlim_max = limit.hard};
        wanted = true;
      }
      const bool is_capped = resource == RLIMIT_NPROC || (resource == RLIMIT_NOFILE && !may_raise_limits());
      if (is_capped && runtime_ == ContainerRuntime::kPodman) {
        own.rlim_cur = std::min(own.rlim_cur, runtime_limit_max());
        own.rlim_max = std::min(own.rlim_max, runtime_limit_max());
      }
      const auto text = [](rlim_t value) { return value == RLIM_INFINITY ? "-1" : std::to_string(value); };
      if (wanted) add({"--ulimit", std::string(name) + '=' + text(own.rlim_cur) + ':' + text(own.rlim_max)});
    }
    int64_t memory_mb = request_.box.memory_bytes_max >> 20;
    if (memory_mb == 0) memory_mb = order_.memory_mb();
    if (memory_mb > 0) {
      const std::string size = std::to_string(memory_mb) + "m";
      add({"--memory", size, "--memory-swap", size});
    }
    if (request_.box.processes_max > 0) add({"--pids-limit", std::to_string(request_.box.processes_max)});
    // 1024 stand for a core, as the kernel counts; this only matters where cores are short.
    if (order_.cpu_milli() > 0)
      add({"--cpu-shares",
           std::to_string(std::clamp<int64_t>(order_.cpu_milli() * 1024 / 1000, 2, 262'144))});
    int64_t shm_mb = request_.box.shm_bytes_max >> 20;
    if (shm_mb == 0) shm_mb = memory_mb > 0 ? memory_mb : std::max<int64_t>(node_.memory_mb / 2, 64);
    add({"--shm-size", std::to_string(shm_mb) + "m"});
    if (request_.box.umask && runtime_ == ContainerRuntime::kPodman) {
      std::array<char, 16> mask{};
      std::snprintf(mask.data(), mask.size(), "%04o", *request_.box.umask);
      add({"--umask", mask.data()});
    }
    if (request_.box.oom_score) add({"--oom-score-adj", std::to_string(*request_.box.oom_score)});
    if (!request_.box.cpus.empty()) {
      std::string list;
      for (const uint32_t cpu : request_.box.cpus) list += (list.empty() ? "" : ",") + std::to_string(cpu);
      add({"--cpuset-cpus", list});
    }
  }

  Result<Unit> mount(std::string source, const std::string& target, bool read_only) {
    if (!target.starts_with('/') || cuts_options(target))
      return invalid_argument("the mount's target '" + target +
                              "' is not an absolute path, or contains one of : , \"");
    for (const char* own : {"/proc", "/sys", "/dev"}) {
      if (is_below(target, own))
        return invalid_argument("nothing can be mounted below " + std::string(own) + " of a container");
    }
    if (target == "/") return invalid_argument("nothing can be mounted over the root of the image");
    if (const Result<Unit> good = check_mount(node_.options.mounts, source, read_only); !good) return good;
    if (cuts_options(source))
      return invalid_argument("'" + source + "' cannot be mounted: it contains one of : , \"");
    plan_.mounts.push_back(source + ':' + target + (read_only ? ":ro" : ":rw"));
    return Unit{};
  }

  Result<Unit> add_mounts() {
    for (const v1::Mount& wanted : spec_.mounts()) {
      if (const Result<Unit> good = mount(wanted.source(), wanted.target(), wanted.read_only()); !good)
        return good;
    }
    return Unit{};
  }

  /// The working directory of a job in a container is the node's folder where that may be mounted, else a
  /// folder of the image.
  Result<Unit> add_working_directory() {
    const std::string& folder = spec_.working_directory();
    if (folder.empty()) return Unit{};
    std::string inside = folder;
    std::string source = folder;
    const Result<Unit> allowed = check_mount(node_.options.mounts, source, false);
    if (!spec_.container_workdir_mount().empty()) inside = spec_.container_workdir_mount();
    if (allowed || !spec_.container_workdir_mount().empty()) {
      if (const Result<Unit> good = mount(folder, inside, false); !good) return good;
    }
    add({is_apptainer() ? "--pwd" : "--workdir", inside});
    return Unit{};
  }

  Result<Unit> add_job_options() {
    for (const std::string& option : spec_.container_arguments()) {
      const auto fits = [&](const std::string& entry) {
        return entry == option || (entry.ends_with('=') && option.starts_with(entry));
      };
      const std::vector<std::string>& allowed = node_.options.job_options;
      if (!option.starts_with("--") || std::none_of(allowed.begin(), allowed.end(), fits)) {
        return deny("the runtime's option '" + option +
                    "' is not among those that this node allows to jobs (gpu-agent --container-job-option)");
      }
      add({option});
    }
    return Unit{};
  }

  void add_gpus() {
    std::vector<std::string> uuids;
    for (const v1::GrantedDevice& granted : order_.devices()) uuids.push_back(granted.uuid());
    ContainerGpus gpus = container_gpus(runtime_, uuids, node_.gpu_places, slices_);
    plan_.options.insert(plan_.options.end(), gpus.options.begin(), gpus.options.end());
    plan_.note = std::move(gpus.note);
  }

  /// The runner gets the job's environment with each name marked, so that no name leads it astray.
  void finish() {
    std::vector<std::string> entries;
    std::string marker;
    for (const std::string& entry : request_.environment) {
      const std::string name = entry.substr(0, entry.find('='));
      if (name == shim::kMarkerVariable) marker = entry;
      const bool is_default = std::find(kImagesOwn.begin(), kImagesOwn.end(), name) != kImagesOwn.end();
      if (is_default && !spec_.environment().contains(name)) continue;
      entries.push_back(shim::kJobEntryMark + entry);
    }
    const std::string inside = shim::kContainerTmpFolder;
    entries.push_back(std::string(1, shim::kJobEntryMark) + shim::kCheckpointVariable + '=' + inside + '/' +
                      shim::kCheckpointFile);
    add({is_apptainer() ? "--bind" : "--volume",
         plan_.folder + '/' + shim::kTmpFolder + ':' + inside + ":rw"});
    entries.push_back(marker);
    plan_.client = node_.support.client;
    if (!plan_.cgroup_parent.empty()) plan_.client.options.push_back("--cgroup-manager=cgroupfs");
    // Processes of the client carry the mark too: whoever ends a lost attempt finds all of it.
    plan_.client.environment.push_back(marker);
    request_.environment = std::move(entries);
    request_.arguments = {node_.shim_program, std::string(shim::kContainerFlag)};
    const std::vector<std::string> words = shim::plan_words(plan_);
    request_.arguments.insert(request_.arguments.end(), words.begin(), words.end());
    request_.script_argument = 0;  // The path inside the container is known.
    request_.working_directory.clear();
    request_.container = true;
    keep_groups();
  }

  /// The runtime makes the box, inside the attempt's own groups; its client is no part of either. Devices are
  /// fenced by the runtime: in a group that may use less it could not make its own.
  void keep_groups() {
    shim::Box box{.memory_bytes_max = request_.box.memory_bytes_max,
                  .processes_max = request_.box.processes_max};
    box.open_tmp = true;
    if (is_apptainer()) {  // Nothing but processes: they are in the groups, and have the limits.
      box.limits = request_.box.limits;
      box.umask = request_.box.umask;
      box.oom_score = request_.box.oom_score;
    }
    for (shim::CgroupFolder& folder : request_.box.cgroups) {
      if (!is_apptainer() && folder.path.starts_with("/sys/fs/cgroup/devices/")) continue;
      box.cgroups.push_back(std::move(folder));
    }
    request_.box = std::move(box);
  }

  /// The attempt's group as a runtime names it: without where its hierarchy is mounted.
  static std::string group_name(const std::vector<shim::CgroupFolder>& folders) {
    constexpr std::string_view kRoot = "/sys/fs/cgroup/";
    for (const bool unified : {false, true}) {
      for (const shim::CgroupFolder& folder : folders) {
        if (folder.unified != unified || !folder.path.starts_with(kRoot)) continue;
        const std::size_t slash = folder.path.find('/', kRoot.size());
        const bool below_name = !unified || folder.path.starts_with("/sys/fs/cgroup/unified/");
        if (!below_name) return folder.path.substr(kRoot.size() - 1);
        if (slash != std::string::npos) return folder.path.substr(slash);
      }
    }
    return "";
  }

  SpawnRequest& request_;
  const v1::StartAttempt& order_;
  const v1::JobSpec& spec_;
  const ContainerNode& node_;
  const std::vector<MadeSlice>& slices_;
  const ContainerRuntime runtime_;
  shim::ContainerPlan plan_;
};

}  // namespace

std::string container_name(const AttemptKey& key, const std::string& instance) {
  return "gpu-scheduler-" + instance + '-' + shim::key_text(key);
}

Result<Unit> check_mount(const std::vector<std::string>& allowed, std::string& source, bool read_only) {
  if (!source.starts_with('/'))
    return invalid_argument("the mount's source '" + source + "' is not absolute");
  const std::string asked = source;
  const std::optional<std::string> found = real_path(source);
  if (!found) return deny("'" + asked + "' cannot be mounted: its file system does not answer on this node");
  const std::string& real = *found;
  bool only_readable = false;
  for (const std::string& entry : allowed) {
    const bool may_write = !entry.ends_with(":ro");
    const std::string folder = real_path(may_write ? entry : entry.substr(0, entry.size() - 3)).value_or("");
    if (folder.empty() || real.empty() || !is_below(real, folder)) continue;
    if (read_only || may_write) {
      source = real;
      return Unit{};
    }
    only_readable = true;
  }
  if (only_readable) return deny("'" + asked + "' may only be mounted read-only on this node");
  // Whether it exists is nobody's business who may not mount it.
  return deny("'" + asked +
              "' does not exist, or is not below a folder that jobs may mount on this node (gpu-agent "
              "--container-mount)");
}

Result<std::string> find_credential(const std::string& folder, const std::string& tenant,
                                    const std::string& name) {
  if (folder.empty()) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "the registry credential '" + name +
                            "' is not on this node: gpu-agent has no --container-credentials"};
  }
  if (!is_plain_name(tenant) || !is_plain_name(name)) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "'" + name + "' is not the name of a registry credential"};
  }
  const std::string path = folder + '/' + tenant + '/' + name + ".json";
  struct stat facts{};
  if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "the registry credential '" + name + "' of tenant '" + tenant +
                            "' is not on this node; its operator puts it into " + folder};
  }
  if (facts.st_uid != geteuid() || (facts.st_mode & 077) != 0) {
    return deny("the registry credential '" + name +
                "' can be read by users other than the agent's, and is not used until its mode is corrected "
                "with `chmod 600`");
  }
  return path;
}

Result<Unit> plan_container(SpawnRequest& request, const v1::StartAttempt& order, const v1::JobSpec& spec,
                            const ContainerNode& node, const std::vector<MadeSlice>& slices) {
  return ContainerPlanner(request, order, spec, node, slices).plan();
}

}  // namespace gpusched
