#include "replay/report/report.h"

#include <cstdio>
#include <string_view>

namespace gpusched::replay {
namespace {

/// The measures that are shown of each policy, in this order.
struct Row {
  std::string_view label;
  std::string_view key;
  double (*value)(const Tried& tried);
  int digits = 0;
};

constexpr Row kRows[] = {
    {"jobs", "jobs", [](const Tried& t) { return static_cast<double>(t.measures.jobs); }},
    {"left out", "left_out", [](const Tried& t) { return static_cast<double>(t.left_out); }},
    {"wait, mean (s)", "wait_mean_s", [](const Tried& t) { return t.measures.wait_s.mean; }, 1},
    {"wait, p50 (s)", "wait_p50_s", [](const Tried& t) { return t.measures.wait_s.p50; }, 1},
    {"wait, p90 (s)", "wait_p90_s", [](const Tried& t) { return t.measures.wait_s.p90; }, 1},
    {"wait, p99 (s)", "wait_p99_s", [](const Tried& t) { return t.measures.wait_s.p99; }, 1},
    {"wait, longest (s)", "wait_max_s", [](const Tried& t) { return t.measures.wait_s.max; }, 1},
    {"completion, mean (s)", "completion_mean_s", [](const Tried& t) { return t.measures.completion_s.mean; },
     1},
    {"completion, p50 (s)", "completion_p50_s", [](const Tried& t) { return t.measures.completion_s.p50; },
     1},
    {"completion, p90 (s)", "completion_p90_s", [](const Tried& t) { return t.measures.completion_s.p90; },
     1},
    {"completion, p99 (s)", "completion_p99_s", [](const Tried& t) { return t.measures.completion_s.p99; },
     1},
    {"bounded slowdown", "bounded_slowdown", [](const Tried& t) { return t.measures.bounded_slowdown; }, 3},
    {"utilisation (%)", "utilisation_percent", [](const Tried& t) { return 100 * t.measures.utilisation; },
     2},
    {"unfairness, p99", "unfairness_p99", [](const Tried& t) { return t.measures.unfairness.p99; }, 2},
    {"unfairness, worst", "unfairness_worst", [](const Tried& t) { return t.measures.unfairness.max; }, 2},
    {"preemptions", "preemptions",
     [](const Tried& t) { return static_cast<double>(t.measures.preemptions); }},
    {"preemptions, of one job", "preemptions_of_one_job",
     [](const Tried& t) { return static_cast<double>(t.measures.preemptions_max); }},
    {"makespan (h)", "makespan_h", [](const Tried& t) { return t.measures.makespan_s / 3600; }, 2},
    {"cycles", "cycles", [](const Tried& t) { return static_cast<double>(t.cycles); }},
    {"commands", "commands", [](const Tried& t) { return static_cast<double>(t.commands); }},
    {"replayed jobs/s", "replayed_jobs_per_s",
     [](const Tried& t) { return t.elapsed_s > 0 ? static_cast<double>(t.measures.jobs) / t.elapsed_s : 0; }},
};

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string padded(std::string_view text, std::size_t width) {
  std::string out(width > text.size() ? width - text.size() : 0, ' ');
  return out + std::string(text);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= ' ') out += c;
  }
  return out + "\"";
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

std::string text_report(const Replayed& replayed, const std::vector<Tried>& tried) {
  constexpr std::size_t kLabel = 24;
  constexpr std::size_t kColumn = 16;
  std::string out = replayed.trace + " (" + replayed.format + "): " + std::to_string(replayed.jobs) +
                    " jobs, " + std::to_string(replayed.skipped) + " lines without work; " +
                    replayed.cluster + "\n\n";
  out += std::string(kLabel, ' ');
  for (const Tried& each : tried) out += "  " + padded(each.policy, kColumn);
  out += "\n";
  for (const Row& row : kRows) {
    out += std::string(row.label) + std::string(kLabel - row.label.size(), ' ');
    for (const Tried& each : tried) {
      out += "  " + padded(number(row.value(each), row.digits), std::max(kColumn, each.policy.size()));
    }
    out += "\n";
  }
  return out;
}

std::string json_report(const Replayed& replayed, const std::vector<Tried>& tried) {
  std::string out = "{\"trace\": " + quoted(replayed.trace) + ", \"format\": " + quoted(replayed.format) +
                    ", \"jobs\": " + std::to_string(replayed.jobs) +
                    ", \"skipped\": " + std::to_string(replayed.skipped) +
                    ", \"capacity\": " + std::to_string(replayed.capacity) + ", \"policies\": [";
  for (std::size_t i = 0; i < tried.size(); ++i) {
    out += (i == 0 ? "\n  {" : ",\n  {") + std::string("\"policy\": ") + quoted(tried[i].policy);
    for (const Row& row : kRows)
      out += ", " + quoted(row.key) + ": " + number(row.value(tried[i]), row.digits);
    out += ", \"digest\": " + quoted(hex(tried[i].digest)) + "}";
  }
  return out + "\n]}\n";
}

LineChart wait_chart(const Replayed& replayed, const std::vector<Tried>& tried) {
  constexpr double kLeastWait = 1;
  constexpr std::size_t kPoints = 160;
  LineChart chart{.title = "How long jobs wait: " + replayed.trace,
                  .x_label = "wait",
                  .y_label = "jobs that waited no longer",
                  .x_is_time = true,
                  .y_max = 1,
                  .y_is_share = true,
                  .lines = {}};
  for (const Tried& each : tried)
    chart.lines.push_back(cumulative(each.policy, each.waits_s, kLeastWait, kPoints));
  return chart;
}

}  // namespace gpusched::replay
