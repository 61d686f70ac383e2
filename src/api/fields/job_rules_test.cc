#include "api/fields/job_rules.h"

#include <gtest/gtest.h>

#include "api/fields/job_message.h"

namespace gpusched::api {
namespace {

/// As JSON doors read it.
std::optional<ApiError> refusal_of(const std::string& name) {
  JobFields fields;
  fields.script = "true";
  fields.environment = StringMap{{"A", "1"}, {name, "exec mine"}};
  const Answer<JobRequest> job = check_job(std::move(fields), false);
  return job.ok() ? std::nullopt : std::optional<ApiError>(job.error());
}

/// As gRPC doors read it. `closely`: with a field that is not plain.
std::optional<ApiError> refusal_of_message(const std::string& name, bool closely) {
  v1::JobRequest message;
  message.mutable_spec()->set_script("true");
  (*message.mutable_spec()->mutable_environment())[name] = "exec mine";
  if (closely) message.mutable_resources()->set_gpu_layout("pack");
  const Answer<JobRequest> job = read_job(message, false);
  return job.ok() ? std::nullopt : std::optional<ApiError>(job.error());
}

TEST(JobRules, NoJobNamesAWorkersVariables) {
  for (const char* name :
       {"GPU_SCHEDULER_WORKER", "GPU_SCHEDULER_WORKER_IDLE_MS", "GPU_SCHEDULER_WORKER_FD"}) {
    for (const auto& refused :
         {refusal_of(name), refusal_of_message(name, false), refusal_of_message(name, true)}) {
      ASSERT_TRUE(refused.has_value()) << name;
      EXPECT_EQ(refused->kind, ErrorKind::kInvalidArgument);
      EXPECT_EQ(refused->field, "environment");
      EXPECT_EQ(
          refused->message,
          "environment names '" + std::string(name) +
              "', and variables that begin with GPU_SCHEDULER_WORKER are set by the scheduler alone, for "
              "tasks of agents; rename it");
    }
  }
  for (const char* name : {"GPU_SCHEDULER_REQUEST_ID", "WORKER", "TASK_PAYLOAD_BASE64"}) {
    EXPECT_FALSE(refusal_of(name).has_value()) << name;
    EXPECT_FALSE(refusal_of_message(name, false).has_value()) << name;
  }
}

}  // namespace
}  // namespace gpusched::api
