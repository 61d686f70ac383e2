#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// How the tasks' door keeps what a client sent as a task, so that the same id with other content is told
/// from a repetition: a digest in a field of its own behind the job's packed specification. It is as durable
/// as the job. No door shows it, or whoever sees a job could try out payloads; no agent gets it, since an
/// agent gives one worker only tasks whose specifications are alike.
namespace gpusched {

/// Field of a packed JobSpec, reserved there.
inline constexpr uint64_t kTaskContentField = 68;

/// A digest of 128 bits.
struct TaskContent {
  uint64_t high = 0, low = 0;

  /// False for a task of before contents were kept.
  bool is_known() const { return high != 0 || low != 0; }
  friend bool operator==(const TaskContent&, const TaskContent&) = default;
};

/// Before `add_worker`, `add_request_id` and `add_trace`.
void add_task_content(std::string& packed_spec, TaskContent content);
/// Not known: there is none.
TaskContent task_content_of(std::string_view packed_spec);
/// Leaves all other bytes as they are.
void remove_task_content(std::string& packed_spec);

}  // namespace gpusched
