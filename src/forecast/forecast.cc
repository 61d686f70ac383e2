#include "forecast/forecast.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/limits.h"
#include "forecast/run.h"

namespace gpusched::forecast {
namespace {

/// The longest run that is drawn where nothing bounds it.
constexpr Duration kLongest = hours(24 * 30);

/// Every job takes all of the time that it may; one without a limit does not end.
class WholeLimits final : public RunSource {
 public:
  Duration whole_run(const State&, const Job& job, Duration elapsed, int32_t) override {
    const Duration limit = job.max_runtime.ns > 0 ? job.max_runtime : limits::kForecastHorizon * 2;
    return std::max(limit, elapsed + milliseconds(1));
  }
};

/// Results of the runs, one column a run.
class Table {
 public:
  Table(const World& begin, uint32_t runs) : runs_(runs) {
    const State& state = begin.state();
    state.jobs.for_each([&](const Job& job) {
      if (job.state == JobState::kPending) add(job);
      return true;
    });
    for (const JobId id : begin.placed()) {
      if (const Job* job = state.jobs.find(id); job != nullptr && !rows_.contains(id.value)) add(*job);
    }
    starts_.assign(jobs_.size() * runs, kNever);
    for (const JobId job : begin.placed()) {
      for (uint32_t run = 0; run < runs; ++run) note(job, run, begin.now());
      note_latest(job, begin.now());
    }
  }

  void note(JobId job, uint32_t run, Time at) {
    const auto it = rows_.find(job.value);
    if (it == rows_.end()) return;
    Time& start = starts_[std::size_t{it->second} * runs_ + run];
    start = std::min(start, at);
  }
  /// In the run in which every job takes all of its time.
  void note_latest(JobId job, Time at) {
    const auto it = rows_.find(job.value);
    if (it == rows_.end()) return;
    Time& latest = jobs_[it->second].estimate.at_latest;
    latest = std::min(latest, at);
  }
  /// In the same run: others are ended for it, for the first time.
  void note_promise(const Promise& promise) {
    const auto it = rows_.find(promise.job.value);
    if (it == rows_.end() || promise.moves || !jobs_[it->second].estimate.ends.empty()) return;
    Estimate& estimate = jobs_[it->second].estimate;
    for (const Preemption& victim : promise.victims) estimate.ends.push_back(victim.job);
    estimate.ends_at = promise.since;
  }
  void end(Time reached, Run::End how) { ends_.push_back({.reached = reached, .how = how}); }

  void write(Forecast& out) {
    const auto made = static_cast<uint32_t>(ends_.size());
    std::vector<std::pair<Time, uint32_t>> column(made);
    for (uint32_t row = 0; row < jobs_.size(); ++row) {
      // Later than where its run ended, where it did not start.
      for (uint32_t run = 0; run < made; ++run) column[run] = {starts_[std::size_t{row} * runs_ + run], run};
      std::sort(column.begin(), column.end(), [&](const auto& a, const auto& b) {
        return a.first != b.first ? a.first < b.first : reached(a.second) < reached(b.second);
      });
      const auto& half = column[index_of(500, made)];
      const auto& most = column[index_of(900, made)];
      Estimate& estimate = jobs_[row].estimate;
      estimate.p50 = half.first;
      estimate.p90 = most.first;
      // Longer runs may start one earlier: another one that was before it is late then.
      if (estimate.p90 != kNever) estimate.at_latest = std::max(estimate.at_latest, estimate.p90);
      if (half.first == kNever) {
        estimate.later_than = reached(half.second);
        estimate.stuck = ends_[half.second].how == Run::End::kDry;
      } else if (most.first == kNever) {
        estimate.later_than = std::max(half.first, reached(most.second));
      }
    }
    rank();
    out.runs = made;
    out.jobs.reserve(jobs_.size());
    for (const Row& row : jobs_) out.jobs.emplace(row.job.value, row.estimate);
  }

 private:
  struct Row {
    JobId job;
    OrderKey order;
    Estimate estimate;
  };
  struct RunEnd {
    Time reached;
    Run::End how = Run::End::kWork;
  };
  void add(const Job& job) {
    rows_.emplace(job.id.value, static_cast<uint32_t>(jobs_.size()));
    jobs_.push_back({.job = job.id, .order = job.order(), .estimate = {}});
  }
  Time reached(uint32_t run) const { return ends_[run].reached; }
  static uint32_t index_of(uint32_t per_mille, uint32_t made) { return (made * per_mille + 999) / 1000 - 1; }

  void rank() {
    std::vector<uint32_t> by_start(jobs_.size());
    for (uint32_t i = 0; i < by_start.size(); ++i) by_start[i] = i;
    std::sort(by_start.begin(), by_start.end(), [&](uint32_t a, uint32_t b) {
      if (jobs_[a].estimate.p50 != jobs_[b].estimate.p50)
        return jobs_[a].estimate.p50 < jobs_[b].estimate.p50;
      return jobs_[a].order < jobs_[b].order;
    });
    int64_t place = 0;
    for (const uint32_t row : by_start) jobs_[row].estimate.place = ++place;
  }

  uint32_t runs_;
  std::vector<Row> jobs_;
  boost::unordered_flat_map<uint64_t, uint32_t> rows_;
  std::vector<Time> starts_;
  std::vector<RunEnd> ends_;
};

}  // namespace

Duration sampled_run(const predict::RunTimes& known, Duration limit, Duration elapsed, int32_t per_mille) {
  CHECK(per_mille >= 0);
  CHECK(per_mille < 1000);
  Duration run;
  const std::optional<int64_t> like_it =
      known.quantile_after_ms(elapsed.ns > 0 ? elapsed.ms() : -1, per_mille);
  if (like_it.has_value()) {
    run = milliseconds(*like_it);
  } else {
    const Duration so_far = std::max(elapsed, kFirstRun);
    run = std::min(milliseconds(so_far.ms() / (1000 - per_mille) * 1000), so_far + kLongest);
  }
  if (limit.ns > 0) run = std::min(run, limit);
  return std::max(run, elapsed + milliseconds(1));
}

Forecast forecast(const World& begin, RunSource& source, const Options& options,
                  const std::function<bool()>& goes_on) {
  CHECK(options.runs > 0);
  CHECK(options.runs <= limits::kForecastRunsMax);
  CHECK(options.work <= limits::kForecastWorkMax);
  Forecast out{.at = begin.now(), .sequence = begin.state().last.sequence, .runs = 0, .jobs = {}};
  Table table(begin, options.runs);
  for (uint32_t number = 0; number < options.runs; ++number) {
    Work work{.left = options.work, .goes_on = goes_on};
    Run run(begin.copy(), source, options, number, [&](JobId job, Time at) { table.note(job, number, at); });
    const Run::End end = run.go(work);
    // A run that was broken off says less than those that were not.
    const bool broken_off = end == Run::End::kWork && work.over && work.left > 0 && goes_on;
    if (broken_off && number > 0 && !goes_on()) break;
    table.end(run.now(), end);
  }
  if (!goes_on || goes_on()) {
    WholeLimits whole;
    Work work{.left = options.work, .goes_on = goes_on};
    Run(
        begin.copy(), whole, options, 0, [&](JobId job, Time at) { table.note_latest(job, at); },
        [&](const Promise& promise) { table.note_promise(promise); })
        .go(work);
  }
  table.write(out);
  return out;
}

}  // namespace gpusched::forecast
