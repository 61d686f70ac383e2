#include "api/metrics/metrics_text.h"

#include <utility>

#include "base/text/prometheus_text.h"

namespace gpusched::api {
namespace {

void add_scores(PrometheusText& text, const std::vector<QualityView::Score>& scores, const std::string& name,
                const std::string& of) {
  const auto by_percentile = [&](const std::string& family, auto p50, auto p90) {
    for (std::size_t i = 1; i < scores.size(); ++i) {  // The first is of all.
      text.sample(family).label("tenant", scores[i].tenant).label("percentile", "50").value(scores[i].*p50);
      text.sample(family).label("tenant", scores[i].tenant).label("percentile", "90").value(scores[i].*p90);
    }
  };
  using Score = QualityView::Score;
  text.family(name + "_predicted_total", "counter",
              of + " that were predicted and have happened since the start.");
  for (std::size_t i = 1; i < scores.size(); ++i)
    text.sample(name + "_predicted_total").label("tenant", scores[i].tenant).value(scores[i].count);
  text.family(name + "_covered_total", "counter", of + " that were not later than the predicted quantile.");
  by_percentile(name + "_covered_total", &Score::p50_covered, &Score::p90_covered);
  text.family(name + "_pinball_seconds_total", "counter", "Pinball loss of " + of + ", sum.");
  by_percentile(name + "_pinball_seconds_total", &Score::p50_pinball_sum, &Score::p90_pinball_sum);
}

/// Adds the scores of at most 64 tenants by name each.
void add_quality(PrometheusText& text, const QualityView& quality) {
  add_scores(text, quality.run_times, "run_times", "run times");
  add_scores(text, quality.starts, "starts", "starts of waiting jobs");
  text.family("start_error_seconds", "histogram",
              "Difference between the starts of waiting jobs and their first prediction.");
  int64_t below = 0;
  for (std::size_t i = 0; i < quality.error_bounds.size(); ++i) {
    below += quality.error_buckets[i];
    text.sample("start_error_seconds_bucket")
        .label("le", PrometheusText::text_of(quality.error_bounds[i]))
        .value(below);
  }
  const int64_t count = quality.starts.empty() ? 0 : quality.starts.front().count;
  text.sample("start_error_seconds_bucket").label("le", "+Inf").value(count);
  text.sample("start_error_seconds_sum")
      .value(quality.starts.empty() ? 0.0 : quality.starts.front().error_sum);
  text.sample("start_error_seconds_count").value(count);
  text.family("forecasts_total", "counter", "Forecasts made since the start.");
  text.sample("forecasts_total").value(quality.forecasts);
  text.family("forecast_seconds_total", "counter", "Time spent on forecasts, on their own thread.");
  text.sample("forecast_seconds_total").value(quality.forecast_seconds);
  text.family("forecast_copy_seconds_total", "counter",
              "Time that readers waited while the state was copied for forecasts.");
  text.sample("forecast_copy_seconds_total").value(quality.copy_seconds);
}

void histogram(PrometheusText& text, const std::string& name, const std::vector<double>& bounds,
               const std::vector<int64_t>& buckets, double sum, int64_t count) {
  int64_t below = 0;
  for (std::size_t i = 0; i < bounds.size() && i < buckets.size(); ++i) {
    below += buckets[i];
    text.sample(name + "_bucket").label("le", PrometheusText::text_of(bounds[i])).value(below);
  }
  text.sample(name + "_bucket").label("le", "+Inf").value(count);
  text.sample(name + "_sum").value(sum);
  text.sample(name + "_count").value(count);
}

void add_counter(PrometheusText& text, const MetricsView::Counter& counter) {
  text.sample(counter.name, counter.is_bare);
  for (const auto& [name, value] : counter.labels) text.label(name, value);
  if (counter.real) return text.value(*counter.real);
  text.value(counter.value);
}

void add_requests(PrometheusText& text, const std::vector<MetricsView::Requests>& doors) {
  text.family("requests_total", "counter", "Requests answered since the start, by door and code.");
  for (const MetricsView::Requests& door : doors) {
    for (const auto& [code, answers] : door.answers)
      text.sample("requests_total")
          .label("door", door.kind)
          .label("code", PrometheusText::text_of(code))
          .value(answers);
  }
  text.family("request_seconds", "histogram",
              "Time from the header of a request to the header of its answer.");
  for (const MetricsView::Requests& door : doors) {
    int64_t below = 0;
    for (std::size_t i = 0; i < door.buckets.size(); ++i) {
      below += door.buckets[i];
      const std::string bound = i < door.bounds.size() ? PrometheusText::text_of(door.bounds[i]) : "+Inf";
      text.sample("request_seconds_bucket").label("door", door.kind).label("le", bound).value(below);
    }
    text.sample("request_seconds_sum").label("door", door.kind).value(door.seconds);
    text.sample("request_seconds_count").label("door", door.kind).value(below);
  }
}

}  // namespace

std::string metrics_text(const MetricsView& metrics, std::string_view name_space) {
  PrometheusText text(name_space);
  text.family("jobs_total", "counter", "Jobs that entered a state since the scheduler's start.");
  for (const MetricsView::State& jobs : metrics.jobs) {
    text.sample("jobs_total").label("state", to_string(jobs.state)).value(jobs.total);
  }
  text.family("queue_size", "gauge", "Waiting jobs.");
  text.sample("queue_size").value(metrics.queue_size);
  text.family("gpu_utilization", "gauge", "Utilization of each GPU, 0 to 1, as its node last reported it.");
  for (const MetricsView::Gpu& gpu : metrics.gpus) {
    text.sample("gpu_utilization").label("node", gpu.node).label("gpu", gpu.gpu).value(gpu.utilization);
  }
  text.family("scheduling_latency", "histogram", "Seconds from a job's submission to its first placement.");
  histogram(text, "scheduling_latency", metrics.latency_bounds, metrics.latency_buckets, metrics.latency_sum,
            metrics.latency_count);
  text.family("guarantee_reclaim_seconds", "histogram",
              "Seconds from requesting guaranteed resources to starting on those reclaimed from borrowers.");
  histogram(text, "guarantee_reclaim_seconds", metrics.latency_bounds, metrics.reclaim_buckets,
            metrics.reclaim_sum, metrics.reclaim_count);
  text.family("preemptions_total", "counter", "Jobs that were preempted since the scheduler's start.");
  text.sample("preemptions_total").value(metrics.preemptions);
  add_quality(text, metrics.quality);
  text.family("journal_sync_seconds", "summary", "Time until writes to the journal were durable.");
  text.sample("journal_sync_seconds_sum").value(metrics.journal_sync_seconds);
  text.sample("journal_sync_seconds_count").value(metrics.journal_syncs);
  std::string_view family;
  for (const MetricsView::Counter& counter : metrics.counters) {
    if (std::exchange(family, counter.name) != counter.name)
      text.family(counter.name, counter.type, counter.help, counter.is_bare);
    add_counter(text, counter);
  }
  add_requests(text, metrics.requests);
  return text.take();
}

}  // namespace gpusched::api
