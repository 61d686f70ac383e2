#include "main/demo/demo_jobs.h"

#include <algorithm>

namespace gpusched {
namespace {

constexpr std::string_view kDevices = "CUDA_VISIBLE_DEVICES=";

/// The last line that is not blank.
std::string last_line(std::string_view text) {
  const std::size_t end = text.find_last_not_of(" \n\r\t");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const std::size_t begin = text.rfind('\n');
  return std::string(begin == std::string_view::npos ? text : text.substr(begin + 1));
}

bool is_trained(std::string_view output) {
  return last_line(output) == "trained" && output.find("step 3 of 5") != std::string_view::npos;
}

/// "CUDA_VISIBLE_DEVICES=0,2": two different devices.
bool has_two_devices(std::string_view output) {
  const std::string line = last_line(output);
  const std::size_t comma = line.find(',');
  if (!line.starts_with(kDevices) || comma == std::string::npos) return false;
  const std::string first = line.substr(kDevices.size(), comma - kDevices.size());
  const std::string second = line.substr(comma + 1);
  return !first.empty() && !second.empty() && second.find(',') == std::string::npos && first != second;
}

bool was_worth_it(std::string_view output) { return last_line(output) == "it was worth the wait"; }

DemoJob with_script(DemoJob job, std::string_view script) {
  JsonObjectWriter request;
  request.add("name", job.name);
  request.add("script", script);
  request.add("gpu_count", int64_t{job.gpus});
  request.add("cpu_cores", 0.1);
  job.request = request.text();
  return job;
}

}  // namespace

std::vector<DemoJob> demo_jobs() {
  return {
      with_script({.name = "train",
                   .what = "a script with output",
                   .request = {},
                   .gpus = 1,
                   .state_wanted = "completed",
                   .exit_wanted = 0,
                   .output_right = is_trained},
                  "for step in 1 2 3 4 5; do echo \"step $step of 5\"; sleep 1; done; echo trained"),
      with_script({.name = "pair",
                   .what = "two GPUs, prints which",
                   .request = {},
                   .gpus = 2,
                   .state_wanted = "completed",
                   .exit_wanted = 0,
                   .output_right = has_two_devices},
                  "echo CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES; sleep 4"),
      with_script({.name = "forever",
                   .what = "is cancelled while it runs",
                   .request = {},
                   .gpus = 1,
                   .state_wanted = "cancelled"},
                  "sleep 600"),
      with_script({.name = "broken",
                   .what = "fails with exit code 3",
                   .request = {},
                   .gpus = 0,
                   .state_wanted = "failed",
                   .exit_wanted = 3},
                  "echo no such model; exit 3"),
      with_script({.name = "patient",
                   .what = "waits for two GPUs, then runs",
                   .request = {},
                   .gpus = 2,
                   .state_wanted = "completed",
                   .exit_wanted = 0,
                   .output_right = was_worth_it,
                   .must_wait = true},
                  "echo it was worth the wait; sleep 2"),
  };
}

void update_job(DemoJob& job, const Json& answer, std::string_view output) {
  job.state = answer["state"].text();
  if (answer["exit_code"].is_number()) job.exit_code = answer["exit_code"].integer();
  if (job.state == "pending") {
    job.waited = true;
    const std::string why = answer["message"].text();
    job.note = "waits: " + (why.empty() ? "its turn" : why);
    return;
  }
  job.note = last_line(output);
  if (job.note.empty()) job.note = job.what;
  if (!job.ended()) return;
  const bool right =
      job.state == job.state_wanted && (!job.exit_wanted || job.exit_code == job.exit_wanted) &&
      (job.output_right == nullptr || job.output_right(output)) && (!job.must_wait || job.waited);
  job.verdict = right ? DemoVerdict::kRight : DemoVerdict::kWrong;
  if (job.state == "failed" && job.exit_code) {
    job.note = "exit code " + std::to_string(*job.exit_code) + ": " + job.note;
  }
}

std::string describe_wrong(const DemoJob& job) {
  const auto code = [](std::optional<int64_t> exit) {
    return exit ? " with exit code " + std::to_string(*exit) : std::string();
  };
  std::string text = job.name + " (" + job.what + ") ended " + job.state + code(job.exit_code) +
                     ", and should have ended " + job.state_wanted + code(job.exit_wanted);
  if (job.must_wait && !job.waited) text += " after a wait for GPUs";
  return text + "; its last line: " + job.note;
}

}  // namespace gpusched
