#include "cli/framework/tenant_names.h"

#include <algorithm>

namespace gpusched::cli {
namespace {

constexpr int kPagesMax = 1'000;  // Of a thousand tenants each.

/// Only ids that the scheduler made differ from names.
bool has_other_name(const std::string& id) { return id.starts_with("tenant-"); }

}  // namespace

void TenantNames::learn(Session& session, const std::vector<std::string>& ids) {
  if (asked_ || std::ranges::none_of(ids, has_other_name)) return;
  asked_ = true;
  std::string token;
  for (int page = 0; page < kPagesMax; ++page) {
    const Reply reply = session.get("/v1/tenants?page_size=1000" +
                                    (token.empty() ? "" : "&page_token=" + url_encoded(token)));
    if (!reply) return;
    for (const Json& tenant : reply.json["tenants"].items())
      names_[tenant["tenant_id"].text()] = tenant["name"].text();
    token = reply.json["next_page_token"].text();
    if (token.empty()) return;
  }
}

std::string TenantNames::of(const std::string& id) const {
  const auto found = names_.find(id);
  return found == names_.end() || found->second.empty() ? id : found->second;
}

std::vector<Json> with_tenant_names(Session& session, const std::vector<Json>& records) {
  std::vector<std::string> ids;
  for (const Json& record : records) ids.push_back(record["tenant_id"].text());
  TenantNames names;
  names.learn(session, ids);
  std::vector<Json> named;
  named.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::string name = names.of(ids[i]);
    if (name == ids[i]) {
      named.push_back(records[i]);
      continue;
    }
    JsonObjectWriter out;
    for (const auto& [member, value] : records[i].members()) out.add_json(member, value.serialize());
    out.add("tenant_name", name);
    Result<Json> json = Json::parse(out.text());
    named.push_back(json ? *json : records[i]);
  }
  return named;
}

}  // namespace gpusched::cli
