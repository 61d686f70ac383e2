// rooms: bench_support host forecast engine model base
//
// Cost of a forecast with 1,000, 10,000 and 100,000 waiting jobs on 1,000 nodes of 8 GPUs that are all busy,
// and its effect on the engine's thread: submissions to a real host, each durable before it is answered,
// without forecasts and while one is made after the other. `forecast_bench [NODES]`.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <type_traits>

#include "base/check.h"
#include "host/host.h"
#include "support/machine.h"

namespace gpusched {
namespace {

using bench::now_ns;
using bench::print_line;
using bench::Samples;
using bench::text_of;

constexpr int kGpus = 8;
constexpr int kTenants = 20;
constexpr int kBatch = 1'000;
constexpr int kSubmissions = 3'000;
constexpr int kForecasts = 5;

class Bench {
 public:
  Bench(const std::string& folder, int nodes) {
    HostOptions options;
    options.data_dir = folder;
    options.engine.feature_level = kFeatureLevel;
    options.tuning.node_lease = hours(24);
    options.forecasts.pause_factor = 0;  // Every question gets a forecast of its own.
    options.forecasts.sample_every = hours(24);
    Result<std::unique_ptr<Host>> opened = Host::open(options);
    CHECK(opened.ok());
    host_ = std::move(*opened);
    for (int i = 0; i < kTenants; ++i) propose(CreateTenant{.name = "team-" + std::to_string(i)});
    for (int i = 0; i < nodes; ++i) propose(node(i));
    // One job on each GPU's worth of every node, so that starts come one by one.
    submit(nodes * 2, 4, hours(6));
    start_all(nodes * 2);
  }
  ~Bench() { host_->stop(); }

  /// Until so many jobs wait.
  void fill(int64_t waiting) {
    const int64_t there = on_state([](const State& state) { return state.waiting_count(); });
    submit(static_cast<int>(waiting - there), 0, hours(2));
  }

  void measure(int64_t waiting) {
    Samples quiet, busy;
    submissions(quiet);
    std::atomic<bool> over{false};
    std::thread asker([&] {
      while (!over) forecast();
    });
    submissions(busy);
    over = true;
    asker.join();
    const ForecastService::Quality before = host_->forecasts().quality();
    std::size_t runs = 0, known = 0;
    for (int i = 0; i < kForecasts; ++i) {
      propose(UpdateTenant{.tenant = kDefaultTenant, .given = kTenantWeight, .weight_milli = 1000 + i});
      std::tie(runs, known) = forecast();
    }
    const ForecastService::Quality after = host_->forecasts().quality();
    const auto per_forecast = [](Duration sum) { return static_cast<double>(sum.ns) / 1e6 / kForecasts; };
    print_line(
        (std::to_string(waiting) + " waiting").c_str(),
        text_of("forecast %.0f ms, %zu runs, p50 known of %zu jobs; copy %.1f ms of the readers' thread",
                per_forecast(after.forecasts_took - before.forecasts_took), runs, known,
                per_forecast(after.copies_took - before.copies_took)));
    print_line(
        "  a durable submission",
        text_of("quiet p50 %.3f p99 %.3f ms; during forecasts p50 %.3f p99 %.3f ms", quiet.percentile_ms(0.5),
                quiet.percentile_ms(0.99), busy.percentile_ms(0.5), busy.percentile_ms(0.99)));
  }

