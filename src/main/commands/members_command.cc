#include "main/commands/members_command.h"

#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>

#include "client/json.h"
#include "log/line.h"
#include "main/commands/members_list.h"
#include "main/replicas/replica_folders.h"

namespace gpusched {
namespace {

struct MembersWords {
  std::string file;
  std::string data_dir = "/var/lib/gpu-scheduler";
  std::string config;
  int64_t id = 0;
  bool again = false;
  bool json = false;
};

int complain_of_members(const char* command, const std::string& message, int status) {
  std::fprintf(stderr, "gpu-scheduler members %s: %s\n", command, message.c_str());
  return status;
}

std::string trimmed_folder(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Result<LoadedConfig> config_of(const MembersWords& words) {
  return load_config({.path = words.config, .environment = process_environment()});
}

void print_group(const ReplicaGroup& group, const std::string& data_dir) {
  JsonObjectWriter object;
  object.add("data_dir", data_dir);
  object.add("id", static_cast<int64_t>(group.id));
  object.add("cluster", std::to_string(group.cluster));
  object.add("position", static_cast<int64_t>(group.position));
  std::string members;
  for (const auto& [id, store] : group.stores) members += (members.empty() ? "" : ",") + std::to_string(id);
  object.add_json("members", "[" + members + "]");
  std::puts(object.text().c_str());
}

std::shared_ptr<MembersWords> declare_common(Grammar& grammar) {
  auto words = std::make_shared<MembersWords>();
  grammar
      .option("--data-dir", "DIR", &words->data_dir,
              "The scheduler's data folder (default: /var/lib/gpu-scheduler)")
      .completes(Complete::kFolder);
  grammar
      .option("--config", "FILE", &words->config,
              "The scheduler's YAML configuration file, with replica.id and replica.peers")
      .completes(Complete::kFile);
  grammar.flag("--json", words->json, "Print JSON");
  return words;
}

int init_members(const MembersWords& words) {
  const std::string data_dir = trimmed_folder(words.data_dir);
  const Result<LoadedConfig> config = config_of(words);
  if (!config.ok()) return complain_of_members("init", config.error().message, 2);
  if (config->values.replica.peers.empty() && words.again)
    return complain_of_members("init", "replica.peers is empty: name the configuration file with --config",
                               2);
  if (words.again) {
    const Result<Unit> left = leave_group(data_dir);
    if (!left.ok()) return complain_of_members("init", left.error().message, 1);
  }
  const Result<ReplicaGroup> group = begin_group(config->values, data_dir);
  if (!group.ok()) return complain_of_members("init", group.error().message, 1);
  if (words.json) return print_group(*group, data_dir), 0;
  std::printf("%s: replica %" PRIu64 " of %zu, from journal record %" PRIu64 " on\n", data_dir.c_str(),
              group->id, group->stores.size(), group->position);
  std::puts("Before it is started, export each other one and join it on its machine:");
  for (const auto& [id, store] : group->stores) {
    if (id != group->id)
      std::printf("  gpu-scheduler members export replica-%" PRIu64 ".tar --id %" PRIu64 " --data-dir %s\n",
                  id, id, data_dir.c_str());
  }
  return 0;
}

int export_member(const MembersWords& words) {
  const Result<LoadedConfig> config = config_of(words);
  if (!config.ok()) return complain_of_members("export", config.error().message, 2);
  backup::BackupOptions options{.version = GPUSCHED_VERSION};
  append_rfc3339(options.taken, Time{int64_t{1'000'000'000} * std::time(nullptr)});
  const auto id = static_cast<uint64_t>(words.id);
  const Result<backup::Summary> made =
      export_replica(config->values, trimmed_folder(words.data_dir), id, words.file, options);
  if (!made.ok()) return complain_of_members("export", made.error().message, 1);
  if (words.json) {
    JsonObjectWriter object;
    object.add("file", words.file);
    object.add("id", words.id);
    object.add("files", static_cast<int64_t>(made->files));
    object.add("bytes", static_cast<int64_t>(made->bytes));
    object.add("position", static_cast<int64_t>(made->position));
    std::puts(object.text().c_str());
    return 0;
  }
  std::printf("%s: all that replica %" PRIu64 " begins with, %" PRIu64 " files, %" PRIu64
              " MiB, up to journal record %" PRIu64 "\n",
              words.file.c_str(), id, made->files, made->bytes >> 20, made->position);
  std::printf("It holds the cluster's keys. On the machine of replica %" PRIu64
              " run gpu-scheduler members join, which removes it there.\n",
              id);
  return 0;
}

int join_members(const MembersWords& words) {
  const std::string data_dir = trimmed_folder(words.data_dir);
  const Result<LoadedConfig> config = config_of(words);
  if (!config.ok()) return complain_of_members("join", config.error().message, 2);
  const Result<ReplicaGroup> group = join_group(config->values, words.file, data_dir);
  if (!group.ok()) return complain_of_members("join", group.error().message, 1);
  if (words.json) return print_group(*group, data_dir), 0;
  std::printf("%s: replica %" PRIu64 " of %zu, from journal record %" PRIu64 " on; %s is removed\n",
              data_dir.c_str(), group->id, group->stores.size(), group->position, words.file.c_str());
  return 0;
}

ProgramAction define_init(Grammar& grammar) {
  const std::shared_ptr<MembersWords> words = declare_common(grammar);
  grammar.flag("--again", words->again,
               "Begin a new cluster with the folder of a replica of an old one, which runs no more");
  grammar.details(
      "The scheduler of the folder does not run meanwhile. Afterwards it starts only together with the "
      "others "
      "that replica.peers lists: most of them must run for it to serve.");
  grammar.example("gpu-scheduler members init --config /etc/gpu-scheduler/scheduler.yaml",
                  "make a scheduler the first of three");
  return [words](const std::vector<std::string>&) { return init_members(*words); };
}

ProgramAction define_export(Grammar& grammar) {
  const std::shared_ptr<MembersWords> words = declare_common(grammar);
  grammar.argument("FILE", &words->file, "A new file whose name ends in .tar").completes(Complete::kFile);
  grammar.option("--id", "ID", &words->id, "The replica to write it for, by replica.peers")
      .range(1, 1'000'000)
      .must();
  grammar.details(
      "After members init and before any of the schedulers is started. The file holds the journal, the keys, "
      "the token and the authority, and is for its owner alone: copy it over an encrypted connection.");
  grammar.example("gpu-scheduler members export replica-2.tar --id 2", "write what the second one needs");
  return [words](const std::vector<std::string>&) { return export_member(*words); };
}

ProgramAction define_join(Grammar& grammar) {
  const std::shared_ptr<MembersWords> words = declare_common(grammar);
  grammar.argument("FILE", &words->file, "File that gpu-scheduler members export wrote for this replica")
      .completes(Complete::kFile);
  grammar.details(
      "The data folder must be missing or empty. The file is removed when the folder is whole: a replica "
      "that "
      "is made twice would forget what it agreed to. As root, all files get the owner of the empty folder.");
  grammar.example("gpu-scheduler members join replica-2.tar", "make the second one's data folder");
  return [words](const std::vector<std::string>&) { return join_members(*words); };
}

}  // namespace

std::vector<ProgramCommand> members_commands() {
  return {{.path = "members init",
           .summary = "Make a scheduler the first one of three or five that are one",
           .define = define_init},
          {.path = "members export",
           .summary = "Write one file with all that another one of them begins with",
           .define = define_export},
          {.path = "members join",
           .summary = "Make another one's data folder of that file",
           .define = define_join},
          members_list_command()};
}

}  // namespace gpusched
