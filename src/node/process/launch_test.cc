#include "node/process/launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/text/slurm_script.h"
#include "base/text/task_worker.h"

namespace gpusched {
namespace {

const LaunchDefaults kDefaults{.home = "/home/ada", .user = "ada", .instance = "abc"};

v1::StartAttempt order_of(const v1::JobSpec& spec) {
  v1::StartAttempt order;
  order.mutable_key()->set_job(12);
  order.mutable_key()->set_attempt(1);
  order.set_job_name("job-12");
  order.set_spec(spec.SerializeAsString());
  return order;
}

v1::StartAttempt grant(v1::StartAttempt order, uint32_t index, const std::string& uuid) {
  v1::GrantedDevice& device = *order.add_devices();
  device.set_index(index);
  device.set_uuid(uuid);
  return order;
}

bool holds(const std::vector<std::string>& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}
bool names(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return entry.starts_with(name + "="); });
}

v1::JobSpec true_spec() {
  v1::JobSpec spec;
  spec.add_command("true");
  return spec;
}

TEST(Launch, DeviceVariablesAreTheGrantedOnesWhateverTheJobSays) {
  v1::JobSpec spec = true_spec();
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
                           "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_SCHEDULER_GPU_COUNT"}) {
    (*spec.mutable_environment())[name] = "0,1,2,3";
  }
  const auto request =
      plan_launch(grant(grant(order_of(spec), 1, "GPU-b"), 0, "GPU-a"), {"GPU-a", "GPU-b"}, kDefaults);
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(holds(request->environment, "CUDA_VISIBLE_DEVICES=GPU-b,GPU-a"));
  EXPECT_TRUE(holds(request->environment, "NVIDIA_VISIBLE_DEVICES=GPU-b,GPU-a"));
  EXPECT_TRUE(holds(request->environment, "GPU_SCHEDULER_GPU_COUNT=2"));
  for (const char* name : {"GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    EXPECT_FALSE(names(request->environment, name)) << name;
  }
}

TEST(Launch, AReplicaWithAPortAsksItsShimForOne) {
  v1::JobSpec spec = true_spec();
  (*spec.mutable_environment())["PORT"] = "80";
  (*spec.mutable_environment())["GPU_SCHEDULER_PORT_WISH"] = "1-65535 -";
  const std::string name = "GPU_SCHEDULER_PORT_WISH";
  const auto environment_of = [](const v1::JobSpec& of, uint32_t member = 0) {
    v1::StartAttempt order = order_of(of);
    order.mutable_key()->set_member(member);
    return plan_launch(order, {}, kDefaults)->environment;
  };
  (*spec.mutable_labels())["gpusched.service-port"] = "1";
  EXPECT_FALSE(names(environment_of(spec), name));  // No replica.
  EXPECT_TRUE(holds(environment_of(spec), "PORT=80"));
  (*spec.mutable_labels())["gpusched.replica"] = "0";
  EXPECT_TRUE(holds(environment_of(spec), name + "=10000-19999 -"));
  EXPECT_FALSE(names(environment_of(spec), "PORT"));
  EXPECT_FALSE(names(environment_of(spec, 1), name));  // A gang is reached at its first member.
  (*spec.mutable_labels())["gpusched.service-probe"] = "http:/up";
  (*spec.mutable_labels())["gpusched.service-probe-period-ms"] = "500";
  EXPECT_TRUE(holds(environment_of(spec), name + "=10000-19999 http:/up 500 1000 3"));
  (*spec.mutable_labels())["gpusched.service-port"] = "0";
  EXPECT_FALSE(names(environment_of(spec), name));
}

TEST(Launch, AJobWithoutDevicesSeesNone) {
  const auto request = plan_launch(order_of(true_spec()), {"GPU-a"}, kDefaults);
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(holds(request->environment, "CUDA_VISIBLE_DEVICES="));
  EXPECT_TRUE(holds(request->environment, "NVIDIA_VISIBLE_DEVICES=void"));
}

