#include "host/readers/observer.h"

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

void Observer::post(Update update) {
  if (!threaded_) return update();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    updates_.push_back(std::move(update));
  }
  wake_.notify_one();
}

void Observer::ask(Question question) {
  if (!threaded_) return answer(std::move(question));
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    (question.is_scan ? scans_waiting_ : reads_waiting_) += 1;
    (question.is_scan ? scans_ : reads_).push_back(std::move(question));
  }
  wake_.notify_one();
}

void Observer::take_turn(std::deque<Update>& updates, std::vector<Question>& questions) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !updates_.empty() || !reads_.empty() || !scans_.empty(); });
  updates.swap(updates_);
  for (std::size_t i = 0; i < limits::kReadsPerTurn && !reads_.empty(); ++i) {
    questions.push_back(std::move(reads_.front()));
    reads_.pop_front();
  }
  if (scans_.empty()) return;
  questions.push_back(std::move(scans_.front()));
  scans_.pop_front();
}

void Observer::run() {
  std::deque<Update> updates;
  std::vector<Question> questions;
  while (true) {
    take_turn(updates, questions);
    if (updates.empty() && questions.empty()) return;  // Stopping, and nothing is left.
    for (Update& update : updates) update();
    updates.clear();
    for (Question& question : questions) answer(std::move(question));
    questions.clear();
  }
}

void Observer::answer(Question question) {
  if (question.sequence > state_.last.sequence) {
    const uint64_t sequence = question.sequence;
    waiting_for_sequence_.emplace(sequence, std::move(question));
    return;
  }
  if (question.step(view())) return put_back(std::move(question));
  if (threaded_) (question.is_scan ? scans_waiting_ : reads_waiting_) -= 1;
}

/// Behind the others of its kind. Counted already.
void Observer::put_back(Question question) {
  if (!threaded_) return answer(std::move(question));
  const std::lock_guard lock(mutex_);
  (question.is_scan ? scans_ : reads_).push_back(std::move(question));
}

bool Observer::has_room() const {
  return changes_waiting_.load(std::memory_order_relaxed) < limits::kChangesWaitingMax &&
         change_bytes_waiting_.load(std::memory_order_relaxed) < limits::kChangeBytesWaitingMax;
}

void Observer::publish(Changes changes) {
  changes_waiting_ += 1;
  change_bytes_waiting_ += changes.payload_bytes;
  auto shared = std::make_shared<Changes>(std::move(changes));
  post([this, shared] {
    take(*shared);
    changes_waiting_ -= 1;
    change_bytes_waiting_ -= shared->payload_bytes;
  });
}

void Observer::take(Changes& changes) {
  follow(state_, changes.events.data(), changes.events.size(), changes.last);
  if (changes.digest && *changes.digest != state_.digest.value()) return differs(changes);
  CHECK(changes.position >= position_);
  position_ = changes.position;
  for (auto& [job_class, reason] : changes.reasons) {
    if (job_class >= reasons_.size()) reasons_.resize(job_class + 1);
    reasons_[job_class] = std::move(reason);
  }
  for (const Listener& listener : listeners_) listener(view(), changes);
  while (!waiting_for_sequence_.empty() && waiting_for_sequence_.begin()->first <= state_.last.sequence) {
    Question question = std::move(waiting_for_sequence_.begin()->second);
    waiting_for_sequence_.erase(waiting_for_sequence_.begin());
    put_back(std::move(question));
  }
  if (!watchers_.empty()) wake_watchers(changes);
}

void Observer::differs(const Changes& changes) {
  CHECK(difference_);
  difference_("after journal record " + std::to_string(changes.position) +
              " the state for readers has digest " + std::to_string(state_.digest.value()) +
              ", but that of the scheduler has " + std::to_string(*changes.digest));
}

void Observer::wake_watchers(const Changes& changes) {
  std::set<JobId> changed;
  for (const Event& event : changes.events) {
    const JobId job = job_of(event);
    if (job.valid() && watchers_.contains(job)) changed.insert(job);
  }
  for (const JobId job : changed) {
    std::vector<Waiter> waiters;
    for (auto [it, end] = watchers_.equal_range(job); it != end; it = watchers_.erase(it)) {
      watched_.erase(it->second.token);
      waiters.push_back(std::move(it->second));
    }
    for (const Waiter& waiter : waiters) waiter.query(view());
  }
}

void Observer::read(uint64_t sequence, Query query) {
  ask({.sequence = sequence,
       .step =
           [query = std::move(query)](const View& view) {
             query(view);
             return false;
           },
       .is_scan = false});
}

void Observer::scan(uint64_t sequence, Step step) {
  ask({.sequence = sequence, .step = std::move(step), .is_scan = true});
}

void Observer::in_order(Query query) {
  post([this, query = std::move(query)] { query(view()); });
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

void Observer::on_difference(std::function<void(const std::string&)> hook) {
  post([this, hook = std::move(hook)]() mutable { difference_ = std::move(hook); });
}

}  // namespace gpusched
