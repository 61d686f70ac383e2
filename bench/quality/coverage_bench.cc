// rooms: published replay predict engine model base
//
// Does the p90 cover nine of ten? Run times as they are predicted when a job is submitted, from what had
// ended by then, on KTH-SP2 and Helios vcvGl; and the same with the quantile calibrated by what happened.
#include "experiment.h"
#include "predict/learned.h"
#include "predict/quality.h"
#include "published/gang_replay.h"
#include "replay/scheduler/job_facts.h"
#include "table.h"

namespace gpusched {
namespace {

using replay::TraceJob;

/// First come, first served, with each job's run time predicted meanwhile.
class Predicting final : public replay::GangOrder {
 public:
  int64_t key(const replay::GangView&) override { return 0; }
  void submitted(uint32_t job, const TraceJob& what, Duration now) override {
    const predict::RunTimes times = predictor_.predict(replay::facts_of(job, what), now.ms());
    said_.resize(job + 1);
    said_[job] = {.known = !times.empty(),
                  .p90_ms = times.quantile_ms(900),
                  .calibrated_ms = times.quantile_ms(calibration_.level_per_mille())};
  }
  void started(uint32_t job, const TraceJob& what, Duration now) override {
    predictor_.started(replay::facts_of(job, what), now.ms());
  }
  void finished(uint32_t job, const TraceJob& what, Duration now) override {
    predictor_.finished(replay::facts_of(job, what), what.run.ms(), now.ms());
    if (!said_[job].known) return;
    p90_.add(said_[job].p90_ms, what.run.ms());
    calibrated_.add(said_[job].calibrated_ms, what.run.ms());
    calibration_.add(what.run.ms() <= said_[job].calibrated_ms);
  }

  bool print(const std::string& trace) const {
    const double raw = p90_.covered_per_mille() / 10.0;
    const double calibrated = calibrated_.covered_per_mille() / 10.0;
    std::printf("%s: %lld predictions; p90 covers %.1f %%, calibrated %.1f %%\n", trace.c_str(),
                static_cast<long long>(p90_.count()), raw, calibrated);
    return quality::print_row("run time, p90 calibrated covers, " + trace, "90 +- 3 %",
                              quality::grouped(calibrated, 1) + " %", calibrated >= 87 && calibrated <= 93);
  }

 private:
  struct Said {
    bool known = false;
    int64_t p90_ms = 0;
    int64_t calibrated_ms = 0;
  };
  predict::Learned predictor_;
  std::vector<Said> said_;
  predict::QuantileScore p90_{900};
  predict::QuantileScore calibrated_{900};
  predict::Calibration calibration_{900};
};

bool measure(const char* name, const char* format, const char* file, const char* queue,
             const replay::GangRules& rules, int& status) {
  const std::optional<replay::Trace> trace = quality::open_trace(format, file, status);
  if (!trace.has_value()) return true;
  Predicting order;
  replay::replay_gangs(quality::jobs_of(*trace, queue), rules, order);
  return order.print(name);
}

int run() {
  int status = 0;
  bool met = measure("KTH-SP2", "swf", "/kth/KTH-SP2.swf.gz", nullptr,
                     {.nodes = 100, .gpus_per_node = 1, .pass_blocked = true}, status);
  met &= measure("Helios vcvGl", "helios", "/helios_venus/venus_2vc_sept2020.csv.gz", "vcvGl",
                 {.nodes = 20, .gpus_per_node = 8, .consolidated = true, .pass_blocked = true}, status);
  return met ? status : 1;
}

}  // namespace
}  // namespace gpusched

int main() { return gpusched::run(); }
