#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/attempts/endings.h"
#include "node/attempts/records.h"
#include "node/attempts/reports.h"
#include "node/core/checks.h"
#include "node/core/leases.h"
#include "node/core/release_fence.h"
#include "node/core/slices.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"

namespace gpusched::agent {

/// The scheduler's orders about attempts: to start, to begin as a gang, to run for longer or shorter, to
/// stop. Each is carried out once, however often it comes, and not before what it relies on is on record; a
/// repeated one is answered with where the attempt stands. A shim that did not do in time as it was told is
/// ended, and what starts shims is replaced.
class Orders {
 public:
  /// Makes the request for the shim; without `boxes` it is only checked whether the attempt could run.
  using Plan = std::function<Result<SpawnRequest>(const v1::StartAttempt& order, BoxMaker* boxes,
                                                  const std::vector<MadeSlice>& slices)>;
  struct Parts {
    const NodePorts& ports;
    AttemptTable& attempts;
    Records& records;
    Reports& reports;
    Endings& endings;
    DeviceWatch& watch;
    ReleaseFence& fence;
    Slices& slices;
    Checks& checks;
    const Leases& leases;
  };
  /// `grace`: between SIGTERM and SIGKILL where the order names none. `patience`: a shim that did not do as
  /// it was told by then is ended.
  Orders(Parts parts, Plan plan, Duration grace, Duration patience)
      : parts_(parts), plan_(std::move(plan)), grace_(grace), patience_(patience) {}

  void on_start(const v1::StartAttempt& order);
  /// An order to start that this node may not obey: its attempt, if there is one, is over as the node's
  /// fault. Nothing of it is kept, so that nobody who may not give orders can use its number up.
  void not_obeyed(const v1::StartAttempt& order, const std::string& why);
  /// Said before the attempt is prepared, as after a restart of this agent, it counts when it is.
  void on_gang_release(const v1::GoAttempt& order);
  void on_change(const v1::ChangeAttempt& order);
  void on_stop(const v1::StopAttempt& order);
  /// The agent's own: told to the shim by `stop_queued`.
  void stop(AttemptRow& attempt, const StopOrder& order) {
    to_stop_.push_back({.attempt = &attempt, .order = order});
  }

  /// The attempt's slices are made, or will not be.
  void on_slices_done(AttemptRow& attempt);
  void on_prolog_done(const AttemptKey& key, const std::string& problem);
  /// Its command has begun.
  void on_begun(AttemptRow& attempt);

  /// Everything that was queued before is on record.
  void start_queued();
  void stop_queued();
  /// Whether what was ordered of shims came true.
  void look(Time now);
  /// Outcome of an attempt without an outcome of its own.
  v1::Outcome outcome_of_lost(const AttemptRow& attempt, const std::string& detail) const;

 private:
  struct Stop {
    AttemptRow* attempt = nullptr;
    StopOrder order;
  };
  void refuse_start(const v1::StartAttempt& order, const std::string& why);
  void refuse_number(const v1::AttemptKey& key, int64_t placed_at_ns, v1::Outcome::Cause cause);
  void record_intent(const AttemptRow& attempt, std::vector<uint32_t> cores);
  void queue_start(AttemptRow& attempt, Result<SpawnRequest> plan);
  void take_back_start(AttemptRow& attempt);
  bool begin_prolog(AttemptRow& attempt);
  void start(AttemptRow& attempt);
  void add_mps(const AttemptRow& attempt, SpawnRequest& request) const;
  void expect_end(AttemptRow& attempt, const StopOrder& order);
  void expect_end_of_run(AttemptRow& attempt);
  void end_late(Time now);
  void replace_late_server(Time now);

  Parts parts_;
  Plan plan_;
  Duration grace_;
  Duration patience_;
  std::vector<AttemptRow*> to_start_;
  std::vector<Stop> to_stop_;
};

}  // namespace gpusched::agent
