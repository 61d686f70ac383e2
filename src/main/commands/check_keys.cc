#include "main/commands/check_keys.h"

#include <algorithm>
#include <cstddef>

namespace gpusched {
namespace {

constexpr std::size_t kNamedMax = 5;
constexpr int64_t kUnusedDays = 90;

/// "key-3 tenant-7/ci (gsk_k3v...), key-9 ..."; of many the first ones.
std::string names_of(const std::vector<KeyFacts>& keys) {
  std::string names;
  for (std::size_t i = 0; i < std::min(keys.size(), kNamedMax); ++i) {
    const KeyFacts& key = keys[i];
    names.append(i == 0 ? "" : ", ").append(key.id).append(" ").append(key.holder);
    names.append(" (gsk_").append(key.prefix).append(")");
  }
  if (keys.size() > kNamedMax) names += " and " + std::to_string(keys.size() - kNamedMax) + " more";
  return names;
}

std::string count_of(std::size_t keys) {
  return std::to_string(keys) + (keys == 1 ? " API key" : " API keys");
}

}  // namespace

std::vector<Finding> check_keys(const std::vector<KeyFacts>& keys, Time now) {
  if (keys.empty()) return {};
  std::vector<KeyFacts> for_ever, unused;
  for (const KeyFacts& key : keys) {
    if (!key.expires_at.valid()) for_ever.push_back(key);
    const Time seen = std::max(key.created_at, key.last_used_at);
    if (now - seen > hours(24 * kUnusedDays)) unused.push_back(key);
  }
  std::vector<Finding> findings;
  if (!for_ever.empty()) {
    findings.push_back(
        {.check = "keys",
         .verdict = Verdict::kWarn,
         .detail = count_of(for_ever.size()) +
                   (for_ever.size() == 1 ? " never expires: " : " never expire: ") + names_of(for_ever) +
                   "; whoever finds one has it until somebody notices",
         .fix =
             "gpu-cli key create NAME --expires 90d    # give that to the holder, then: gpu-cli key revoke " +
             for_ever.front().id});
  }
  if (!unused.empty()) {
    findings.push_back(
        {.check = "keys",
         .verdict = Verdict::kWarn,
         .detail = count_of(unused.size()) + (unused.size() == 1 ? " was" : " were") + " not used for " +
                   std::to_string(kUnusedDays) + " days: " + names_of(unused),
         .fix = "gpu-cli key revoke " + unused.front().id + "    # unless its holder needs it"});
  }
  if (!findings.empty()) return findings;
  return {{.check = "keys",
           .detail = "all API keys (" + std::to_string(keys.size()) + ") expire, and none was unused for " +
                     std::to_string(kUnusedDays) + " days"}};
}

}  // namespace gpusched
