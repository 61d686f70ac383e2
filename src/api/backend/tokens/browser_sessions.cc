#include "api/backend/tokens/browser_sessions.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::api {

std::vector<uint64_t> BrowserSessions::add(const std::string& hash, BrowserSession session) {
  CHECK(session.number != 0 && !by_hash_.contains(hash));
  std::vector<uint64_t> gone;
  const auto drop = [&](const std::string& oldest) { gone.push_back(*remove(std::string(oldest))); };
  const auto own = by_subject_.find(session.subject);
  if (own != by_subject_.end() && own->second.size() >= kOfSubjectMax) {
    drop(own->second.front());
  } else if (by_hash_.size() >= kMax) {
    drop(std::ranges::max_element(by_subject_, {}, [](const auto& one) {
           return one.second.size();
         })->second.front());
  }
  by_subject_[session.subject].push_back(hash);
  by_number_.emplace(session.number, hash);
  by_end_.emplace(session.ends_at, hash);
  by_hash_.emplace(hash, std::move(session));
  CHECK(by_hash_.size() <= kMax);
  return gone;
}

BrowserSession* BrowserSessions::find(const std::string& hash) {
  const auto found = by_hash_.find(hash);
  return found == by_hash_.end() ? nullptr : &found->second;
}

std::optional<uint64_t> BrowserSessions::remove(const std::string& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  const uint64_t number = found->second.number;
  const auto subject = by_subject_.find(found->second.subject);
  CHECK(subject != by_subject_.end());
  subject->second.remove(hash);  // A person has only a few.
  if (subject->second.empty()) by_subject_.erase(subject);
  by_end_.erase({found->second.ends_at, hash});
  by_number_.erase(number);
  by_hash_.erase(found);
  return number;
}

void BrowserSessions::remove_number(uint64_t number) {
  const auto found = by_number_.find(number);
  if (found != by_number_.end()) remove(std::string(found->second));
}

std::vector<uint64_t> BrowserSessions::sweep(Time now) {
  std::vector<uint64_t> gone;
  while (!by_end_.empty() && by_end_.begin()->first <= now)
    gone.push_back(*remove(std::string(by_end_.begin()->second)));
  return gone;
}

std::vector<uint64_t> BrowserSessions::clear() {
  std::vector<uint64_t> gone;
  for (const auto& [number, hash] : by_number_) gone.push_back(number);
  by_hash_.clear();
  by_subject_.clear();
  by_number_.clear();
  by_end_.clear();
  return gone;
}

}  // namespace gpusched::api
