// gpu-sim: runs seeds of the simulator. docs/operate/simulation.md
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/prng.h"
#include "grammar/program.h"
#include "main/sim_replay.h"
#include "sim/world.h"

namespace {

using gpusched::sim::RunOptions;
using gpusched::sim::RunResult;

struct Options {
  RunOptions run;
  std::vector<uint64_t> seeds;
  std::string seed;
  std::string seeds_range;
  std::string seeds_file;
  std::string faults = "all";
  std::string draw_from = "0";
  int64_t draw_count = 0;
  int64_t steps = RunOptions{}.steps;
  int64_t seconds = 0;
  bool twice = false;
  bool verbose = false;
  bool counts = false;
  int64_t failures_max = 1;
};

/// One in so many drawn seeds is run twice.
constexpr uint64_t kTwiceEvery = 20;

/// Text that is printed when a CHECK ends the process in the middle of a seed.
char g_last_words[1024];
std::size_t g_last_words_size = 0;

extern "C" void on_abort(int) {
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, g_last_words, g_last_words_size);
  _exit(1);
}

std::string command_for(const RunOptions& run, const std::string& faults) {
  std::string command =
      "gpu-sim --seed " + std::to_string(run.seed) + " --steps " + std::to_string(run.steps);
  if (faults != "all") command += " --faults " + faults;
  return command + " --trace";
}

class Runner {
 public:
  explicit Runner(Options options) : options_(std::move(options)) {}

  /// False: enough has failed.
  bool run(uint64_t seed, bool twice) {
    RunOptions run = options_.run;
    run.seed = seed;
    prepare_last_words(run);
    const RunResult result = gpusched::sim::run_seed(run);
    std::string failure = result.failure;
    if (failure.empty() && twice) {
      const RunResult again = gpusched::sim::run_seed(run);
      if (again.digest != result.digest) failure = "two runs of this seed differ";
    }
    steps_ += result.steps;
    jobs_ += result.jobs;
    host_starts_ += result.host_starts;
    count(result);
    if (options_.verbose || options_.run.trace) print(seed, result);
    if (failure.empty()) {
      ++passed_;
      return true;
    }
    ++failed_;
    std::printf("seed %llu FAILED at step %llu: %s\n  to see it again: %s\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(result.steps),
                failure.c_str(), command_for(run, options_.faults).c_str());
    std::fflush(stdout);
    return failed_ < options_.failures_max;
  }

  int finish(double elapsed) const {
    std::printf("%lld seeds, %llu steps, %llu jobs, %llu scheduler starts in %.1f s (%.0f seeds/s)\n",
                static_cast<long long>(passed_ + failed_), static_cast<unsigned long long>(steps_),
                static_cast<unsigned long long>(jobs_), static_cast<unsigned long long>(host_starts_),
                elapsed, static_cast<double>(passed_ + failed_) / std::max(elapsed, 1e-9));
    if (options_.counts) print_counts();
    std::printf("%lld passed, %lld failed\n", static_cast<long long>(passed_),
                static_cast<long long>(failed_));
    return failed_ == 0 ? 0 : 1;
  }

 private:
  void print(uint64_t seed, const RunResult& result) const {
    std::printf(
        "seed %llu: %llu steps, %zu jobs, %zu attempts, %llu records, %llu scheduler starts, digest %016llx, "
        "%s\n",
        static_cast<unsigned long long>(seed), static_cast<unsigned long long>(result.steps), result.jobs,
        result.attempts, static_cast<unsigned long long>(result.records),
        static_cast<unsigned long long>(result.host_starts), static_cast<unsigned long long>(result.digest),
        to_string(result.faults).c_str());
  }

  void count(const RunResult& result) {
    for (std::size_t i = 0; i < result.struck.size(); ++i) struck_[i] += result.struck[i];
    host_.kills += result.host.kills;
    host_.power_losses += result.host.power_losses;
    host_.deaths_in_calls += result.host.deaths_in_calls;
    host_.refused_starts += result.host.refused_starts;
    host_.repairs += result.host.repairs;
    host_.failed_snapshots += result.host.failed_snapshots;
    host_.unprovable_snapshots += result.host.unprovable_snapshots;
    host_.clean_stops += result.host.clean_stops;
    host_.second_hosts += result.host.second_hosts;
    host_.older_hosts += result.host.older_hosts;
    host_.clock_jumps += result.host.clock_jumps;
    host_.sheddings += result.host.sheddings;
    host_.disk.failed_calls += result.host.disk.failed_calls;
    host_.disk.lying_calls += result.host.disk.lying_calls;
    host_.disk.decays += result.host.disk.decays;
    lied_to_ += result.host.lied ? 1 : 0;
    refused_by_nodes_ += result.refused_starts;
  }

