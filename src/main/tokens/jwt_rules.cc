#include "main/tokens/jwt_rules.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>

#include "api/backend/tokens/sign_in_flow.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/text/civil_time.h"
#include "config/yaml_problem.h"
#include "ops/machine.h"
#include "ops/trusted_path.h"

namespace gpusched {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;
constexpr std::size_t kEntriesMax = 1'000;
constexpr std::size_t kPathMax = 8;
constexpr std::size_t kSecretBytesMax = 1'024;

using Members = std::map<std::string, YAML::Node>;

/// RFC 6749, section 3.3.
bool is_scope(std::string_view word) {
  return !word.empty() && word.size() <= limits::kNameBytesMax &&
         std::ranges::all_of(word, [](char c) { return c > ' ' && c < '\x7f' && c != '"' && c != '\\'; });
}

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  void read(const YAML::Node& root);
  const std::string& problems() const { return problems_; }
  void problem(const std::string& sentence) { problems_ += (problems_.empty() ? "" : "\n") + sentence; }
  api::JwtRules take() { return std::move(out_); }

 private:
  void problem(const YAML::Node& at, const std::string& sentence) {
    problem(path_ + ":" + std::to_string(at.Mark().line + 1) + ": " + sentence);
  }
  Members members(const YAML::Node& entry, const std::string& what, std::initializer_list<const char*> known);
  /// The entries of a list, which may be missing.
  std::vector<YAML::Node> entries(const YAML::Node& list, const std::string& what);
  std::string text(const Members& from, const char* name, const YAML::Node& entry, bool needed);
  std::vector<std::string> claim_path(const YAML::Node& node);
  std::vector<std::string> unix_users(const YAML::Node& list);
  void read_rule(const YAML::Node& entry);
  void check_tenant(const api::JwtRule& rule, const YAML::Node& entry);
  void read_revocation(const YAML::Node& entry);
  void read_login(const YAML::Node& entry);
  void read_browser(const YAML::Node& entry, const std::string& client_id);

  const std::string path_;
  std::string problems_;
  api::JwtRules out_;
};

Members Reader::members(const YAML::Node& entry, const std::string& what,
                        std::initializer_list<const char*> known) {
  Members found;
  std::string names;
  for (const char* const name : known) names += (names.empty() ? "" : ", ") + std::string(name);
  if (!entry.IsMap()) {
    problem(entry, what + " is no map with the keys " + names);
    return found;
  }
  for (const auto& pair : entry) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "(not a name)";
    if (std::ranges::find(known, key) == known.end()) {
      problem(pair.first, what + " has no key " + key + "; the known ones are " + names);
    } else if (!found.emplace(key, pair.second).second) {
      problem(pair.first, what + " has " + key + " twice");
    }
  }
  return found;
}

std::vector<YAML::Node> Reader::entries(const YAML::Node& list, const std::string& what) {
  std::vector<YAML::Node> found;
  if (list.IsNull()) return found;
  if (!list.IsSequence() || list.size() > kEntriesMax) {
    problem(list, what + " is no list of at most " + std::to_string(kEntriesMax) + " entries");
    return found;
  }
  for (const YAML::Node& entry : list) found.push_back(entry);
  return found;
}

std::string Reader::text(const Members& from, const char* name, const YAML::Node& entry, bool needed) {
  const auto found = from.find(name);
  if (found == from.end()) {
    if (needed) problem(entry, std::string("it needs a `") + name + ":`");
    return {};
  }
  const bool is_text = found->second.IsScalar() && !found->second.Scalar().empty();
  if (is_text && found->second.Scalar().size() <= limits::kNameBytesMax &&
      !has_control_character(found->second.Scalar()))
    return found->second.Scalar();
  problem(found->second, std::string("`") + name + ":` is no text of 1 to " +
                             std::to_string(limits::kNameBytesMax) + " bytes");
  return {};
}

/// A name, or a list of names that lead from the token into its claims.
std::vector<std::string> Reader::claim_path(const YAML::Node& node) {
  std::vector<std::string> path;
  if (node.IsScalar()) path.push_back(node.Scalar());
  if (node.IsSequence()) {
    for (const YAML::Node& each : node) path.push_back(each.IsScalar() ? each.Scalar() : "");
  }
  const bool is_path =
      !path.empty() && path.size() <= kPathMax && std::ranges::find(path, std::string()) == path.end();
  if (is_path) return path;
  problem(
      node,
      "a claim is a name, such as groups, or a list of names that lead to it, such as [realm_access, roles]");
  return {};
}

