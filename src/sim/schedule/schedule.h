#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/check.h"
#include "base/time.h"

namespace gpusched::sim {

/// Virtual time and what happens when, ordered by (time, number). Nothing else moves the clock.
class Schedule {
 public:
  using Action = std::function<void()>;

  Time now() const { return now_; }
  uint64_t steps() const { return steps_; }

  /// Runs `action` at `when`, behind everything that was asked for that instant before.
  void at(Time when, Action action) {
    if (when == kNever) return;
    entries_.push_back({.when = std::max(when, now_), .number = next_number_++, .action = std::move(action)});
    std::push_heap(entries_.begin(), entries_.end(), later);
  }
  void in(Duration delay, Action action) { at(now_ + delay, std::move(action)); }

  bool empty() const { return entries_.empty(); }
  Time next() const { return entries_.empty() ? kNever : entries_.front().when; }
  /// Runs what is next. There must be something.
  void step() {
    CHECK(!entries_.empty());
    std::pop_heap(entries_.begin(), entries_.end(), later);
    const Entry entry = std::move(entries_.back());
    entries_.pop_back();
    CHECK(entry.when >= now_);
    now_ = entry.when;
    ++steps_;
    entry.action();
  }

 private:
  struct Entry {
    Time when;
    uint64_t number = 0;
    Action action;
  };
  static bool later(const Entry& a, const Entry& b) {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }

  Time now_{1'000'000'000};
  uint64_t next_number_ = 0;
  uint64_t steps_ = 0;
  std::vector<Entry> entries_;
};

/// The clocks of one machine: monotonic ones count from its last boot, wall clocks may be wrong.
class MachineClock final : public Clock {
 public:
  explicit MachineClock(const Schedule& schedule) : schedule_(schedule) {}

  Time monotonic() const override { return schedule_.now() - since_; }
  Time wall() const override { return true_wall(schedule_) + wall_offset_; }
  /// Time by a wall clock that is right.
  static Time true_wall(const Schedule& schedule) { return schedule.now() + kEpoch; }

  /// A time of this machine's monotonic clock, by the schedule's.
  Time to_schedule(Time monotonic_time) const {
    return monotonic_time == kNever ? kNever : monotonic_time + since_;
  }
  void reboot() { since_ = Duration{schedule_.now().ns - seconds(1).ns}; }
  void step_wall(Duration by) { wall_offset_ = wall_offset_ + by; }
  Duration wall_offset() const { return wall_offset_; }

 private:
  static constexpr Duration kEpoch = hours(24 * 365 * 55);
  const Schedule& schedule_;
  Duration since_;
  Duration wall_offset_;
};

}  // namespace gpusched::sim
