#include "api/doors/native/native_rest_json.h"

#include <gtest/gtest.h>

#include <array>

#include "api/doors/native/native_rest_views.h"
#include "api/doors/native/native_views.h"
#include "api/doors/nearest_name.h"
#include "api/doors/rfc3339.h"
#include "api/fields/pack_spec.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

namespace pb = google::protobuf;

std::optional<ApiError> read(std::string_view json, pb::Message& message) {
  pb::Message* const roots[] = {&message};
  NativeBody body;
  return read_native_json(json, roots, body);
}

ApiError refused(std::string_view json) {
  v1::SubmitJobsRequest message;
  const auto problem = read(json, message);
  EXPECT_TRUE(problem.has_value()) << json;
  return problem.value_or(ApiError{});
}

TEST(NativeJson, EveryKindOfFieldArrives) {
  v1::SubmitJobsRequest message;
  const auto problem = read(
      R"({"tenant_id":"lab","jobs":[{"spec":{"name":"é","command":["a","b"],"environment":{"B":"2","A":"1"},
          "gang_scheduling":true,"umask":18,"limits":{"core":-1,"nofile":65536},
          "mounts":[{"source":"/a","target":"/b","read_only":true}],"pull":"if_missing"},
          "resources":{"gpu_count":2,"cpu_milli":1500,"memory_mb":1e3},"priority":-7,"max_runtime_ms":4.0,
          "retry":{"system_retries":-1,"overlap_allowed":true}}],"request_key":"k"})",
      message);
  ASSERT_FALSE(problem.has_value()) << problem->message;
  EXPECT_EQ(message.tenant_id(), "lab");
  EXPECT_EQ(message.request_key(), "k");
  ASSERT_EQ(message.jobs_size(), 1);
  const v1::JobRequest& job = message.jobs(0);
  EXPECT_EQ(job.spec().name(), "\xC3\xA9");
  ASSERT_EQ(job.spec().command_size(), 2);
  EXPECT_EQ(job.spec().command(1), "b");
  EXPECT_EQ(job.spec().environment().at("B"), "2");
  EXPECT_TRUE(job.spec().gang_scheduling());
  EXPECT_EQ(job.spec().umask(), 18u);
  EXPECT_EQ(job.spec().limits().at("core"), -1);
  EXPECT_EQ(job.spec().limits().at("nofile"), 65'536);
  ASSERT_EQ(job.spec().mounts_size(), 1);
  EXPECT_TRUE(job.spec().mounts(0).read_only());
  EXPECT_EQ(job.spec().pull(), v1::PULL_POLICY_IF_MISSING);
  EXPECT_EQ(job.resources().gpu_count(), 2);
  EXPECT_EQ(job.resources().cpu_milli(), 1'500);
  EXPECT_EQ(job.resources().memory_mb(), 1'000);
  EXPECT_TRUE(job.has_priority());
  EXPECT_EQ(job.priority(), -7);
  EXPECT_EQ(job.max_runtime_ms(), 4);
  EXPECT_EQ(job.retry().system_retries(), -1);
  EXPECT_TRUE(job.retry().overlap_allowed());
}

TEST(NativeJson, WhatIsWrongIsNamedByItsPlace) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"tenant_id":7})", "tenant_id"},
      {R"({"jobs":{}})", "jobs"},
      {R"({"jobs":["x"]})", "jobs[0]"},
      {R"({"jobs":[{},{"spec":[]}]})", "jobs[1].spec"},
      {R"({"jobs":[{"spec":{"command":"a b"}}]})", "jobs[0].spec.command"},
      {R"({"jobs":[{"spec":{"command":["a",1]}}]})", "jobs[0].spec.command[1]"},
      {R"({"jobs":[{"spec":{"command":["a",null]}}]})", "jobs[0].spec.command[1]"},
      {R"({"jobs":[{"spec":{"command":["a",["b"]]}}]})", "jobs[0].spec.command[1]"},
      {R"({"jobs":[{"spec":{"environment":["A=B"]}}]})", "jobs[0].spec.environment"},
      {R"({"jobs":[{"spec":{"environment":{"A":1}}}]})", "jobs[0].spec.environment.A"},
      {R"({"jobs":[{"spec":{"environment":{"A":{}}}}]})", "jobs[0].spec.environment.A"},
      {R"({"jobs":[{"spec":{"limits":{"core":"x"}}}]})", "jobs[0].spec.limits.core"},
      {R"({"jobs":[{"spec":{"limits":{"core":1.5}}}]})", "jobs[0].spec.limits.core"},
      {R"({"jobs":[{"spec":{"pull":"sometimes"}}]})", "jobs[0].spec.pull"},
      {R"({"jobs":[{"spec":{"pull":"unspecified"}}]})", "jobs[0].spec.pull"},
      {R"({"jobs":[{"spec":{"umask":-1}}]})", "jobs[0].spec.umask"},
      {R"({"jobs":[{"spec":{"mounts":[{"read_only":"yes"}]}}]})", "jobs[0].spec.mounts[0].read_only"},
      {R"({"jobs":[{"spec":{"gang_scheduling":1}}]})", "jobs[0].spec.gang_scheduling"},
      {R"({"jobs":[{"resources":{"gpu_count":1.5}}]})", "jobs[0].resources.gpu_count"},
      {R"({"jobs":[{"resources":{"gpu_count":3000000000}}]})", "jobs[0].resources.gpu_count"},
      {R"({"jobs":[{"resources":{"gpu_count":18446744073709551615}}]})", "jobs[0].resources.gpu_count"},
      {R"({"jobs":[{"resources":{"gpu_count":true}}]})", "jobs[0].resources.gpu_count"},
      {R"({"jobs":[{"max_runtime_ms":1e30}]})", "jobs[0].max_runtime_ms"},
      {R"({"jobs":[{"spec":{"name":"a\u0000b"}}]})", "jobs[0].spec.name"},
      {R"({"jobs":[{"spec":{"environment":{"a\u0000b":"c"}}}]})", "jobs[0].spec.environment.a"},
  };
  for (const auto& [json, field] : cases) {
    const ApiError error = refused(json);
    EXPECT_EQ(std::string(error.field.c_str()), field) << json << ": " << error.message;
    EXPECT_EQ(error.kind, ErrorKind::kInvalidArgument) << json << ": " << error.message;
    EXPECT_TRUE(error.message.starts_with(error.field)) << error.message;
  }
}

