#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

/// Prints the experiments' results. A line that begins with "| " is a row of the table that `make quality`
/// ends with.
namespace gpusched::quality {

inline constexpr int kShakenRuns = 20;
inline constexpr const char* kMet = "met";
inline constexpr const char* kNotMet = "NOT MET";

/// One row: what was measured, what is published or wanted, what came out. Returns `met`.
inline bool print_row(const std::string& experiment, const std::string& wanted, const std::string& ours,
                      bool met) {
  std::printf("| %-58s | %-28s | %-28s | %-7s |\n", experiment.c_str(), wanted.c_str(), ours.c_str(),
              met ? kMet : kNotMet);
  return met;
}

/// A row of which nothing is demanded.
inline void print_note(const std::string& experiment, const std::string& wanted, const std::string& ours) {
  std::printf("| %-58s | %-28s | %-28s | %-7s |\n", experiment.c_str(), wanted.c_str(), ours.c_str(), "-");
}

/// A number with commas between thousands.
inline std::string grouped(double value, int digits = 0) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  const std::string plain = text;
  const std::size_t dot = std::min(plain.find('.'), plain.size());
  std::string out;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const bool splits = i > 0 && i < dot && (dot - i) % 3 == 0 && plain[i - 1] != '-';
    if (splits) out += ',';
    out += plain[i];
  }
  return out;
}

struct Spread {
  double low = 0;
  double median = 0;
  double high = 0;
};

inline Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {.low = values.front(), .median = median, .high = values.back()};
}

}  // namespace gpusched::quality
