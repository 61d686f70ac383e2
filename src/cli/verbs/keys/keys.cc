// API keys: made, listed, revoked, given roles.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/framework/tenant_names.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

constexpr int kKeyPagesMax = 200;
const char* const kKeyPageSize = "1000";

struct KeyOptions {
  std::string name;  ///< Name of a key, or the id of one that exists.
  std::vector<std::string> roles;
  std::vector<std::string> unix_users;
  std::string expires;
  std::string out;
  bool of_cluster = false;
  bool is_person = false;
  bool with_ended = false;
  bool taken = false;
};

/// `user` or `user@vision`.
std::pair<std::string, std::string> role_and_tenant(const std::string& text) {
  const std::size_t at = text.find('@');
  return at == std::string::npos ? std::pair(text, std::string())
                                 : std::pair(text.substr(0, at), text.substr(at + 1));
}

std::string role_json(const std::string& text) {
  const auto [role, tenant] = role_and_tenant(text);
  JsonObjectWriter out;
  out.add("role", role);
  if (!tenant.empty()) out.add("tenant_id", tenant);
  return out.text();
}

Result<std::string> key_body(const Session& session, const KeyOptions& key) {
  JsonObjectWriter body;
  body.add("name", key.name);
  if (key.of_cluster) body.add("cluster", true);
  if (!key.of_cluster && !session.options().tenant_id.empty())
    body.add("tenant_id", session.options().tenant_id);
  if (key.is_person) body.add("kind", "person");
  std::string roles;
  for (const std::string& role : key.roles) roles += (roles.empty() ? "" : ",") + role_json(role);
  body.add_json("roles", "[" + (roles.empty() ? role_json("user") : roles) + "]");
  if (!key.unix_users.empty()) body.add("unix_users", key.unix_users);
  if (!key.expires.empty() && key.expires != "never") {
    const Result<int64_t> seconds = parse_duration_seconds(key.expires);
    if (!seconds) {
      return Error{.code = ErrorCode::kInvalidArgument, .message = "--expires: " + seconds.error().message};
    }
    body.add("expires_after_ms", *seconds * 1'000);
  }
  return body.text();
}

/// A file that nobody else can read, made before there is a secret to lose. It is removed again unless it
/// was filled.
class SecretFile {
 public:
  explicit SecretFile(std::string path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    reason_ = errno;
  }
  ~SecretFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    if (!filled_) ::unlink(path_.c_str());
  }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  std::string problem() const { return "cannot create " + path_ + ": " + std::strerror(reason_); }
  bool fill(const std::string& text) {
    std::string_view rest = text;
    while (!rest.empty()) {
      const ssize_t size = ::write(descriptor_, rest.data(), rest.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return false;
      rest.remove_prefix(static_cast<std::size_t>(size));
    }
    filled_ = ::fsync(descriptor_) == 0;
    return filled_;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  int reason_ = 0;
  bool filled_ = false;
};

std::string without_secret(const Json& key) {
  JsonObjectWriter out;
  for (const auto& [name, value] : key.members()) {
    if (name != "secret") out.add_json(name, value.serialize());
  }
  return out.text();
}

int create_key(Session& session, const KeyOptions& key) {
  const Result<std::string> body = key_body(session, key);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  std::optional<SecretFile> file;
  if (!key.out.empty()) {
    file.emplace(key.out);
    if (!file->is_open()) return session.fail(kExitUsage, file->problem(), "usage");
  }
  const Reply reply = session.send("POST", "/v1/keys", *body);
  if (!reply) return session.fail(*reply.trouble);
  const std::string id = reply.json["key_id"].text();
  const std::string secret = reply.json["secret"].text();
  if (file && !file->fill(secret + "\n")) {
    return session.fail(kExitUnexpected,
                        "cannot write " + key.out + ", and the secret of " + id +
                            " is lost; revoke it with gpu-cli key revoke " + id,
                        "io");
  }
  if (session.options().json) {
    session.io().out(file ? without_secret(reply.json) + "\n" : json_line(reply));
    return kExitOk;
  }
  if (file) {
    session.io().out(id + "\n");
    return kExitOk;
  }
  session.io().out(secret + "\n");
  session.io().err("gpu-cli: " + id +
                   " is shown this once: keep it in a file of mode 600, for --token-file\n");
  return kExitOk;
}

/// All keys, page by page.
Reply all_keys(Session& session, bool with_ended) {
  std::string keys;
  std::string token;
  for (int page = 0; page < kKeyPagesMax; ++page) {
    std::string path = std::string("/v1/keys?page_size=") + kKeyPageSize;
    if (with_ended) path += "&with_ended=true";
    if (!session.options().tenant_id.empty())
      path += "&tenant_id=" + url_encoded(session.options().tenant_id);
    if (!token.empty()) path += "&page_token=" + url_encoded(token);
    Reply reply = session.get(path);
    if (!reply) return reply;
    for (const Json& key : reply.json["keys"].items()) keys += (keys.empty() ? "" : ",") + key.serialize();
    token = reply.json["next_page_token"].text();
    if (token.empty()) break;
  }
  Reply all{.text = "{\"keys\":[" + keys + "]}"};
  Result<Json> json = Json::parse(all.text);
  if (json) all.json = *json;
  return all;
}

std::string roles_text(const Json& key) {
  std::string out;
  for (const Json& role : key["roles"].items()) {
    const std::string tenant = role["tenant_id"].text();
    const bool elsewhere = tenant != key["tenant_id"].text();
    out += (out.empty() ? "" : ",") + role["role"].text() + (elsewhere ? "@" + tenant : "");
  }
  return out;
}

std::string joined_users(const Json& users) {
  std::string out;
  for (const Json& user : users.items()) out += (out.empty() ? "" : ",") + user.text();
  return out;
}

std::string time_text(const Json& key, std::string_view field) {
  const Time time = parse_rfc3339(key[field].text());
  return time.valid() ? format_local(time) : "never";
}

int list_keys(Session& session, const KeyOptions& options) {
  const Reply reply = all_keys(session, options.with_ended);
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  Table table({{.title = "ID"},
               {.title = "NAME", .may_shrink = true},
               {.title = "TENANT", .may_shrink = true},
               {.title = "ROLES", .may_shrink = true},
               {.title = "USERS", .may_shrink = true, .drop_order = 2},
               {.title = "STATE"},
               {.title = "EXPIRES"},
               {.title = "LAST USED"},
               {.title = "CREATED BY", .may_shrink = true, .drop_order = 1}});
  for (const Json& key : with_tenant_names(session, reply.json["keys"].items())) {
    std::string home = key["tenant_name"].text();
    if (home.empty()) home = key["tenant_id"].text();
    table.add({key["key_id"].text(), key["name"].text(), home.empty() ? "(cluster)" : home, roles_text(key),
               joined_users(key["unix_users"]), key["state"].text(), time_text(key, "expires_at"),
               time_text(key, "last_used_at"), key["created_by"].text()});
  }
  session.io().out(table.render(session.io().width));
  return kExitOk;
}

/// The id of the key that an id or a name means.
Result<std::string> key_id_of(Session& session, const std::string& text, std::optional<Trouble>& trouble) {
  const bool is_id = text.starts_with("key-") && text.size() > 4 &&
                     text.find_first_not_of("0123456789", 4) == std::string::npos;
  if (is_id) return text;
  const Reply reply = all_keys(session, false);
  if (!reply) {
    trouble = reply.trouble;
    return std::string();
  }
  std::vector<std::string> found;
  for (const Json& key : reply.json["keys"].items()) {
    if (key["name"].text() == text) found.push_back(key["key_id"].text());
  }
  if (found.size() == 1) return found.front();
  const std::string problem = found.empty() ? "no key in use has the name " : "several keys have the name ";
  return Error{.code = ErrorCode::kNotFound,
               .message = problem + text + "; give the id, as gpu-cli key list shows it"};
}

int print_key(const Session& session, const Reply& reply, const std::string& what) {
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : what + "\n");
  return kExitOk;
}

int revoke_key(Session& session, const KeyOptions& options) {
  std::optional<Trouble> trouble;
  const Result<std::string> id = key_id_of(session, options.name, trouble);
  if (trouble) return session.fail(*trouble);
  if (!id) return session.fail(kExitRefused, id.error().message, "key_not_found");
  return print_key(session, session.send("DELETE", "/v1/keys/" + *id), *id + " revoked");
}

int bind_roles(Session& session, const KeyOptions& options) {
  std::optional<Trouble> trouble;
  const Result<std::string> id = key_id_of(session, options.name, trouble);
  if (trouble) return session.fail(*trouble);
  if (!id) return session.fail(kExitRefused, id.error().message, "key_not_found");
  Reply last;
  for (const std::string& text : options.roles) {
    const auto [role, tenant] = role_and_tenant(text);
    JsonObjectWriter body;
    body.add("role", role);
    if (!tenant.empty()) body.add("tenant_id", tenant);
    if (options.taken) body.add("taken", true);
    last = session.send("POST", "/v1/keys/" + *id + "/bind", body.text());
    if (!last) return session.fail(*last.trouble);
  }
  const std::string roles = roles_text(last.json);
  return print_key(session, last, *id + " has " + (roles.empty() ? "no role" : roles));
}

const char* const kRoleHelp =
    "Role: viewer, user, tenant_admin; operator, admin, metrics; ROLE@TENANT for one in another tenant";

}  // namespace

