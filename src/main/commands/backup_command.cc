#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "backup/backup.h"
#include "client/http_client.h"
#include "client/json.h"
#include "client/local_token.h"
#include "config/config.h"
#include "journal/disk/disk.h"
#include "journal/journal_dir.h"
#include "log/line.h"
#include "main/commands/admin_command.h"
#include "main/own_certificate.h"
#include "ops/machine.h"

namespace gpusched {
namespace {

constexpr int kOutput = 1;
constexpr const char* kHistoryInBackup = "history/history.db";

struct BackupWords {
  std::string destination;
  std::string data_dir = "/var/lib/gpu-scheduler";
  std::string config;
  bool without_history = false;
  bool json = false;
};

int complain_of_backup(const char* command, const std::string& message, int status) {
  std::fprintf(stderr, "gpu-scheduler %s: %s\n", command, message.c_str());
  return status;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string now_text() {
  std::string text;
  append_rfc3339(text, Time{int64_t{1'000'000'000} * std::time(nullptr)});
  return text;
}

/// Per cent on a terminal, in the same place.
backup::Progress progress_on_terminal(bool json) {
  if (json || ::isatty(STDERR_FILENO) == 0) return {};
  return [shown = int{-1}](uint64_t done, uint64_t total) mutable {
    const int percent = total == 0 ? 100 : static_cast<int>(done * 100 / total);
    if (percent == shown) return;
    shown = percent;
    std::fprintf(stderr, "\r%3d %% of %" PRIu64 " MiB", percent, total >> 20);
    if (done == total) std::fputs("\n", stderr);
  };
}

/// The running scheduler writes the copy beside its database: it alone opens that.
Result<std::string> have_history_copied(const std::string& data_dir, const Config& config) {
  const auto failed = [](const std::string& why) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "the history was not copied: " + why + "; --without-history leaves it out"};
  };
  const Result<Json> ports = Json::parse(ops::read_text(data_dir + "/ports.json").value_or(""));
  const int64_t port = ports.ok() ? (*ports)["http"].integer() : 0;
  if (port == 0)
    return failed("the scheduler of " + data_dir + " is starting, ending or hung; try again later");
  const bool https = (*ports)["https"].boolean();
  std::string certificate = tls_files(config, data_dir).certificate;
  if (https && certificate.empty()) certificate = authority_folder(data_dir) + "/server.pem";
  const std::string& address = config.api.address;
  const std::string host = address == "0.0.0.0" || address == "::" ? "127.0.0.1" : address;
  const std::string bracketed = host.find(':') == std::string::npos ? host : "[" + host + "]";
  const std::string url = (https ? "https://" : "http://") + bracketed + ":" + std::to_string(port);
  if (const Result<Unit> may = check_token_receiver(url, data_dir + "/token"); !may.ok())
    return failed(may.error().message);
  Result<HttpClient> client = HttpClient::create({.url = url,
                                                  .token = ops::read_line(data_dir + "/token").value_or(""),
                                                  .server_certificate = certificate});
  if (!client.ok()) return failed(client.error().message);
  const Result<HttpAnswer> answer =
      client->request({.method = "POST", .target = "/v1/history:copy", .timeout = minutes(60)});
  if (!answer.ok()) return failed(answer.error().message);
  const Result<Json> said = Json::parse(answer->body);
  if (answer->status / 100 == 2 && said.ok()) return (*said)["path"].text();
  return failed(said.ok() ? (*said)["error"].text() : "HTTP status " + std::to_string(answer->status));
}

/// The database of a scheduler that does not run, with what its log still holds.
std::vector<backup::OtherFile> resting_history(const std::string& data_dir, const Config& config) {
  const std::string path =
      config.history.path.empty() ? data_dir + "/history/history.db" : config.history.path;
  std::vector<backup::OtherFile> files;
  for (const char* suffix : {"", "-wal"}) {
    if (::access((path + suffix).c_str(), F_OK) == 0)
      files.push_back({.path = kHistoryInBackup + std::string(suffix), .file = path + suffix});
  }
  return files;
}

void print_backup(const backup::Summary& summary, const char* key, const std::string& place, bool json,
                  std::FILE* out) {
  if (json) {
    JsonObjectWriter object;
    object.add(key, place);
    object.add("version", summary.version);
    object.add("taken_at", summary.taken);
    object.add("position", static_cast<int64_t>(summary.position));
    object.add("files", static_cast<int64_t>(summary.files));
    object.add("bytes", static_cast<int64_t>(summary.bytes));
    object.add("history", summary.has_history);
    std::fprintf(out, "%s\n", object.text().c_str());
    return;
  }
  std::fprintf(out,
               "%s: whole, %" PRIu64 " files, %" PRIu64 " MiB, up to journal record %" PRIu64
               ", of %s by version %s, %s\n",
               place.c_str(), summary.files, summary.bytes >> 20, summary.position, summary.taken.c_str(),
               summary.version.c_str(), summary.has_history ? "with the history" : "without a history");
}

int back_up(const BackupWords& words) {
  const std::string destination =
      words.destination == "-" ? words.destination : without_slash(words.destination);
  const std::string data_dir = without_slash(words.data_dir);
  if (destination == "-" && ::isatty(kOutput) != 0)
    return complain_of_backup("backup", "a backup is no text for a terminal; redirect it to a file", 2);
  const Result<LoadedConfig> config =
      load_config({.path = words.config, .environment = process_environment()});
  if (!config.ok()) return complain_of_backup("backup", config.error().message, 2);
  backup::BackupOptions options{.data_dir = data_dir,
                                .destination = destination,
                                .stream = kOutput,
                                .history = {},
                                .version = GPUSCHED_VERSION,
                                .taken = now_text(),
                                .progress = progress_on_terminal(words.json)};
  std::unique_ptr<DiskLock> lock;  // Of a scheduler that does not run: none starts meanwhile.
  std::string copy;
  if (read_version(posix_disk(), data_dir + "/journal").ok()) {
    Result<std::unique_ptr<DiskLock>> locked = posix_disk().lock(data_dir + "/journal/" + kLockName);
    if (!locked.ok() && locked.error().code != ErrorCode::kLocked)
      return complain_of_backup("backup", locked.error().message, 1);
    if (locked.ok()) {
      lock = std::move(*locked);
      if (!words.without_history) options.history = resting_history(data_dir, config->values);
    } else if (!words.without_history) {
      const Result<std::string> copied = have_history_copied(data_dir, config->values);
      if (!copied.ok()) return complain_of_backup("backup", copied.error().message, 1);
      copy = *copied;
      options.history.push_back({.path = kHistoryInBackup, .file = copy});
    }
  }
  const Result<backup::Summary> made = backup::make_backup(options);
  if (!copy.empty()) ::unlink(copy.c_str());
  if (!made.ok()) return complain_of_backup("backup", made.error().message, 1);
  print_backup(*made, "backup", destination, words.json, destination == "-" ? stderr : stdout);
  return 0;
}

ProgramAction define_backup(Grammar& grammar) {
  const auto words = std::make_shared<BackupWords>();
  grammar
      .argument("DESTINATION", &words->destination,
                "A new folder, a new file that ends in .tar, or - for a tar archive to the output")
      .completes(Complete::kFile);
  grammar
      .option("--data-dir", "DIR", &words->data_dir,
              "The scheduler's data folder (default: /var/lib/gpu-scheduler)")
      .completes(Complete::kFolder);
  grammar
      .option("--config", "FILE", &words->config,
              "The scheduler's YAML configuration file, where history.path or TLS is set there")
      .completes(Complete::kFile);
  grammar.flag("--without-history", words->without_history, "Leave the database of finished jobs out");
  grammar.flag("--json", words->json, "Print JSON");
  grammar.details(
      "Copies journal, snapshots, token, keys, authority, audit and history, beside a running scheduler or "
      "one "
      "that does not run, and reads the copy back. The copy holds secrets: it is for its owner alone. Run "
      "this "
      "on the scheduler's machine, as its user or root.");
  grammar.example("gpu-scheduler backup /var/backups/gpu-scheduler/today", "copy the data folder");
  grammar.example("gpu-scheduler backup - | ssh backups 'cat > today.tar'", "copy it to another machine");
  return [words](const std::vector<std::string>&) { return back_up(*words); };
}

ProgramAction define_restore(Grammar& grammar) {
  struct Words {
    std::string source;
    std::string data_dir;
    bool json = false;
  };
  const auto words = std::make_shared<Words>();
  grammar.argument("BACKUP", &words->source, "Folder or file that gpu-scheduler backup made")
      .completes(Complete::kFile);
  grammar.argument("DATA_DIR", &words->data_dir, "The data folder to make; missing or empty")
      .completes(Complete::kFolder);
  grammar.flag("--json", words->json, "Print JSON");
  grammar.details(
      "Compares every file with its SHA-256 before anything is written. The folder is there whole, or not at "
      "all. As root, all files get the owner of the empty folder that was there.");
  grammar.example("gpu-scheduler restore /var/backups/gpu-scheduler/today /var/lib/gpu-scheduler",
                  "make the data folder of a backup");
  return [words](const std::vector<std::string>&) {
    const std::string data_dir = without_slash(words->data_dir);
    const Result<backup::Summary> made =
        backup::restore_backup(without_slash(words->source), data_dir, progress_on_terminal(words->json));
    if (!made.ok()) return complain_of_backup("restore", made.error().message, 1);
    print_backup(*made, "data_dir", data_dir, words->json, stdout);
    return 0;
  };
}

}  // namespace

std::vector<ProgramCommand> backup_commands() {
  return {{.path = "backup",
           .summary = "Copy the data folder, of a running scheduler too, and prove the copy",
           .define = define_backup},
          {.path = "restore",
           .summary = "Make a data folder of a backup whose every digest is right",
           .define = define_restore}};
}

}  // namespace gpusched
