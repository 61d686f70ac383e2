// Tenants on the command line, against a server that answers as the scheduler does.
#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

TEST(Tenants, AreCreatedWithTheirLimits) {
  std::vector<Request> seen;
  const Ran ran =
      run_against([](const Request&) { return Reply{.status = 201, .body = R"({"id":"tenant-4"})"}; },
                  {"tenant", "create", "--name", "lab", "--max-gpus", "8", "--max-gpu-memory", "640G",
                   "--priority", "high", "--weight", "2"},
                  &seen);
  EXPECT_EQ(ran.out, "tenant-4\n");
  EXPECT_EQ(seen.at(0).target, "/api/v1/tenants?unique_name=true");
  EXPECT_EQ(
      seen.at(0).body,
      R"({"name":"lab","max_gpus":8,"max_gpu_memory_mb":655360,"priority_tier":1000,"fair_share_weight":2})");
}

TEST(Tenants, AreCreatedAsExistingScriptsDo) {
  std::vector<Request> seen;
  const Ran ran =
      run_against([](const Request&) { return Reply{.status = 201, .body = R"({"id":"tenant-4"})"}; },
                  {"create-tenant", "--name", "lab", "--max-gpus", "10", "--priority", "medium"}, &seen);
  EXPECT_EQ(ran.out, "Tenant created successfully!\nTenant ID: tenant-4\n");
  EXPECT_EQ(seen.at(0).target, "/api/v1/tenants");
  EXPECT_EQ(seen.at(0).body, R"({"name":"lab","max_gpus":10,"priority_tier":500})");
}

TEST(Tenants, AreGuaranteedWhatIsSaidAndMayPreempt) {
  std::vector<Request> seen;
  run_against([](const Request&) { return Reply{.body = R"({"id":"tenant-4"})"}; },
              {"tenant", "update", "tenant-4", "--guarantee-gpus", "4", "--guarantee-mem", "64G",
               "--guarantee-cpus", "none", "--gpu-hours", "2", "--gpu-hours-window", "24h",
               "--allow-preemption", "yes", "--can-preempt", "no"},
              &seen);
  EXPECT_EQ(seen.at(0).body, R"({"guaranteed_gpus":4,"guaranteed_cpu_cores":0,"guaranteed_memory_mb":65536,)"
                             R"("max_gpu_hours":2,"gpu_hours_window_seconds":86400,)"
                             R"("allow_preemption":true,"can_preempt_others":false})");
}

TEST(Tenants, AreShownWithWhatTheyAreGuaranteed) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{.body =
                         R"({"id":"tenant-4","name":"lab","guaranteed_gpus":4,"guaranteed_memory_mb":65536,
          "max_gpu_hours":100,"gpu_hours_used":12.34,"gpu_hours_window_ends":"2026-11-22T00:00:00Z",
          "allow_preemption":true,"reclaims":2,"reclaim_seconds_max":31.2,"reclaim_seconds_mean":20.0})"};
      },
      {"tenant", "get", "lab"});
  EXPECT_NE(ran.out.find("4 GPUs, 64G of memory"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("12.3/100.0 until 2026-11-22T00:00:00Z"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("its jobs may be preempted"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("2 times, within 31.2 s, 20.0 s on average"), std::string::npos) << ran.out;
}

TEST(Tenants, LoseALimitWithNone) {
  std::vector<Request> seen;
  run_against([](const Request&) { return Reply{.body = R"({"id":"tenant-4"})"}; },
              {"tenant", "update", "tenant-4", "--max-gpus", "none"}, &seen);
  EXPECT_EQ(seen.at(0).method, "PUT");
  EXPECT_EQ(seen.at(0).body, R"({"max_gpus":null})");
}

TEST(Tenants, AreListedWithWhatTheyUse) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{
            .body = R"({"tenants":[{"id":"tenant-1","name":"default","priority_tier":500,"current_gpus":2,
          "current_jobs":1,"total_jobs":12},{"id":"tenant-4","name":"lab","priority_tier":1000,"max_gpus":8,
          "current_gpus":8,"max_concurrent_jobs":4,"current_jobs":2,"total_jobs":3}],"total":2})"};
      },
      {"tenant", "list"});
  EXPECT_EQ(ran.out,
            "ID        NAME     TIER    GPUS  JOBS  JOBS EVER\n"
            "tenant-1  default  medium     2     1         12\n"
            "tenant-4  lab      high     8/8   2/4          3\n");
}

}  // namespace
}  // namespace gpusched::cli::testing
