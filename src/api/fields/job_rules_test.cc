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

/// The refusals of a job by the JSON doors and by the gRPC doors; empty: it is accepted.
std::vector<std::string> refusals(const v1::JobSpec& spec) {
  JobFields fields;
  if (spec.command_size() > 0) fields.command = StringList(spec.command().begin(), spec.command().end());
  if (spec.args_size() > 0) fields.args = StringList(spec.args().begin(), spec.args().end());
  if (!spec.script().empty()) fields.script = spec.script();
  if (!spec.environment().empty())
    fields.environment = StringMap(spec.environment().begin(), spec.environment().end());
  v1::JobRequest message;
  *message.mutable_spec() = spec;
  std::vector<std::string> told;
  for (const Answer<JobRequest>& job : {check_job(std::move(fields), false), read_job(message, false)})
    told.push_back(job.ok() ? "" : job.error().message);
  return told;
}

v1::JobSpec script_spec(const std::string& script) {
  v1::JobSpec spec;
  spec.set_script(script);
  return spec;
}

TEST(JobRules, NoWordIsLongerThanAProgramCanHave) {
  constexpr std::size_t kMost = 128 * 1024 - 1;
  const auto expect = [](const v1::JobSpec& spec, const std::string& begin) {
    for (const std::string& told : refusals(spec)) {
      EXPECT_EQ(told.substr(0, std::max<std::size_t>(begin.size(), 1)), begin) << told;
    }
  };
  v1::JobSpec words;
  words.add_command("echo");
  words.add_args(std::string(kMost, 'x'));
  expect(words, "");
  words.add_args(std::string(kMost + 1, 'x'));
  expect(words, "args[1] has 131072 bytes, and no program starts with more than 131071 in one argument");
  words.clear_args();
  words.add_command(std::string(kMost + 1, 'x'));
  expect(words, "command[1] has 131072 bytes");
  v1::JobSpec variables = script_spec("true");
  (*variables.mutable_environment())["AB"] = std::string(kMost - 3, 'x');
  expect(variables, "");
  (*variables.mutable_environment())["AB"] += 'x';
  expect(variables, "environment's AB has 131069 bytes");
  expect(script_spec(std::string(kMost, '#')), "");
  expect(script_spec(std::string(kMost + 1, '#')), "script has 131072 bytes and is an argument of /bin/sh");
  expect(script_spec("#! \n" + std::string(kMost, '#')), "script has ");
  expect(script_spec("#!/bin/sh\n" + std::string(kMost, '#')), "");
}

TEST(JobRules, NoInterpretersNameEndsWithACarriageReturn) {
  for (const std::string& told : refusals(script_spec("#!/bin/bash\r\ntrue\r\n")))
    EXPECT_TRUE(told.starts_with("script's first line ends with a carriage return")) << told;
  for (const std::string& told : refusals(script_spec("printf 'a\r'\n"))) EXPECT_EQ(told, "");
}

}  // namespace
}  // namespace gpusched::api
