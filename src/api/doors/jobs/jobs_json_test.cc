#include "api/doors/jobs/jobs_json.h"

#include <gtest/gtest.h>

#include "api/doors/json_fields.h"
#include "api/doors/native/native_views.h"
#include "base/limits.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

ApiError refused(std::string_view body, bool containers_possible = false) {
  const auto parsed = parse_submit(body, containers_possible);
  EXPECT_FALSE(parsed.ok()) << body;
  return parsed.ok() ? ApiError{} : parsed.error();
}

v1::JobSpec spec_of(const SubmitRequest& request) {
  v1::JobSpec spec;
  EXPECT_TRUE(spec.ParseFromString(request.jobs.at(0).spec));
  return spec;
}

void expect_field(std::string_view body, std::string_view field,
                  ErrorKind kind = ErrorKind::kInvalidArgument) {
  const ApiError error = refused(body);
  EXPECT_EQ(error.field, field) << body << ": " << error.message;
  EXPECT_EQ(row_of(error.kind).code, row_of(kind).code) << body << ": " << error.message;
}

TEST(JobsJson, WhatAJobAsksForBeforeItIsEndedForAnotherOneIsPacked) {
  const auto parsed = parse_submit(
      R"({"command":["true"],"preempt_signal":"sigusr1","preempt_grace_seconds":1.5,"preempt_webhook":"http://h:81/x"})",
      false);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->jobs[0].preempt_grace, milliseconds(1500));
  EXPECT_EQ(parsed->jobs[0].preempt_webhook, "http://h:81/x");
  v1::JobSpec spec;
  ASSERT_TRUE(spec.ParseFromString(parsed->jobs[0].spec));
  EXPECT_EQ(spec.preempt_signal(), "USR1");
  EXPECT_EQ(spec.preempt_grace_ms(), 1500);
  EXPECT_EQ(spec.preempt_webhook(), "http://h:81/x");
  const auto refused_field = [](const std::string& field) {
    const auto refused = parse_submit(R"({"command":["true"],)" + field + "}", false);
    return refused.ok() ? std::string("accepted") : refused.error().field;
  };
  EXPECT_EQ(refused_field(R"("preempt_signal":"KILL")"), "preempt_signal");
  EXPECT_EQ(refused_field(R"("preempt_grace_seconds":601)"), "preempt_grace_seconds");
  EXPECT_EQ(refused_field(R"("preempt_webhook":"ftp://h/")"), "preempt_webhook");
}

TEST(SubmitBody, EveryFieldOfTheBoxArrives) {
  const std::string digest = "sha256:" + std::string(64, 'a');
  const auto parsed = parse_submit(R"({"image":"example/train:3","user":"ada","stdout_path":"/home/ada/out",
          "stderr_path":"/home/ada/err","stdin_path":"/home/ada/in","umask":0,"limits":{"nofile":1024,"core":-1},
          "mounts":["/data:/data:ro","/a:/b"],"container_workdir_mount":"/work","pull":"never",
          "registry_credential":"main","container_arguments":["--shm-size","1g"],"image_digest":")" +
                                       digest + "\"}",
                                   true);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const v1::JobSpec spec = spec_of(*parsed);
  EXPECT_EQ(spec.user(), "ada");
  EXPECT_EQ(spec.stdout_path(), "/home/ada/out");
  EXPECT_EQ(spec.stderr_path(), "/home/ada/err");
  EXPECT_EQ(spec.stdin_path(), "/home/ada/in");
  EXPECT_TRUE(spec.has_umask());
  EXPECT_EQ(spec.umask(), 0u);
  ASSERT_EQ(spec.limits().size(), 2u);
  EXPECT_EQ(spec.limits().at("core"), -1);
  EXPECT_EQ(spec.limits().at("nofile"), 1024);
  ASSERT_EQ(spec.mounts_size(), 2);
  EXPECT_EQ(spec.mounts(0).target(), "/data");
  EXPECT_TRUE(spec.mounts(0).read_only());
  EXPECT_EQ(spec.mounts(1).source(), "/a");
  EXPECT_FALSE(spec.mounts(1).read_only());
  EXPECT_EQ(spec.container_workdir_mount(), "/work");
  EXPECT_EQ(spec.pull(), v1::PULL_POLICY_NEVER);
  EXPECT_EQ(spec.registry_credential(), "main");
  EXPECT_EQ(spec.container_arguments_size(), 2);
  EXPECT_EQ(spec.image_digest(), digest);
}

TEST(SubmitBody, AWrongBoxNamesItsField) {
  expect_field(R"({"script":"true","user":"-x"})", "user");
  expect_field(R"({"script":"true","user":"a b"})", "user");
  expect_field(R"({"script":"true","stdout_path":"out"})", "stdout_path");
  expect_field(R"({"script":"true","stdout_path":"/out/%q"})", "stdout_path");
  expect_field(R"({"script":"true","stderr_path":"/out/%"})", "stderr_path");
  expect_field(R"({"script":"true","stdin_path":"/a\nb"})", "stdin_path");
  expect_field(R"({"script":"true","umask":512})", "umask");
  expect_field(R"({"script":"true","umask":-1})", "umask");
  expect_field(R"({"script":"true","limits":{"nofil":1}})", "limits");
  expect_field(R"({"script":"true","limits":{"nofile":-2}})", "limits");
  expect_field(R"({"script":"true","limits":{"nofile":"1"}})", "limits");
  expect_field(R"({"script":"true","limits":["nofile"]})", "limits");
  expect_field(R"({"script":"true","mounts":["/a"]})", "mounts");
  expect_field(R"({"script":"true","mounts":["a:/b"]})", "mounts[0].source");
  expect_field(R"({"script":"true","mounts":["/a:/b:c"]})", "mounts[0]");
  expect_field(R"({"script":"true","pull":"sometimes"})", "pull");
  expect_field(R"({"script":"true","image_digest":"sha256:12"})", "image_digest");
  expect_field(R"({"script":"true","mounts":["/a:/b"]})", "mounts", ErrorKind::kUnprocessable);
  expect_field(R"({"script":"true","pull":"always"})", "pull", ErrorKind::kUnprocessable);
}

TEST(SubmitBody, EveryFieldArrives) {
  const auto parsed = parse_submit(
      R"({"tenant_id":"tenant-7","name":"train","priority":-3,"gpu_count":2,"gpu_memory_mb":80000,"cpu_cores":4,
          "memory_mb":1024,"command":["python","t.py"],"args":["--x","é"],"environment":{"B":"2","A":"1"},
          "gang_scheduling":true,"max_runtime_minutes":90,"labels":{"team":"a"},"checkpoint_enabled":true,
          "gpu_model":"A100","retries":2,"working_directory":"/tmp","require_feasible":true,"unknown":{"a":[1,{}]}})",
      false);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->tenant, "tenant-7");
  const JobRequest& job = parsed->jobs.at(0);
  EXPECT_EQ(job.priority, -3);
  EXPECT_EQ(job.gpu_count, 2);
  EXPECT_EQ(job.gpu_memory_mb, 80'000);
  EXPECT_EQ(job.gpu_model, "A100");
  EXPECT_EQ(job.cpu_milli, 4'000);
  EXPECT_EQ(job.memory_mb, 1'024);
  EXPECT_EQ(job.max_runtime, minutes(90));
  EXPECT_EQ(job.exit_code_retries, 2);
  EXPECT_TRUE(job.require_feasible);
  const v1::JobSpec spec = spec_of(*parsed);
  EXPECT_EQ(spec.name(), "train");
  ASSERT_EQ(spec.command_size(), 2);
  EXPECT_EQ(spec.command(1), "t.py");
  ASSERT_EQ(spec.args_size(), 2);
  EXPECT_EQ(spec.args(1), "\xC3\xA9");
  EXPECT_EQ(spec.environment().at("A"), "1");
  EXPECT_EQ(spec.environment().at("B"), "2");
  EXPECT_EQ(spec.labels().at("team"), "a");
  EXPECT_EQ(spec.working_directory(), "/tmp");
  EXPECT_TRUE(spec.gang_scheduling());
  EXPECT_TRUE(spec.checkpoint_enabled());
}

TEST(SubmitBody, DefaultsAreOneCoreAndNoPriority) {
  const auto parsed = parse_submit(R"({"script":"true"})", false);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->jobs[0].cpu_milli, 1'000);
  EXPECT_FALSE(parsed->jobs[0].priority.has_value());
  EXPECT_EQ(parsed->tenant, "");
}

TEST(SubmitBody, ExplicitlyNoCoreIsNone) {
  EXPECT_EQ(parse_submit(R"({"script":"true","cpu_cores":0})", false)->jobs[0].cpu_milli, 0);
  EXPECT_EQ(parse_submit(R"({"script":"true","cpu_cores":0.5})", false)->jobs[0].cpu_milli, 500);
}

TEST(SubmitBody, ACommandThatIsAStringIsToldToBeAnArray) {
  const ApiError error = refused(R"({"command":"python train.py"})");
  EXPECT_EQ(error.field, "command");
  EXPECT_EQ(row_of(error.kind).http_status, 400);
  EXPECT_NE(error.message.find("command must be an array of strings"), std::string::npos);
}

TEST(SubmitBody, WrongTypesNameTheField) {
  expect_field(R"({"script":"x","gpu_count":"2"})", "gpu_count");
  expect_field(R"({"script":"x","gpu_count":1.5})", "gpu_count");
  expect_field(R"({"script":"x","gpu_count":99999999999999999999})", "gpu_count");
  expect_field(R"({"script":"x","gpu_count":true})", "gpu_count");
  expect_field(R"({"script":"x","gpu_count":[1]})", "gpu_count");
  expect_field(R"({"script":"x","gpu_count":{}})", "gpu_count");
  expect_field(R"({"script":["x"]})", "script");
  expect_field(R"({"script":7})", "script");
  expect_field(R"({"command":["a",1]})", "command");
  expect_field(R"({"command":["a",["b"]]})", "command");
  expect_field(R"({"command":["a",{"b":1}]})", "command");
  expect_field(R"({"command":["a",null]})", "command");
  expect_field(R"({"command":{"0":"a"}})", "command");
  expect_field(R"({"script":"x","environment":["A=1"]})", "environment");
  expect_field(R"({"script":"x","environment":{"A":1}})", "environment");
  expect_field(R"({"script":"x","environment":{"A":{"B":"C"}}})", "environment");
  expect_field(R"({"script":"x","labels":"a"})", "labels");
  expect_field(R"({"script":"x","labels":{"a":"one\ntwo"}})", "labels");
  expect_field(R"({"script":"x","labels":{"a\u001b[2J":"b"}})", "labels");
  expect_field(R"({"script":"x","gang_scheduling":1})", "gang_scheduling");
  expect_field(R"({"tenant_id":12,"script":"x"})", "tenant_id");
}

TEST(SubmitBody, AWrongElementIsNamedByItsPlace) {
  EXPECT_EQ(refused(R"({"command":["a",1]})").message, "command[1] must be a string");
  EXPECT_EQ(refused(R"({"script":"x","environment":{"A":1}})").message, "environment.A must be a string");
}

TEST(SubmitBody, AMigProfileIsASliceWithWhatItsNameSays) {
  const auto parsed =
      parse_submit(R"({"script":"x","mig_profile":"3g.40gb","gpu_model":"H100,A100"})", false);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->jobs[0].mig_profile, "3g.40gb");
  EXPECT_EQ(parsed->jobs[0].gpu_count, 1);
  EXPECT_EQ(parsed->jobs[0].gpu_milli, 428);
  EXPECT_EQ(parsed->jobs[0].gpu_memory_mb, 40 * 1024);
  EXPECT_EQ(parse_submit(R"({"script":"x","mig_profile":"7g.80gb"})", false)->jobs[0].gpu_milli, 1'000);
  EXPECT_EQ(parse_submit(R"({"script":"x","mig_profile":""})", false)->jobs[0].gpu_count, 0);
}

TEST(SubmitBody, WhatDoesNotGoWithAMigProfileIsNamed) {
  const auto beside = [](const std::string& more) {
    return R"({"script":"x","mig_profile":"1g.10gb",)" + more + "}";
  };
  for (const auto& [more, field] : std::vector<std::pair<std::string, std::string>>{
           {R"("gpu_count":2)", "gpu_count"},
           {R"("gpu_milli":500)", "gpu_milli"},
           {R"("gpu_memory_mb":1000)", "gpu_memory_mb"},
           {R"("gpu_memory_each_mb":1000)", "gpu_memory_each_mb"},
           {R"("nodes":2)", "nodes"},
           {R"("exclusive":true)", "exclusive"},
           {R"("gpu_ids":["0"])", "gpu_ids"},
           {R"("gpu_layout":"spread")", "gpu_layout"},
           {R"("gpu_bandwidth_gbs":10)", "gpu_bandwidth_gbs"},
           {R"("gpu_model":"A30")", "mig_profile"},
           {R"("gpu_model":"V100,A30")", ""}}) {
    const auto parsed = parse_submit(beside(more), false);
    EXPECT_EQ(parsed.ok(), field.empty()) << more;
    if (parsed.ok()) continue;
    EXPECT_EQ(parsed.error().field, field) << parsed.error().message;
    EXPECT_EQ(row_of(parsed.error().kind).http_status, 422) << parsed.error().message;
  }
  const ApiError unknown = refused(R"({"script":"x","mig_profile":"9g.90gb"})");
  EXPECT_NE(unknown.message.find("1g.18gb"), std::string::npos) << unknown.message;
  const ApiError other = refused(beside(R"("gpu_model":"A30")"));
  EXPECT_NE(other.message.find("4g.24gb"), std::string::npos) << other.message;
}

TEST(SubmitBody, NumbersOutOfRangeNameTheField) {
  for (const char* field :
       {"gpu_count", "gpu_memory_mb", "memory_mb", "cpu_cores", "retries", "max_runtime_minutes"}) {
    const std::string body = std::string(R"({"script":"x",")") + field + R"(":-1})";
    EXPECT_NE(refused(body).message.find("must not be negative"), std::string::npos) << body;
    expect_field(body, field);
  }
  expect_field(R"({"script":"x","gpu_count":100001})", "gpu_count");
  expect_field(R"({"script":"x","priority":1000001})", "priority");
  expect_field(R"({"script":"x","cpu_cores":1e300})", "cpu_cores");
  expect_field(R"({"script":"x","max_runtime_minutes":1e18})", "max_runtime_minutes");
}

TEST(SubmitBody, WholeNumbersMayBeWrittenAsDecimals) {
  EXPECT_EQ(parse_submit(R"({"script":"x","gpu_count":2.0})", false)->jobs[0].gpu_count, 2);
  EXPECT_EQ(parse_submit(R"({"script":"x","memory_mb":1e3})", false)->jobs[0].memory_mb, 1'000);
}

TEST(SubmitBody, ContradictionsAreUnprocessable) {
  expect_field(R"({"script":"x","command":["y"]})", "script", ErrorKind::kUnprocessable);
  expect_field(R"({"name":"x"})", "command", ErrorKind::kUnprocessable);
  expect_field(R"({"command":[],"script":""})", "command", ErrorKind::kUnprocessable);
  expect_field(R"({"script":"x","gpu_memory_mb":10})", "gpu_memory_mb", ErrorKind::kUnprocessable);
  expect_field(R"({"script":"x","gpu_model":"A100"})", "gpu_model", ErrorKind::kUnprocessable);
  expect_field(R"({"script":"x","max_runtime_minutes":1,"max_runtime_seconds":60})", "max_runtime_seconds",
               ErrorKind::kUnprocessable);
}

TEST(SubmitBody, AnImageNeedsANodeThatRunsContainersOnlyWhereTheCallerAsks) {
  expect_field(R"({"image":"ubuntu","require_feasible":true})", "image", ErrorKind::kImageUnsupported);
  EXPECT_TRUE(parse_submit(R"({"image":"ubuntu","require_feasible":true})", true).ok());
  const auto waits = parse_submit(R"({"image":"ubuntu"})", false);
  ASSERT_TRUE(waits.ok());
  EXPECT_TRUE(waits->jobs[0].wants_container);
  const auto parsed = parse_submit(R"({"image":"ubuntu"})", true);
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->jobs[0].wants_container);
}

TEST(SubmitBody, FieldsThatMeanNothingAreNamed) {
  std::vector<std::string> ignored;
  ASSERT_TRUE(parse_submit(R"({"gpus":8,"script":"x","labels":{"gpus":"1"},"gpus":9,"commmand":[{"a":1}]})",
                           false, &ignored)
                  .ok());
  EXPECT_EQ(ignored, (std::vector<std::string>{"gpus", "commmand"}));

  // However many there are, and however long.
  ignored.clear();
  std::string many = R"({"script":"x")";
  for (int i = 0; i < 100; ++i) many += ",\"\u00e9" + std::string(100, 'k') + std::to_string(i) + "\":1";
  for (int i = 0; i < 100; ++i) many += ",\"k" + std::to_string(i) + "\":1";
  ASSERT_TRUE(parse_submit(many + "}", false, &ignored).ok());
  EXPECT_EQ(ignored.size(), kUnknownFieldsMax);
  EXPECT_EQ(ignored.front(), "\u00e9" + std::string(kUnknownFieldBytesMax - 2, 'k'));
}

TEST(SubmitBody, NulCharactersAreRefused) {
  expect_field(R"({"script":"a\u0000b"})", "script");
  expect_field(R"({"command":["a\u0000b"]})", "command");
  expect_field(R"({"script":"x","environment":{"A\u0000":"b"}})", "environment");
  expect_field(R"({"script":"x","environment":{"A":"\u0000"}})", "environment");
}

TEST(SubmitBody, VariableNamesAreChecked) {
  expect_field(R"({"script":"x","environment":{"":"b"}})", "environment");
  expect_field(R"({"script":"x","environment":{"A=B":"b"}})", "environment");
  expect_field(R"({"script":"x","environment":{"A B":"b"}})", "environment");
  EXPECT_TRUE(parse_submit(R"({"script":"x","environment":{"my.var-1":"b"}})", false).ok());
}

TEST(SubmitBody, WhatIsNoJsonObjectIsMalformed) {
  for (const std::string_view body :
       {"", " ", "null", "7", "\"x\"", "[]", "[{\"script\":\"x\"}]", "{", "{\"a\":}", "{\"a\":1,}",
        "{\"a\":1}x", "{\"a\":1}{}", "{'a':1}", "{\"script\":\"\xFF\"}", "{\"script\":\"\\ud800\"}",
        "{\"script\":\"a\nb\"}", "{\"a\":NaN}"}) {
    EXPECT_EQ(row_of(refused(body).kind).code, "malformed_json") << body;
  }
}

TEST(SubmitBody, DepthHasALimitAlsoInUnknownFields) {
  const auto nested = [](int levels) {
    return "{\"script\":\"x\",\"u\":" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_TRUE(parse_submit(nested(31), false).ok());
  EXPECT_NE(refused(nested(32)).message.find("32 levels"), std::string::npos);
  EXPECT_EQ(row_of(refused(nested(1'000'000)).kind).code, "malformed_json");
}

TEST(SubmitBody, OfAFieldGivenTwiceTheLastHolds) {
  const auto parsed =
      parse_submit(R"({"command":["a","b"],"command":["c"],"environment":{"A":"1","A":"2"}})", false);
  ASSERT_TRUE(parsed.ok());
  const v1::JobSpec spec = spec_of(*parsed);
  ASSERT_EQ(spec.command_size(), 1);
  EXPECT_EQ(spec.command(0), "c");
  EXPECT_EQ(spec.environment().at("A"), "2");
}

TEST(SubmitBody, TheOrderOfKeysDoesNotChangeTheSpecification) {
  const auto a =
      parse_submit(R"({"script":"x","environment":{"A":"1","B":"2"},"labels":{"c":"d","e":"f"}})", false);
  const auto b =
      parse_submit(R"({"labels":{"e":"f","c":"d"},"environment":{"B":"2","A":"1"},"script":"x"})", false);
  EXPECT_EQ(a->jobs[0].spec, b->jobs[0].spec);
}

TEST(SubmitBody, LimitsOnListsAndLengthsHold) {
  const auto words = [](std::size_t count) {
    std::string body = R"({"command":["x")";
    for (std::size_t i = 1; i < count; ++i) body += R"(,"y")";
    return body + "]}";
  };
  EXPECT_TRUE(parse_submit(words(limits::kCommandWordsMax), false).ok());
  EXPECT_EQ(refused(words(limits::kCommandWordsMax + 1)).field, "command");
  const auto named = [](std::size_t size) {
    return R"({"script":"x","name":")" + std::string(size, 'n') + "\"}";
  };
  EXPECT_TRUE(parse_submit(named(limits::kNameBytesMax), false).ok());
  EXPECT_EQ(refused(named(limits::kNameBytesMax + 1)).field, "name");
  EXPECT_EQ(row_of(refused(R"({"script":")" + std::string(limits::kSpecBytesMax, 's') + "\"}").kind).code,
            "too_large");
}

TEST(TenantBody, EveryFieldArrives) {
  const auto parsed = parse_tenant(
      R"({"name":"a","email":"e","organization":"o","max_gpus":4,"max_gpu_memory_mb":5,"max_cpu_cores":6,
          "max_memory_mb":7,"max_concurrent_jobs":8,"max_waiting_jobs":9,"soft_waiting_jobs":10,"priority_tier":"high","fair_share_weight":2.5,
          "allow_preemption":true,"can_preempt_others":false})",
      true);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->max_gpus, 4);
  EXPECT_EQ(parsed->max_gpu_memory_mb, 5);
  EXPECT_EQ(parsed->max_cpu_milli, 6'000);
  EXPECT_EQ(parsed->max_memory_mb, 7);
  EXPECT_EQ(parsed->max_concurrent_jobs, 8);
  EXPECT_EQ(parsed->max_waiting_jobs, 9);
  EXPECT_EQ(parsed->soft_waiting_jobs, 10);
  EXPECT_EQ(parsed->priority_tier, 1'000);
  EXPECT_EQ(parsed->weight_milli, 2'500);
  EXPECT_EQ(parsed->allow_preemption, true);
}

TEST(TenantBody, GuaranteesAndGpuHoursArrive) {
  const auto parsed = parse_tenant(
      R"({"name":"a","guaranteed_gpus":4,"guaranteed_gpu_memory_mb":5,"guaranteed_cpu_cores":6,
          "guaranteed_memory_mb":7,"guaranteed_jobs":8,"max_gpu_hours":1.5,"gpu_hours_window_seconds":3600})",
      true);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->guaranteed_gpus, 4);
  EXPECT_EQ(parsed->guaranteed_gpu_memory_mb, 5);
  EXPECT_EQ(parsed->guaranteed_cpu_milli, 6'000);
  EXPECT_EQ(parsed->guaranteed_memory_mb, 7);
  EXPECT_EQ(parsed->guaranteed_jobs, 8);
  EXPECT_EQ(parsed->gpu_ms_max, 5'400'000);
  EXPECT_EQ(parsed->gpu_window_ms, 3'600'000);
  EXPECT_EQ(parse_tenant(R"({"max_gpu_hours":null})", false)->unlimited,
            std::vector<std::string>{"max_gpu_hours"});
  EXPECT_EQ(parse_tenant(R"({"guaranteed_gpus":-1})", false).error().field, "guaranteed_gpus");
  EXPECT_EQ(parse_tenant(R"({"max_gpu_hours":-1})", false).error().field, "max_gpu_hours");
  EXPECT_EQ(parse_tenant(R"({"gpu_hours_window_seconds":1})", false).error().field,
            "gpu_hours_window_seconds");
}

TEST(SubmitBody, APriorityIsANumberOrATiersNameAndAClassOneOfTwo) {
  const auto priority = [](const std::string& value) {
    return parse_submit(R"({"command":["a"],"priority":)" + value + "}", false);
  };
  EXPECT_EQ(priority("\"critical\"")->jobs[0].priority, 5'000);
  EXPECT_EQ(priority("-3")->jobs[0].priority, -3);
  EXPECT_EQ(priority("\"huge\"").error().field, "priority");
  EXPECT_EQ(parse_submit(R"({"command":["a"],"work_class":"online"})", false)->jobs[0].work,
            WorkClass::kOnline);
  EXPECT_EQ(parse_submit(R"({"command":["a"],"work_class":"other"})", false).error().field, "work_class");
}

TEST(TenantBody, ANewTenantNeedsAName) {
  EXPECT_EQ(parse_tenant("{}", true).error().field, "name");
  EXPECT_TRUE(parse_tenant("{}", false).ok());
  EXPECT_EQ(parse_tenant(R"({"name":"tenant-12"})", true).error().field, "name");
  EXPECT_EQ(parse_tenant(R"({"name":"default"})", true).error().field, "name");
}

TEST(TenantBody, ANullLimitIsLiftedByAnUpdateOnly) {
  const auto update = parse_tenant(R"({"max_gpus":null,"max_memory_mb":5})", false);
  EXPECT_EQ(update->unlimited, std::vector<std::string>{"max_gpus"});
  EXPECT_TRUE(parse_tenant(R"({"name":"a","max_gpus":null})", true)->unlimited.empty());
}

TEST(TenantBody, TiersAreWordsOrNumbers) {
  EXPECT_EQ(parse_tenant(R"({"name":"a","priority_tier":5000})", true)->priority_tier, 5'000);
  EXPECT_EQ(parse_tenant(R"({"name":"a","priority_tier":"low"})", true)->priority_tier, 100);
  EXPECT_EQ(parse_tenant(R"({"name":"a","priority_tier":"huge"})", true).error().field, "priority_tier");
  EXPECT_EQ(parse_tenant(R"({"name":"a","priority_tier":-1})", true).error().field, "priority_tier");
  EXPECT_EQ(parse_tenant(R"({"name":"a","priority_tier":true})", true).error().field, "priority_tier");
  EXPECT_EQ(parse_tenant(R"({"name":"a","max_gpus":-1})", true).error().field, "max_gpus");
  EXPECT_EQ(parse_tenant(R"({"name":"a","fair_share_weight":-1})", true).error().field, "fair_share_weight");
}

TEST(TenantBody, TheZerosOfTypedClientsAreTheDefaults) {
  const auto zeros = parse_tenant(R"({"name":"a","priority_tier":"","fair_share_weight":0})", true);
  ASSERT_TRUE(zeros.ok());
  EXPECT_FALSE(zeros->priority_tier.has_value());
  EXPECT_FALSE(zeros->weight_milli.has_value());
  // A tier without a word is shown, and taken, as digits.
  EXPECT_EQ(parse_tenant(R"({"name":"a","priority_tier":"700"})", true)->priority_tier, 700);
  EXPECT_EQ(parse_tenant(R"({"name":"a","priority_tier":"99999999999"})", true).error().field,
            "priority_tier");
}

TEST(JobIds, HaveOneSpelling) {
  EXPECT_EQ(parse_job_id("job-12"), JobId{12});
  for (const std::string_view text :
       {"job-", "job-0", "job-012", "job--1", "job-1x", "12", "job-99999999999999999999"}) {
    EXPECT_FALSE(parse_job_id(text)) << text;
  }
}

TEST(JobStates, AreSpeltAsTheModelSpellsThem) {
  for (int i = 1; i < static_cast<int>(kJobStateCount); ++i) {
    const auto state = static_cast<JobState>(i);
    EXPECT_EQ(parse_job_state(to_string(state)), state);
  }
  EXPECT_FALSE(parse_job_state("Pending"));
}

TEST(Durations, HaveUnits) {
  EXPECT_EQ(parse_duration("30s"), seconds(30));
  EXPECT_EQ(parse_duration("5"), seconds(5));
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("2h"), hours(2));
  EXPECT_EQ(parse_duration("7d"), hours(168));
  for (const std::string_view text : {"", "s", "-1s", "1w", "1.5s", "1 s"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

bool has_no_limit(const JobRequest& job) {
  v1::JobSpec spec;
  EXPECT_TRUE(spec.ParseFromString(job.spec));
  return spec.memory_unlimited();
}

TEST(Memory, OnlyAZeroThatWasSentAsksForNoLimit) {
  for (const auto& [memory, expected] :
       {std::pair("", false), std::pair(R"(,"memory_mb":0)", true), std::pair(R"(,"memory_mb":8)", false)}) {
    const auto parsed = parse_submit(std::string(R"({"script":"true")") + memory + "}", false);
    ASSERT_TRUE(parsed.ok()) << memory;
    EXPECT_EQ(has_no_limit(parsed->jobs.at(0)), expected) << memory;
  }
}

TEST(Memory, AZeroThatIsPresentAsksForNoLimitInProtocolBuffersToo) {
  v1::JobRequest request;
  request.mutable_spec()->set_script("true");
  EXPECT_FALSE(has_no_limit(*read_job(request, false)));
  request.mutable_resources()->set_memory_mb(8);
  EXPECT_FALSE(has_no_limit(*read_job(request, false)));
  request.mutable_resources()->set_memory_mb(0);
  EXPECT_TRUE(has_no_limit(*read_job(request, false)));
  request.mutable_resources()->clear_memory_mb();
  request.add_parts()->mutable_resources()->set_memory_mb(8);
  EXPECT_FALSE(has_no_limit(*read_job(request, false)));
  request.add_parts()->mutable_resources()->set_memory_mb(0);
  EXPECT_TRUE(has_no_limit(*read_job(request, false)));
  request.clear_parts();
  request.mutable_spec()->set_memory_unlimited(true);
  EXPECT_TRUE(has_no_limit(*read_job(request, false)));
}

}  // namespace
}  // namespace gpusched::api
