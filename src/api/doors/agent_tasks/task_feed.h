#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "api/backend/tasks/task_index.h"
#include "api/doors/agent_tasks/task_messages.h"
#include "api/grpc/grpc_call.h"
#include "base/queue_limits.h"

namespace gpusched::api {

/// The events of one client of TaskEvents, a message each; the connection takes those together that came
/// meanwhile. A client that reads too slowly is told so and let go: it loses no event without knowing.
/// Included by the service's source only.
class TaskFeed final : public std::enable_shared_from_this<TaskFeed> {
 public:
  static constexpr std::size_t kEventsMax = 10'000;  // Most events that wait for a client.
  static constexpr std::size_t kTogetherMax = limits::kStreamMessagesMax / 2;

  explicit TaskFeed(const std::shared_ptr<GrpcWriter<algogpu::TaskEvent>>& writer) : writer_(writer) {}

  void push(const TaskChange& change) {
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
      if (events_.size() < kEventsMax) {
        write_change(change, events_.emplace_back());
        if (std::exchange(busy_, true)) return;
      } else {
        over_ = true;
        events_.clear();
      }
    }
    next();
  }

 private:
  void next() {
    const std::shared_ptr<GrpcWriter<algogpu::TaskEvent>> writer = writer_.lock();
    if (writer == nullptr) return;
    std::vector<algogpu::TaskEvent> together;
    {
      const std::lock_guard lock(mutex_);
      if (over_) {
        return writer->fail({ErrorKind::kCallerLimit,
                             "the client reads events too slowly: more than " + std::to_string(kEventsMax) +
                                 " waited for it; ask GetTaskStatus for what you missed, and call again"});
      }
      if (events_.empty()) {
        busy_ = false;
        return;
      }
      while (!events_.empty() && together.size() < kTogetherMax) {
        together.push_back(std::move(events_.front()));
        events_.pop_front();
      }
    }
    // All before these are written: the writer has room for as many, and tells of the last one.
    for (std::size_t i = 0; i + 1 < together.size(); ++i) writer->write(std::move(together[i]));
    writer->write(std::move(together.back()), [self = shared_from_this()](bool taken) {
      if (taken) self->next();
    });
  }

  const std::weak_ptr<GrpcWriter<algogpu::TaskEvent>> writer_;
  std::mutex mutex_;  // Guards all below.
  std::deque<algogpu::TaskEvent> events_;
  bool busy_ = false, over_ = false;
};

}  // namespace gpusched::api
