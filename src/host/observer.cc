#include "host/observer.h"

#include <set>

#include "base/check.h"

namespace gpusched {
namespace {

/// The job that an event is about; none for events of nodes and tenants.
JobId job_of(const Event& event) {
  return std::visit(
      [](const auto& concrete) -> JobId {
        if constexpr (requires { concrete.job; }) {
          return concrete.job;
        } else {
          return {};
        }
      },
      event);
}

}  // namespace

const WaitReason& Observer::View::reason_of(const Job& job) const {
  static const WaitReason kUnknown;
  return job.job_class < reasons.size() ? reasons[job.job_class] : kUnknown;
}

Observer::Observer(State state, uint64_t position, bool threaded)
    : state_(std::move(state)), position_(position), threaded_(threaded) {
  if (threaded_) thread_ = std::thread([this] { run(); });
}

Observer::~Observer() { stop(); }

void Observer::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Observer::post(Task task) {
  if (!threaded_) return task();
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    was_empty = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (was_empty) wake_.notify_one();
}

void Observer::run() {
  std::deque<Task> taken;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      taken.swap(tasks_);
    }
    for (Task& task : taken) task();
    taken.clear();
  }
}

void Observer::publish(Changes changes) {
  auto shared = std::make_shared<Changes>(std::move(changes));
  post([this, shared] { take(*shared); });
}

void Observer::take(Changes& changes) {
  follow(state_, changes.events.data(), changes.events.size(), changes.last);
  CHECK(changes.position >= position_);
  position_ = changes.position;
  for (auto& [job_class, reason] : changes.reasons) {
    if (job_class >= reasons_.size()) reasons_.resize(job_class + 1);
    reasons_[job_class] = std::move(reason);
  }
  const View view{.state = state_, .reasons = reasons_, .position = position_};
  for (const Listener& listener : listeners_) listener(view, changes);
  while (!waiting_for_sequence_.empty() && waiting_for_sequence_.begin()->first <= state_.last.sequence) {
    const Query query = std::move(waiting_for_sequence_.begin()->second);
    waiting_for_sequence_.erase(waiting_for_sequence_.begin());
    query(view);
  }
  if (!watchers_.empty()) wake_watchers(changes);
}

void Observer::wake_watchers(const Changes& changes) {
  std::set<JobId> changed;
  for (const Event& event : changes.events) {
    const JobId job = job_of(event);
    if (job.valid() && watchers_.contains(job)) changed.insert(job);
  }
  const View view{.state = state_, .reasons = reasons_, .position = position_};
  for (const JobId job : changed) {
    std::vector<Waiter> waiters;
    for (auto [it, end] = watchers_.equal_range(job); it != end; it = watchers_.erase(it)) {
      watched_.erase(it->second.token);
      waiters.push_back(std::move(it->second));
    }
    for (const Waiter& waiter : waiters) waiter.query(view);
  }
}

void Observer::read(uint64_t sequence, Query query) {
  post([this, sequence, query = std::move(query)]() mutable {
    if (sequence > state_.last.sequence) {
      waiting_for_sequence_.emplace(sequence, std::move(query));
      return;
    }
    query(View{.state = state_, .reasons = reasons_, .position = position_});
  });
}

uint64_t Observer::on_change(JobId job, Query query) {
  uint64_t token = 0;
  {
    const std::lock_guard lock(mutex_);
    token = next_token_++;
  }
  post([this, job, token, query = std::move(query)]() mutable {
    watchers_.emplace(job, Waiter{.token = token, .query = std::move(query)});
    watched_[token] = job;
  });
  return token;
}

void Observer::cancel(uint64_t token) {
  post([this, token] {
    const auto watched = watched_.find(token);
    if (watched == watched_.end()) return;
    for (auto [it, end] = watchers_.equal_range(watched->second); it != end; ++it) {
      if (it->second.token != token) continue;
      watchers_.erase(it);
      break;
    }
    watched_.erase(watched);
  });
}

void Observer::add_listener(Listener listener) {
  post([this, listener = std::move(listener)]() mutable { listeners_.push_back(std::move(listener)); });
}

}  // namespace gpusched
