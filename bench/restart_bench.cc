// rooms: bench_load
//
// How long a scheduler with many waiting jobs takes from exec to serving (GET /health is 200), after a kill
// -9 (the journal is replayed) and after a clean end (the snapshot is read), and what a waiting job costs in
// memory.
#include <cstdlib>
#include <filesystem>

#include "load/load.h"

namespace gpusched::bench {
namespace {

constexpr double kCopies = 2;  ///< The engine's state and the observer's.

double megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

int64_t folder_bytes(const std::string& path) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

class RestartBench {
 public:
  RestartBench(Scheduler& scheduler, int64_t jobs) : scheduler_(scheduler), jobs_(jobs) {
    resident_empty_ = scheduler.process().resident_bytes();
  }

  /// One restart; `name` says after what.
  double restart(const char* name) {
    const double seconds = scheduler_.start();
    const double cpu = scheduler_.process().cpu_seconds();
    const int64_t there = scheduler_.job_count("pending");
    expect(there == jobs_, text_of("%lld of %lld waiting jobs are there", static_cast<long long>(there),
                                   static_cast<long long>(jobs_)));
    print_line(name, text_of("%.3f s from exec to serving, %.2f s of CPU; ", seconds, cpu) + memory());
    return seconds;
  }

  std::string memory() {
    const int64_t resident = scheduler_.process().resident_bytes();
    per_job_.push_back(static_cast<double>(resident - resident_empty_) / static_cast<double>(jobs_) /
                       kCopies);
    return text_of("resident %.0f MB (peak %.0f MB, empty %.0f MB), %.0f B a job and copy of the state",
                   megabytes(resident), megabytes(scheduler_.process().resident_peak_bytes()),
                   megabytes(resident_empty_), per_job_.back());
  }
  double worst_per_job() const {
    double worst = 0;
    for (const double bytes : per_job_) worst = std::max(worst, bytes);
    return worst;
  }

 private:
  Scheduler& scheduler_;
  int64_t jobs_;
  int64_t resident_empty_ = 0;
  std::vector<double> per_job_;
};

int run(int64_t jobs, int rounds) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line("sizes",
             text_of("%lld waiting jobs of a name, a command, two arguments and one label; warm page cache",
                     static_cast<long long>(jobs)));
  Scheduler scheduler(folder.path());
  RestartBench bench(scheduler, jobs);
  const LoadResult submitted = submit_batches(scheduler, jobs);
  print_line("submitted",
             text_of("%.0f jobs/s in batches of 1,000; ", submitted.jobs_per_second()) + bench.memory());
  print_line("on disk",
             text_of("journal %.0f MB", megabytes(folder_bytes(scheduler.data_dir() + "/journal"))));
  std::vector<double> after_kill, after_stop;
  for (int round = 0; round < rounds; ++round) {
    scheduler.kill_hard();
    after_kill.push_back(bench.restart("after kill -9"));
  }
  for (int round = 0; round < rounds; ++round) {
    const double stopping = scheduler.stop_cleanly();
    print_line("clean end", text_of("%.3f s; snapshots %.0f MB", stopping,
                                    megabytes(folder_bytes(scheduler.data_dir() + "/snapshots"))));
    after_stop.push_back(bench.restart("after it"));
  }
  print_line("checked", text_of("%lld jobs acknowledged, as many waiting after every restart",
                                static_cast<long long>(submitted.jobs.size())));
  print_line(
      "figure",
      text_of("exec to serving %.2f s after kill -9, %.2f s after a clean end, medians of %d (target < 3 "
              "s); at most %.0f B a job and copy (target <= 500 B)",
              median(after_kill), median(after_stop), rounds, bench.worst_per_job()));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// restart_bench [JOBS [ROUNDS]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoll(argv[1]) : 1'000'000, argc > 2 ? std::atoi(argv[2]) : 3);
}