Action define_key_create(Grammar& grammar) {
  const auto key = std::make_shared<KeyOptions>();
  grammar.argument("NAME", &key->name, "Name of the key; jobs of its holder are owned by TENANT/NAME");
  grammar.option("--role", "ROLE", &key->roles, std::string(kRoleHelp) + " (default: user)");
  grammar.option("--as-user", "USER", &key->unix_users,
                 "Unix user whom its jobs may run as, beside the nodes' default users; * for all but root");
  grammar.option("--expires", "TIME", &key->expires, "Expire after this time, such as 30d (default: never)");
  grammar.option("--out", "FILE", &key->out, "Write the key to this new file, which only its owner can read")
      .completes(Complete::kFile);
  grammar.flag("--cluster", key->of_cluster, "A key of the cluster instead of a tenant's");
  grammar.flag("--person", key->is_person, "The holder is a person, and not a program");
  grammar.details(
      "The key is shown this once; the scheduler keeps no more than a hash of it. It belongs to the tenant "
      "of "
      "--tenant-id, and none of its roles leads out of that. Nobody gives more than it has. Give the file to "
      "--token-file, or store it in a context.");
  grammar.example("gpu-cli key create ci --tenant vision --expires 30d --out ci.key",
                  "a key for submitting jobs to a tenant");
  grammar.example("gpu-cli key create watcher --cluster --role metrics --out watcher.key",
                  "a key that reads metrics and nothing else");
  return [key](Session& session) { return create_key(session, *key); };
}

