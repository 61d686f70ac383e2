#pragma once

#include <string>
#include <vector>

#include "anticipate/plain_text.h"
#include "pilot/monitors/helper.h"
#include "pilot/monitors/monitor.h"

namespace gpusched::pilot {

/// A program of the user that writes one JSON object a line on its standard output:
///
///   {"text": "what it saw", "origin": "where"}                       rules look at the text
///   {"text": "why", "origin": "where", "weight": 80, "gpus": 1}      it concluded that itself
///
/// Other lines are passed over. Weights are cut to those that the monitor's settings allow. A program that
/// ends is started again after kRestartFirst, doubling up to kRestartMax. It ends with the pilot.
class CustomMonitor final : public Monitor {
 public:
  static constexpr Duration kRestartFirst = seconds(1), kRestartMax = minutes(5);

  /// The program is the helper's of that number, which outlives the monitor. `name` is its origin.
  CustomMonitor(const Helper& helper, std::size_t number, std::string name, int32_t weight_max);
  ~CustomMonitor() override;

  std::vector<int> descriptors() const override;
  void look(Time now, const Sink& sink) override;

 private:
  void start(Time now);
  void end(Time now);
  void take(const std::string& line, const Sink& sink) const;

  const Helper& helper_;
  const std::size_t number_;
  const std::string name_;
  const int32_t weight_max_;
  int output_ = -1;
  anticipate::LineSplitter lines_;
  Duration pause_ = kRestartFirst;
  Time start_at_, started_at_;
};

}  // namespace gpusched::pilot
