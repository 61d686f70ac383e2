#include "node/process/box_flags.h"

#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/errors.h"
#include "base/limits.h"
#include "grammar/grammar.h"

namespace gpusched {
namespace {

constexpr int64_t kOomScoreMax = 1'000;
constexpr int64_t kProcessesMax = 4'194'304;

Result<Unit> add_variable(BoxOptions& box, const std::string& text, const std::string& where) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return invalid_argument(where + " '" + text + "' is not NAME=VALUE");
  box.environment[text.substr(0, equals)] = text.substr(equals + 1);
  return Unit{};
}

Result<Unit> add_file(BoxOptions& box, const std::string& path) {
  std::ifstream in(path);
  if (!in) return invalid_argument("--node-env-file: cannot read " + path + ": " + std::strerror(errno));
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::size_t from = line.find_first_not_of(" \t\r");
    if (from == std::string::npos || line[from] == '#') continue;
    const std::size_t to = line.find_last_not_of(" \t\r");
    const Result<Unit> added =
        add_variable(box, line.substr(from, to - from + 1), path + " line " + std::to_string(number) + ":");
    if (!added) return added;
  }
  return Unit{};
}

Result<Unit> add_limit(BoxOptions& box, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  int64_t number = -1;
  if (value != "unlimited") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value.empty() || error != std::errc{} || end != value.data() + value.size() || number < 0) {
      return invalid_argument("--limit '" + text + "' is not NAME=NUMBER or NAME=unlimited");
    }
  }
  box.limits[text.substr(0, equals)] = number;
  return Unit{};
}

Result<Unit> add_gpu_node(BoxOptions& box, const std::string& text) {
  const std::size_t equals = text.find('=');
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + std::min(equals, text.size()), index);
  const bool good = error == std::errc{} && equals != std::string::npos && end == text.data() + equals &&
                    index < limits::kDevicesPerNodeMax && text[equals + 1] == '/';
  if (!good) return invalid_argument("--gpu-node '" + text + "' is not INDEX=/PATH");
  box.gpu_nodes[index].push_back(text.substr(equals + 1));
  return Unit{};
}

void declare_users(Grammar& grammar, BoxOptions& box, BoxRequestFields& words) {
  grammar.heading("Users of jobs");
  grammar.option("--default-user", "USER", &box.default_user,
                 "User of jobs that name none, if the agent runs as root (default: such jobs are refused)");
  grammar.flag("--allow-root-jobs", box.allow_root_jobs,
               "Allow jobs to run as root; they do so if they name no user and there is no default");
  grammar
      .option("--user-min-uid", "UID", &words.user_min_uid,
              "Minimum uid of users that jobs run as (default: UID_MIN of /etc/login.defs, or 1000)")
      .range(0, UINT32_MAX);
  grammar.option("--allow-user", "USER", &box.allowed_users,
                 "Allow jobs to run as this user, whatever its uid, and as no user that neither this option "
                 "nor --allow-group names; may be repeated");
  grammar.option("--allow-group", "GROUP", &box.allowed_groups,
                 "Allow jobs to run as members of this group, and as no others; may be repeated");
  grammar.option("--keep-group", "GROUP", &words.kept_groups,
                 "System group that jobs of its members keep (default: video, render); may be repeated");
  grammar.flag("--allow-set-user-id", box.allow_set_user_id,
               "Allow jobs to become other users through set-user-id programs such as sudo (default: these "
               "have no effect)");
  grammar.flag("--no-new-privileges", box.allow_set_user_id, "Older name of the default").turns_off();
}

void declare_limits(Grammar& grammar, BoxOptions& box, BoxRequestFields& words) {
  grammar.heading("Limits and environment of jobs");
  grammar.option("--node-env", "NAME=VALUE", &words.environment,
                 "Environment variable of every job; may be repeated");
  grammar
      .option("--node-env-file", "FILE", &words.environment_files,
              "File of lines NAME=VALUE; # starts a comment; may be repeated")
      .completes(Complete::kFile);
  grammar
      .option("--processes-max", "N", &box.processes_max,
              "Maximum number of processes and threads of one attempt; 0: no limit (default: 32768)")
      .range(0, kProcessesMax);
  grammar.option(
      "--limit", "NAME=NUMBER", &words.limits,
      "Maximum resource limit of a job, with a name of setrlimit (nofile, fsize, ...) and a number "
      "or unlimited; may be repeated");
  grammar
      .option("--default-memory", "WORD", &words.default_memory,
              "Memory limit of jobs that request none, enforced by cgroups: share (in proportion to their "
              "part of the node's GPUs or cores, whichever is larger), or none (default: share)")
      .of({"share", "none"});
  grammar
      .option("--shm-mb", "MB", &box.shm_mb,
              "Size of a job's private /dev/shm, in MB (default: half of its memory)")
      .range(0, limits::kMegabytesMax);
  grammar
      .flag("--shared-shm", box.private_shm,
            "Let jobs share the machine's /dev/shm and the queues, semaphores and shared memory of System V "
            "and POSIX")
      .turns_off();
  grammar.flag("--private-tmp", box.private_tmp, "Give each job a /tmp and /var/tmp of its own");
  grammar
      .option("--oom-score", "N", &words.oom_score,
              "oom_score_adj of jobs: how readily the kernel kills them when memory runs out (default: 300)")
      .range(-kOomScoreMax, kOomScoreMax);
  grammar.flag("--cpu-quota", box.cpu_is_most, "Limit each job to its cores even when other cores are idle");
  grammar.flag("--share-cores", box.bind_cores, "Do not bind jobs to cores of their own").turns_off();
  grammar.flag("--no-cgroups", box.use_cgroups, "Do not use cgroups; limits are enforced by polling instead")
      .turns_off();
}

void declare_devices(Grammar& grammar, BoxOptions& box, BoxRequestFields& words) {
  grammar.heading("Devices of jobs");
  grammar
      .flag("--no-device-fence", box.device_fence, "Let jobs open every device that file permissions allow")
      .turns_off();
  grammar.option("--device-allow", "RULE", &box.device_rules,
                 "Device that every job may use: 'c 10:237 rwm' or a path; may be repeated");
  grammar.option("--gpu-node", "INDEX=PATH", &words.gpu_nodes,
                 "Additional device node of a GPU; may be repeated");
}

}  // namespace

void declare_box(Grammar& grammar, BoxOptions& box, BoxRequestFields& words) {
  declare_users(grammar, box, words);
  declare_limits(grammar, box, words);
  declare_devices(grammar, box, words);
}

Result<Unit> complete_box(BoxOptions& box, const BoxRequestFields& words) {
  if (!words.kept_groups.empty()) box.kept_groups = words.kept_groups;
  if (words.user_min_uid) box.user_min_uid = static_cast<uint32_t>(*words.user_min_uid);
  if (words.oom_score) box.oom_score = static_cast<int32_t>(*words.oom_score);
  if (!words.default_memory.empty()) box.default_memory = words.default_memory == "share";
  for (const std::string& path : words.environment_files) {
    if (const Result<Unit> added = add_file(box, path); !added) return added;
  }
  for (const std::string& text : words.environment) {
    if (const Result<Unit> added = add_variable(box, text, "--node-env"); !added) return added;
  }
  for (const std::string& text : words.limits) {
    if (const Result<Unit> added = add_limit(box, text); !added) return added;
  }
  for (const std::string& text : words.gpu_nodes) {
    if (const Result<Unit> added = add_gpu_node(box, text); !added) return added;
  }
  return Unit{};
}

}  // namespace gpusched
