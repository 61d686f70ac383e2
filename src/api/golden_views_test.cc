// Views of a job in each door, byte for byte: every field of a view, in every shape that a job has. The files
// in tests/api/golden hold them; GPUSCHED_RECORD_GOLDEN=1 writes them again.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "api/doors/jobs/views_json.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_rest_views.h"
#include "api/doors/native/native_views.h"
#include "api/testing/golden.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

/// Every field of a specification.
v1::JobSpec full_spec() {
  v1::JobSpec spec;
  spec.set_name("train");
  spec.add_command("python");
  spec.add_command("t.py");
  spec.add_args("-x");
  spec.set_script("true");
  spec.set_image("busybox");
  (*spec.mutable_environment())["A"] = "1";
  (*spec.mutable_labels())["team"] = "a";
  spec.set_working_directory("/srv");
  spec.set_gang_scheduling(true);
  spec.set_checkpoint_enabled(true);
  spec.set_submitter("ada");
  spec.set_user("bob");
  spec.set_stdout_path("/o");
  spec.set_stderr_path("/e");
  spec.set_stdin_path("/i");
  spec.set_umask(0);
  (*spec.mutable_limits())["core"] = -1;
  v1::Mount& mount = *spec.add_mounts();
  mount.set_source("/a");
  mount.set_target("/b");
  mount.set_read_only(true);
  spec.set_container_workdir_mount("/w");
  spec.set_pull(v1::PULL_POLICY_ALWAYS);
  spec.set_registry_credential("registry");
  spec.add_container_arguments("--x");
  spec.set_image_digest("sha256:0");
  spec.set_working_directory_optional(true);
  spec.set_preempt_signal("USR1");
  spec.set_preempt_grace_ms(1'250);
  spec.set_preempt_webhook("http://h/");
  spec.set_anonymous(true);
  spec.set_idle_after_ms(60'000);
  spec.set_idle_action("warn");
  spec.set_hung_after_ms(500);
  spec.set_hung_action("cancel");
  spec.set_memory_unlimited(true);
  spec.set_comment("second attempt");
  return spec;
}

/// Every field that a job of one member can have.
JobView full_view() {
  PlaceRequest place;
  place.labels = {{.name = "zone", .value = "eu", .any_value = false}, {.name = "ssd", .any_value = true}};
  place.without_labels = {{.name = "spot", .any_value = true}};
  place.exclusive = true;
  place.layout = Layout::kSpread;
  place.device_mask = 0b11;
  place.bandwidth_min = 300;
  return {.id = JobId{12},
          .tenant = TenantId{3},
          .name = "train",
          .spec = Blob(full_spec().SerializeAsString()),
          .state = JobState::kFailed,
          .reason = JobReason::kExitCode,
          .cause = EndCause::kExited,
          .message = "its command exited with code 3",
          .priority = 5,
          .gpu_count = 2,
          .gpu_memory_mb = 80'000,
          .gpu_model = "A100",
          .place = {place},
          .cpu_milli = 1'500,
          .memory_mb = 64,
          .max_runtime = milliseconds(90'250),
          .exit_code_retries = 1,
          .system_retries = -1,
          .overlap_allowed = true,
          .kill_after_lost_contact = seconds(5),
          .retry_causes = kRetryExit | kRetrySignal,
          .retry_exit_codes = "K",
          .submitted_at = kMorning,
          .scheduled_at = kMorning + seconds(1),
          .started_at = kMorning + milliseconds(2'500),
          .completed_at = kMorning + seconds(3),
          .checkpointed_at = kMorning + seconds(2),
          .exit_code = 3,
          .signal = 9,
          .attempts = 2,
          .preempted_count = 1,
          .preemption_mode = PreemptionMode::kCancel,
          .work = WorkClass::kBatch,
          .reservation = "night",
          .node_name = "n1",
          .gpus = {"n1-gpu-0", "n1-gpu-1"},
          .watch = WatchdogFinding::kIdle,
          .watch_detail = "its GPUs are not used",
          .move_detail = "moved from node n2 to node n1 so that job-13 can start, by ana",
          .moved_at = kMorning + seconds(4),
          .watch_since = kMorning + seconds(2),
          .usage = {.peak_memory_bytes = int64_t{5} << 30,
                    .peak_memory_of = "all_processes",
                    .cpu_ms = 1'250,
                    .gpu_use_permille = 834,
                    .peak_gpu_memory_mb = 8'100}};
}

JobView waiting_view() {
  return {.id = JobId{7},
          .tenant = kDefaultTenant,
          .wait_code = "no_node",
          .message = "no node",
          .held = true,
          .begin_at = kMorning,
          .deadline = kMorning + hours(1),
          .dependencies = {{.parent = JobId{3}, .kind = DependencyKind::kAfterOk},
                           {.parent = JobId{4},
                            .kind = DependencyKind::kAfterAny,
                            .verdict = JobDependency::Verdict::kMet}},
          .submitted_at = kMorning,
          .queue_position = 4,
          .estimated_wait = milliseconds(1'200)};
}

JobView array_view() {
  JobView view = waiting_view();
  view.array_view = ArrayView{.indexes = "0-9%2",
                              .unexpanded = "4-9",
                              .count = 10,
                              .waiting = 6,
                              .running = 1,
                              .completed = 1,
                              .failed = 1,
                              .cancelled = 1};
  return view;
}

JobView element_view() {
  JobView view = full_view();
  view.array = JobId{9};
  view.array_index = 0;
  return view;
}

JobView slice_view() {
  return {.id = JobId{8},
          .state = JobState::kRunning,
          .gpu_count = 1,
          .gpu_milli = 142,
          .mig_profile = "1g.10gb",
          .mig_start = 0,
          .gpu_memory_mb = 10'000,
          .cpu_milli = 1'000,
          .exit_code = 0,
          .usage = {.cpu_ms = 0}};
}

JobView gang_view() {
  JobView view = full_view();
  view.parts = {{.members = 1, .cpu_milli = 500},
                {.members = 2,
                 .members_max = 4,
                 .gpu_count = 8,
                 .gpu_milli = 250,
                 .gpu_memory_mb = 5,
                 .gpu_model = "H100",
                 .memory_mb = 6}};
  view.domain = DomainLevel::kRack;
  view.domain_required = true;
  view.tolerates_node_loss = true;
  view.members = {{.part = 0, .state = "running", .node_name = "n1", .gpus = {}},
                  {.part = 1, .state = "", .node_name = "n2", .gpus = {"n2-gpu-0"}}};
  view.usage = {.peak_memory_bytes = 1, .peak_memory_of = "largest_process", .members_unknown = 2};
  return view;
}

JobView nodes_view() {
  JobView view = full_view();
  view.parts = {{.members = 4, .members_max = 8, .gpu_count = 2}};
  view.one_member_per_node = true;
  return view;
}

const std::vector<std::pair<const char*, JobView>>& views() {
  static const std::vector<std::pair<const char*, JobView>> all = {
      {"full", full_view()},       {"waiting", waiting_view()}, {"array", array_view()},
      {"element", element_view()}, {"slice", slice_view()},     {"gang", gang_view()},
      {"nodes", nodes_view()},     {"empty", JobView{}}};
  return all;
}

TEST(GoldenViews, TheNativeApisJson) {
  std::string text;
  for (const auto& [name, view] : views())
    text += std::string("# ") + name + "\n" + native_job_json(view) + "\n";
  expect_golden("view-native.txt", text);
}

TEST(GoldenViews, TheNativeApisMessages) {
  std::string text;
  for (const auto& [name, view] : views()) {
    v1::Job message;
    write_job(view, message);
    std::string shown;
    google::protobuf::TextFormat::PrintToString(message, &shown);
    text += std::string("# ") + name + "\n" + shown;
  }
  expect_golden("view-message.txt", text);
}

TEST(GoldenViews, TheJobsDoorsJson) {
  std::string text;
  for (const auto& [name, view] : views()) text += std::string("# ") + name + "\n" + job_json(view) + "\n";
  expect_golden("view-jobs-door.txt", text);
}

/// The native JSON, read again, is the message.
TEST(GoldenViews, TheNativeApisJsonIsReadAsItsMessage) {
  for (const auto& [name, view] : views()) {
    v1::Job message;
    write_job(view, message);
    v1::Job again;
    google::protobuf::Message* const roots[] = {&again};
    NativeBody body;
    const auto problem = read_native_json(native_job_json(view), roots, body);
    ASSERT_FALSE(problem.has_value()) << name << ": " << problem->message;
    EXPECT_EQ(again.DebugString(), message.DebugString()) << name;
  }
}

}  // namespace
}  // namespace gpusched::api
