#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "api/backend/tasks/task_book.h"
#include "api/doors/agent_tasks/task_messages.h"
#include "api/grpc/grpc_call.h"

namespace gpusched::api {

/// The events of one client of TaskEvents, one message at a time. A client that reads too slowly is told so
/// and let go: it loses no event without knowing. Included by the service's source only.
class TaskFeed final : public std::enable_shared_from_this<TaskFeed> {
 public:
  static constexpr std::size_t kEventsMax = 10'000;  // That wait for a client.

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
    algogpu::TaskEvent event;
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
      event = std::move(events_.front());
      events_.pop_front();
    }
    writer->write(std::move(event), [self = shared_from_this()](bool taken) {
      if (taken) self->next();
    });
  }

  const std::weak_ptr<GrpcWriter<algogpu::TaskEvent>> writer_;
  std::mutex mutex_;  // Guards all below.
  std::deque<algogpu::TaskEvent> events_;
  bool busy_ = false, over_ = false;
};

}  // namespace gpusched::api
