#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/time.h"

namespace gpusched::api {

/// The tasks that were refused last, which are no jobs, and why. In memory alone. Not thread-safe.
class RefusedTasks {
 public:
  explicit RefusedTasks(std::size_t tasks_max = 10'000) : tasks_max_(tasks_max) {}

  struct Refusal {
    std::string message;
    Time at;
  };

  /// A later refusal of the same id takes the place of an earlier one.
  void note(TenantId tenant, const std::string& id, Refusal refusal) {
    forget(tenant, id);
    if (by_id_.size() >= tasks_max_) {
      by_id_.erase(oldest_first_.front());
      oldest_first_.pop_front();
    }
    const Key key{tenant, id};
    by_id_.emplace(key, Row{std::move(refusal), oldest_first_.insert(oldest_first_.end(), key)});
  }
  /// It was accepted after all.
  void forget(TenantId tenant, const std::string& id) {
    const auto at = by_id_.find({tenant, id});
    if (at == by_id_.end()) return;
    oldest_first_.erase(at->second.place);
    by_id_.erase(at);
  }
  /// Null: it was not refused, or so long ago that it is forgotten.
  const Refusal* find(TenantId tenant, const std::string& id) const {
    const auto at = by_id_.find({tenant, id});
    return at == by_id_.end() ? nullptr : &at->second.refusal;
  }
  std::size_t size() const { return by_id_.size(); }

 private:
  using Key = std::pair<TenantId, std::string>;
  struct Row {
    Refusal refusal;
    std::list<Key>::iterator place;
  };

  const std::size_t tasks_max_;
  std::map<Key, Row> by_id_;
  std::list<Key> oldest_first_;
};

}  // namespace gpusched::api
