#include "node/process/box_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/errors.h"
#include "base/limits.h"

namespace gpusched {
namespace {

constexpr int kOomScoreMax = 1'000;

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

}  // namespace

void declare_box(CLI::App& app, BoxOptions& box, BoxRequestFields& words) {
  app.add_option("--default-user", box.default_user,
                 "User of jobs that name none, if the agent runs as root (default: such jobs are refused)");
  app.add_flag("--allow-root-jobs", box.allow_root_jobs,
               "Allow jobs to run as root; they do so if they name no user and there is no default");
  app.add_option("--user-min-uid", box.user_min_uid,
                 "Minimum uid of users that jobs run as (default: UID_MIN of /etc/login.defs, or 1000)");
  app.add_option("--allow-user", box.allowed_users,
                 "Allow jobs to run as this user, whatever its uid, and as no user that neither this option "
                 "nor --allow-group names; may be repeated");
  app.add_option("--allow-group", box.allowed_groups,
                 "Allow jobs to run as members of this group, and as no others; may be repeated");
  app.add_option("--keep-group", box.kept_groups,
                 "System group that jobs of its members keep (default: video, render); may be repeated");
  app.add_option("--node-env", words.environment,
                 "Environment variable of every job, NAME=VALUE; may be repeated");
  app.add_option("--node-env-file", words.environment_files, "File of such lines; # starts a comment");
  app.add_option("--processes-max", box.processes_max,
                 "Maximum number of processes and threads of one attempt; 0: no limit (default: 32768)")
      ->check(CLI::Range(int64_t{0}, int64_t{4'194'304}));
  app.add_option(
      "--limit", words.limits,
      "Maximum resource limit of a job, NAME=NUMBER, with a name of setrlimit (nofile, fsize, ...)");
  app.add_option_function<std::string>(
         "--default-memory", [&box](const std::string& word) { box.default_memory = word == "share"; },
         "Memory limit of jobs that request none, enforced by cgroups: share (in proportion to their part of "
         "the node's GPUs or cores, whichever is larger), or none (default: share)")
      ->check(CLI::IsMember({"share", "none"}));
  app.add_option("--shm-mb", box.shm_mb,
                 "Size of a job's private /dev/shm, in MB (default: half of its memory)")
      ->check(CLI::Range(int64_t{0}, limits::kMegabytesMax));
  app.add_flag("!--shared-shm", box.private_shm,
               "Let jobs share the machine's /dev/shm and the queues, semaphores and shared memory of System "
               "V and POSIX");
  app.add_flag("--private-tmp", box.private_tmp, "Give each job a /tmp and /var/tmp of its own");
  app.add_flag("--allow-set-user-id", box.allow_set_user_id,
               "Allow jobs to become other users through set-user-id programs such as sudo (default: these "
               "have no effect)");
  app.add_flag("--no-new-privileges{false}", box.allow_set_user_id, "Older name of the default");
  app.add_option(
         "--oom-score", box.oom_score,
         "oom_score_adj of jobs: how readily the kernel kills them when memory runs out (default: 300)")
      ->check(CLI::Range(-kOomScoreMax, kOomScoreMax));
  app.add_flag("--cpu-quota", box.cpu_is_most, "Limit each job to its cores even when other cores are idle");
  app.add_flag("!--share-cores", box.bind_cores, "Do not bind jobs to cores of their own");
  app.add_flag("!--no-device-fence", box.device_fence,
               "Let jobs open every device that file permissions allow");
  app.add_option("--device-allow", box.device_rules,
                 "Device that every job may use: 'c 10:237 rwm' or a path; may be repeated");
  app.add_option("--gpu-node", words.gpu_nodes,
                 "Additional device node of a GPU, INDEX=PATH; may be repeated");
  app.add_flag("!--no-cgroups", box.use_cgroups,
               "Do not use cgroups; limits are enforced by polling instead");
}

Result<Unit> complete_box(BoxOptions& box, const BoxRequestFields& words) {
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
