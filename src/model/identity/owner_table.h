#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/identity/caller_kind.h"

namespace gpusched {

/// Owner of a job: a kind of caller, and a name that is unique among callers of that kind. A service called
/// `ana` is not the person `ana`.
struct JobOwner {
  CallerKind kind{};
  std::string name;  ///< Empty: of an anonymous caller, or of nobody.

  friend bool operator==(const JobOwner&, const JobOwner&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "kind", self.kind);
    visit(2, "name", self.name);
  }
};
/// Whether there may be such an owner: its kind exists, and all but anonymous callers have a name.
bool is_possible(CallerKind kind, std::string_view name);

/// Owners, each once, by a number that jobs and remembered requests have instead of a name. An owner is kept
/// as long as something refers to it; then its number is another's, the lowest free one first, so that all
/// copies of a state come to the same numbers.
class OwnerTable {
 public:
  /// Nobody's number.
  static constexpr uint32_t kNobody = 0;

  /// Finds or adds the owner, and counts one more reference. Without a kind: kNobody.
  uint32_t acquire(CallerKind kind, std::string_view name);
  /// One reference more, or less, to the owner of that number; there is one. Nothing for kNobody.
  void retain(uint32_t number);
  void release(uint32_t number);

  /// kNobody when nothing refers to such an owner.
  uint32_t find(CallerKind kind, std::string_view name) const;
  /// Null for a number that is nobody's.
  const JobOwner* at(uint32_t number) const;
  std::size_t size() const { return entries_.size() - free_.size(); }
  /// All numbers from 1 to the last that is somebody's, in their order: null for one that is nobody's.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    std::size_t left = size();
    for (uint32_t number = 1; left > 0; ++number) {
      const JobOwner* owner = at(number);
      if (owner != nullptr) --left;
      visit(owner);
    }
  }

  /// Gives the next number to the owner, or to nobody where it has no kind: as `for_each` had them. What
  /// refers to it is still to be counted. False: the owner has a number.
  bool restore(JobOwner owner);
  /// Whether something refers to each, and the last number is somebody's.
  bool is_whole() const;

 private:
  struct Entry {
    JobOwner owner;
    uint64_t references = 0;
    bool is_used = false;
  };
  Entry& used(uint32_t number);

  std::vector<Entry> entries_;  ///< By number, from 1 on.
  std::map<CallerKind, std::map<std::string, uint32_t, std::less<>>> numbers_;
  std::set<uint32_t> free_;
};

}  // namespace gpusched
