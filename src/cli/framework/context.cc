#include "cli/framework/context.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"

namespace gpusched::cli {
namespace {

Error io_error(const std::string& what, const std::string& path) {
  return {.code = ErrorCode::kIo, .message = "cannot " + what + " " + path + ": " + std::strerror(errno)};
}

std::string serialized(const Contexts& contexts) {
  std::string all;
  for (const auto& [name, context] : contexts.all) {
    JsonObjectWriter one;
    one.add("api_url", context.api_url);
    if (!context.token_file.empty()) one.add("token_file", context.token_file);
    if (!context.ca_file.empty()) one.add("ca_file", context.ca_file);
    if (!context.tenant_id.empty()) one.add("tenant_id", context.tenant_id);
    all += (all.empty() ? "\n    " : ",\n    ") + Json::quoted(name) + ": " + one.text();
  }
  JsonObjectWriter head;
  head.add("current", contexts.current);
  std::string text = head.text();
  text.pop_back();
  return text + ",\n \"contexts\": {" + all + "}}\n";
}

/// Makes the folders above `path`, readable to their owner alone.
void make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    ::mkdir(path.substr(0, slash).c_str(), 0700);  // An existing folder stays as it is.
  }
}

bool write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(fd) == 0;
}

std::string absolute(const CliIo& io, const std::string& path) {
  if (path.empty() || path.starts_with('/')) return path;
  const std::string folder = io.working_directory();
  return folder.empty() ? path : folder + "/" + path;
}

/// The contexts of the file, or null after a message.
std::optional<Contexts> loaded(const Session& session) {
  const std::string path = contexts_path(session.io());
  if (path.empty()) {
    session.fail(kExitUsage, "contexts are kept in the home directory, and HOME is not set; set it", "usage");
    return std::nullopt;
  }
  Result<Contexts> contexts = load_contexts(path);
  if (contexts) return std::move(*contexts);
  session.fail(kExitUsage, contexts.error().message, "usage");
  return std::nullopt;
}

int save(const Session& session, const Contexts& contexts, const std::string& sentence) {
  const Result<Unit> saved = save_contexts(contexts_path(session.io()), contexts);
  if (!saved) return session.fail(kExitUsage, saved.error().message, "usage");
  if (!session.options().json) session.io().out(sentence + "\n");
  return kExitOk;
}

int unknown_context(const Session& session, const Contexts& contexts, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : contexts.all) names.push_back(entry.first);
  const std::string near = nearest_of(name, names);
  return session.fail(
      kExitUsage,
      "there is no context " + name +
          (near.empty() ? "; gpu-cli context list shows the contexts" : "; did you mean " + near + "?"),
      "usage");
}

int use_context(Session& session, const std::string& name) {
  std::optional<Contexts> contexts = loaded(session);
  if (!contexts) return kExitUsage;
  if (!contexts->all.contains(name)) return unknown_context(session, *contexts, name);
  contexts->current = name;
  return save(session, *contexts, "using " + name + " at " + contexts->all[name].api_url);
}

int list_contexts(Session& session) {
  const std::optional<Contexts> contexts = loaded(session);
  if (!contexts) return kExitUsage;
  if (session.options().json) {
    session.io().out(serialized(*contexts));
    return kExitOk;
  }
  if (contexts->all.empty()) {
    session.io().out("No contexts. Create one with: gpu-cli context set lab --api-url http://HOST:8080\n");
    return kExitOk;
  }
  Table table({{.title = ""},
               {.title = "NAME"},
               {.title = "URL"},
               {.title = "TENANT"},
               {.title = "TOKEN FILE", .may_shrink = true, .drop_order = 1}});
  for (const auto& [name, context] : contexts->all) {
    table.add({name == contexts->current ? "*" : " ", name, context.api_url, context.tenant_id,
               context.token_file});
  }
  session.io().out(table.render(session.io().width));
  return kExitOk;
}

