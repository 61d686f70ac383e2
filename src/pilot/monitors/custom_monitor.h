#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "anticipate/plain_text.h"
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

  CustomMonitor(std::vector<std::string> command, int32_t weight_max);
  ~CustomMonitor() override;

  std::vector<int> descriptors() const override;
  void look(Time now, const Sink& sink) override;

 private:
  void start(Time now);
  void end(Time now);
  void take(const std::string& line, const Sink& sink) const;

  const std::vector<std::string> command_;
  const int32_t weight_max_;
  pid_t child_ = -1;
  int output_ = -1;
  anticipate::LineSplitter lines_;
  Duration pause_ = kRestartFirst;
  Time start_at_, started_at_;
};

}  // namespace gpusched::pilot