TEST(Launch, TheJobsOwnVariablesReplaceTheDefaultsAndNothingIsInherited) {
  v1::JobSpec spec = true_spec();
  (*spec.mutable_environment())["LANG"] = "de_DE.UTF-8";
  const auto request = plan_launch(order_of(spec), {}, kDefaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->environment,
            (std::vector<std::string>{"CUDA_VISIBLE_DEVICES=", "GPU_SCHEDULER_ATTEMPT=12-1-0@abc",
                                      "GPU_SCHEDULER_GPU_COUNT=0", "GPU_SCHEDULER_JOB_ID=job-12",
                                      "HOME=/home/ada", "LANG=de_DE.UTF-8", "NVIDIA_VISIBLE_DEVICES=void",
                                      "PATH=/usr/local/bin:/usr/bin:/bin", "TMPDIR=/tmp", "USER=ada"}));
}

TEST(Launch, AScriptThatNamesItsInterpreterIsAFile) {
  v1::JobSpec spec;
  spec.set_script("#!/usr/bin/awk -f\nBEGIN { print 1 }\n");
  spec.add_args("x");
  const auto request = plan_launch(order_of(spec), {}, kDefaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->arguments, (std::vector<std::string>{"/usr/bin/awk", "-f", "", "x"}));
  EXPECT_EQ(request->script, spec.script());
  EXPECT_EQ(request->script_argument, 2u);
}

TEST(Launch, AScriptIsRunByTheShellWithItsArguments) {
  v1::JobSpec spec;
  spec.set_script("echo $1");
  spec.add_args("x");
  const auto request = plan_launch(order_of(spec), {}, kDefaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->arguments, (std::vector<std::string>{"/bin/sh", "-c", "echo $1", "script", "x"}));
  EXPECT_EQ(request->script, "");
}

v1::JobSpec sbatch_spec(const std::string& script = "#!/bin/bash\n#SBATCH -c 2\ntrue\n") {
  v1::JobSpec spec;
  spec.set_name("train");
  spec.set_script(script);
  spec.set_working_directory("/home/ada/work");
  return spec;
}

/// The value of a variable; "-": it is not set.
std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& entry : environment) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return "-";
}

TEST(Launch, AScriptWithSbatchLinesHasTheVariablesOfSlurm) {
  v1::StartAttempt order = grant(grant(order_of(sbatch_spec()), 0, "GPU-a"), 1, "GPU-b");
  order.set_cpu_milli(2'500);
  LaunchDefaults defaults = kDefaults;
  defaults.node = "n7";
  v1::JobSpec spec = sbatch_spec();
  (*spec.mutable_environment())["SLURM_JOB_ID"] = "of another job";
  const BoxPlan box{.tmp_folder = "/data/attempts/12-1/tmp"};
  const auto environment = build_environment(order, spec, defaults, box);
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"SLURM_JOB_ID", "12"},
                                          {"SLURM_JOBID", "12"},
                                          {"SLURM_JOB_NAME", "train"},
                                          {"SLURM_SUBMIT_DIR", "/home/ada/work"},
                                          {"SLURM_CPUS_PER_TASK", "2"},
                                          {"SLURM_CPUS_ON_NODE", "2"},
                                          {"SLURM_NTASKS", "-"},
                                          {"SLURM_NNODES", "1"},
                                          {"SLURM_JOB_NUM_NODES", "1"},
                                          {"SLURM_JOB_NODELIST", "n7"},
                                          {"SLURM_NODELIST", "n7"},
                                          {"SLURM_TASKS_PER_NODE", "1"},
                                          {"SLURM_PROCID", "0"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_NODEID", "0"},
                                          {"SLURMD_NODENAME", "n7"},
                                          {"SLURM_TMPDIR", "/data/attempts/12-1/tmp"},
                                          {"SLURM_GPUS", "2"},
                                          {"SLURM_GPUS_ON_NODE", "2"},
                                          {"SLURM_ARRAY_TASK_ID", "-"},
                                          {"OMPI_MCA_plm", "^slurm"}}) {
    EXPECT_EQ(value_of(environment, name), value) << name;
  }
  const auto plain = build_environment(order, sbatch_spec("#!/bin/bash\ntrue\n"), defaults, box);
  for (const std::string_view name : kSlurmVariables)
    EXPECT_EQ(value_of(plain, std::string(name)), "-") << name;
}

