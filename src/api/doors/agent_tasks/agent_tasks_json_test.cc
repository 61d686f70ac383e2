#include "api/doors/agent_tasks/agent_tasks_json.h"

#include <gtest/gtest.h>

#include "api/doors/agent_tasks/task_words.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

constexpr Time kNow{1'800'000'000'900'000'000};

JobView task(const std::string& id, const std::string& type, const std::string& user) {
  v1::JobSpec spec;
  (*spec.mutable_labels())[std::string(kTaskIdLabel)] = id;
  (*spec.mutable_labels())[std::string(kTaskTypeLabel)] = type;
  if (!user.empty()) (*spec.mutable_labels())[std::string(kTaskUserLabel)] = user;
  return {.name = id, .spec = Blob(spec.SerializeAsString())};
}

TEST(AgentTasksJson, HealthIsWhatClientsKnow) {
  EXPECT_EQ(health_json(kNow), R"({"status":"healthy","timestamp":1800000000})");
}

TEST(AgentTasksJson, GpusStandByTheirNumbersAndNeverUseMoreThanTheyHave) {
  NodeView second{.name = "n2", .heard_at = kNow};
  second.devices.push_back({.memory_mb = 40'960,
                            .utilization_percent = 63,
                            .memory_used_mb = 10'240,
                            .temperature_celsius = 55,
                            .gpu_id = 64});
  NodeView first{.name = "n1"};
  first.devices.push_back({.memory_mb = 1'000, .memory_used_mb = 1'200, .gpu_id = 0});
  EXPECT_EQ(
      gpu_metrics_json({second, first}),
      R"([{"gpu_id":0,"memory_total_mb":1000,"memory_used_mb":1000,"memory_free_mb":0,)"
      R"("compute_util_percent":0,"memory_util_percent":100,"temperature_celsius":0,"last_updated_unix":0},)"
      R"({"gpu_id":64,"memory_total_mb":40960,"memory_used_mb":10240,"memory_free_mb":30720,)"
      R"("compute_util_percent":63,"memory_util_percent":25,"temperature_celsius":55,)"
      R"("last_updated_unix":1800000000}])");
}

TEST(AgentTasksJson, TheQueueNamesTypesAndLeavesOutWhatMayNotBeDescribed) {
  JobView no_script = task("b", "", "");
  no_script.spec = {};
  EXPECT_EQ(
      queue_json({.pending = 3, .running = 1}, {task("a", "llm", "u-1"), {}, no_script},
                 {task("c \"quoted\"", "other", "")}),
      R"({"queue_size":3,"running_count":1,"pending":[{"id":"a","user_id":"u-1","type":"TASK_TYPE_LLM"},)"
      R"({"id":"b","user_id":"","type":"TASK_TYPE_UNSPECIFIED"}],)"
      R"("running":[{"id":"c \"quoted\"","user_id":"","type":"TASK_TYPE_OTHER"}]})");
}

TEST(AgentTasksJson, MetricsHaveTheGpusInAText) {
  EXPECT_EQ(
      task_metrics_json({.pending = 1, .running = 2, .completed = 3, .failed = 4, .refused = 5},
                        R"([{"gpu_id":0}])", kNow),
      R"({"timestamp":1800000000,"queue_size":1,"running_tasks":2,"completed_tasks":3,"failed_tasks":4,)"
      R"("rejected_tasks":5,"gpu_metrics":"[{\"gpu_id\":0}]"})");
}

}  // namespace
}  // namespace gpusched::api