  void print_counts() const {
    const auto line = [](std::string_view what, uint64_t times) {
      std::printf("  %-34s %10llu\n", std::string(what).c_str(), static_cast<unsigned long long>(times));
    };
    for (std::size_t i = 0; i < struck_.size(); ++i) {
      if (struck_[i] > 0) line(to_string(static_cast<gpusched::sim::Fault>(i)), struck_[i]);
    }
    line("scheduler killed", host_.kills);
    line("scheduler without power", host_.power_losses);
    line("of both, in a call on the disk", host_.deaths_in_calls);
    line("calls on the disk that failed", host_.disk.failed_calls);
    line("calls on the disk that lied", host_.disk.lying_calls);
    line("places on the disk that decayed", host_.disk.decays);
    line("starts refused for that", host_.refused_starts);
    line("of them repaired by an operator", host_.repairs);
    line("snapshots that failed", host_.failed_snapshots);
    line("spoilt snapshots thrown away", host_.unprovable_snapshots);
    line("clean stops", host_.clean_stops);
    line("second schedulers refused", host_.second_hosts);
    line("older programs refused", host_.older_hosts);
    line("wall clocks off by years", host_.clock_jumps);
    line("history shed for room", host_.sheddings);
    line("runs that a lying device ended", lied_to_);
    line("starts refused by external nodes", refused_by_nodes_);
  }

  void prepare_last_words(const RunOptions& run) const {
    const std::string text =
        "seed " + std::to_string(run.seed) +
        " FAILED: a CHECK ended the process\n  to see it again: " + command_for(run, options_.faults) + "\n" +
        std::to_string(passed_) + " passed, " + std::to_string(failed_ + 1) + " failed\n";
    g_last_words_size = std::min(text.size(), sizeof g_last_words);
    std::memcpy(g_last_words, text.data(), g_last_words_size);
    std::fflush(stdout);
  }

  const Options options_;
  int64_t passed_ = 0;
  int64_t failed_ = 0;
  uint64_t steps_ = 0;
  uint64_t jobs_ = 0;
  uint64_t host_starts_ = 0;
  std::array<uint64_t, gpusched::sim::kFaultCount> struck_{};
  gpusched::sim::HostStory host_;
  uint64_t lied_to_ = 0;
  uint64_t refused_by_nodes_ = 0;
};

/// The seeds that a draw gives have 48 bits: they are copied by people.
constexpr uint64_t kDrawnSeedBits = 48;

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

/// "7" or "1..500".
bool add_range(const std::string& text, std::vector<uint64_t>& seeds) {
  const std::size_t dots = text.find("..");
  const std::optional<uint64_t> from = parse_number(std::string_view(text).substr(0, dots));
  const std::optional<uint64_t> to =
      dots == std::string::npos ? from : parse_number(std::string_view(text).substr(dots + 2));
  if (!from || !to) return false;
  for (uint64_t seed = *from; seed <= *to; ++seed) seeds.push_back(seed);
  return true;
}

bool add_file(const std::string& path, std::vector<uint64_t>& seeds) {
  std::ifstream file(path);
  if (!file) return false;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (words >> word && !add_range(word, seeds)) return false;
  }
  return true;
}

int fail_usage(const std::string& sentence) {
  std::fprintf(stderr, "gpu-sim: %s\n", sentence.c_str());
  return 2;
}

int run_all(Options options, uint64_t draw_from) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const std::vector<uint64_t> seeds = options.seeds;
  const bool twice = options.twice;
  const auto draw_count = static_cast<uint64_t>(options.draw_count);
  const auto limit = static_cast<double>(options.seconds);
  std::signal(SIGABRT, on_abort);
  Runner runner(std::move(options));
  bool go_on = true;
  for (std::size_t i = 0; i < seeds.size() && go_on; ++i) go_on = runner.run(seeds[i], twice);
  gpusched::Prng drawn(draw_from);
  for (uint64_t count = 0; go_on && count < draw_count; ++count) {
    go_on = runner.run(drawn.below(uint64_t{1} << kDrawnSeedBits) + 1, twice || count % kTwiceEvery == 0);
  }
  std::random_device device;
  for (uint64_t count = 0; go_on && elapsed() < limit; ++count) {
    const uint64_t seed = (uint64_t{device()} << 16 | device() % 65'536) + 1;
    go_on = runner.run(seed, twice || count % kTwiceEvery == 0);
  }
  return runner.finish(elapsed());
}

