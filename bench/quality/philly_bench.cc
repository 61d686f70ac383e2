// rooms: replay predict engine model base
//
// Philly's virtual clusters (VCs), each with its own nodes, on the real engine as one pool of alike GPUs:
// every VC confined to its share; nobody confined; and each VC guaranteed its share, lending what it leaves
// idle and taking it back, when it asks, by ending others' jobs. As recorded the jobs never fill the pool, so
// that nothing is ever asked back; so the same again with the arrivals four times as close.
//
//   tools/bench quality philly [RUNS]          RUNS shaken runs, 20 unless said
//   tools/bench quality philly chart FILE.svg  draws how long jobs wait on the closer arrivals
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "experiment.h"
#include "replay/report/measures.h"
#include "replay/report/svg_chart.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/trace/csv.h"
#include "table.h"

namespace gpusched {
namespace {

using replay::TraceJob;

constexpr int64_t kGpusPerNode = 8;
constexpr int32_t kMilliPerGpu = 1000;  ///< A GPU of a pool is a core to the engine.

struct VirtualClusters {
  std::vector<std::string> names;  ///< By queue.
  std::vector<int64_t> gpus;
  int64_t total = 0;
};

Result<VirtualClusters> read_clusters(const std::string& path, const replay::Trace& trace) {
  Result<replay::CsvFile> file = replay::CsvFile::open(path, {"vc", "node num"});
  if (!file) return file.error();
  VirtualClusters clusters{.names = trace.queue_names, .gpus = {}};
  clusters.gpus.resize(trace.queue_names.size());
  while (true) {
    const Result<bool> more = file->next();
    if (!more) return more.error();
    if (!*more) return clusters;
    const Result<int64_t> nodes = file->count(1, 100'000);
    if (!nodes) return nodes.error();
    for (std::size_t i = 1; i < clusters.names.size(); ++i) {
      if (clusters.names[i] == file->field(0)) clusters.gpus[i] = *nodes * kGpusPerNode;
    }
    clusters.total += *nodes * kGpusPerNode;
  }
}

/// Use of the VCs' shares.
enum class Sharing : uint8_t {
  kStatic,   ///< Each VC has its own and no more.
  kPooled,   ///< There are none.
  kLending,  ///< Each is guaranteed its own, lends what it leaves idle, and takes it back when it asks.
};

/// Fate of the work of a job that is ended for another.
enum class Work : uint8_t {
  kStartsAnew,  ///< Nobody wrote checkpoints.
  kIsSaved,     ///< It is saved within the grace period.
};

constexpr Duration kGrace = seconds(10);  ///< As configured by default.
constexpr int64_t kDenser = 4;
constexpr const char* kPolicy = "fair_share+reservations=0";

replay::ReplayOptions options_for(const VirtualClusters& clusters, Sharing sharing, Work work) {
  replay::ReplayOptions options{.cluster = {.pool = clusters.total}, .tenant_of = replay::TenantOf::kQueue};
  options.tenants.resize(clusters.names.size());
  options.grace = kGrace;
  options.starts_anew = work == Work::kStartsAnew;
  for (std::size_t i = 1; i < clusters.names.size(); ++i) {
    CreateTenant& tenant = options.tenants[i];
    const int64_t own = clusters.gpus[i] * kMilliPerGpu;
    if (sharing == Sharing::kStatic) tenant.limits.set(Resource::kCpu, own);
    if (sharing == Sharing::kLending) tenant.guarantee.cpu_milli = own;
  }
  return options;
}

/// Sees for how long VCs wait for what is their own, whatever the planner says of it: from when the first in
/// a VC's line is, with all that the VC holds, within its guarantee, until it is placed.
class Asking final : public replay::ReplayWatcher {
 public:
  Asking(const std::vector<TraceJob>& jobs, const VirtualClusters& clusters)
      : jobs_(jobs), clusters_(clusters), lines_(clusters.names.size()) {}

  void submitted(JobId id, uint32_t index, Time /*now*/) override {
    lines_[jobs_[index].queue].waiting.insert(id.value);
  }
  void stopped(JobId id, uint32_t index, Time /*now*/) override {
    lines_[jobs_[index].queue].waiting.insert(id.value);
  }
  void placed(const State& /*state*/, const Attempt& attempt, uint32_t index, Time now) override {
    Line& line = lines_[jobs_[index].queue];
    line.waiting.erase(attempt.job.value);
    if (line.asking != attempt.job.value) return;
    line.asking = 0;
    waits_s_.push_back(static_cast<double>((now - line.since).ms()) / 1e3);
  }
  void settled(const State& state, const Knowledge& knowledge, Time now) override {
    for (std::size_t queue = 1; queue < lines_.size(); ++queue) {
      Line& line = lines_[queue];
      if (line.waiting.empty()) continue;
      const uint64_t first = *line.waiting.begin();
      const Job& job = *state.jobs.find(JobId{first});
      if (job.promised) continue;  // The claim that it waits for counts as held.
      const Tenant& tenant = *state.find_tenant(job.tenant);
      const int64_t wanted = jobs_[knowledge.index_of(job.id)].size * kMilliPerGpu;
      const int64_t kept = tenant.usage.cpu_milli - tenant.going.cpu_milli;
      const bool own = kept + wanted <= clusters_.gpus[queue] * kMilliPerGpu;
      if (own && line.asking != first) line.since = now;
      line.asking = own ? first : 0;
    }
  }

  /// Waits of all that were not placed in the instant in which they asked.
  const std::vector<double>& waits_s() const { return waits_s_; }

 private:
  struct Line {
    std::set<uint64_t> waiting;
    uint64_t asking = 0;
    Time since;
  };
  const std::vector<TraceJob>& jobs_;
  const VirtualClusters& clusters_;
  std::vector<Line> lines_;  ///< By queue.
  std::vector<double> waits_s_;
};

struct Figures {
  replay::Measures all;
  std::vector<double> completion_s;  ///< Mean, by VC.
  std::vector<double> waits_s;       ///< By job.
  replay::Percentiles reclaim_s;     ///< Times until a guarantee was there again, as the scheduler counts it.
  std::size_t reclaims = 0;
  replay::Percentiles own_s;  ///< The same as `Asking` counts it.
  std::size_t asked = 0;
  double lost_gpu_h = 0;
  double used_gpu_h = 0;
};

Result<Figures> figures(const std::vector<TraceJob>& jobs, const VirtualClusters& clusters, Sharing sharing,
                        Work work) {
  const Result<replay::ReplayPolicy> policy = replay::parse_policy(kPolicy);
  replay::ReplayOptions options = options_for(clusters, sharing, work);
  Asking asking(jobs, clusters);
  if (sharing == Sharing::kLending) options.watcher = &asking;
  const Result<replay::ReplayOutcome> outcome = replay::replay_engine(jobs, *policy, options);
  if (!outcome) return outcome.error();
  Figures figures{.all = replay::measures_of(jobs, *outcome, clusters.total),
                  .reclaims = outcome->reclaims.size(),
                  .asked = asking.waits_s().size(),
                  .lost_gpu_h = static_cast<double>(outcome->lost_ms) / 3.6e6};
  std::vector<double> reclaims;
  for (const Duration took : outcome->reclaims) reclaims.push_back(static_cast<double>(took.ms()) / 1e3);
  figures.reclaim_s = replay::percentiles_of(std::move(reclaims));
  figures.own_s = replay::percentiles_of(asking.waits_s());
  std::vector<double> count(clusters.names.size());
  figures.completion_s.resize(clusters.names.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const replay::ReplayOutcome::Run& run = outcome->runs[i];
    if (!run.ran) continue;
    figures.completion_s[jobs[i].queue] += static_cast<double>((run.ended - jobs[i].submitted).ms()) / 1e3;
    figures.waits_s.push_back(static_cast<double>((run.started - jobs[i].submitted).ms()) / 1e3);
    figures.used_gpu_h += static_cast<double>(jobs[i].size * jobs[i].run.ms()) / 3.6e6;
    count[jobs[i].queue] += 1;
  }
  for (std::size_t i = 0; i < count.size(); ++i) figures.completion_s[i] /= std::max(count[i], 1.0);
  return figures;
}

/// One replay of each kind.
struct Comparison {
  Figures fixed;
  Figures pooled;
  Figures lending;

  /// By how many per cent the mean of the VC that fares worst is above that of its own partition.
  double worst(const Figures& shared) const {
    double worst = 0;
    for (std::size_t i = 1; i < fixed.completion_s.size(); ++i) {
      if (fixed.completion_s[i] > 0) worst = std::max(worst, shared.completion_s[i] / fixed.completion_s[i]);
    }
    return 100 * (worst - 1);
  }
  double against_pool() const {
    return 100 * (lending.all.completion_s.mean / pooled.all.completion_s.mean - 1);
  }
};

std::optional<Comparison> compare(const std::vector<TraceJob>& jobs, const VirtualClusters& clusters,
                                  Work work = Work::kStartsAnew) {
  Result<Figures> fixed = figures(jobs, clusters, Sharing::kStatic, work);
  Result<Figures> pooled = figures(jobs, clusters, Sharing::kPooled, work);
  Result<Figures> lending = figures(jobs, clusters, Sharing::kLending, work);
  if (fixed.ok() && pooled.ok() && lending.ok())
    return Comparison{
        .fixed = *std::move(fixed), .pooled = *std::move(pooled), .lending = *std::move(lending)};
  std::fprintf(stderr, "the engine refused a tenant\n");
  return std::nullopt;
}

void print(const Comparison& of, const VirtualClusters& clusters) {
  std::printf("%-12s %8s %16s %16s %16s\n", "VC", "GPUs", "static (s)", "pooled (s)", "lending (s)");
  for (std::size_t i = 1; i < clusters.names.size(); ++i) {
    std::printf("%-12s %8lld %16.0f %16.0f %16.0f\n", clusters.names[i].c_str(),
                static_cast<long long>(clusters.gpus[i]), of.fixed.completion_s[i], of.pooled.completion_s[i],
                of.lending.completion_s[i]);
  }
  const auto line = [](const char* what, double fixed, double pooled, double lending) {
    std::printf("%-21s %16.0f %16.0f %16.0f\n", what, fixed, pooled, lending);
  };
  line("all", of.fixed.all.completion_s.mean, of.pooled.all.completion_s.mean,
       of.lending.all.completion_s.mean);
  line("mean wait", of.fixed.all.wait_s.mean, of.pooled.all.wait_s.mean, of.lending.all.wait_s.mean);
  const Figures& lending = of.lending;
  std::printf(
      "lending: %llu preemptions (of one job %llu at most), %.0f GPU hours lost, %.2f %% of the work\n"
      "%zu guarantees taken back: mean %.1f, p50 %.1f, p99 %.1f, longest %.1f s as the scheduler counts\n"
      "%zu waits of a VC's first job for what is its own: p50 %.1f, p90 %.1f, p99 %.1f, longest %.1f s\n\n",
      static_cast<unsigned long long>(lending.all.preemptions),
      static_cast<unsigned long long>(lending.all.preemptions_max), lending.lost_gpu_h,
      100 * lending.lost_gpu_h / lending.used_gpu_h, lending.reclaims, lending.reclaim_s.mean,
      lending.reclaim_s.p50, lending.reclaim_s.p99, lending.reclaim_s.max, lending.asked, lending.own_s.p50,
      lending.own_s.p90, lending.own_s.p99, lending.own_s.max);
}

/// The rows of one comparison, or of the medians of several.
bool print_rows(const std::string& which, const std::vector<Comparison>& all) {
  const auto median = [&](auto&& value) {
    std::vector<double> values;
    for (const Comparison& one : all) values.push_back(value(one));
    return quality::spread_of(values).median;
  };
  const std::string name = "Philly" + which + ", ";
  const double fixed = median([](const Comparison& c) { return c.fixed.all.completion_s.mean; });
  const double pooled = median([](const Comparison& c) { return c.pooled.all.completion_s.mean; });
  const double lending = median([](const Comparison& c) { return c.lending.all.completion_s.mean; });
  const double above = median([](const Comparison& c) { return c.against_pool(); });
  const double back = median([](const Comparison& c) { return c.lending.own_s.p99; });
  const double asked = median([](const Comparison& c) { return static_cast<double>(c.lending.asked); });
  const double worst = median([](const Comparison& c) { return c.worst(c.lending); });
  quality::print_note(name + "static partitions, mean completion", "", quality::grouped(fixed) + " s");
  quality::print_note(name + "one pool, mean completion", "", quality::grouped(pooled) + " s");
  bool met =
      quality::print_row(name + "lend and reclaim, mean completion", "<= 10 % above one pool",
                         quality::grouped(lending) + " s, " + quality::grouped(above, 2) + " %", above <= 10);
  met &=
      quality::print_row(name + "until a guarantee is there again", "p99 <= 60 s",
                         asked > 0 ? quality::grouped(back, 1) + " s" : "nothing was asked back", back <= 60);
  met &= quality::print_row(name + "a VC against its own partition", "<= 5 % worse",
                            quality::grouped(worst, 2) + " % worse at most", worst <= 5);
  return met;
}

void make_denser(std::vector<TraceJob>& jobs) {
  for (TraceJob& job : jobs) job.submitted = milliseconds(job.submitted.ms() / kDenser);
}

/// The same work on arrivals that are closer: nothing is wanted of it, and guarantees are really taken back.
bool press(std::vector<TraceJob> jobs, const VirtualClusters& clusters) {
  make_denser(jobs);
  for (const Work work : {Work::kStartsAnew, Work::kIsSaved}) {
    const char* what = work == Work::kStartsAnew ? "what is ended starts anew" : "what is ended is saved";
    std::printf("arrivals %lld times as close, %s\n", static_cast<long long>(kDenser), what);
    const std::optional<Comparison> all = compare(jobs, clusters, work);
    if (!all.has_value()) return false;
    print(*all, clusters);
    const std::string name = "Philly, " + std::to_string(kDenser) + " x as close, " + what;
    quality::print_note(name,
                        "static " + quality::grouped(all->fixed.all.completion_s.mean) + ", pool " +
                            quality::grouped(all->pooled.all.completion_s.mean) + " s",
                        quality::grouped(all->lending.all.completion_s.mean) + " s");
    quality::print_note("  until a guarantee is there again, p99", "",
                        quality::grouped(all->lending.own_s.p99, 1) + " s");
    quality::print_note("  a VC against its own partition", "",
                        quality::grouped(all->worst(all->lending), 1) + " % worse at most");
  }
  return true;
}

struct Recorded {
  VirtualClusters clusters;
  std::vector<TraceJob> jobs;
};

std::optional<Recorded> read(int& status) {
  const std::optional<replay::Trace> trace =
      quality::open_trace("philly", "/philly/philly_82247.csv.gz", status);
  if (!trace.has_value()) return std::nullopt;
  Result<VirtualClusters> clusters =
      read_clusters(replay::traces_folder() + "/philly/philly_vc_nodes.csv", *trace);
  if (!clusters.ok()) {
    std::fprintf(stderr, "%s\n", clusters.error().message.c_str());
    status = 1;
    return std::nullopt;
  }
  // A job larger than its VC runs nowhere in a static partition: left out everywhere, so that all have the
  // same work.
  Recorded recorded{.clusters = *std::move(clusters), .jobs = {}};
  for (const TraceJob& job : trace->jobs) {
    if (job.size <= recorded.clusters.gpus[job.queue]) recorded.jobs.push_back(job);
  }
  std::printf("Philly: %zu jobs (%zu are larger than their VC), %zu VCs, %lld GPUs\n", recorded.jobs.size(),
              trace->jobs.size() - recorded.jobs.size(), recorded.clusters.names.size() - 1,
              static_cast<long long>(recorded.clusters.total));
  return recorded;
}

int draw(const char* path) {
  int status = 0;
  std::optional<Recorded> recorded = read(status);
  if (!recorded.has_value()) return status;
  make_denser(recorded->jobs);
  const std::optional<Comparison> all = compare(recorded->jobs, recorded->clusters, Work::kIsSaved);
  if (!all.has_value()) return 1;
  replay::LineChart chart{
      .title = "How long jobs wait: Philly, arrivals " + std::to_string(kDenser) + " times as close",
      .x_label = "wait",
      .y_label = "jobs that waited no longer",
      .x_is_time = true,
      .y_is_share = true,
      .lines = {}};
  const auto add = [&](const char* name, const Figures& of) {
    chart.lines.push_back(replay::cumulative(name, of.waits_s, 1, 200));
  };
  add("static partitions", all->fixed);
  add("guarantees, lent and taken back", all->lending);
  add("one pool, no shares", all->pooled);
  std::ofstream file(path, std::ios::binary);
  file << replay::draw_svg(chart);
  file.close();
  return file ? 0 : 1;
}

int run(int runs) {
  int status = 0;
  const std::optional<Recorded> recorded = read(status);
  if (!recorded.has_value()) return status;
  const auto& [clusters, jobs] = *recorded;
  std::optional<Comparison> as_it_is = compare(jobs, clusters);
  if (!as_it_is.has_value()) return 1;
  print(*as_it_is, clusters);
  std::vector<Comparison> moved;
  for (int i = 0; i < runs; ++i) {
    std::optional<Comparison> one =
        compare(replay::shaken(jobs, minutes(1), static_cast<uint64_t>(i) + 1), clusters);
    if (!one.has_value()) return 1;
    moved.push_back(*std::move(one));
  }
  if (!press(jobs, clusters)) return 1;
  bool met = print_rows("", {*std::move(as_it_is)});
  met &= print_rows(", shaken", moved);
  return met ? status : 1;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "chart") return gpusched::draw(argv[2]);
  return gpusched::quality::run_experiment(argc, argv, "philly", gpusched::run);
}