TEST(NativeJson, AnUnknownFieldIsRefusedWithTheNearestOne) {
  const ApiError error = refused(R"({"jobs":[{"resources":{"gpu_cuont":1}}]})");
  EXPECT_EQ(error.field, "jobs[0].resources.gpu_cuont");
  EXPECT_NE(error.message.find("did you mean gpu_count?"), std::string::npos) << error.message;
  const ApiError far = refused(R"({"zzzzzzzzzzzzzzzz":{"deep":[1,{}]}})");
  EXPECT_EQ(far.field, "zzzzzzzzzzzzzzzz");
  EXPECT_NE(far.message.find("docs/reference/native-rest.md"), std::string::npos) << far.message;
}

TEST(NativeJson, WhatIsNoJsonObjectIsMalformed) {
  const std::string deep = R"({"jobs":[)" + std::string(40, '[');
  for (const std::string& json :
       {std::string(), std::string("[]"), std::string("7"), std::string("null"), std::string("true"),
        std::string("\"x\""), std::string("{"), std::string("{}x"), std::string("{'a':1}"), deep,
        std::string("{\"tenant_id\":\"\xFF\"}")}) {
    const ApiError error = refused(json);
    const bool wrong_type = error.field == "jobs[0]";  // The deep one's error.
    EXPECT_TRUE(error.kind == ErrorKind::kMalformedJson || wrong_type) << json << ": " << error.message;
  }
}