int run_seeds(Options options) {
  const gpusched::Result<gpusched::sim::FaultSet> faults = gpusched::sim::parse_faults(options.faults);
  if (!faults) return fail_usage(faults.error().message);
  options.run.faults = *faults;
  options.run.steps = static_cast<uint64_t>(options.steps);
  if (!options.seed.empty()) {
    const std::optional<uint64_t> seed = parse_number(options.seed);
    if (!seed) return fail_usage("--seed expects a whole number, not '" + options.seed + "'");
    options.seeds.push_back(*seed);
  }
  if (!options.seeds_range.empty() && !add_range(options.seeds_range, options.seeds)) {
    return fail_usage("--seeds expects FROM..TO, not '" + options.seeds_range + "'");
  }
  if (!options.seeds_file.empty() && !add_file(options.seeds_file, options.seeds)) {
    return fail_usage("cannot read seeds from '" + options.seeds_file + "'");
  }
  const std::optional<uint64_t> draw_from = parse_number(options.draw_from);
  if (!draw_from) return fail_usage("--from expects a whole number, not '" + options.draw_from + "'");
  if (options.seeds.empty() && options.seconds <= 0 && options.draw_count == 0) {
    return fail_usage("nothing to run; give --seed, --seeds, --seeds-file, --draw or --seconds");
  }
  return run_all(std::move(options), *draw_from);
}

gpusched::ProgramAction define_seeds(gpusched::Grammar& grammar) {
  const auto options = std::make_shared<Options>();
  grammar.option("--seed", "N", &options->seed, "Run this seed");
  grammar.option("--seeds", "FROM..TO", &options->seeds_range, "Run these seeds");
  grammar
      .option("--seeds-file", "FILE", &options->seeds_file,
              "Run the seeds of a file, one seed or FROM..TO per line, # starts a comment")
      .completes(gpusched::Complete::kFile);
  grammar
      .option("--draw", "N", &options->draw_count,
              "Run this many seeds drawn from --from; one in 20 runs twice")
      .range(0, INT64_MAX);
  grammar.option("--from", "N", &options->draw_from,
                 "Number that --draw starts from; the same number gives the same seeds (default: 0)");
  grammar.option("--seconds", "N", &options->seconds,
                 "Run new seeds for this many seconds; one in 20 runs twice");
  grammar
      .option("--steps", "N", &options->steps,
              "Number of steps in the phase with faults (default: " + std::to_string(options->steps) + ")")
      .range(0, INT64_MAX);
  grammar.option("--faults", "NAMES", &options->faults,
                 "Faults to inject: all, none, or comma-separated names; -name excludes one (default: all)");
  grammar.option("--failures", "N", &options->failures_max, "Stop after this many failed seeds (default: 1)");
  grammar.flag("--twice", options->twice, "Run each seed twice and compare");
  grammar.flag("--trace", options->run.trace, "Print every step");
  grammar.flag("--counts", options->counts, "Print how often each fault occurred");
  grammar.flag("--verbose", options->verbose, "Print one line per seed");
  return [options](const std::vector<std::string>&) { return run_seeds(*options); };
}

}  // namespace

int main(int argc, char** argv) {
  const gpusched::Program program{
      .name = "gpu-sim",
      .version = GPUSCHED_VERSION,
      .summary = "run the scheduler in a simulated world, or on recorded work",
      .commands = {{.path = "",
                    .summary = "Runs the real scheduler and agents in a simulated world and checks every "
                               "guarantee",
                    .define = define_seeds},
                   gpusched::replay_command(),
                   gpusched::what_if_command()},
      .exit_codes =
          "Exit status: 0 if all is well, 1 if a seed failed or nothing can be replayed, 2 if the "
          "command line is wrong."};
  return gpusched::run_program(program, gpusched::program_words(argc, argv), gpusched::process_program_io());
}
