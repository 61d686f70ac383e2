#include "api/doors/agent_tasks/task_messages.h"

#include <gtest/gtest.h>

#include "api/contract/spec_peek.h"
#include "base/net/base64.h"
#include "base/text/task_payload.h"
#include "base/text/task_worker.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

TaskWorkers workers() {
  TaskWorkers workers{.gpu_memory_mb = 512, .gpu_tflops = 200};
  workers.commands[static_cast<std::size_t>(TaskKind::kLlm)] = "answer --with-model x # a comment";
  workers.commands[static_cast<std::size_t>(TaskKind::kOther)] = "cat";
  return workers;
}

algogpu::TaskRequest task(algogpu::TaskType type = algogpu::TASK_TYPE_LLM) {
  algogpu::TaskRequest message;
  message.set_task_id("t-1");
  message.set_user_id("agent-7");
  message.set_task_type(type);
  message.set_payload(std::string("\0\xFF{}\n", 5));
  return message;
}

JobRequest job_of(const algogpu::TaskRequest& message) {
  Answer<SubmitRequest> read = read_task(message, content_of(message), workers(), false);
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().message);
  if (!read.ok() || read->jobs.size() != 1) return {};
  EXPECT_EQ(read->tenant, "");
  return std::move(read->jobs[0]);
}

v1::JobSpec spec_of(const algogpu::TaskRequest& message) {
  v1::JobSpec spec;
  EXPECT_TRUE(spec.ParseFromString(job_of(message).spec));
  return spec;
}

std::string problem(const algogpu::TaskRequest& message) {
  const Answer<SubmitRequest> read = read_task(message, content_of(message), workers(), false);
  return read.ok() ? "" : read.error().field + ": " + read.error().message;
}

TEST(TaskMessages, ATaskIsAJobWithItsLabelsAndItsPayloadAsASecret) {
  const v1::JobSpec spec = spec_of(task());
  EXPECT_EQ(spec.name(), "t-1");
  EXPECT_EQ(spec.labels().at("agent_task_id"), "t-1");
  EXPECT_EQ(spec.labels().at("task_type"), "llm");
  EXPECT_EQ(spec.labels().at("agent_user_id"), "agent-7");
  EXPECT_EQ(spec.environment().at("TASK_ID"), "t-1");
  EXPECT_EQ(spec.environment().at("TASK_TYPE"), "llm");
  EXPECT_EQ(spec.environment().at("TASK_USER_ID"), "agent-7");
  EXPECT_EQ(spec.environment().at("TASK_PAYLOAD_BASE64"), base64_encoded(task().payload()));
  ASSERT_EQ(spec.secret_variables_size(), 1);
  EXPECT_EQ(spec.secret_variables(0), "TASK_PAYLOAD_BASE64");
  EXPECT_NE(spec.script().find("\nanswer --with-model x # a comment\n}"), std::string::npos) << spec.script();
  EXPECT_EQ(spec_label(job_of(task()).spec, kTaskIdLabel), "t-1");
  EXPECT_FALSE(spec_label(job_of(task()).spec, "team").has_value());
}

