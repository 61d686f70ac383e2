#pragma once

#include <string>
#include <vector>

#include "replay/report/measures.h"
#include "replay/report/svg_chart.h"

namespace gpusched::replay {

/// One policy's replay of a trace, as it is shown.
struct Tried {
  std::string policy;
  Measures measures;
  uint64_t left_out = 0;
  uint64_t cycles = 0;
  uint64_t commands = 0;
  uint64_t digest = 0;
  double elapsed_s = 0;  ///< Time that the replay took.
  std::vector<double> waits_s;
};

/// The trace that was replayed, and its cluster.
struct Replayed {
  std::string trace;
  std::string format;
  std::string cluster;  ///< In words.
  uint64_t jobs = 0;
  uint64_t skipped = 0;
  int64_t capacity = 0;
};

/// A table with a column for each policy.
std::string text_report(const Replayed& replayed, const std::vector<Tried>& tried);
/// The same as one JSON object.
std::string json_report(const Replayed& replayed, const std::vector<Tried>& tried);
/// How many jobs waited for how long, a line for each policy.
LineChart wait_chart(const Replayed& replayed, const std::vector<Tried>& tried);

}  // namespace gpusched::replay
