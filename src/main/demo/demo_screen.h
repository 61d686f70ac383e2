#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "main/demo/demo_jobs.h"

namespace gpusched {

/// The demonstration's table of jobs: drawn again in place on a terminal; elsewhere one line whenever a job's
/// state changes. Not thread-safe.
class DemoScreen {
 public:
  /// `live`: `out` is a terminal that moves its cursor.
  DemoScreen(std::FILE* out, bool live);

  void draw(const std::vector<DemoJob>& jobs);
  double seconds_since_start() const;

 private:
  void draw_table(const std::vector<DemoJob>& jobs);
  std::string row(const DemoJob& job, int width) const;

  std::FILE* out_;
  bool live_;
  std::size_t lines_drawn_ = 0;
  std::chrono::steady_clock::time_point started_;
  std::map<std::string, std::string> shown_;  ///< By a job's name the state that its last line told.
};

}  // namespace gpusched
