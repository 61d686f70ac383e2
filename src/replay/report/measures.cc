#include "replay/report/measures.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/prng.h"

namespace gpusched::replay {
namespace {

constexpr Duration kRunLeast = seconds(10);

double seconds_of(Duration duration) { return static_cast<double>(duration.ns) / 1e9; }

/// How many jobs there were, as its integral over time.
class Presence {
 public:
  Presence(std::span<const TraceJob> jobs, const ReplayOutcome& outcome) {
    std::vector<std::pair<Duration, int>> changes;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!outcome.runs[i].ran) continue;
      changes.push_back({jobs[i].submitted, 1});
      changes.push_back({outcome.runs[i].ended, -1});
    }
    std::sort(changes.begin(), changes.end());
    double integral = 0;
    int64_t there = 0;
    Duration before;
    for (const auto& [at, change] : changes) {
      integral += static_cast<double>(there) * seconds_of(at - before);
      there += change;
      before = at;
      if (!points_.empty() && points_.back().at == at) points_.pop_back();
      points_.push_back({.at = at, .integral = integral});
    }
  }

  double mean(Duration from, Duration to) const {
    if (to <= from) return 1;
    return (integral_at(to) - integral_at(from)) / seconds_of(to - from);
  }

 private:
  struct Point {
    Duration at;
    double integral = 0;
  };
  // Only asked at a job's own submission and end, which are points.
  double integral_at(Duration at) const {
    const auto point = std::lower_bound(points_.begin(), points_.end(), at,
                                        [](const Point& a, Duration b) { return a.at < b; });
    CHECK(point != points_.end());
    return point->integral;
  }
  std::vector<Point> points_;
};

}  // namespace

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  return {.mean = sum / static_cast<double>(values.size()),
          .p50 = at(0.5),
          .p90 = at(0.9),
          .p99 = at(0.99),
          .max = values.back()};
}

Measures measures_of(std::span<const TraceJob> jobs, const ReplayOutcome& outcome, int64_t capacity) {
  CHECK(jobs.size() == outcome.runs.size());
  CHECK(capacity > 0);
  Measures measures{.preemptions = outcome.preemptions};
  const Presence presence(jobs, outcome);
  std::vector<double> waits;
  std::vector<double> completions;
  std::vector<double> unfairness;
  double used = 0;
  double slowdown = 0;
  Duration end;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const ReplayOutcome::Run& run = outcome.runs[i];
    if (!run.ran) continue;
    const TraceJob& job = jobs[i];
    const double completion = seconds_of(run.ended - job.submitted);
    const double least = seconds_of(std::max(job.run, kRunLeast));
    waits.push_back(seconds_of(run.started - job.submitted));
    completions.push_back(completion);
    slowdown += std::max(1.0, completion / least);
    const double rivals = presence.mean(job.submitted, run.ended);
    const double squeeze =
        std::max(1.0, rivals * static_cast<double>(job.size) / static_cast<double>(capacity));
    unfairness.push_back(completion / (least * squeeze));
    used += static_cast<double>(job.size) * seconds_of(job.run);
    measures.preemptions_max = std::max<uint64_t>(measures.preemptions_max, run.preemptions);
    end = std::max(end, run.ended);
  }
  measures.jobs = waits.size();
  if (waits.empty()) return measures;
  measures.bounded_slowdown = slowdown / static_cast<double>(waits.size());
  measures.wait_s = percentiles_of(std::move(waits));
  measures.completion_s = percentiles_of(std::move(completions));
  measures.unfairness = percentiles_of(std::move(unfairness));
  measures.makespan_s = seconds_of(end - jobs.front().submitted);
  measures.utilisation = used / (static_cast<double>(capacity) * std::max(measures.makespan_s, 1e-9));
  return measures;
}

std::vector<TraceJob> shaken(std::vector<TraceJob> jobs, Duration by, uint64_t seed) {
  Prng prng(seed);
  for (TraceJob& job : jobs) {
    job.submitted = std::max(job.submitted + milliseconds(prng.between(-by.ms(), by.ms())), Duration{});
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submitted < b.submitted; });
  return jobs;
}

}  // namespace gpusched::replay
