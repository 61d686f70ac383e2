#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "node/attempts/reports.h"
#include "node/ports/ports.h"

namespace gpusched::agent {

/// Whether the node may take work: what its own checks say, faults of what runs around attempts, its clock,
/// its disk. The newest verdict is told; a fault of a hook stands for a while even when the checks pass.
class Checks {
 public:
  struct Limits {
    Duration every;           ///< Between checks that pass.
    Duration patience;        ///< Checks without an answer for so long have failed.
    Duration clock_skew_max;  ///< Against the scheduler's clock.
  };
  Checks(const NodePorts& ports, Reports& reports, Limits limits)
      : ports_(ports), reports_(reports), limits_(limits) {}

  /// On a new connection: says the verdict, or finds it. `on_its_way`: for how long at most the scheduler's
  /// time was on its way.
  void on_registered(int64_t scheduler_unix_ms, Duration on_its_way);
  bool clock_is_right() const { return clock_problem_.empty(); }
  void begin();
  /// Empty: they passed.
  void on_checked(const std::string& problem);
  /// The node is held at once, and for a while even when its checks pass; for longer when it is so again and
  /// again.
  void note_fault(const std::string& problem);
  /// The scheduler's orders cannot be obeyed on this connection, and why; empty: they can. Before
  /// `on_registered`.
  void note_orders(const std::string& problem);
  /// An attempt has begun: the faults before it do not count any more.
  void note_start() { faults_in_a_row_ = 0; }
  void note_disk_full();
  void note_disk_has_room();

  void tick(Time now);
  Time next_due() const { return next_check_ < due_ ? next_check_ : due_; }

 private:
  void give_up();
  void lift_fault();
  void note_clock(int64_t scheduler_unix_ms, Duration on_its_way);
  void take_verdict(const std::string& problem);
  void report_verdict();

  const NodePorts& ports_;
  Reports& reports_;
  Limits limits_;
  std::optional<std::string> verdict_;  ///< Empty: passed; nothing: not known yet.
  uint64_t verdict_report_ = 0;
  std::string fault_;  ///< Fault of a hook, standing until `fault_until_`.
  Time fault_until_;
  int faults_in_a_row_ = 0;  ///< Without an attempt that began.
  std::string clock_problem_;
  std::string order_problem_;
  bool disk_full_ = false;
  bool checking_ = false;
  Time due_ = kNever;  ///< By then the checks that run must have answered.
  Time next_check_ = kNever;
};

}  // namespace gpusched::agent
