#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpusched {

/// From when on a GPU is too hot for new work, and when it is well again.
struct HeatLimits {
  static constexpr int32_t kOff = 0;
  static constexpr int32_t kAuto = -1;

  /// Degrees Celsius above which a GPU takes no new work. kOff: heat never keeps it from work. kAuto: its own
  /// slowdown limit less `auto_margin_celsius`; where its driver does not tell that, kWithoutLimitCelsius.
  int32_t threshold_celsius = kOff;
  int32_t hysteresis_celsius = 5;  ///< It has cooled when it is at most so far below the threshold.
  int32_t readings = 3;            ///< Readings in a row that must agree, so that no spike counts.
  int32_t auto_margin_celsius = 10;

  static constexpr int32_t kWithoutLimitCelsius = 75;
  /// The threshold of a device with this slowdown limit (0: not known).
  int32_t threshold_of(int32_t slowdown_celsius) const;
};

/// A crossing of the threshold.
struct HeatChange {
  bool hot = false;
  std::string detail = {};  ///< "82 C, threshold 75 C, cools until 70 C", of a hot one.

  friend bool operator==(const HeatChange&, const HeatChange&) = default;
};

/// Looks at one device's readings. Not thread-safe.
class HeatMeter {
 public:
  /// `slowdown_celsius`: the device's own limit; 0: not known.
  explicit HeatMeter(int32_t slowdown_celsius) : slowdown_celsius_(slowdown_celsius) {}

  /// One reading; 0: the driver does not tell, which is no heat. `hot`: what the device is taken for. Answers
  /// once enough readings in a row, since the last answer, speak against that.
  std::optional<HeatChange> look(const HeatLimits& limits, int32_t celsius, bool hot);

 private:
  int32_t slowdown_celsius_;
  int32_t against_ = 0;  ///< How many readings in a row speak against what it is taken for.
  bool taken_for_ = false;
};

}  // namespace gpusched
