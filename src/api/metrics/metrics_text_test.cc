#include "api/metrics/metrics_text.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

TEST(MetricsText, BucketsAreCumulativeAndEndWithTheCount) {
  MetricsView metrics{
      .latency_bounds = {0.5, 1}, .latency_buckets = {2, 3, 4}, .latency_sum = 9.5, .latency_count = 9};
  const std::string text = metrics_text(metrics, "gpu_scheduler");
  EXPECT_NE(text.find("gpu_scheduler_scheduling_latency_bucket{le=\"0.5\"} 2\n"
                      "gpu_scheduler_scheduling_latency_bucket{le=\"1\"} 5\n"
                      "gpu_scheduler_scheduling_latency_bucket{le=\"+Inf\"} 9\n"
                      "gpu_scheduler_scheduling_latency_sum 9.5\n"
                      "gpu_scheduler_scheduling_latency_count 9\n"),
            std::string::npos)
      << text;
}

TEST(MetricsText, LabelValuesAreEscaped) {
  MetricsView metrics{.gpus = {{.node = "a\"b\\", .gpu = "0", .utilization = 0.25}}};
  const std::string text = metrics_text(metrics, "x");
  EXPECT_NE(text.find("x_gpu_utilization{node=\"a\\\"b\\\\\",gpu=\"0\"} 0.25\n"), std::string::npos) << text;
}

TEST(MetricsText, StatesAndQueueAreThere) {
  MetricsView metrics{.jobs = {{JobState::kRunning, 3}}, .queue_size = 7, .preemptions = 1};
  const std::string text = metrics_text(metrics, "gpu_scheduler");
  EXPECT_NE(text.find("gpu_scheduler_jobs_total{state=\"running\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("gpu_scheduler_queue_size 7\n"), std::string::npos);
  EXPECT_NE(text.find("gpu_scheduler_preemptions_total 1\n"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::api
