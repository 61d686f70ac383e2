#include "main/commands/admin_command.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "log/line.h"
#include "main/cluster_file.h"
#include "main/commands/admin_client.h"
#include "ops/machine.h"

namespace gpusched {
namespace {

struct AdminOptions {
  AdminAccess access;
  std::string file;
  bool dry_run = false;
  bool yes = false;
  bool json = false;
};

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "gpu-scheduler admin: %s\n", message.c_str());
  return status;
}

/// The running scheduler, by its API.
class Scheduler {
 public:
  static Result<Scheduler> open(const AdminOptions& options) {
    Result<AdminClient> client = AdminClient::open(options.access);
    if (!client.ok()) return client.error();
    return Scheduler(std::move(*client));
  }

  /// Tenants, and labels where the scheduler has them.
  Result<ClusterFile> present(bool needs_nodes) {
    const Result<Json> tenants = client_.get("/api/v1/tenants");
    if (!tenants.ok()) return tenants.error();
    Json nodes;
    const Result<Json> answered = client_.get("/v1/nodes");
    if (answered.ok()) {
      nodes = *answered;
    } else if (needs_nodes || answered.error().code != ErrorCode::kNotFound) {
      return Error{.code = answered.error().code,
                   .message = "cannot list the nodes: " + answered.error().message};
    }
    return cluster_of(*tenants, nodes);
  }

  /// All of the changes or none; a dry run only asks whether.
  Result<Unit> apply(const std::vector<ClusterChange>& changes, bool dry_run) {
    const Result<Json> done = client_.call({.method = "POST",
                                            .target = "/v1/cluster:edit",
                                            .body = edits_json(changes, dry_run),
                                            .repeatable = dry_run});
    if (!done.ok()) return done.error();
    return Unit{};
  }

 private:
  explicit Scheduler(AdminClient client) : client_(std::move(client)) {}
  AdminClient client_;
};

Result<std::string> file_text(const std::string& path) {
  if (path == "-")
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  std::optional<std::string> text = ops::read_text(path);
  if (text) return std::move(*text);
  return Error{.code = ErrorCode::kNotFound, .message = "cannot read " + path};
}

std::string text_of(const std::vector<ClusterChange>& changes) {
  std::string out;
  for (const ClusterChange& change : changes) {
    out += change.what + "\n";
    for (const std::string& line : change.lines) out += "  " + line + "\n";
  }
  return out;
}

std::string json_of(const std::vector<ClusterChange>& changes, std::size_t applied, bool dry_run) {
  std::string out = "{\"dry_run\":" + std::string(dry_run ? "true" : "false") +
                    ",\"applied\":" + std::to_string(applied) + ",\"changes\":[";
  for (std::size_t i = 0; i < changes.size(); ++i) {
    out += i == 0 ? "{\"what\":" : ",{\"what\":";
    append_json_string(out, changes[i].what);
    out += ",\"lines\":[";
    for (std::size_t line = 0; line < changes[i].lines.size(); ++line) {
      if (line > 0) out += ",";
      append_json_string(out, changes[i].lines[line]);
    }
    out += "],\"applied\":" + std::string(i < applied ? "true" : "false") + "}";
  }
  return out + "]}\n";
}

/// Whether a person at a terminal agrees; who is no terminal has agreed by calling us.
bool agreed(const AdminOptions& options, std::size_t count) {
  if (options.yes || ::isatty(STDIN_FILENO) != 1 || options.file == "-") return true;
  std::printf("Apply %zu changes? [y/N] ", count);
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int apply(const AdminOptions& options) {
  const Result<std::string> text = file_text(options.file);
  if (!text.ok()) return complain(text.error().message, 2);
  const Result<ClusterFile> wanted = parse_cluster_file(options.file, *text);
  if (!wanted.ok()) return complain(wanted.error().message, 2);
  Result<Scheduler> scheduler = Scheduler::open(options);
  if (!scheduler.ok()) return complain(scheduler.error().message, 2);
  const Result<ClusterFile> present = scheduler->present(!wanted->nodes.empty());
  if (!present.ok()) return complain(present.error().message, 1);
  const Result<std::vector<ClusterChange>> changes = plan_changes(*present, *wanted);
  if (!changes.ok()) return complain(changes.error().message, 2);

  const std::size_t count = changes->size();
  if (!options.json) {
    std::fputs(text_of(*changes).c_str(), stdout);
    if (count == 0) std::puts("no changes are needed");
  }
  // Changes that the engine would refuse are found before anybody is asked; after a refusal nothing
  // is done.
  const auto refused = [&](const Error& error, const char* what) {
    if (options.json) std::fputs(json_of(*changes, 0, options.dry_run).c_str(), stdout);
    return complain(error.message + what, 1);
  };
  if (count > 0) {
    const Result<Unit> tried = scheduler->apply(*changes, true);
    if (!tried.ok())
      return refused(tried.error(), "; nothing was changed: all changes of a file are made together or none");
  }
  std::size_t applied = 0;
  if (count > 0 && !options.dry_run) {
    if (!agreed(options, count)) return complain("nothing was changed", 1);
    const Result<Unit> done = scheduler->apply(*changes, false);
    if (!done.ok()) return refused(done.error(), "; all changes are made together or none");
    applied = count;
  }
  if (options.json) {
    std::fputs(json_of(*changes, applied, options.dry_run).c_str(), stdout);
  } else if (count > 0) {
    std::printf("%s\n", options.dry_run
                            ? "the scheduler would accept the changes; nothing was changed (dry run)"
                            : (std::to_string(applied) + " changes made").c_str());
  }
  return 0;
}

int get(const AdminOptions& options) {
  Result<Scheduler> scheduler = Scheduler::open(options);
  if (!scheduler.ok()) return complain(scheduler.error().message, 2);
  const Result<ClusterFile> present = scheduler->present(false);
  if (!present.ok()) return complain(present.error().message, 1);
  std::fputs(print_cluster_file(*present).c_str(), stdout);
  return 0;
}

ProgramAction define_apply(Grammar& grammar) {
  const auto options = std::make_shared<AdminOptions>();
  grammar.option("-f,--file", "FILE", &options->file, "The file; - for standard input")
      .must()
      .completes(Complete::kFile);
  grammar.flag("--dry-run", options->dry_run,
               "Only show what would change, and whether the scheduler would accept it");
  grammar.flag("-y,--yes", options->yes, "Do not ask for confirmation");
  grammar.flag("--json", options->json, "Print JSON, and do not ask for confirmation");
  declare_access(grammar, options->access);
  return [options](const std::vector<std::string>&) {
    // A program gets JSON alone, and is not asked.
    options->yes = options->yes || options->json;
    return apply(*options);
  };
}

ProgramAction define_get(Grammar& grammar) {
  const auto options = std::make_shared<AdminOptions>();
  declare_access(grammar, options->access);
  return [options](const std::vector<std::string>&) { return get(*options); };
}

}  // namespace

std::vector<ProgramCommand> admin_commands() {
  return {{.path = "admin apply",
           .summary = "Apply a file of tenants, quotas and node labels; shows the differences first",
           .define = define_apply},
          {.path = "admin get",
           .summary = "Print the current tenants, quotas and node labels as such a file",
           .define = define_get,
           .alias = "admin export"}};
}

}  // namespace gpusched