Action define_key_list(Grammar& grammar) {
  const auto key = std::make_shared<KeyOptions>();
  grammar.flag("--all", key->with_ended, "Also those that expired or were revoked in the last 90 days");
  grammar.details(
      "With --tenant-id, only the keys of that tenant. When a key was last used is known to the minute; "
      "never: "
      "not since it was made, as far as the scheduler knows.");
  return [key](Session& session) { return list_keys(session, *key); };
}

Action define_key_revoke(Grammar& grammar) {
  const auto key = std::make_shared<KeyOptions>();
  grammar.argument("KEY", &key->name, "Id or name of the key");
  grammar.details(
      "From then on the scheduler refuses it, for ever, and ends what it has open: watches, followed output, "
      "sessions. Jobs that it submitted continue.");
  return [key](Session& session) { return revoke_key(session, *key); };
}

Action define_key_bind(Grammar& grammar) {
  const auto key = std::make_shared<KeyOptions>();
  grammar.argument("KEY", &key->name, "Id or name of the key");
  grammar.option("--role", "ROLE", &key->roles, kRoleHelp).must();
  grammar.flag("--take", key->taken, "Take the roles instead");
  grammar.details("Holds from the key's next call on.");
  return [key](Session& session) { return bind_roles(session, *key); };
}

}  // namespace gpusched::cli
