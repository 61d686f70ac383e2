#include "published/placement_queue.h"

#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <utility>

#include "base/check.h"

namespace gpusched::replay {
namespace {

struct Held {
  uint32_t slot = 0;
  uint64_t devices = 0;
};

struct Ending {
  Duration at;
  uint32_t task = 0;
  bool operator>(const Ending& other) const {
    return at != other.at ? at.ns > other.at.ns : task > other.task;
  }
};

class Queue {
 public:
  Queue(std::span<const QueuedTask> tasks, RulePlacer& placer) : tasks_(tasks), placer_(placer) {
    outcome_.waits.resize(tasks.size());
    held_.resize(tasks.size());
  }

  QueueOutcome run() {
    uint32_t next = 0;
    while (next < tasks_.size() || !waiting_.empty()) {
      // Every waiting task fits on empty nodes: while one waits, something runs that will end.
      const bool arrives =
          next < tasks_.size() && (endings_.empty() || tasks_[next].arrival.ns < endings_.top().at.ns);
      CHECK(arrives || !endings_.empty());
      advance(arrives ? tasks_[next].arrival : endings_.top().at);
      while (!endings_.empty() && endings_.top().at == now_) end_next();
      for (; next < tasks_.size() && tasks_[next].arrival == now_; ++next) {
        placer_.arrived(tasks_[next].member);
        waiting_[{tasks_[next].member, tasks_[next].members}].push_back(next);
      }
      start_what_fits();
    }
    return std::move(outcome_);
  }

 private:
  using Kind = std::pair<policy::TaskShape, uint32_t>;

  void advance(Duration to) {
    const double seconds = static_cast<double>(to.ns - now_.ns) / 1e9;
    outcome_.busy_milli_s += seconds * static_cast<double>(busy_milli_);
    outcome_.until_last_start_s += seconds;
    if (!waiting_.empty()) {
      outcome_.pressed_milli_s += seconds * static_cast<double>(busy_milli_);
      outcome_.pressed_s += seconds;
    }
    now_ = to;
  }

  void end_next() {
    const uint32_t task = endings_.top().task;
    endings_.pop();
    for (const Held& held : held_[task]) placer_.release(tasks_[task].member, held.slot, held.devices);
    held_[task].clear();
    busy_milli_ -= tasks_[task].total_milli();
  }

  bool start(uint32_t task) {
    const QueuedTask& what = tasks_[task];
    std::vector<Held>& held = held_[task];
    for (uint32_t i = 0; i < what.members; ++i) {
      const auto found = placer_.place(what.member);
      if (!found) {
        for (const Held& each : held) placer_.release(what.member, each.slot, each.devices);
        held.clear();
        return false;
      }
      held.push_back({.slot = found->slot, .devices = found->devices});
    }
    busy_milli_ += what.total_milli();
    outcome_.waits[task] = now_ - what.arrival;
    endings_.push({.at = now_ + what.run, .task = task});
    return true;
  }

  void start_what_fits() {
    std::vector<Kind> full;
    while (true) {
      // The kind whose first task came first, of those that were not found too large in this pass.
      auto first = waiting_.end();
      for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
        if (std::find(full.begin(), full.end(), at->first) != full.end()) continue;
        if (first == waiting_.end() || at->second.front() < first->second.front()) first = at;
      }
      if (first == waiting_.end()) return;
      if (!start(first->second.front())) {
        full.push_back(first->first);
        continue;
      }
      first->second.pop_front();
      if (first->second.empty()) waiting_.erase(first);
    }
  }

  std::span<const QueuedTask> tasks_;
  RulePlacer& placer_;
  QueueOutcome outcome_;
  std::map<Kind, std::deque<uint32_t>> waiting_;  ///< By kind, in the order of arrival.
  std::vector<std::vector<Held>> held_;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings_;
  Duration now_;
  int64_t busy_milli_ = 0;
};

}  // namespace

QueueOutcome replay_queue(std::span<const QueuedTask> tasks, RulePlacer& placer) {
  return Queue(tasks, placer).run();
}

}  // namespace gpusched::replay
