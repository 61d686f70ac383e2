#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace gpusched {

/// Writes metrics in Prometheus' text format 0.0.4. Families and their samples stand in the order of the
/// calls. Not thread-safe.
class PrometheusText {
 public:
  /// `name_space` begins every name that is not bare: "gpu_scheduler" makes jobs_total
  /// gpu_scheduler_jobs_total. Empty: all names stand as they are.
  explicit PrometheusText(std::string_view name_space = {}) : name_space_(name_space) {}

  /// `type`: "counter", "gauge", "histogram" or "summary". `help` must be one line.
  void family(std::string_view name, std::string_view type, std::string_view help, bool is_bare = false);
  /// Begins a sample, which `label` goes on with, and `value` or `number` ends.
  PrometheusText& sample(std::string_view name, bool is_bare = false);
  /// `value` may hold anything.
  PrometheusText& label(std::string_view name, std::string_view value);
  void value(auto value) { number(text_of(value)); }
  void number(std::string_view digits);

  /// The shortest text that reads back as the number.
  static std::string text_of(auto number) {
    char buffer[40];
    return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
  }
  std::string take() { return std::move(out_); }

 private:
  std::string& append_name(std::string_view name, bool is_bare);

  const std::string name_space_;
  std::string out_;
  bool has_labels_ = false;
};

}  // namespace gpusched
