#include "api/doors/events/event_feed.h"

namespace gpusched::api {
namespace {

constexpr Duration kIdleEvery = seconds(15);

}  // namespace

void EventFeed::stop() {
  std::shared_ptr<void> ended;
  const std::lock_guard lock(mutex_);
  gone_ = true;
  ended.swap(token_);
}

void EventFeed::keep(std::shared_ptr<void> token) {
  const std::lock_guard lock(mutex_);
  if (!gone_) token_.swap(token);
}

bool EventFeed::begin() {
  if (wire_->begin([self = shared_from_this()] { self->stop(); })) {
    idle_later();
    return true;
  }
  finish();
  return false;
}

void EventFeed::send(EventWire::Pieces pieces) {
  if (pieces.empty()) return next();
  wire_->send(std::move(pieces), [self = shared_from_this()](bool alive) {
    if (!alive) return self->stop();
    self->next();
  });
}

void EventFeed::finish() {
  wire_->finish();
  stop();
}

void EventFeed::wake() {
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || gone_) return;
    busy_ = true;
  }
  next();
}

void EventFeed::idle_later() {
  run_later_(kIdleEvery, [self = shared_from_this()] {
    {
      const std::lock_guard lock(self->mutex_);
      if (self->gone_) return;
    }
    self->send_idle();
    self->idle_later();
  });
}

void EventFeed::send_idle() {
  {
    const std::lock_guard lock(mutex_);
    if (busy_) return;
    busy_ = true;
  }
  std::string piece = idle_piece();
  if (piece.empty()) return next();
  send({std::move(piece)});
}

}  // namespace gpusched::api
