#include "node/tasks/worker_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/net/base64.h"
#include "base/text/task_worker.h"
#include "shim/endpoint/endpoint_worker.h"
#include "shim/worker/task_wire.h"

namespace gpusched {
namespace {

v1::JobSpec task_spec(const std::string& payload = "payload") {
  v1::JobSpec spec;
  spec.set_name("task-1");
  spec.set_script("echo a process for each");
  (*spec.mutable_labels())["agent_task_id"] = "task-1";
  auto& variables = *spec.mutable_environment();
  variables[std::string(kTaskPayloadVariable)] = base64_encoded(payload);
  variables["TASK_ID"] = "task \"1\"\n";
  return spec;
}

/// The order as a door and the scheduler make it of a task.
void ask(v1::StartAttempt& order, const v1::JobSpec& spec, const WorkerRequest& worker) {
  std::string packed = spec.SerializeAsString();
  if (!worker.command.empty() || !worker.endpoint.empty()) add_worker(packed, worker);
  if (!worker.owner.empty()) add_worker_owner(packed, worker.owner);
  order.set_spec(packed);
}

v1::JobSpec read_spec(const v1::StartAttempt& order) {
  v1::JobSpec spec;
  EXPECT_TRUE(spec.ParseFromString(order.spec()));
  return spec;
}

v1::StartAttempt order_of(uint64_t job = 12) {
  v1::StartAttempt order;
  order.mutable_key()->set_job(job);
  order.mutable_key()->set_attempt(1);
  order.set_job_name("job-" + std::to_string(job));
  order.set_tenant("acme");
  order.set_cpu_milli(1'000);
  v1::GrantedDevice& device = *order.add_devices();
  device.set_uuid("GPU-1");
  device.set_share_milli(100);
  device.set_share_memory_mb(1'024);
  return order;
}

std::vector<std::string> environment_of(const v1::StartAttempt& order) {
  const std::string key = to_string(from_wire(order.key()));
  return {"CUDA_VISIBLE_DEVICES=" + order.devices(0).uuid(),
          "GPU_SCHEDULER_ATTEMPT=" + key + "@inst",
          "GPU_SCHEDULER_GPU_MEMORY_MB=" + std::to_string(order.devices(0).share_memory_mb()),
          "GPU_SCHEDULER_GPU_MILLI=" + std::to_string(order.devices(0).share_milli()),
          "GPU_SCHEDULER_JOB_ID=" + order.job_name(),
          "TMPDIR=/data/attempts/" + key + "/tmp"};
}

std::shared_ptr<const WorkerPlan> plan(v1::StartAttempt order, const v1::JobSpec& spec,
                                       const std::string& user = "ada",
                                       const WorkerRequest& worker = {.command = "exec answer",
                                                                      .idle_ms = ""}) {
  ask(order, spec, worker);
  v1::JobSpec packed = read_spec(order);
  return plan_worker(order, packed, user, environment_of(order));
}

bool is_workers(v1::StartAttempt order, const v1::JobSpec& spec, const std::string& command = "exec answer") {
  ask(order, spec, {.command = command, .idle_ms = ""});
  return is_for_worker(order, read_spec(order));
}

std::string idle_of(const std::string& idle_ms) {
  const auto worker = plan(order_of(), task_spec(), "ada", {.command = "exec answer", .idle_ms = idle_ms});
  const std::string name = std::string(kWorkerIdleVariable) + '=';
  for (const std::string& entry : worker->environment)
    if (entry.starts_with(name)) return entry.substr(name.size());
  return {};
}

bool has(const std::vector<std::string>& entries, const std::string& start) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& entry) { return entry.starts_with(start); });
}

TEST(WorkerPlan, ATaskIsAFrameWithItsVariablesAndItsPayload) {
  const auto worker = plan(order_of(), task_spec(std::string("\0\xFF\n", 3)));
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(worker->frame,
            std::string("{\"id\":\"12-1-0\",\"job\":\"job-12\",\"environment\":{\"TASK_ID\":\"task "
                        "\\\"1\\\"\\u000a\"}}\n") +
                std::string("\0\xFF\n", 3));
  EXPECT_EQ(worker->arguments, (std::vector<std::string>{"/bin/sh", "-c", "exec answer"}));
  EXPECT_FALSE(has(worker->environment, "TASK_"));
  EXPECT_FALSE(has(worker->environment, "GPU_SCHEDULER_JOB_ID="));
  EXPECT_TRUE(has(worker->environment, "GPU_SCHEDULER_WORKER_FD=201"));
  EXPECT_TRUE(has(worker->environment, "GPU_SCHEDULER_WORKER_IDLE_MS=30000"));
  EXPECT_TRUE(has(worker->environment, "CUDA_VISIBLE_DEVICES=GPU-1"));
}

TEST(WorkerPlan, APayloadBesideTheSpecificationIsNoPartOfTheFrameNorOfTheMatch) {
  v1::StartAttempt order = order_of();
  order.set_payload(std::string(1'000'000, 'p'));
  v1::JobSpec spec = task_spec();
  (*spec.mutable_environment())[std::string(kTaskPayloadVariable)] = "!";
  ask(order, spec, {.command = "exec answer", .idle_ms = ""});
  v1::JobSpec packed = read_spec(order);
  std::vector<std::string> environment = environment_of(order);
  environment.emplace_back("TASK_PAYLOAD_BYTES=1000000");
  const auto worker = plan_worker(order, packed, "ada", environment);
  ASSERT_NE(worker, nullptr);
  EXPECT_TRUE(worker->frame.ends_with("}}\n")) << worker->frame;
  EXPECT_FALSE(has(worker->environment, "TASK_"));
  EXPECT_EQ(worker->match, plan(order_of(), task_spec())->match);
}

TEST(WorkerPlan, WhatIsNoWorkersIsRunAsItsScript) {
  EXPECT_TRUE(is_workers(order_of(), task_spec()));
  EXPECT_FALSE(is_workers(order_of(), task_spec(), ""));
  v1::JobSpec image = task_spec();
  image.set_image("alpine");
  EXPECT_FALSE(is_workers(order_of(), image));
  v1::JobSpec file = task_spec();
  file.set_stdout_path("/tmp/out");
  EXPECT_FALSE(is_workers(order_of(), file));
  v1::StartAttempt slice = order_of();
  slice.mutable_devices(0)->set_mig_profile("1g.10gb");
  EXPECT_FALSE(is_workers(slice, task_spec()));
  v1::StartAttempt gang = order_of();
  gang.mutable_gang();
  EXPECT_FALSE(is_workers(gang, task_spec()));
  v1::JobSpec torn = task_spec();
  (*torn.mutable_environment())[std::string(kTaskPayloadVariable)] = "no base64";
  EXPECT_EQ(plan(order_of(), torn), nullptr);
  EXPECT_EQ(plan(order_of(), task_spec(std::string(shim::kTaskFrameBytesMax, 'x'))), nullptr);
}

TEST(WorkerPlan, AlikeTasksMatchAndOthersDoNot) {
  const std::string first = plan(order_of(), task_spec())->match;
  v1::JobSpec next = task_spec("another payload");
  next.set_name("task-2");
  (*next.mutable_environment())["TASK_ID"] = "task-2";
  (*next.mutable_labels())["agent_task_id"] = "task-2";
  EXPECT_EQ(plan(order_of(13), next)->match, first);

  const std::vector<std::function<void(v1::StartAttempt&, v1::JobSpec&)>> others = {
      [](v1::StartAttempt& order, v1::JobSpec&) { order.set_tenant("beta"); },
      [](v1::StartAttempt& order, v1::JobSpec&) { order.set_memory_mb(7); },
      [](v1::StartAttempt& order, v1::JobSpec&) { order.set_cpu_milli(7); },
      [](v1::StartAttempt& order, v1::JobSpec&) { order.mutable_devices(0)->set_uuid("GPU-2"); },
      [](v1::StartAttempt& order, v1::JobSpec&) { order.mutable_devices(0)->set_share_milli(200); },
      [](v1::StartAttempt& order, v1::JobSpec&) { order.mutable_devices(0)->set_share_memory_mb(7); },
      [](v1::StartAttempt&, v1::JobSpec& spec) { spec.set_user("grace"); },
      [](v1::StartAttempt&, v1::JobSpec& spec) { spec.set_submitter("grace"); },
      [](v1::StartAttempt&, v1::JobSpec& spec) { spec.set_anonymous(true); },
      [](v1::StartAttempt&, v1::JobSpec& spec) { (*spec.mutable_limits())["nofile"] = 7; },
  };
  for (std::size_t i = 0; i < others.size(); ++i) {
    v1::StartAttempt order = order_of();
    v1::JobSpec spec = task_spec();
    others[i](order, spec);
    EXPECT_NE(plan(order, spec)->match, first) << i;
  }
  EXPECT_NE(plan(order_of(), task_spec(), "grace")->match, first);
  EXPECT_NE(plan(order_of(), task_spec(), "ada", {.command = "exec another", .idle_ms = ""})->match, first);
}

TEST(WorkerPlan, TasksOfDifferentOwnersDoNotMatch) {
  const auto match_of = [](const std::string& owner) {
    const auto worker =
        plan(order_of(), task_spec(), "ada", {.command = "exec answer", .idle_ms = "", .owner = owner});
    EXPECT_EQ(worker->frame.find(owner + "\""), std::string::npos);
    EXPECT_FALSE(has(worker->environment, std::string(kWorkerOwnerVariable)));
    return worker->match;
  };
  EXPECT_EQ(match_of("tenant-5 2 ada"), match_of("tenant-5 2 ada"));
  EXPECT_NE(match_of("tenant-5 2 ada"), match_of("tenant-5 2 grace"));
  EXPECT_NE(match_of("tenant-5 2 ada"), match_of("tenant-6 2 ada"));
  EXPECT_NE(match_of("tenant-5 2 ada"), match_of("tenant-5 1 ada"));
  v1::JobSpec forged = task_spec();
  (*forged.mutable_environment())[std::string(kWorkerOwnerVariable)] = "tenant-5 2 grace";
  const auto worker =
      plan(order_of(), forged, "ada", {.command = "exec answer", .idle_ms = "", .owner = "tenant-5 2 ada"});
  EXPECT_EQ(worker->match, match_of("tenant-5 2 ada"));
}

TEST(WorkerPlan, AJobsOwnVariablesMakeNoWorker) {
  v1::JobSpec spec = task_spec();
  (*spec.mutable_environment())[std::string(kWorkerVariable)] = "exec mine";
  (*spec.mutable_environment())[std::string(kWorkerIdleVariable)] = "86400000";
  EXPECT_FALSE(is_workers(order_of(), spec, ""));
  EXPECT_EQ(plan(order_of(), spec, "ada", {}), nullptr);
}

TEST(WorkerPlan, AnEndpointsWorkerIsTheShimItself) {
  const WorkerRequest sent{
      .idle_ms = "", .tasks = "4", .endpoint = "http://127.0.0.1:8000/v1 /health 1000 3 1000"};
  const auto worker = plan(order_of(), task_spec(), "ada", sent);
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(worker->arguments,
            (std::vector<std::string>{"/proc/self/exe", shim::kEndpointFlag, sent.endpoint}));
  EXPECT_EQ(worker->endpoint, "http://127.0.0.1:8000/v1");
  EXPECT_EQ(worker->tasks_max, 4u);
  EXPECT_EQ(plan(order_of(), task_spec())->endpoint, "");
  EXPECT_NE(plan(order_of(), task_spec())->match, worker->match);
  WorkerRequest other = sent;
  other.endpoint = "http://127.0.0.1:8000/v1 /health 1000 2 1000";
  EXPECT_NE(plan(order_of(), task_spec(), "ada", other)->match, worker->match);
  other.endpoint = "http://a-name:8000/v1 /health 1000 3 1000";  // Its job's script runs.
  EXPECT_EQ(plan(order_of(), task_spec(), "ada", other), nullptr);
}

TEST(WorkerPlan, TheOrderOfAMapInMemoryDoesNotMatter) {
  const auto match_of = [](const std::vector<std::string>& names) {
    v1::JobSpec spec = task_spec();
    spec.mutable_limits()->clear();
    for (const std::string& name : names) (*spec.mutable_limits())[name] = 7;
    return plan(order_of(), spec)->match;
  };
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("limit" + std::to_string(i));
  const std::string first = match_of(names);
  std::reverse(names.begin(), names.end());
  EXPECT_EQ(match_of(names), first);
}

TEST(WorkerPlan, AWorkerWithoutATaskAlwaysEndsWithinTenMinutes) {
  EXPECT_EQ(idle_of("7000"), "7000");
  EXPECT_EQ(idle_of("600000"), "600000");
  EXPECT_EQ(idle_of("600001"), "600000");
  EXPECT_EQ(idle_of("99999999999999999999"), "600000");
  for (const char* wrong : {"", "0", "-1", "-99999999999999999999", "soon", "7000 s"})
    EXPECT_EQ(idle_of(wrong), "30000") << wrong;
}

TEST(WorkerPlan, AWorkerIsToldHowManyTasksItMayHaveAtOnce) {
  const auto tasks_of = [](const std::string& tasks) {
    const auto worker =
        plan(order_of(), task_spec(), "ada", {.command = "exec answer", .idle_ms = "", .tasks = tasks});
    EXPECT_TRUE(has(worker->environment, "GPU_SCHEDULER_WORKER_TASKS=" + std::to_string(worker->tasks_max)));
    return worker->tasks_max;
  };
  EXPECT_EQ(tasks_of("8"), 8u);
  EXPECT_EQ(tasks_of("64"), 64u);
  EXPECT_EQ(tasks_of("65"), 64u);
  for (const char* wrong : {"", "0", "-1", "8 tasks", "99999999999999999999"})
    EXPECT_EQ(tasks_of(wrong), 1u) << wrong;
}

TEST(WorkerPlan, AWorkerIsAskedHowItIsAsOftenAsTheOperatorSays) {
  const auto has_health = [](const std::string& health_ms, const std::string& wanted) {
    const auto worker = plan(order_of(), task_spec(), "ada",
                             {.command = "exec answer", .idle_ms = "", .health_ms = health_ms});
    return has(worker->environment, "GPU_SCHEDULER_WORKER_HEALTH_MS=" + wanted);
  };
  EXPECT_TRUE(has_health("3000", "3000"));
  EXPECT_TRUE(has_health("600001", "600000"));
  for (const char* wrong : {"", "0", "soon"}) EXPECT_TRUE(has_health(wrong, "10000")) << wrong;
}

TEST(WorkerPlan, AnotherKeyTakesTheAttemptsPlace) {
  EXPECT_EQ(with_key("GPU_SCHEDULER_ATTEMPT=12-1-0@inst", "12-1-0", "99-1-0"),
            "GPU_SCHEDULER_ATTEMPT=99-1-0@inst");
  EXPECT_EQ(with_key("TMPDIR=/d/attempts/12-1-0/tmp", "12-1-0", "99-1-0"), "TMPDIR=/d/attempts/99-1-0/tmp");
  EXPECT_EQ(with_key("OTHER=12-1-0", "12-1-0", "99-1-0"), "OTHER=12-1-0");
}

}  // namespace
}  // namespace gpusched
