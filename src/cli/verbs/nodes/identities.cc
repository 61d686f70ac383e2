// Nodes' identities: listed, and revoked.
#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

constexpr int kIdentityPagesMax = 200;

/// All identities, page by page.
Reply all_identities(Session& session) {
  std::string identities;
  std::string token;
  for (int page = 0; page < kIdentityPagesMax; ++page) {
    std::string path = "/v1/node-identities?page_size=1000";
    if (!token.empty()) path += "&page_token=" + url_encoded(token);
    Reply reply = session.get(path);
    if (!reply) return reply;
    for (const Json& identity : reply.json["identities"].items())
      identities += (identities.empty() ? "" : ",") + identity.serialize();
    token = reply.json["next_page_token"].text();
    if (token.empty()) break;
  }
  Reply all{.text = "{\"identities\":[" + identities + "]}"};
  Result<Json> json = Json::parse(all.text);
  if (json) all.json = *json;
  return all;
}

std::string local_time(const Json& identity, std::string_view field) {
  const Time time = parse_rfc3339(identity[field].text());
  return time.valid() ? format_local(time) : "";
}

int list_identities(Session& session) {
  const Reply reply = all_identities(session);
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  Table table({{.title = "NODE", .may_shrink = true},
               {.title = "STATE"},
               {.title = "EXPIRES"},
               {.title = "ADMITTED"},
               {.title = "BY", .may_shrink = true, .drop_order = 1},
               {.title = "REVOKED BY", .may_shrink = true, .drop_order = 2}});
  for (const Json& identity : reply.json["identities"].items()) {
    table.add({identity["node_name"].text(), identity["state"].text(), local_time(identity, "expires_at"),
               local_time(identity, "admitted_at"), identity["admitted_by"].text(),
               identity["revoked_by"].text()});
  }
  session.io().out(table.render(session.io().width));
  return kExitOk;
}

}  // namespace

Action define_node_identities(Grammar& grammar) {
  grammar.details(
      "Nodes that joined with a node token have a certificate, which they renew by themselves. Nodes that "
      "joined "
      "with the shared token have none.");
  return [](Session& session) { return list_identities(session); };
}

Action define_node_revoke(Grammar& grammar) {
  const auto name = std::make_shared<std::string>();
  grammar.argument("NODE", name.get(), "Name of the node").completes(Complete::kNode);
  grammar.details(
      "From then on the scheduler refuses the node's certificate, for ever, and the shared token for its "
      "name, and "
      "ends its connection. Its jobs are those of a node that is lost: they wait until somebody confirms it "
      "dead. "
      "A new node token lets a machine of that name in again.");
  return [name](Session& session) -> int {
    const Reply reply = session.send("DELETE", "/v1/node-identities/" + url_encoded(*name));
    if (!reply) return session.fail(*reply.trouble);
    session.io().out(session.options().json ? json_line(reply) : "node " + *name + " is revoked\n");
    return kExitOk;
  };
}

}  // namespace gpusched::cli
