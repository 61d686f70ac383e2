#pragma once

#include <string>
#include <string_view>

/// The trace that a job's submission belongs to, as its variable TRACEPARENT. It stands at the end of the
/// packed JobSpec, its value before its name: so is no variable of the job itself ever packed, and so the two
/// are told apart. Whoever reads the specification finds a variable like others. Repetitions of a request are
/// compared without it: each try of a client has a `traceparent` of its own.
namespace gpusched {

inline constexpr std::string_view kTraceVariable = "TRACEPARENT";

/// Nothing is done for a `traceparent` that is not valid, or where the job has the variable itself.
void add_trace(std::string& packed_spec, std::string_view traceparent);
/// The packed JobSpec without what `add_trace` put there; all of it where that put nothing.
std::string_view without_trace(std::string_view packed_spec);

}  // namespace gpusched
