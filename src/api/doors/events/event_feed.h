#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "api/doors/events/event_wire.h"
#include "base/time.h"

namespace gpusched::api {

/// Runs something so much later, on the server's thread.
using RunLater = std::function<void(Duration, std::function<void()>)>;
inline RunLater later_on(HttpServer& server) {
  return [&server](Duration delay, std::function<void()> call) { server.run_after(delay, std::move(call)); };
}

/// The events of one client: one batch at a time is made and sent, so that what waits for a slow reader is
/// bounded by what a derived class keeps. Events come on the observer's thread, the client's progress on the
/// server's.
class EventFeed : public std::enable_shared_from_this<EventFeed> {
 public:
  EventFeed(RunLater run_later, std::unique_ptr<EventWire> wire)
      : run_later_(std::move(run_later)), wire_(std::move(wire)) {}
  virtual ~EventFeed() = default;

  /// The client went away.
  void stop();
  /// Keeps the token of the subscription; dropped when the client goes.
  void keep(std::shared_ptr<void> token);

 protected:
  /// Makes the next batch and sends it, or sets `busy_` to false. Nothing else is under way.
  virtual void next() = 0;
  /// The piece sent when nothing happens for a while; empty: none.
  virtual std::string idle_piece() { return wire_->idle_piece(); }

  /// Begins the answer. False: the client wants its head only, and has got it.
  bool begin();
  /// Answers with an error instead.
  void fail(const ApiError& error) { wire_->fail(error); }
  /// None: goes on at once.
  void send(EventWire::Pieces pieces);
  void finish();
  /// There is something new: begins to work unless work is under way.
  void wake();

  const RunLater run_later_;
  std::mutex mutex_;  // Guards the next two, and what derived classes say.
  bool busy_ = true;  // Until the beginning is sent.
  bool gone_ = false;

 private:
  void idle_later();
  void send_idle();

  const std::unique_ptr<EventWire> wire_;
  std::shared_ptr<void> token_;  // By `mutex_`, too.
};

}  // namespace gpusched::api