std::vector<std::string> Reader::unix_users(const YAML::Node& list) {
  std::vector<std::string> users;
  for (const YAML::Node& each : entries(list, "`unix_users:`")) {
    const std::string name = each.IsScalar() ? each.Scalar() : "";
    if (name == "*" || api::is_safe_unix_user(name)) {
      users.push_back(name);
    } else {
      problem(
          each,
          "a Unix user is a name of lower-case letters, digits, _ and -, and never root or a number; `*` is "
          "all but root");
    }
  }
  return users;
}

void Reader::check_tenant(const api::JwtRule& rule, const YAML::Node& entry) {
  const RoleScope scope = scope_of(rule.role);
  const std::string role(to_string(rule.role));
  if (scope == RoleScope::kNowhere) problem(entry, "the role " + role + " is given to nobody");
  if (scope == RoleScope::kTenant && rule.tenant.empty())
    problem(entry, "the role " + role +
                       " needs a `tenant:`: the name of one without a parent, an id such as "
                       "tenant-7, or \"*\" for all");
  if (scope == RoleScope::kCluster && !rule.tenant.empty())
    problem(entry, "the role " + role + " is for the cluster as a whole: remove `tenant:`");
}

void Reader::read_rule(const YAML::Node& entry) {
  const Members found = members(entry, "a rule", {"claim", "value", "tenant", "role", "unix_users"});
  if (!entry.IsMap()) return;
  api::JwtRule rule;
  if (found.contains("claim")) {
    rule.claim = claim_path(found.at("claim"));
  } else {
    problem(entry, "a rule needs a `claim:`");
  }
  rule.value = text(found, "value", entry, true);
  rule.tenant = text(found, "tenant", entry, false);
  const std::string role = text(found, "role", entry, true);
  const std::optional<Role> named = role_named(role);
  if (named) {
    rule.role = *named;
    check_tenant(rule, entry);
  } else if (!role.empty()) {
    problem(entry, "there is no role " + role +
                       "; the roles are viewer, user, tenant_admin, operator, admin, metrics");
  }
  if (found.contains("unix_users")) rule.unix_users = unix_users(found.at("unix_users"));
  out_.rules.push_back(std::move(rule));
}

void Reader::read_revocation(const YAML::Node& entry) {
  const Members found = members(entry, "a revocation", {"sub", "jti", "issued_before"});
  if (!entry.IsMap()) return;
  if (entry.size() == 0) return problem(entry, "a revocation needs a sub, a jti or an issued_before");
  api::JwtRevocation revoked{.subject = text(found, "sub", entry, false),
                             .id = text(found, "jti", entry, false)};
  if (found.contains("issued_before")) {
    revoked.issued_before = parse_utc(text(found, "issued_before", entry, true)).value_or(0);
    if (revoked.issued_before <= 0) problem(entry, "issued_before is no time such as 2026-01-31T09:00:00Z");
  }
  out_.revoked.push_back(std::move(revoked));
}

void Reader::read_login(const YAML::Node& entry) {
  const Members found = members(entry, "`login:`", {"client_id", "scopes", "token", "browser"});
  if (!entry.IsMap()) return;
  api::JwtLogin login{.client_id = text(found, "client_id", entry, true)};
  if (found.contains("scopes")) {
    login.scopes.clear();
    for (const YAML::Node& each : entries(found.at("scopes"), "`scopes:`")) {
      const std::string scope = each.IsScalar() ? each.Scalar() : "";
      if (!is_scope(scope))
        problem(each, "a scope is a word of printable ASCII without quotes, such as openid");
      login.scopes.push_back(scope);
    }
  }
  if (found.contains("token")) {
    const std::string token = text(found, "token", entry, true);
    if (token != "id" && token != "access") problem(found.at("token"), "`token:` is neither id nor access");
    login.token = token == "id" ? api::JwtLogin::Token::kId : api::JwtLogin::Token::kAccess;
  }
  if (found.contains("browser")) read_browser(found.at("browser"), login.client_id);
  out_.login = std::move(login);
}