TEST(Launch, EveryVariableOfSlurmThatIsToldOfIsSet) {
  const v1::JobSpec all = [] {
    v1::JobSpec spec = sbatch_spec("#SBATCH -n 1\necho $SLURM_NTASKS $SLURM_NPROCS\n");
    for (const char* const name : {"INDEX", "COUNT", "FIRST", "LAST", "STEP"})
      (*spec.mutable_environment())[std::string("GPU_SCHEDULER_ARRAY_") + name] = name;
    (*spec.mutable_environment())["GPU_SCHEDULER_ARRAY_ID"] = "job-11";
    return spec;
  }();
  v1::StartAttempt order = grant(order_of(all), 0, "GPU-a");
  order.mutable_key()->set_member(2);
  for (const char* const node : {"n1", "n2", "n2"}) {
    v1::Gang::Member& member = *order.mutable_gang()->add_members();
    member.set_node(node);
    member.set_gpus(1);
  }
  const auto environment = build_environment(order, all, kDefaults);
  for (const std::string_view name : kSlurmVariables)
    EXPECT_NE(value_of(environment, std::string(name)), "-") << name;
  for (const std::string_view name : kSlurmArrayVariables)
    EXPECT_NE(value_of(environment, std::string(name)), "-") << name;
  for (const auto& [name, value] : std::map<std::string, std::string>{{"SLURM_ARRAY_JOB_ID", "11"},
                                                                      {"SLURM_ARRAY_TASK_ID", "INDEX"},
                                                                      {"SLURM_ARRAY_TASK_MAX", "LAST"},
                                                                      {"SLURM_NTASKS", "3"},
                                                                      {"SLURM_NPROCS", "3"},
                                                                      {"SLURM_NNODES", "2"},
                                                                      {"SLURM_JOB_NODELIST", "n1,n2"},
                                                                      {"SLURM_TASKS_PER_NODE", "1,2"},
                                                                      {"SLURM_PROCID", "2"},
                                                                      {"SLURM_LOCALID", "1"},
                                                                      {"SLURM_NODEID", "1"},
                                                                      {"SLURM_GPUS", "3"},
                                                                      {"SLURM_GPUS_ON_NODE", "1"}}) {
    EXPECT_EQ(value_of(environment, name), value) << name;
  }
}

/// A box with the paths as the job has them.
class PathBoxes final : public BoxMaker {
 public:
  Result<BoxPlan> plan(const v1::StartAttempt&, const v1::JobSpec& spec,
                       const std::vector<MadeSlice>&) override {
    BoxPlan plan{.environment = {{"USER", "bob"}}};
    plan.box.stdin_path = spec.stdin_path();
    plan.box.stdout_path = spec.stdout_path();
    plan.box.stderr_path = spec.stderr_path();
    return plan;
  }
  void keep(const AttemptKey&, const std::vector<uint32_t>&) override {}
  void release(const AttemptKey&) override {}
  std::vector<std::string> features() const override { return {}; }
};

TEST(Launch, FilesAreNamedByWhatTheNodeKnows) {
  LaunchDefaults defaults = kDefaults;
  defaults.node = "n1";
  PathBoxes boxes;
  v1::JobSpec spec = true_spec();
  spec.set_name("train");
  spec.set_stdin_path("/in/%a");
  spec.set_stdout_path("/out/%u/%x-%j-%N.%%");
  spec.set_stderr_path("/err/%A_%a.%t");
  v1::StartAttempt order = order_of(spec);
  order.set_job_name("job-12");
  const auto alone = plan_launch(order, {}, defaults, &boxes);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->box.stdout_path, "/out/bob/train-job-12-n1.%");
  EXPECT_EQ(alone->box.stderr_path, "/err/job-12_0.0");
  (*spec.mutable_environment())["GPU_SCHEDULER_ARRAY_INDEX"] = "7";
  (*spec.mutable_environment())["GPU_SCHEDULER_ARRAY_ID"] = "job-12";
  order.set_spec(spec.SerializeAsString());
  const auto of_array = plan_launch(order, {}, defaults, &boxes);
  ASSERT_TRUE(of_array.ok());
  EXPECT_EQ(of_array->box.stdin_path, "/in/7");
  EXPECT_EQ(of_array->box.stderr_path, "/err/job-12_7.0");
}

