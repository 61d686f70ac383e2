#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/attempts/records.h"
#include "node/ports/ports.h"

namespace gpusched::agent {

/// How attempts end on this node. An end is put on record at once and told when the record is durable; an
/// attempt is closed when the scheduler knows its end and the releases of its devices, and forgotten when
/// enough later ones are closed. Not thread-safe.
class Endings {
 public:
  /// `kept`: closed attempts that are not forgotten.
  Endings(const NodePorts& ports, AttemptTable& attempts, Records& records, std::size_t kept)
      : ports_(ports), attempts_(attempts), records_(records), kept_(kept) {}

  /// An outcome of now.
  v1::Outcome outcome(v1::Outcome::Cause cause, const std::string& detail) const;
  void end(AttemptRow& attempt, v1::Outcome outcome);
  void end(AttemptRow& attempt, v1::Outcome::Cause cause, const std::string& detail) {
    end(attempt, outcome(cause, detail));
  }
  /// Records again the end of an earlier agent's attempt, which may have ended before its record was durable.
  void record_again(AttemptRow& attempt);
  /// Calls `visit` with the attempts whose end is durable by now, once each and in the order of their ends.
  template <typename Visit>
  void take_durable(Visit&& visit) {
    while (!unsynced_.empty() && unsynced_.front()->ended_position <= records_.synced_position()) {
      AttemptRow& attempt = *unsynced_.front();
      unsynced_.pop_front();
      visit(attempt);
    }
  }

  void on_acked(const v1::Ended& ended);
  void close_if_done(AttemptRow& attempt);
  /// Those that earlier agents closed, the oldest first.
  void restore_closed(std::deque<AttemptKey> closed) { closed_ = std::move(closed); }
  /// A bounded number of the oldest closed ones.
  void forget_oldest();

 private:
  const NodePorts& ports_;
  AttemptTable& attempts_;
  Records& records_;
  std::size_t kept_;
  std::deque<AttemptRow*> unsynced_;  ///< In the order of their records.
  std::deque<AttemptKey> closed_;
};

}  // namespace gpusched::agent