void Reader::read_browser(const YAML::Node& entry, const std::string& client_id) {
  const Members found = members(entry, "`browser:`", {"redirect_url", "client_id", "client_secret_file"});
  if (!entry.IsMap()) return;
  api::BrowserLogin browser{.redirect_url = text(found, "redirect_url", entry, true),
                            .client_id = text(found, "client_id", entry, false),
                            .secret_file = text(found, "client_secret_file", entry, false)};
  if (browser.client_id.empty()) browser.client_id = client_id;
  const Result<api::BrowserPlace> place = api::browser_place_of(browser.redirect_url);
  if (!browser.redirect_url.empty() && !place.ok()) problem(entry, place.error().message);
  if (!browser.secret_file.empty() && !browser.secret_file.starts_with('/'))
    problem(found.at("client_secret_file"),
            "`client_secret_file:` is no path from the root, such as /etc/secret");
  out_.browser = std::move(browser);
}

void Reader::read(const YAML::Node& root) {
  const Members found = members(root, "the file", {"rules", "unix_user_claim", "revoked", "login"});
  if (found.contains("rules")) {
    for (const YAML::Node& entry : entries(found.at("rules"), "`rules:`")) read_rule(entry);
  }
  if (found.contains("unix_user_claim")) out_.unix_user_claim = claim_path(found.at("unix_user_claim"));
  if (found.contains("revoked")) {
    for (const YAML::Node& entry : entries(found.at("revoked"), "`revoked:`")) read_revocation(entry);
  }
  if (found.contains("login")) read_login(found.at("login"));
  if (problems_.empty() && out_.rules.empty())
    problem(path_ + ": it has no rule, so that nobody has a role; write one below `rules:`");
}

}  // namespace

Result<api::JwtRules> parse_jwt_rules(const std::string& path, const std::string& text) {
  Reader reader(path);
  try {
    reader.read(YAML::Load(text));
  } catch (const YAML::Exception& failure) {
    reader.problem(yaml_problem(path, text, failure.mark.line, failure.msg));
  }
  if (!reader.problems().empty())
    return Error{.code = ErrorCode::kInvalidArgument, .message = reader.problems()};
  return reader.take();
}

namespace {

Result<std::string> load_client_secret(const std::string& path) {
  const auto wrong = [&](ErrorCode code, const std::string& why) {
    return Error{.code = code, .message = "client_secret_file: " + why};
  };
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return wrong(ErrorCode::kNotFound, "there is no file " + path);
  if (const std::optional<std::string> others = ops::changeable_by_others(path))
    return wrong(ErrorCode::kPermissionDenied, *others);
  if ((facts.st_mode & 077) != 0)
    return wrong(ErrorCode::kPermissionDenied, path + " can be read by other users; run chmod 600 on it");
  std::optional<std::string> text = ops::read_text(path, kSecretBytesMax + 1);
  if (!text) return wrong(ErrorCode::kIo, "cannot read " + path);
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
  if (text->empty() || text->size() > kSecretBytesMax || has_control_character(*text))
    return wrong(ErrorCode::kInvalidArgument,
                 path + " is no secret: one line of 1 to " + std::to_string(kSecretBytesMax) + " bytes");
  return *text;
}

}  // namespace

Result<api::JwtRules> load_jwt_rules(const std::string& path) {
  const std::string setting = "api.jwt_rules_file: ";
  if (!ops::exists(path))
    return Error{.code = ErrorCode::kNotFound, .message = setting + "there is no file " + path};
  if (const std::optional<std::string> others = ops::changeable_by_others(path))
    return Error{.code = ErrorCode::kPermissionDenied, .message = setting + *others};
  const std::optional<std::string> text = ops::read_text(path, kFileBytesMax + 1);
  if (!text) return Error{.code = ErrorCode::kIo, .message = setting + "cannot read " + path};
  if (text->size() > kFileBytesMax)
    return Error{.code = ErrorCode::kTooLarge, .message = setting + path + " is larger than 1 MiB"};
  Result<api::JwtRules> rules = parse_jwt_rules(path, *text);
  if (!rules.ok() || rules->browser.secret_file.empty()) return rules;
  Result<std::string> secret = load_client_secret(rules->browser.secret_file);
  if (!secret.ok())
    return Error{.code = secret.error().code, .message = path + ": " + secret.error().message};
  rules->browser.client_secret = std::move(*secret);
  return rules;
}

}  // namespace gpusched
