#pragma once

#include <cstdint>
#include <deque>

#include "base/time.h"
#include "node/ports/ports.h"

namespace gpusched::agent {

/// The agent's side of its node's lease: when the next heartbeat is due, and since when the scheduler may
/// take the node for silent. An answer may have lain about, here or on its way: what it proves is that the
/// scheduler heard the heartbeat that it names, and so did not give the node up before that was sent.
class Leases {
 public:
  explicit Leases(const NodePorts& ports);

  void on_link_up();
  void on_link_down();
  /// `heartbeat_ms`: how often it wants to hear of the node; `lease_ms`: how long it waits for that at most.
  /// 0: it does not say.
  void on_registered(int64_t heartbeat_ms, int64_t lease_ms);
  void on_refused() { registered_ = false; }
  /// The scheduler accepted the registration on this connection.
  bool registered() const { return registered_; }
  /// For how long the answer to the registration was on its way at most.
  Duration registration_age() const { return ports_.clock.monotonic() - registration_sent_at_; }

  bool beat_is_due(Time now) const { return registered_ && now >= next_beat_; }
  /// The number of the heartbeat that is sent now.
  uint64_t beat(Time now);
  Time next_beat() const { return next_beat_; }
  Duration heartbeat_every() const { return heartbeat_every_; }

  void on_heartbeat_seen(uint64_t sequence);
  /// Whether several heartbeats in a row had no answer for as long as the lease lasts: the link carries
  /// nothing any more, or nobody reads it. Never of a scheduler that names no lease.
  bool is_unanswered(Time now) const;
  /// When the newest message that the scheduler answered was sent; not valid: none was.
  Time contact_at() const { return contact_at_; }

 private:
  void note_contact(Time sent_at);

  const NodePorts& ports_;
  bool registered_ = false;
  uint64_t sequence_ = 0;
  std::deque<Time> sent_at_;  ///< Times of the newest heartbeats on this connection, up to `sequence_`.
  Time registration_sent_at_;
  Duration heartbeat_every_;
  Duration patience_;       ///< For an answer to heartbeats; zero: without end.
  Time answered_at_;        ///< When the last answer on this connection came.
  int64_t unanswered_ = 0;  ///< Heartbeats since then.
  Time next_beat_ = kNever;
  Time contact_at_;
  Time contact_marked_at_;  ///< Contact time that the spawner knows.
};

}  // namespace gpusched::agent
