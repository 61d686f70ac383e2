#include "api/backend/tokens/pending_sign_ins.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpusched::api {

void PendingSignIns::add(std::string hash, PendingSignIn pending) {
  if (const auto old = by_hash_.find(hash); old != by_hash_.end()) remove(old);
  const auto own = by_party_.find(pending.party);
  if (own != by_party_.end() && own->second.size() >= kOfPartyMax) {
    remove(by_hash_.find(own->second.front()));
  } else if (by_hash_.size() >= kMax) {
    const auto most =
        std::ranges::max_element(by_party_, {}, [](const auto& party) { return party.second.size(); });
    remove(by_hash_.find(most->second.front()));
  }
  std::list<std::string>& of_party = by_party_[pending.party];
  of_party.push_back(hash);
  by_hash_.emplace(std::move(hash), Row{.pending = std::move(pending), .place = std::prev(of_party.end())});
  CHECK(by_hash_.size() <= kMax);
}

const PendingSignIn* PendingSignIns::find(const std::string& hash, Time now) const {
  const auto found = by_hash_.find(hash);
  return found == by_hash_.end() || found->second.pending.ends_at <= now ? nullptr : &found->second.pending;
}

std::optional<PendingSignIn> PendingSignIns::take(const std::string& hash, Time now) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  const bool in_time = now < found->second.pending.ends_at;
  std::optional<PendingSignIn> taken;
  if (in_time) taken = found->second.pending;
  remove(found);
  return taken;
}

void PendingSignIns::sweep(Time now) {
  for (auto row = by_hash_.begin(); row != by_hash_.end();) {
    const auto old = row++;
    if (old->second.pending.ends_at <= now) remove(old);
  }
}

void PendingSignIns::remove(std::map<std::string, Row>::iterator row) {
  CHECK(row != by_hash_.end());
  const auto party = by_party_.find(row->second.pending.party);
  CHECK(party != by_party_.end());
  party->second.erase(row->second.place);
  if (party->second.empty()) by_party_.erase(party);
  by_hash_.erase(row);
}

}  // namespace gpusched::api
