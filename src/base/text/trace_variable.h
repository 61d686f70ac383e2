#pragma once

#include <string>
#include <string_view>

/// A client's names for the submission of a job: the trace that it belongs to, as the job's variable
/// TRACEPARENT, and its X-Request-Id, as GPU_SCHEDULER_REQUEST_ID before it. They stand at the end of the
/// packed JobSpec, their values before their names: no variable of the job itself is ever packed that way, so
/// they are told apart. Readers of the specification find variables like others. Repetitions of a request are
/// compared without them: each try of a client has names of its own.
namespace gpusched {

inline constexpr std::string_view kTraceVariable = "TRACEPARENT";
inline constexpr std::string_view kRequestVariable = "GPU_SCHEDULER_REQUEST_ID";

/// Before `add_trace`. Nothing is done for an id that is not sane, or where the job has the variable itself.
void add_request_id(std::string& packed_spec, std::string_view request_id);

/// Nothing is done for a `traceparent` that is not valid, or where the job has the variable itself.
void add_trace(std::string& packed_spec, std::string_view traceparent);
/// The packed JobSpec without what these two put there; all of it where they put nothing.
std::string_view without_trace(std::string_view packed_spec);

}  // namespace gpusched
