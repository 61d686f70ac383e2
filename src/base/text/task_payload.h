#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Payloads of tasks that no variable of a process can hold: a field of their own behind the job's packed
/// specification, so that they are as durable as the job and count among the bytes of specifications. Agents
/// get them beside the specification (StartAttempt.payload), and no door shows them.
namespace gpusched {

/// Field of a packed JobSpec, reserved there.
inline constexpr uint64_t kTaskPayloadField = 70;
/// Largest payload of a task.
inline constexpr std::size_t kTaskPayloadBytesMax = std::size_t{4} << 20;
/// Largest payload that travels as a variable, which agents of any version take.
inline constexpr std::size_t kTaskPayloadInlineMax = 65'536;
/// Variable of a task with such a payload, by which an agent says that its standard input is the payload: its
/// size in bytes, in decimal. No job sets it by itself.
inline constexpr std::string_view kTaskPayloadBytesVariable = "TASK_PAYLOAD_BYTES";

/// Once for each specification; nothing is added for an empty payload.
void add_task_payload(std::string& packed_spec, std::string_view payload);
/// The payload, which lives as long as the specification; empty: there is none.
std::string_view task_payload_of(std::string_view packed_spec);
/// The size of the payload that there is, or was before `forget_task_payload`; 0: there was none.
std::size_t task_payload_bytes_of(std::string_view packed_spec);
/// The specification's other bytes, as they are.
std::string without_task_payload(std::string_view packed_spec);
/// The specification with the size of its payload in the payload's place. A task that has ended needs no
/// more.
std::string forget_task_payload(std::string_view packed_spec);

}  // namespace gpusched
