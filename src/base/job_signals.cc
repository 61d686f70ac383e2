#include "base/job_signals.h"

#include <array>
#include <string>

namespace gpusched {

std::optional<JobSignal> parse_job_signal(std::string_view text) {
  static constexpr std::array<JobSignal, 11> kSignals = {{{"HUP", 1},
                                                          {"INT", 2},
                                                          {"QUIT", 3},
                                                          {"USR1", 10},
                                                          {"USR2", 12},
                                                          {"ALRM", 14},
                                                          {"TERM", 15},
                                                          {"CONT", 18},
                                                          {"URG", 23},
                                                          {"XCPU", 24},
                                                          {"WINCH", 28}}};
  std::string word;
  for (const char c : text.substr(0, 16)) word += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  if (word.starts_with("SIG")) word.erase(0, 3);
  for (const JobSignal& signal : kSignals) {
    if (word == signal.name || word == std::to_string(signal.number)) return signal;
  }
  return std::nullopt;
}

}  // namespace gpusched