 private:
  static RegisterNode node(int number) {
    RegisterNode node{.name = "n" + std::to_string(number),
                      .instance = "i" + std::to_string(number),
                      .boot_id = "b",
                      .version = "1",
                      .cpu_milli = 64'000,
                      .memory_mb = 512'000};
    for (int i = 0; i < kGpus; ++i) {
      node.devices.push_back({.uuid = "GPU-" + std::to_string(number) + "-" + std::to_string(i),
                              .model = "NVIDIA A100-SXM4-80GB",
                              .memory_mb = 81'920});
    }
    return node;
  }
  Decided propose(Command command) {
    std::promise<Decided> answer;
    host_->propose(std::move(command), [&](Result<Decided> decided) {
      CHECK(decided.ok());
      CHECK(!decided->applied.rejection.has_value());
      answer.set_value(*decided);
    });
    const Decided decided = answer.get_future().get();
    sequence_ = decided.sequence;
    return decided;
  }
  template <typename Look>
  std::invoke_result_t<Look, const State&> on_state(Look look) {
    std::promise<std::invoke_result_t<Look, const State&>> answer;
    host_->observer().read(sequence_,
                           [&](const Observer::View& view) { answer.set_value(look(view.state)); });
    return answer.get_future().get();
  }
  /// `gpus` 0: of sizes 1, 2, 4 and 8 and limits of half an hour to the double of `limit`.
  void submit(int count, int gpus, Duration limit) {
    for (int done = 0; done < count; done += kBatch) {
      SubmitJobs command{.tenant = TenantId{1}, .request_key = {}, .jobs = {}};
      const int tenant = (done / kBatch) % kTenants;
      command.tenant = on_state(
          [&](const State& state) { return state.find_tenant_named("team-" + std::to_string(tenant))->id; });
      for (int i = done; i < std::min(done + kBatch, count); ++i) {
        JobRequest job{.priority = i % 3, .parts = {Part{.gpu_count = gpus, .cpu_milli = 1000}}};
        if (gpus == 0) job.parts.front().gpu_count = 1 << (i % 4);
        job.max_runtime = gpus == 0 ? minutes(30) + minutes(limit.ns / minutes(1).ns * (i % 7) / 4) : limit;
        command.jobs.push_back(std::move(job));
      }
      propose(std::move(command));
    }
  }
  void start_all(int count) {
    while (on_state([](const State& state) { return state.attempts.size(); }) <
           static_cast<std::size_t>(count))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto attempts = on_state([](const State& state) {
      std::vector<std::pair<JobId, NodeId>> out;
      for (const auto& [key, attempt] : state.attempts) out.emplace_back(key.job, attempt.members[0].node);
      return out;
    });
    for (const auto& [job, node] : attempts)
      propose(AttemptStarted{.job = job, .attempt = 1, .member = 0, .node = node});
  }
  /// Runs made, and jobs whose p50 is known.
  std::pair<std::size_t, std::size_t> forecast() {
    std::promise<std::pair<std::size_t, std::size_t>> answer;
    host_->forecasts().ask(
        0, {},
        [&](ForecastService::Table& table) -> ForecastService::Answer {
          const forecast::Forecast& made = table.forecast({});
          std::size_t known = 0;
          for (const auto& [job, estimate] : made.jobs) known += estimate.p50 == kNever ? 0 : 1;
          return [&answer, runs = made.runs, known] { answer.set_value({runs, known}); };
        },
        [](const Error& error) { check_failed(error.message.c_str(), __FILE__, __LINE__); });
    return answer.get_future().get();
  }
  /// One after the other; each is cancelled again.
  void submissions(Samples& samples) {
    for (int i = 0; i < kSubmissions; ++i) {
      SubmitJobs command{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
      command.jobs.push_back(JobRequest{.parts = {Part{.gpu_count = 8, .cpu_milli = 1000}}});
      const int64_t begin = now_ns();
      const Decided decided = propose(std::move(command));
      samples.add(now_ns() - begin);
      propose(CancelJob{.job = JobId{decided.applied.first_id}});
    }
  }

  std::unique_ptr<Host> host_;
  uint64_t sequence_ = 0;
};

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  using namespace gpusched;  // NOLINT(google-build-using-namespace)
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 1'000;
  std::string folder = std::filesystem::temp_directory_path() / "gpusched-forecast-XXXXXX";
  CHECK(::mkdtemp(folder.data()) != nullptr);
  bench::print_line("machine", bench::machine_line());
  bench::print_line("cluster", bench::text_of("%d nodes of 8 GPUs, all busy", nodes));
  {
    Bench made(folder, nodes);
    for (const int64_t waiting : {1'000, 10'000, 100'000}) {
      made.fill(waiting);
      made.measure(waiting);
    }
  }
  std::filesystem::remove_all(folder);
  return 0;
}
