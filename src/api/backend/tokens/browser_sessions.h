#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/contract/caller.h"

namespace gpusched::api {

/// The session of a browser that signed in.
struct BrowserSession {
  uint64_t number = 0;                       ///< Unique in this run of the program.
  std::shared_ptr<const std::string> token;  ///< The id token: asked again whenever what it gives may differ.
  std::string subject;                       ///< The person whose session it is.
  Time ends_at;                              ///< Wall clock, as the token says.
  CallerPtr given;                           ///< The caller that the token gave last.
  CallerPtr caller;                          ///< The same caller with the session's number.
};

/// Sessions by the hash of their cookie. Bounded: a person with too many loses the oldest one, and where all
/// together are too many the person with the most does. Not thread-safe.
class BrowserSessions {
 public:
  static constexpr std::size_t kMax = 4'096, kOfSubjectMax = 16;

  /// Numbers of those that had to go.
  std::vector<uint64_t> add(const std::string& hash, BrowserSession session);
  /// Until the next call; null: there is none.
  BrowserSession* find(const std::string& hash);
  bool is_there(uint64_t number) const { return by_number_.contains(number); }
  /// Its number; nothing: there was none.
  std::optional<uint64_t> remove(const std::string& hash);
  void remove_number(uint64_t number);
  /// Numbers of those that have ended by then.
  std::vector<uint64_t> sweep(Time now);
  std::vector<uint64_t> clear();
  std::size_t size() const { return by_hash_.size(); }

 private:
  std::map<std::string, BrowserSession> by_hash_;
  std::map<std::string, std::list<std::string>> by_subject_;  ///< The oldest first.
  std::map<uint64_t, std::string> by_number_;
  std::set<std::pair<Time, std::string>> by_end_;
};

}  // namespace gpusched::api
