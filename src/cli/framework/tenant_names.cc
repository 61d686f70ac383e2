#include "cli/framework/tenant_names.h"

#include <algorithm>
#include <string_view>

namespace gpusched::cli {
namespace {

constexpr int kPagesMax = 1'000;  // Pages of a thousand tenants each.
constexpr std::string_view kPrefix = "tenant-";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Calls `found` with the begin and end of each id in a text; only ids that the scheduler made are none of
/// names.
template <typename Found>
void for_each_id(const std::string& text, const Found& found) {
  for (std::size_t begin = text.find(kPrefix); begin != std::string::npos;
       begin = text.find(kPrefix, begin + 1)) {
    std::size_t end = begin + kPrefix.size();
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end > begin + kPrefix.size()) found(begin, end);
  }
}

bool has_id(const std::string& text) {
  bool has = false;
  for_each_id(text, [&](std::size_t, std::size_t) { has = true; });
  return has;
}

}  // namespace

void TenantNames::learn(Session& session, const std::vector<std::string>& texts) {
  if (asked_ || std::ranges::none_of(texts, has_id)) return;
  asked_ = true;
  std::string token;
  for (int page = 0; page < kPagesMax; ++page) {
    const Reply reply = session.get("/v1/tenants?page_size=1000" +
                                    (token.empty() ? "" : "&page_token=" + url_encoded(token)));
    if (!reply) return;
    for (const Json& tenant : reply.json["tenants"].items()) {
      names_[tenant["tenant_id"].text()] = tenant["name"].text();
      ++holders_[tenant["name"].text()];
    }
    token = reply.json["next_page_token"].text();
    if (token.empty()) return;
  }
}

std::string TenantNames::of(const std::string& id) const {
  const auto found = names_.find(id);
  if (found == names_.end() || found->second.empty()) return id;
  return holders_.at(found->second) > 1 ? found->second + " (" + id + ")" : found->second;
}

std::string TenantNames::in(const std::string& text) const {
  std::string out;
  std::size_t taken = 0;
  for_each_id(text, [&](std::size_t begin, std::size_t end) {
    out += text.substr(taken, begin - taken) + of(text.substr(begin, end - begin));
    taken = end;
  });
  return out + text.substr(taken);
}

std::vector<Json> with_tenant_names(Session& session, const std::vector<Json>& records) {
  std::vector<std::string> texts;
  for (const Json& record : records) {
    texts.push_back(record["tenant_id"].text());
    texts.push_back(record["message"].text());
  }
  TenantNames names;
  names.learn(session, texts);
  std::vector<Json> named;
  named.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::string name = names.of(texts[2 * i]);
    const std::string message = names.in(texts[2 * i + 1]);
    if (name == texts[2 * i] && message == texts[2 * i + 1]) {
      named.push_back(records[i]);
      continue;
    }
    JsonObjectWriter out;
    for (const auto& [member, value] : records[i].members()) {
      if (member != "message") out.add_json(member, value.serialize());
    }
    out.add("tenant_name", name);
    out.add("message", message);
    Result<Json> json = Json::parse(out.text());
    named.push_back(json ? *json : records[i]);
  }
  return named;
}

std::string with_tenant_names(Session& session, const std::string& sentence) {
  TenantNames names;
  names.learn(session, {sentence});
  return names.in(sentence);
}

}  // namespace gpusched::cli
