#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace gpusched::api {

/// Values by name, of which those used most recently are kept: a flood of names costs what `names_max` of
/// them cost, and each look-up costs the same. Pinned ones stay, and are not counted. Not thread-safe.
template <typename Value>
class RecentTable {
 public:
  struct Row {
    std::string name;
    Value value{};
    std::size_t pins = 0;
  };

  explicit RecentTable(std::size_t names_max) : names_max_(names_max) {}

  /// The row of that name: the one that is there, or a new one. Until the next call it stays; longer while it
  /// is pinned.
  Row& at(std::string_view name) {
    if (Row* const found = find(name)) return *found;
    if (recent_.size() >= names_max_) {
      by_name_.erase(recent_.back().name);
      recent_.pop_back();
    }
    recent_.push_front(Row{.name = std::string(name)});
    by_name_.emplace(recent_.front().name, recent_.begin());
    return recent_.front();
  }
  /// Null: there is none. Looking at it is using it.
  Row* find(std::string_view name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    if (found->second->pins == 0) recent_.splice(recent_.begin(), recent_, found->second);
    return &*found->second;
  }
  void pin(Row& row) {
    if (row.pins++ == 0) pinned_.splice(pinned_.begin(), recent_, by_name_.at(row.name));
  }
  void unpin(Row& row) {
    CHECK(row.pins > 0);
    if (--row.pins > 0) return;
    recent_.splice(recent_.begin(), pinned_, by_name_.at(row.name));
    if (recent_.size() <= names_max_) return;
    by_name_.erase(recent_.back().name);
    recent_.pop_back();
  }

  std::size_t size() const { return by_name_.size(); }
  bool empty() const { return by_name_.empty(); }

 private:
  const std::size_t names_max_;
  std::list<Row> recent_, pinned_;  ///< The most recent first.
  std::unordered_map<std::string_view, typename std::list<Row>::iterator> by_name_;
};

}  // namespace gpusched::api
