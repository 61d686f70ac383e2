#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "base/time.h"
#include "gpusched/v1/node.pb.h"

namespace gpusched {

/// Reports that the scheduler has not acknowledged. Each keeps its id until then and is sent again after a
/// reconnect, and on a live link when it was not acknowledged for long. Not thread-safe.
class ReportOutbox {
 public:
  using Send = std::function<void(const v1::Report&)>;

  /// Ids count up from `first_id`, which no earlier agent of this data folder reached.
  explicit ReportOutbox(uint64_t first_id) : next_id_(first_id) {}

  /// Takes the report and gives it its id. It is sent by the next `send_new`.
  uint64_t add(v1::Report report);
  /// Forgets a report that a newer one replaces.
  void withdraw(uint64_t id);
  /// The report that is now acknowledged, or nothing when it was before.
  std::optional<v1::Report> acknowledge(uint64_t id);

  /// Sends what was never sent on this connection, in order.
  void send_new(Time now, const Send& send);
  /// Sends again what waits for longer than the resend limit, a bounded number at a time.
  void send_late(Time now, const Send& send);
  /// After a reconnect everything counts as never sent.
  void forget_sendings();
  /// When send_late has something to do; kNever when nothing waits.
  Time next_late() const;

  std::size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    v1::Report report;
    Time sent_at;  ///< Not valid: not sent on this connection.
  };
  std::map<uint64_t, Waiting> waiting_;
  uint64_t next_id_;
  uint64_t first_unsent_ = 0;  ///< Everything before it was sent on this connection.
  Time late_at_ = kNever;
};

}  // namespace gpusched
