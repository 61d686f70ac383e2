#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/json.h"

namespace gpusched {

enum class DemoVerdict { kOpen, kRight, kWrong };

/// One job of the demonstration, and what is known of it.
struct DemoJob {
  std::string name;
  std::string what;     ///< Its work in words.
  std::string request;  ///< Body of `POST /api/v1/jobs`.
  int gpus = 0;
  std::string state_wanted;
  std::optional<int64_t> exit_wanted = std::nullopt;        ///< Not set: any.
  bool (*output_right)(std::string_view output) = nullptr;  ///< Null: any.
  bool must_wait = false;                                   ///< It has to wait for a GPU first.

  std::string id = {};
  std::string state = "submitting";
  std::optional<int64_t> exit_code = std::nullopt;
  std::string note = {};  ///< Its last line of output, or why it waits.
  bool waited = false;
  DemoVerdict verdict = DemoVerdict::kOpen;

  bool ended() const { return state == "completed" || state == "failed" || state == "cancelled"; }
};

/// The five jobs: one with output, one with two GPUs, one that is cancelled, one that fails, one that waits.
std::vector<DemoJob> demo_jobs();

/// Takes over what `GET /api/v1/jobs/{id}` answered, and the job's output so far.
void update_job(DemoJob& job, const Json& answer, std::string_view output);

/// Says that a job ended otherwise than it should: "broken (fails with exit code 3) ended completed, ...".
std::string describe_wrong(const DemoJob& job);

}  // namespace gpusched
