#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/time.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"

namespace gpusched::forecast {

/// Budget of work before an answer is due.
struct Work {
  uint64_t left = 0;              ///< Commands, and looks of the planner.
  std::function<bool()> goes_on;  ///< Asked now and then; false: it is over. Empty: as long as `left` lasts.

  /// Takes `amount`; false when it is over.
  bool take(uint64_t amount) {
    if (left < amount || over) return over = true, false;
    left -= amount;
    since_asked += amount;
    if (since_asked < kAskEvery || !goes_on) return true;
    since_asked = 0;
    over = !goes_on();
    return !over;
  }

  static constexpr uint64_t kAskEvery = 256;
  uint64_t since_asked = 0;
  bool over = false;
};

/// A copy of a state with a planner of its own, on a clock that only its owner moves. All that is done to it
/// is done by the real engine: a command is decided, its events change the state and teach the planner.
/// Nothing of it reaches anybody else. Pure; not thread-safe.
class World {
 public:
  /// `state` is its own; `now` is not before its last command. Records of finished jobs never expire in
  /// it.
  World(State state, policy::PolicySet policies, Time now);
  /// Another one that goes on by itself; policies are shared.
  World copy() const;

  const State& state() const { return state_; }
  Planner& planner() { return planner_; }
  const Planner& planner() const { return planner_; }
  Time now() const { return now_; }
  /// Not backwards.
  void move_to(Time now);

  Applied apply(const Command& command);
  /// Makes something as it was before, whatever the rules say of it now: applies an event that no command
  /// caused.
  void put_back(const Event& event);
  /// The events of the newest command.
  const Events& events() const { return events_; }
  /// Jobs that were placed in this world, not in the one it is a copy of.
  const std::vector<JobId>& placed() const { return placed_; }

  /// Lets what is due fire and the planner start what it starts, until nothing more changes now. Calls `seen`
  /// after each command. False when the work was used up before.
  bool settle(Work& work, const std::function<void()>& seen = {});
  /// The group that the planner would start the job with now, ending others if need be, without doing it;
  /// nothing when the job would go on waiting: the planner has its reason then. The world must be settled.
  std::optional<PlanGroup> would_start(JobId job, Work& work);

 private:
  World(State state, const Planner& planner, Time now);

  State state_;
  Planner planner_;
  Time now_;
  Events events_;
  std::vector<JobId> placed_;
};

}  // namespace gpusched::forecast
