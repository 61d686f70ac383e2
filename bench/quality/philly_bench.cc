// rooms: replay predict engine model base
//
// Philly's virtual clusters (VCs), each with its own nodes, on the real engine as one pool of alike GPUs:
// every VC confined to its share, and nobody confined: then every share is lent, and nothing is asked back.
#include <cstdlib>
#include <string>

#include "replay/csv.h"
#include "replay/engine_replay.h"
#include "replay/formats.h"
#include "replay/measures.h"
#include "replay/traces_folder.h"
#include "table.h"

namespace gpusched {
namespace {

using replay::TraceJob;

constexpr int64_t kGpusPerNode = 8;
constexpr int32_t kMilliPerGpu = 1000;  ///< Of a pool, a GPU is a core to the engine.

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

/// What becomes of the VCs' shares.
enum class Sharing : uint8_t { kStatic, kPooled };

replay::ReplayOptions options_for(const VirtualClusters& clusters, Sharing sharing) {
  replay::ReplayOptions options{.cluster = {.pool = clusters.total}, .tenant_of = replay::TenantOf::kQueue};
  options.tenants.resize(clusters.names.size());
  for (std::size_t i = 1; i < clusters.names.size(); ++i) {
    CreateTenant& tenant = options.tenants[i];
    if (sharing == Sharing::kStatic) tenant.limits.set(Resource::kCpu, clusters.gpus[i] * kMilliPerGpu);
  }
  return options;
}

struct Figures {
  replay::Measures all;
  std::vector<double> completion_s;  ///< Mean, by VC.
};

Result<Figures> figures(const std::vector<TraceJob>& jobs, const VirtualClusters& clusters, Sharing sharing) {
  const Result<replay::ReplayPolicy> policy = replay::parse_policy("fair_share+reservations=0");
  const Result<replay::ReplayOutcome> outcome =
      replay::replay_engine(jobs, *policy, options_for(clusters, sharing));
  if (!outcome) return outcome.error();
  Figures figures{.all = replay::measures_of(jobs, *outcome, clusters.total), .completion_s = {}};
  std::vector<double> count(clusters.names.size());
  figures.completion_s.resize(clusters.names.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!outcome->runs[i].ran) continue;
    figures.completion_s[jobs[i].queue] +=
        static_cast<double>((outcome->runs[i].ended - jobs[i].submitted).ms()) / 1e3;
    count[jobs[i].queue] += 1;
  }
  for (std::size_t i = 0; i < count.size(); ++i) figures.completion_s[i] /= std::max(count[i], 1.0);
  return figures;
}

int run() {
  const std::string folder = replay::traces_folder() + "/philly/";
  const Result<replay::Trace> trace = replay::read_trace("philly", folder + "philly_82247.csv.gz");
  if (!trace.ok()) {
    if (trace.error().code != ErrorCode::kNotFound)
      return std::fprintf(stderr, "%s\n", trace.error().message.c_str()), 1;
    std::printf("skipped: %s; GPUSCHED_TRACES names the folder of traces\n", trace.error().message.c_str());
    return 0;
  }
  const Result<VirtualClusters> clusters = read_clusters(folder + "philly_vc_nodes.csv", *trace);
  if (!clusters.ok()) return std::fprintf(stderr, "%s\n", clusters.error().message.c_str()), 1;
  // A job larger than its VC runs nowhere in a static partition: left out everywhere, so that all have the
  // same work.
  std::vector<TraceJob> jobs;
  for (const TraceJob& job : trace->jobs) {
    if (job.size <= clusters->gpus[job.queue]) jobs.push_back(job);
  }
  std::printf("Philly: %zu jobs (%zu are larger than their VC), %zu VCs, %lld GPUs\n", jobs.size(),
              trace->jobs.size() - jobs.size(), clusters->names.size() - 1,
              static_cast<long long>(clusters->total));
  const Result<Figures> fixed = figures(jobs, *clusters, Sharing::kStatic);
  const Result<Figures> pooled = figures(jobs, *clusters, Sharing::kPooled);
  if (!fixed.ok() || !pooled.ok()) return std::fprintf(stderr, "the engine refused a tenant\n"), 1;
  std::printf("%-12s %8s %16s %16s\n", "VC", "GPUs", "static (s)", "pooled (s)");
  for (std::size_t i = 1; i < clusters->names.size(); ++i) {
    std::printf("%-12s %8lld %16.0f %16.0f\n", clusters->names[i].c_str(),
                static_cast<long long>(clusters->gpus[i]), fixed->completion_s[i], pooled->completion_s[i]);
  }
  std::printf("%-12s %8lld %16.0f %16.0f\nmean wait %28.0f %16.0f\n", "all",
              static_cast<long long>(clusters->total), fixed->all.completion_s.mean,
              pooled->all.completion_s.mean, fixed->all.wait_s.mean, pooled->all.wait_s.mean);
  double worst = 0;
  for (std::size_t i = 1; i < clusters->names.size(); ++i) {
    if (fixed->completion_s[i] > 0) worst = std::max(worst, pooled->completion_s[i] / fixed->completion_s[i]);
  }
  const std::string ours = quality::grouped(100 * (worst - 1), 2) + " % worse at most";
  quality::print_note("Philly, static partitions, mean completion", "",
                      quality::grouped(fixed->all.completion_s.mean) + " s");
  quality::print_note("Philly, one pool, mean completion", "",
                      quality::grouped(pooled->all.completion_s.mean) + " s");
  return quality::print_row("Philly, one pool, a VC against its own partition", "<= 5 % worse", ours,
                            worst <= 1.05)
             ? 0
             : 1;
}

}  // namespace
}  // namespace gpusched

int main() { return gpusched::run(); }
