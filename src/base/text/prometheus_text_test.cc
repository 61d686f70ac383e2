#include "base/text/prometheus_text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gpusched {
namespace {

TEST(PrometheusText, FamilyAndSamplesStandInOrder) {
  PrometheusText text("gpu_scheduler");
  text.family("jobs_total", "counter", "Jobs.");
  text.sample("jobs_total").label("state", "running").label("user", "ann").value(int64_t{3});
  text.sample("jobs_total").value(0.25);
  text.family("process_open_fds", "gauge", "Open files.", true);
  text.sample("process_open_fds", true).number("7.500000");
  EXPECT_EQ(text.take(),
            "# HELP gpu_scheduler_jobs_total Jobs.\n"
            "# TYPE gpu_scheduler_jobs_total counter\n"
            "gpu_scheduler_jobs_total{state=\"running\",user=\"ann\"} 3\n"
            "gpu_scheduler_jobs_total 0.25\n"
            "# HELP process_open_fds Open files.\n"
            "# TYPE process_open_fds gauge\n"
            "process_open_fds 7.500000\n");
}

TEST(PrometheusText, LabelsAreEscaped) {
  PrometheusText text;
  text.sample("x").label("model", "a\"b\\c\nd").value(1);
  EXPECT_EQ(text.take(), "x{model=\"a\\\"b\\\\c\\nd\"} 1\n");
}

TEST(PrometheusText, NamesStandAloneWithoutANameSpace) {
  PrometheusText text;
  text.sample("gpu_agent_connected").value(1);
  EXPECT_EQ(text.take(), "gpu_agent_connected 1\n");
}

}  // namespace
}  // namespace gpusched
