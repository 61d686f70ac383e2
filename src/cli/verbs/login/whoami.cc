// Tells who the caller is to the scheduler.
#include "cli/commands.h"
#include "cli/framework/tenant_names.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/text.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

/// "user in ml", "operator of the cluster".
std::string role_text(const Json& role, const TenantNames& names) {
  const std::string word = printable(role["role"].text());
  const std::string tenant = role["tenant_id"].text();
  if (!tenant.empty()) return word + " in " + printable(names.of(tenant));
  const bool of_tenants = word == "viewer" || word == "user" || word == "tenant_admin";
  return word + (of_tenants ? " in all tenants" : " of the cluster");
}

std::string joined(const std::vector<std::string>& parts, const std::string& none) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out.empty() ? none : out;
}

int who_am_i(Session& session) {
  const Reply reply = session.get("/v1/whoami");
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  const std::string kind = printable(reply.json["kind"].text());
  const std::string name = printable(reply.json["name"].text());
  const std::string key = printable(reply.json["key_id"].text());
  std::vector<std::string> ids, roles, users;
  for (const Json& role : reply.json["roles"].items()) ids.push_back(role["tenant_id"].text());
  TenantNames names;
  names.learn(session, ids);
  for (const Json& role : reply.json["roles"].items()) roles.push_back(role_text(role, names));
  if (reply.json["uses_open_tenants"].boolean()) roles.emplace_back("user in tenants that are open to all");
  for (const Json& user : reply.json["unix_users"].items())
    users.push_back(user.text() == "*" ? "any user but root" : printable(user.text()));
  std::string out = kind + (name.empty() ? "" : " " + name) + (key.empty() ? "" : " (" + key + ")") + "\n";
  if (kind == "anonymous")
    out += "roles      those of callers without a credential; log in with gpu-cli login\n";
  if (kind != "anonymous") out += "roles      " + joined(roles, "none") + "\n";
  if (!users.empty()) out += "runs as    the nodes' default users, " + joined(users, "") + "\n";
  if (!session.login_issuer().empty()) out += "logged in  at " + printable(session.login_issuer()) + "\n";
  const Time until = parse_rfc3339(reply.json["expires_at"].text());
  if (until.valid()) out += "token ends " + format_local(until) + "\n";
  session.io().out(out);
  return kExitOk;
}

}  // namespace

Action define_whoami(Grammar& grammar) {
  grammar.details(
      "Without a credential, over the scheduler's Unix socket, that is your Unix user; elsewhere nobody.");
  return [](Session& session) { return who_am_i(session); };
}

}  // namespace gpusched::cli