TEST(Launch, AWorkersTaskHasOnlyTheVariablesThatItsStartIsFoundBy) {
  v1::JobSpec spec;
  spec.set_script("echo a process for each");
  spec.set_name("task-1");
  (*spec.mutable_environment())["TASK_ID"] = "task-1";
  (*spec.mutable_environment())["TRACEPARENT"] = "a-trace";
  v1::StartAttempt order = order_of(spec);
  std::string packed = order.spec();
  add_worker(packed, {.command = "exec answer", .idle_ms = ""});
  order.set_spec(packed);
  const auto task = plan_launch(order, {}, kDefaults);
  ASSERT_TRUE(task.ok());
  ASSERT_NE(task->worker, nullptr);
  EXPECT_EQ(task->environment, std::vector<std::string>{"TRACEPARENT=a-trace"});
  EXPECT_NE(task->worker->frame.find("\"TASK_ID\":\"task-1\""), std::string::npos);
  EXPECT_TRUE(holds(task->worker->environment, "USER=ada"));
  for (const char* name : {"TASK_ID", "TRACEPARENT"}) EXPECT_FALSE(names(task->worker->environment, name));
  // A task that no worker can take runs as any job does.
  (*spec.mutable_environment())[std::string(kTaskPayloadVariable)] = "no base64";
  packed = spec.SerializeAsString();
  add_worker(packed, {.command = "exec answer", .idle_ms = ""});
  order.set_spec(packed);
  const auto process = plan_launch(order, {}, kDefaults);
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(process->worker, nullptr);
  EXPECT_TRUE(holds(process->environment, "TASK_ID=task-1"));
  EXPECT_TRUE(holds(process->environment, "USER=ada"));
}

TEST(Launch, OnlyThePayloadOfTheOrderIsAnInput) {
  v1::JobSpec spec;
  spec.set_script("cat");
  (*spec.mutable_environment())["TASK_PAYLOAD_BYTES"] = "7";  // Of the job's own: it says nothing.
  v1::StartAttempt order = order_of(spec);
  auto request = plan_launch(order, {}, kDefaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->payload_bytes, 0U);
  EXPECT_FALSE(names(request->environment, "TASK_PAYLOAD_BYTES"));
  order.set_payload(std::string(70'000, 'p'));
  request = plan_launch(order, {}, kDefaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->payload_bytes, 70'000U);
  EXPECT_TRUE(holds(request->environment, "TASK_PAYLOAD_BYTES=70000"));
}

TEST(Launch, ADeviceThatIsNotTheGrantedOneIsRefused) {
  const auto request = plan_launch(grant(order_of(true_spec()), 0, "GPU-z"), {"GPU-a"}, kDefaults);
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().message, "device 0 is GPU-a here, but the allocation names GPU-z");
  EXPECT_FALSE(plan_launch(grant(order_of(true_spec()), 1, "GPU-a"), {"GPU-a"}, kDefaults).ok());
}

TEST(Launch, WhatCannotRunIsRefusedWithAReason) {
  v1::JobSpec nothing;
  EXPECT_FALSE(plan_launch(order_of(nothing), {}, kDefaults).ok());
  v1::JobSpec zero = true_spec();
  zero.add_args(std::string("a\0b", 3));
  EXPECT_FALSE(plan_launch(order_of(zero), {}, kDefaults).ok());
  v1::JobSpec relative = true_spec();
  relative.set_working_directory("src");
  EXPECT_FALSE(plan_launch(order_of(relative), {}, kDefaults).ok());
  v1::JobSpec variable = true_spec();
  (*variable.mutable_environment())["A=B"] = "1";
  EXPECT_FALSE(plan_launch(order_of(variable), {}, kDefaults).ok());
  v1::StartAttempt damaged;
  damaged.set_spec("\xff\xff\xff");
  EXPECT_FALSE(plan_launch(damaged, {}, kDefaults).ok());
}

}  // namespace
}  // namespace gpusched