TEST(NativeJson, ListsHaveBounds) {
  std::string jobs = R"({"jobs":[{})";
  for (int i = 0; i < 1'000; ++i) jobs += ",{}";
  EXPECT_EQ(refused(jobs + "]}").field, "jobs");
  std::string words = R"({"jobs":[{"spec":{"command":["a")";
  for (int i = 0; i < 4'096; ++i) words += ",\"a\"";
  EXPECT_EQ(refused(words + "]}}]}").field, "jobs[0].spec.command");
}

TEST(NativeJson, OfAFieldGivenTwiceTheLastHolds) {
  v1::SubmitJobsRequest message;
  EXPECT_FALSE(read(R"({"tenant_id":"a","jobs":[{},{}],"tenant_id":"b","jobs":[{}]})", message).has_value());
  EXPECT_EQ(message.tenant_id(), "b");
  EXPECT_EQ(message.jobs_size(), 1);
}

TEST(NativeJson, NullIsLikeLeavingOutAndIsNoted) {
  v1::Tenant message;
  pb::Message* const roots[] = {&message};
  NativeBody body;
  ASSERT_FALSE(read_native_json(R"({"max_gpus":4,"name":"a","max_gpus":null})", roots, body).has_value());
  EXPECT_FALSE(message.has_max_gpus());
  EXPECT_EQ(body.nulls, std::vector<std::string>{"max_gpus"});
  EXPECT_EQ(body.given, std::vector<std::string>{"name"});
}

TEST(NativeJson, WhatIsWrittenIsReadAgain) {
  v1::Job job;
  job.set_job_id("job-7");
  job.mutable_spec()->set_name("quote \" and \xC3\xA9");
  (*job.mutable_spec()->mutable_labels())["b"] = "2";
  (*job.mutable_spec()->mutable_labels())["a"] = "1";
  job.mutable_spec()->set_umask(0);
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_submitted_at()->set_seconds(1'738'314'000);
  job.mutable_submitted_at()->set_nanos(123'456'000);
  job.set_exit_code(0);
  job.add_allocated_gpus("n1-gpu-0");
  const std::string json = native_json(job);
  EXPECT_NE(json.find(R"("labels":{"a":"1","b":"2"})"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("submitted_at":"2025-01-31T09:00:00.123456Z")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("state":"running")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("attempts":0)"), std::string::npos) << json;
  EXPECT_EQ(json.find("started_at"), std::string::npos) << json;
  EXPECT_EQ(json.find("stdout_path"), std::string::npos) << json;
  v1::Job again;
  const auto problem = read(json, again);
  ASSERT_FALSE(problem.has_value()) << problem->message;
  EXPECT_EQ(native_json(again), json);
}

/// A job with everything in it.
JobView full_view() {
  JobFields spec;
  spec.name = "train";
  spec.command = StringList{"python", "t.py"};
  spec.labels = StringMap{{"team", "a"}};
  spec.user = "ada";
  spec.limits = IntegerMap{{"core", 0}};
  return {.id = JobId{12},
          .tenant = TenantId{3},
          .name = "train",
          .spec = Blob(pack_spec(spec)),
          .state = JobState::kFailed,
          .reason = JobReason::kExitCode,
          .message = "its command exited with code 3",
          .priority = 5,
          .gpu_count = 2,
          .gpu_memory_mb = 80'000,
          .gpu_model = "A100",
          .cpu_milli = 1'500,
          .memory_mb = 64,
          .max_runtime = seconds(90),
          .exit_code_retries = 1,
          .system_retries = -1,
          .overlap_allowed = true,
          .kill_after_lost_contact = seconds(5),
          .submitted_at = Time{1'738'314'000'000'000'000},
          .scheduled_at = Time{1'738'314'001'000'000'000},
          .started_at = Time{1'738'314'002'500'000'000},
          .completed_at = Time{1'738'314'003'000'000'000},
          .exit_code = 3,
          .signal = 9,
          .attempts = 2,
          .node_name = "n1",
          .gpus = {"n1-gpu-0", "n1-gpu-1"},
          .queue_position = 4};
}

TEST(NativeJobJson, IsWhatTheMessageWouldBe) {
  JobView waiting{.id = JobId{7}, .tenant = kDefaultTenant, .wait_code = "no_node", .held = true};
  JobView gang = full_view();
  gang.parts = {{.members = 1, .cpu_milli = 500},
                {.members = 2, .members_max = 4, .gpu_count = 8, .gpu_model = "H100"}};
  gang.domain = DomainLevel::kRack;
  gang.domain_required = true;
  gang.members = {{.part = 0, .state = "running", .node_name = "n1", .gpus = {}},
                  {.part = 1, .state = "ended", .node_name = "n2", .gpus = {"n2-gpu-0"}}};
  JobView by_nodes = full_view();
  by_nodes.parts = {{.members = 4, .members_max = 8, .gpu_count = 2}};
  by_nodes.one_member_per_node = true;
  JobView moved = full_view();
  moved.move_detail = "moved from node n2 to node n1 so that job-13 can start, by ana";
  moved.moved_at = Time{1'738'314'002'000'000'000};
  for (const JobView& view : {full_view(), waiting, gang, by_nodes, moved}) {
    v1::Job message;
    write_job(view, message);
    if (!message.has_spec()) message.mutable_spec();
    EXPECT_EQ(native_job_json(view), native_json(message));
  }
}

TEST(NativeJobJson, OnlyWantedFieldsAreWritten) {
  const auto mask = parse_job_mask("job_id,state,spec.name,resources.gpu_count,exit_code");
  ASSERT_TRUE(mask.ok()) << mask.error().message;
  EXPECT_EQ(native_job_json(full_view(), *mask),
            R"({"job_id":"job-12","spec":{"name":"train"},"resources":{"gpu_count":2},"state":"failed",)"
            R"("exit_code":3})");
  const auto labels = parse_job_mask("spec.labels,spec.name");
  ASSERT_TRUE(labels.ok());
  EXPECT_EQ(native_job_json(full_view(), *labels), R"({"spec":{"name":"train","labels":{"team":"a"}}})");
  EXPECT_FALSE(mask->details().message);
  EXPECT_TRUE(mask->details().name);
}

TEST(NativeJobJson, AnUnknownWantedFieldIsRefusedWithTheNearestOne) {
  for (const auto& [fields, nearest] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"job_idd", "job_id"}, {"spec.nmae", "name"}, {"resources.gpu_cnt", "gpu_count"}}) {
    const auto mask = parse_job_mask(fields);
    ASSERT_FALSE(mask.ok()) << fields;
    EXPECT_EQ(mask.error().field, "fields");
    EXPECT_NE(mask.error().message.find("did you mean " + std::string(nearest)), std::string::npos)
        << mask.error().message;
  }
  EXPECT_FALSE(parse_job_mask("state.name").ok());
  EXPECT_FALSE(parse_job_mask(",").ok());
}

TEST(Rfc3339, InstantsOfAnyOffsetAreRead) {
  constexpr int64_t kNine = 1'738'314'000'000'000'000;
  for (const std::string_view text :
       {"2025-01-31T09:00:00Z", "2025-01-31t09:00:00z", "2025-01-31T10:00:00+01:00",
        "2025-01-30T22:30:00-10:30", "2025-01-31 09:00:00.000Z"}) {
    const auto time = parse_rfc3339(text);
    ASSERT_TRUE(time.has_value()) << text;
    EXPECT_EQ(time->ns, kNine) << text;
  }
  EXPECT_EQ(parse_rfc3339("2025-01-31T09:00:00.5Z")->ns, kNine + 500'000'000);
  EXPECT_EQ(parse_rfc3339("2024-02-29T00:00:00Z")->ns, 1'709'164'800'000'000'000);
}

TEST(Rfc3339, WhatIsNoInstantIsNone) {
  for (const std::string_view text :
       {"", "2025", "2025-01-31", "2025-01-31T09:00Z", "2025-01-31T09:00:00", "2025-13-01T00:00:00Z",
        "2025-02-29T00:00:00Z", "2025-01-31T24:00:00Z", "2025-01-31T09:00:00.Z", "2025-01-31T09:00:00+1:00",
        "1969-12-31T23:59:59Z", "9999-01-01T00:00:00Z", "2025-01-31T09:00:00Zx", "-025-01-31T09:00:00Z"}) {
    EXPECT_FALSE(parse_rfc3339(text).has_value()) << text;
  }
}

TEST(NearestName, FindsSlipsAndNothingElse) {
  const std::array<std::string, 3> names = {"gpu_count", "gpu_memory_mb", "name"};
  EXPECT_EQ(nearest_name("gpu_cout", names), "gpu_count");
  EXPECT_EQ(nearest_name("nmae", names), "name");
  EXPECT_EQ(nearest_name("gpu_memory", names), "gpu_memory_mb");
  EXPECT_EQ(nearest_name("temperature", names), "");
  EXPECT_EQ(nearest_name(std::string(1'000, 'a'), names), "");
}

}  // namespace
}  // namespace gpusched::api