int set_context(Session& session, const std::string& name) {
  std::optional<Contexts> contexts = loaded(session);
  if (!contexts) return kExitUsage;
  const Options& options = session.options();
  Context& context = contexts->all[name];
  if (!options.api_url.empty()) context.api_url = plain_url(options.api_url);
  if (!options.token_file.empty()) context.token_file = absolute(session.io(), options.token_file);
  if (!options.ca_file.empty()) context.ca_file = absolute(session.io(), options.ca_file);
  if (!options.tenant_id.empty()) context.tenant_id = options.tenant_id;
  if (context.api_url.empty()) {
    return session.fail(kExitUsage,
                        "a new context needs the URL of its scheduler, as in: gpu-cli context set " + name +
                            " --api-url http://HOST:8080",
                        "usage");
  }
  for (const std::string& url : split_urls(context.api_url)) {
    const Result<HttpEndpoint> endpoint = parse_http_url(url);
    if (!endpoint) return session.fail(kExitUsage, endpoint.error().message, "usage");
  }
  if (contexts->current.empty()) contexts->current = name;
  return save(
      session, *contexts,
      name + " is " + context.api_url +
          (contexts->current == name ? ", in use" : "; switch to it with: gpu-cli context use " + name));
}

int delete_context(Session& session, const std::string& name) {
  std::optional<Contexts> contexts = loaded(session);
  if (!contexts) return kExitUsage;
  if (contexts->all.erase(name) == 0) return unknown_context(session, *contexts, name);
  if (contexts->current == name) contexts->current.clear();
  return save(session, *contexts, name + " deleted");
}

/// A command about one context, which is an argument.
Action about_context(Grammar& grammar, int (*act)(Session&, const std::string&), bool is_new) {
  const auto name = std::make_shared<std::string>();
  grammar.argument("NAME", name.get(), "The context's name")
      .completes(is_new ? Complete::kNothing : Complete::kContext);
  return [name, act](Session& session) { return act(session, *name); };
}

}  // namespace

namespace {

/// Empty when neither XDG_CONFIG_HOME nor HOME is set.
std::string config_folder(const CliIo& io) {
  std::string folder = io.environment("XDG_CONFIG_HOME");
  if (folder.empty()) {
    const std::string home = io.environment("HOME");
    if (home.empty()) return {};
    folder = home + "/.config";
  }
  return folder + "/gpu-scheduler";
}

}  // namespace

std::string contexts_path(const CliIo& io) {
  const std::string folder = config_folder(io);
  return folder.empty() ? folder : folder + "/contexts.json";
}

std::string logins_path(const CliIo& io) {
  const std::string folder = config_folder(io);
  return folder.empty() ? folder : folder + "/logins";
}

Result<Contexts> load_contexts(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return Contexts{};
    return io_error("read", path);
  }
  std::stringstream text;
  text << file.rdbuf();
  const Result<Json> json = Json::parse(text.str());
  if (!json || !json->is_object()) {
    return Error{.code = ErrorCode::kIo,
                 .message = path + " is not a valid file of contexts; correct it or delete it"};
  }
  Contexts contexts{.current = (*json)["current"].text()};
  for (const auto& [name, one] : (*json)["contexts"].members()) {
    contexts.all[name] = {.api_url = plain_url(one["api_url"].text()),
                          .token_file = one["token_file"].text(),
                          .ca_file = one["ca_file"].text(),
                          .tenant_id = one["tenant_id"].text()};
  }
  return contexts;
}

Result<Unit> save_contexts(const std::string& path, const Contexts& contexts) {
  make_folders(path);
  const std::string fresh = path + ".new." + std::to_string(::getpid());
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return io_error("write", fresh);
  const bool written = write_whole(fd, serialized(contexts));
  if (!written) {
    const Error error = io_error("write", fresh);
    ::close(fd);
    ::unlink(fresh.c_str());
    return error;
  }
  ::close(fd);
  if (::rename(fresh.c_str(), path.c_str()) != 0) return io_error("write", path);
  return Unit{};
}

Action define_context_use(Grammar& grammar) { return about_context(grammar, use_context, false); }

Action define_context_list(Grammar& grammar) {
  grammar.details("An asterisk marks the current context.");
  return [](Session& session) { return list_contexts(session); };
}

Action define_context_set(Grammar& grammar) {
  grammar.details(
      "Stores `--api-url`, `--token-file`, `--ca-file` and `--tenant-id` under a name, in a file that only "
      "you can read. "
      "Options that are not given keep their values. The first context becomes the current one.");
  grammar.example("gpu-cli context set lab --api-url http://10.0.0.5:8080 --token-file ~/lab-token",
                  "store a scheduler under a name");
  grammar.example("gpu-cli context use lab", "use it from now on");
  return about_context(grammar, set_context, true);
}

Action define_context_delete(Grammar& grammar) { return about_context(grammar, delete_context, false); }

}  // namespace gpusched::cli