TEST(TaskMessages, ALargePayloadStandsBehindTheSpecificationAndIsTheScriptsInput) {
  algogpu::TaskRequest message = task();
  message.set_payload(std::string(kTaskPayloadInlineMax, '\xFE'));
  EXPECT_EQ(task_payload_of(job_of(message).spec), "");
  EXPECT_EQ(spec_of(message).environment().at("TASK_PAYLOAD_BASE64"), base64_encoded(message.payload()));
  message.mutable_payload()->push_back('\0');
  const JobRequest job = job_of(message);
  EXPECT_EQ(task_payload_of(job.spec), message.payload());
  EXPECT_EQ(task_content_of(job.spec), content_of(message));
  EXPECT_LT(without_task_payload(job.spec).size(), 2'000U);
  const v1::JobSpec spec = spec_of(message);
  // An older agent finds no payload that it would take for an empty one.
  EXPECT_FALSE(base64_decoded(spec.environment().at("TASK_PAYLOAD_BASE64")).has_value());
  EXPECT_EQ(spec.secret_variables(0), "TASK_PAYLOAD_BASE64");
  EXPECT_TRUE(spec.script().starts_with("[ -n \"$TASK_PAYLOAD_BYTES\" ] || {")) << spec.script();
  EXPECT_TRUE(spec.script().ends_with("\nanswer --with-model x # a comment")) << spec.script();
}

TEST(TaskMessages, ATasksContentIsAllThatDecidesAboutIt) {
  const TaskContent content = content_of(task());
  // Kept with jobs of earlier releases.
  EXPECT_EQ(content, (TaskContent{.high = 0x4CCB'657A'9365'9176, .low = 0xC0E4'5D03'FA81'AB6B}));
  EXPECT_EQ(task_content_of(job_of(task()).spec), content);
  algogpu::TaskRequest same = task();
  same.set_task_id("t-2");
  same.set_estimated_runtime_ms(5);  // Nothing depends on it.
  EXPECT_EQ(content_of(same), content);
  std::vector<algogpu::TaskRequest> others(6, task());
  others[0].set_user_id("agent-8");
  others[1].set_task_type(algogpu::TASK_TYPE_OTHER);
  others[2].set_gpu_memory_required(100);
  others[3].set_gpu_compute_required(100);
  others[4].mutable_payload()->back() = ' ';
  others[5].clear_payload();
  for (const algogpu::TaskRequest& other : others)
    EXPECT_NE(content_of(other), content) << other.DebugString();
}

TEST(TaskMessages, ATaskNamesThePersistentWorkerOfItsType) {
  EXPECT_FALSE(spec_of(task()).environment().contains("GPU_SCHEDULER_WORKER"));
  TaskWorkers persistent = workers();
  persistent.persistent[static_cast<std::size_t>(TaskKind::kOther)] = true;
  persistent.idle_ms = 7'000;
  for (const auto type : {algogpu::TASK_TYPE_UNSPECIFIED, algogpu::TASK_TYPE_OTHER, algogpu::TASK_TYPE_LLM}) {
    Answer<SubmitRequest> read = read_task(task(type), content_of(task(type)), persistent, false);
    ASSERT_TRUE(read.ok());
    v1::JobSpec spec;
    ASSERT_TRUE(spec.ParseFromString(read->jobs[0].spec));
    const bool has_worker = type != algogpu::TASK_TYPE_LLM;
    EXPECT_EQ(spec.environment().contains("GPU_SCHEDULER_WORKER"), has_worker);
    EXPECT_EQ(spec.environment().contains("GPU_SCHEDULER_WORKER_IDLE_MS"), has_worker);
    EXPECT_EQ(worker_of(read->jobs[0].spec).has_value(), has_worker);
    // The door's own entries: packed as a job's environment they would ask for nothing.
    EXPECT_FALSE(worker_of(spec.SerializeAsString()).has_value());
    if (!has_worker) continue;
    EXPECT_EQ(spec.environment().at("GPU_SCHEDULER_WORKER"), "cat");
    EXPECT_EQ(spec.environment().at("GPU_SCHEDULER_WORKER_IDLE_MS"), "7000");
    EXPECT_FALSE(spec.environment().contains("GPU_SCHEDULER_WORKER_TASKS"));  // One at a time.
    // For agents that know of no workers.
    EXPECT_NE(spec.script().find("\ncat\n"), std::string::npos) << spec.script();
  }
}

TEST(TaskMessages, ATaskNamesTheEndpointOfItsType) {
  TaskWorkers sent = workers();
  const auto llm = static_cast<std::size_t>(TaskKind::kLlm);
  sent.commands[llm] = "";
  sent.tasks_at_once[llm] = 4;
  sent.endpoints[llm] = {.url = "http://127.0.0.1:8000/v1/chat/completions", .timeout = milliseconds(2'500)};
  Answer<SubmitRequest> read =
      read_task(task(algogpu::TASK_TYPE_LLM), content_of(task(algogpu::TASK_TYPE_LLM)), sent, false);
  ASSERT_TRUE(read.ok());
  const auto worker = worker_of(read->jobs[0].spec);
  ASSERT_TRUE(worker.has_value());
  EXPECT_EQ(worker->command, "");  // Or agents from before endpoints would run it.
  EXPECT_EQ(worker->tasks, "4");
  EXPECT_EQ(parse_endpoint(worker->endpoint), sent.endpoints[llm]);
  v1::JobSpec spec;
  ASSERT_TRUE(spec.ParseFromString(read->jobs[0].spec));
  EXPECT_NE(spec.script().find("\ncurl -gsSf --noproxy '*' --retry 3 --retry-connrefused --max-time 3 -H "
                               "'Content-Type: application/json' --data-binary @- "
                               "'http://127.0.0.1:8000/v1/chat/completions'\n}"),
            std::string::npos)
      << spec.script();
  read = read_task(task(algogpu::TASK_TYPE_EMBEDDING), content_of(task(algogpu::TASK_TYPE_EMBEDDING)), sent,
                   false);
  EXPECT_TRUE(!read.ok() || !worker_of(read->jobs[0].spec).has_value());
}

TEST(TaskMessages, ATaskSaysHowManyItsWorkerHasAtOnce) {
  TaskWorkers persistent = workers();
  persistent.persistent[static_cast<std::size_t>(TaskKind::kLlm)] = true;
  persistent.tasks_at_once[static_cast<std::size_t>(TaskKind::kLlm)] = 8;
  const Answer<SubmitRequest> read = read_task(task(), content_of(task()), persistent, false);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(worker_of(read->jobs[0].spec)->tasks, "8");
}

TEST(TaskMessages, ATaskOfNoTypeIsRunAsOthersAre) {
  for (const int type : {0, 4, 99}) {
    const v1::JobSpec spec = spec_of(task(static_cast<algogpu::TaskType>(type)));
    EXPECT_NE(spec.script().find("\ncat\n"), std::string::npos) << type;
    EXPECT_EQ(spec.labels().at("task_type"), "other") << type;
  }
  algogpu::TaskRequest nobodys = task();
  nobodys.clear_user_id();
  EXPECT_FALSE(spec_of(nobodys).labels().contains("agent_user_id"));
}

TEST(TaskMessages, ATaskHasAShareOfOneGpu) {
  algogpu::TaskRequest message = task();
  EXPECT_EQ(job_of(message).gpu_memory_mb, 512);
  EXPECT_EQ(job_of(message).gpu_milli, 10);
  EXPECT_TRUE(job_of(message).memory_is_default);
  message.set_gpu_memory_required(2'048);
  message.set_gpu_compute_required(50);
  EXPECT_EQ(job_of(message).gpu_memory_mb, 2'048);
  EXPECT_EQ(job_of(message).gpu_milli, 250);
  EXPECT_FALSE(job_of(message).memory_is_default);
  message.set_gpu_compute_required(10'000);  // More than a GPU has: all of one, and still a share.
  EXPECT_EQ(job_of(message).gpu_milli, 999);
}

TEST(TaskMessages, WhatIsWrongWithATaskIsSaid) {
  EXPECT_EQ(problem(task(algogpu::TASK_TYPE_DIFFUSION)),
            "task_type: no worker is configured for tasks of type diffusion; set tasks.diffusion_command or "
            "tasks.diffusion_endpoint in the scheduler's configuration");
  EXPECT_TRUE(problem(task(algogpu::TASK_TYPE_EMBEDDING)).find("tasks.embedding_command") !=
              std::string::npos);
  algogpu::TaskRequest message = task();
  message.clear_task_id();
  EXPECT_EQ(problem(message), "task_id: task_id is missing; choose one for each task");
  message.set_task_id(std::string(kTaskIdBytesMax + 1, 'x'));
  EXPECT_EQ(problem(message), "task_id: task_id is longer than 253 bytes; shorten it");
  message.set_task_id("a\nb");
  EXPECT_EQ(problem(message),
            "task_id: task_id contains a control character, such as a line break; remove it");
  message = task();
  message.set_user_id("\x7F");
  EXPECT_TRUE(problem(message).starts_with("user_id: ")) << problem(message);
  message = task();
  message.set_gpu_memory_required(-1);
  EXPECT_TRUE(problem(message).starts_with("gpu_memory_required: ")) << problem(message);
  message = task();
  message.set_gpu_compute_required(-1);
  EXPECT_TRUE(problem(message).starts_with("gpu_compute_required: ")) << problem(message);
  message = task();
  message.set_payload(std::string(kTaskPayloadBytesMax, 'p'));
  EXPECT_EQ(problem(message), "");
  message.mutable_payload()->push_back('p');
  EXPECT_TRUE(
      problem(message).starts_with("payload: payload has 4194305 bytes, and a task carries at most 4194304"))
      << problem(message);
}

TEST(TaskMessages, AJobIsShownAsATask) {
  JobView job;
  job.id = JobId{12};
  job.state = JobState::kPreempted;
  job.message = "waits again";
  job.submitted_at = Time{0} + seconds(100);
  job.started_at = Time{0} + seconds(200);
  algogpu::TaskStatusResponse out;
  write_task("t-1", job, out);
  EXPECT_EQ(out.task_id(), "t-1");
  EXPECT_EQ(out.status(), algogpu::TASK_STATUS_PENDING);
  EXPECT_EQ(out.message(), "job-12: waits again");
  EXPECT_EQ(out.created_at(), 100);
  EXPECT_EQ(out.started_at(), 0);
  EXPECT_EQ(out.completed_at(), 0);
  job.state = JobState::kCompleted;
  job.completed_at = Time{0} + seconds(300);
  write_task("t-1", job, out);
  EXPECT_EQ(out.status(), algogpu::TASK_STATUS_COMPLETED);
  EXPECT_EQ(out.started_at(), 200);
  EXPECT_EQ(out.completed_at(), 300);
}

TEST(TaskMessages, GpusAreInTheOrderOfTheirNumbersWithTheirTasks) {
  DeviceView idle{.index = 0, .memory_mb = 1'000}, busy{.index = 1, .memory_mb = 1'000};
  idle.gpu_id = 65;
  busy.gpu_id = 3;
  busy.memory_used_mb = 250;
  busy.utilization_percent = 40;
  busy.temperature_celsius = 61;
  busy.shared_by = {JobId{5}, JobId{6}};
  busy.model = "A100";
  NodeView node;
  node.name = "n1";
  node.devices = {idle, busy};
  algogpu::GPUStatusResponse out;
  const auto tasks_of = [](const std::vector<JobId>& jobs) {
    std::vector<std::string> tasks;
    for (const JobId job : jobs) tasks.push_back("task-of-" + std::to_string(job.value));
    return tasks;
  };
  write_gpus({node}, tasks_of, Time{0} + seconds(9), out);
  EXPECT_EQ(out.timestamp(), 9);
  ASSERT_EQ(out.gpus_size(), 2);
  const algogpu::GPUInfo& first = out.gpus(0);
  EXPECT_EQ(first.gpu_id(), 3);
  EXPECT_EQ(first.name(), "A100");
  EXPECT_EQ(first.memory_total(), 1'000);
  EXPECT_EQ(first.memory_used(), 250);
  EXPECT_EQ(first.memory_free(), 750);
  EXPECT_EQ(first.memory_util(), 25);
  EXPECT_EQ(first.compute_util(), 40);
  EXPECT_EQ(first.temperature(), 61);
  ASSERT_EQ(first.running_tasks_size(), 2);
  EXPECT_EQ(first.running_tasks(1), "task-of-6");
  EXPECT_EQ(out.gpus(1).gpu_id(), 65);
  EXPECT_EQ(out.gpus(1).running_tasks_size(), 0);
}

TEST(TaskMessages, MemoryThatIsReservedIsTaken) {
  DeviceView device{.memory_mb = 1'000, .state = "shared", .memory_used_mb = 10, .memory_mb_given = 600};
  EXPECT_EQ(memory_taken(device), 600);
  device.memory_used_mb = 700;
  EXPECT_EQ(memory_taken(device), 700) << "more is in use than was reserved";
  device.memory_used_mb = 2'000;
  EXPECT_EQ(memory_taken(device), 1'000);
  EXPECT_EQ(memory_taken({.memory_mb = 1'000, .state = "held"}), 1'000) << "a whole one is its holder's";
  EXPECT_EQ(memory_taken({.memory_mb = 1'000, .state = "free"}), 0);
}

}  // namespace
}  // namespace gpusched::api
