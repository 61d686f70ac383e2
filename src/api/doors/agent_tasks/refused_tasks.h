#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "api/backend/tasks/task_index.h"
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
  void note(const TaskName& name, Refusal refusal) {
    forget(name);
    if (by_name_.size() >= tasks_max_) {
      by_name_.erase(oldest_first_.front());
      oldest_first_.pop_front();
    }
    by_name_.emplace(name, Row{std::move(refusal), oldest_first_.insert(oldest_first_.end(), name)});
  }
  /// It was accepted after all.
  void forget(const TaskName& name) {
    const auto at = by_name_.find(name);
    if (at == by_name_.end()) return;
    oldest_first_.erase(at->second.place);
    by_name_.erase(at);
  }
  /// Null: it was not refused, or so long ago that it is forgotten.
  const Refusal* find(const TaskName& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &at->second.refusal;
  }
  std::size_t size() const { return by_name_.size(); }

 private:
  struct Row {
    Refusal refusal;
    std::list<TaskName>::iterator place;
  };

  const std::size_t tasks_max_;
  std::map<TaskName, Row> by_name_;
  std::list<TaskName> oldest_first_;
};

}  // namespace gpusched::api
