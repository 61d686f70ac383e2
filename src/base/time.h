#pragma once

#include <compare>
#include <cstdint>

namespace gpusched {

/// A span of time in nanoseconds.
struct Duration {
  int64_t ns = 0;

  constexpr int64_t ms() const { return ns / 1'000'000; }
  friend constexpr auto operator<=>(Duration, Duration) = default;
  friend constexpr Duration operator+(Duration a, Duration b) { return {a.ns + b.ns}; }
  friend constexpr Duration operator-(Duration a, Duration b) { return {a.ns - b.ns}; }
  friend constexpr Duration operator*(Duration a, int64_t n) { return {a.ns * n}; }
};

constexpr Duration microseconds(int64_t n) { return {n * 1'000}; }
constexpr Duration milliseconds(int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(int64_t n) { return {n * 1'000'000'000}; }
constexpr Duration minutes(int64_t n) { return seconds(n * 60); }
constexpr Duration hours(int64_t n) { return minutes(n * 60); }

/// An instant: nanoseconds since the Unix epoch for journaled times, since an arbitrary start for monotonic
/// ones. Zero means "not yet". The two kinds never meet in one comparison.
struct Time {
  int64_t ns = 0;

  constexpr bool valid() const { return ns != 0; }
  constexpr int64_t ms() const { return ns / 1'000'000; }
  friend constexpr auto operator<=>(Time, Time) = default;
  friend constexpr Time operator+(Time t, Duration d) { return {t.ns + d.ns}; }
  friend constexpr Time operator-(Time t, Duration d) { return {t.ns - d.ns}; }
  friend constexpr Duration operator-(Time a, Time b) { return {a.ns - b.ns}; }
};

inline constexpr Time kNever{INT64_MAX};

/// Place of a command in the order of all commands, and its time. Set by the leader, never by the engine.
struct Stamp {
  uint64_t sequence = 0;
  Time at;

  friend constexpr auto operator<=>(const Stamp&, const Stamp&) = default;
};

/// Source of time. Production reads the system's clocks, `sim/` a virtual one. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Never goes back; its start is arbitrary.
  virtual Time monotonic() const = 0;
  /// Returns the time since the Unix epoch; may step either way.
  virtual Time wall() const = 0;
};

}  // namespace gpusched
