#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "node/attempts/attempt_table.h"
#include "node/attempts/report_outbox.h"
#include "node/ports/ports.h"

namespace gpusched::agent {

/// Reports to the scheduler that are repeated until it acknowledges them: attempts are prepared, have begun
/// and ended, and reports of other parts. Not thread-safe.
class Reports {
 public:
  Reports(Spawner& spawner, uint64_t first_id) : spawner_(spawner), outbox_(first_id) {}

  // One of each kind is outstanding for an attempt.
  void prepared(AttemptRow& attempt);
  void started(AttemptRow& attempt);
  void ended(AttemptRow& attempt);
  /// A repeated order is answered with where the attempt stands.
  void again(AttemptRow& attempt);
  /// An end of the attempt that an order named, which is not the one that has its number here.
  void ended_other(const v1::AttemptKey& key, int64_t placed_at_ns, v1::Outcome outcome);

  /// Takes a report in place of the one that `outstanding` numbers, if any, and sets it to the new one's.
  void replace(uint64_t& outstanding, v1::Report report);
  void withdraw(uint64_t id) { outbox_.withdraw(id); }
  std::optional<v1::Report> acknowledge(uint64_t id) { return outbox_.acknowledge(id); }

  /// Sends by the link what was never sent on this connection; what was not acknowledged for long.
  void send_new(Time now, NodeLink& link);
  void send_late(Time now, NodeLink& link);
  /// After a reconnect everything counts as never sent.
  void forget_sendings() { outbox_.forget_sendings(); }
  Time next_late() const { return outbox_.next_late(); }
  std::size_t unacknowledged_count() const { return outbox_.size(); }

 private:
  Spawner& spawner_;
  ReportOutbox outbox_;
};

}  // namespace gpusched::agent
