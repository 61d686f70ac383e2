#include "shim/worker/task_wire.h"

#include <charconv>

#include "base/bytes.h"
#include "base/text/task_payload.h"
#include "shim/key_bytes.h"
#include "shim/protocol.h"

namespace gpusched::shim {
namespace {

/// Each packet's first byte: what it is, and the version of what follows.
constexpr uint8_t kTaskPacket = 0x11;
constexpr uint8_t kGreetingPacket = 0x12;
constexpr uint8_t kRoomPacket = 0x13;
constexpr uint8_t kStopPacket = 0x14;
/// A task behind which the name of a spare folder follows.
constexpr uint8_t kTaskAndFolderPacket = 0x15;
/// A task behind which that name follows, which may be empty, and the size of its payload in a file.
constexpr uint8_t kTaskAndPayloadPacket = 0x16;
constexpr int32_t kExitCodeMax = 255;

}  // namespace

std::string encode(const WorkerTask& task) {
  std::string packet;
  ByteWriter out(packet);
  const bool has_payload = task.payload_bytes > 0;
  out.u8(has_payload                 ? kTaskAndPayloadPacket
         : task.spare_folder.empty() ? kTaskPacket
                                     : kTaskAndFolderPacket);
  put_key(out, task.key);
  out.svarint(task.max_runtime.ns);
  out.bytes(task.frame);
  if (has_payload || !task.spare_folder.empty()) out.bytes(task.spare_folder);
  if (has_payload) out.varint(task.payload_bytes);
  return packet;
}

std::optional<WorkerTask> decode_task(std::string_view packet) {
  ByteReader in(packet);
  const uint8_t kind = in.u8();
  if (kind != kTaskPacket && kind != kTaskAndFolderPacket && kind != kTaskAndPayloadPacket)
    return std::nullopt;
  WorkerTask task;
  task.key = get_key(in);
  task.max_runtime = Duration{in.svarint()};
  task.frame = std::string(in.bytes());
  if (kind != kTaskPacket) task.spare_folder = std::string(in.bytes());
  const uint64_t payload_bytes = kind == kTaskAndPayloadPacket ? in.varint() : 0;
  if (payload_bytes > kTaskPayloadBytesMax) return std::nullopt;
  task.payload_bytes = static_cast<uint32_t>(payload_bytes);
  if (task.spare_folder.find('/') != std::string::npos) return std::nullopt;
  if (!in.ok() || !in.at_end() || task.max_runtime.ns < 0 || task.frame.size() > kTaskFrameBytesMax)
    return std::nullopt;
  return task;
}

std::string encode(const TaskStop& stop) {
  std::string packet;
  ByteWriter out(packet);
  out.u8(kStopPacket);
  put_key(out, stop.key);
  out.svarint(stop.grace.ns);
  return packet;
}

std::optional<TaskStop> decode_stop_task(std::string_view packet) {
  ByteReader in(packet);
  if (in.u8() != kStopPacket) return std::nullopt;
  TaskStop stop;
  stop.key = get_key(in);
  stop.grace = Duration{in.svarint()};
  if (!in.ok() || !in.at_end() || stop.grace.ns < 0) return std::nullopt;
  return stop;
}

std::string encode(const WorkerGreeting& greeting) {
  std::string packet;
  ByteWriter out(packet);
  out.u8(kGreetingPacket);
  out.svarint(greeting.pid);
  out.svarint(greeting.shim_pid);
  const auto put = [&out](const WorkerGreeting::Task& task) {
    put_key(out, task.key);
    out.svarint(task.started_unix_ns);
  };
  out.u8(greeting.tasks.empty() ? 0 : 1);
  put(greeting.tasks.empty() ? WorkerGreeting::Task{} : greeting.tasks.front());
  // Agents from before several tasks at once do not look at what follows.
  if (greeting.tasks.size() < 2) return packet;
  out.varint(greeting.tasks.size() - 1);
  for (std::size_t i = 1; i < greeting.tasks.size(); ++i) put(greeting.tasks[i]);
  return packet;
}

std::optional<WorkerGreeting> decode_greeting(std::string_view packet) {
  ByteReader in(packet);
  if (in.u8() != kGreetingPacket) return std::nullopt;
  WorkerGreeting greeting;
  greeting.pid = in.svarint();
  greeting.shim_pid = in.svarint();
  const auto get = [&in] {
    WorkerGreeting::Task task{.key = get_key(in), .started_unix_ns = 0};
    task.started_unix_ns = in.svarint();
    return task;
  };
  const bool has_task = in.u8() != 0;
  const WorkerGreeting::Task first = get();
  if (has_task) greeting.tasks.push_back(first);
  const uint64_t more = in.ok() && !in.at_end() ? in.varint() : 0;
  for (uint64_t i = 0; i < more && in.ok(); ++i) greeting.tasks.push_back(get());
  if (!in.ok()) return std::nullopt;
  return greeting;
}

std::string encode(const WorkerRoom& room) {
  std::string packet;
  ByteWriter out(packet);
  out.u8(kRoomPacket);
  out.varint(room.tasks);
  out.u8(room.cancels ? 1 : 0);
  return packet;
}

std::optional<WorkerRoom> decode_room(std::string_view packet) {
  ByteReader in(packet);
  if (in.u8() != kRoomPacket) return std::nullopt;
  const uint64_t tasks = in.varint();
  const bool cancels = in.u8() != 0;
  if (!in.ok() || !in.at_end() || tasks > kTasksAtOnceMax) return std::nullopt;
  return WorkerRoom{.tasks = static_cast<uint32_t>(tasks), .cancels = cancels};
}

std::optional<AnswerLine> parse_answer_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::optional<AttemptKey> key = parse_key(line.substr(0, space));
  line.remove_prefix(space + 1);
  const std::string_view code = line.substr(0, line.find(' '));
  AnswerLine answer;
  const auto [end, error] = std::from_chars(code.data(), code.data() + code.size(), answer.exit_code);
  if (!key || error != std::errc{} || end != code.data() + code.size()) return std::nullopt;
  if (answer.exit_code < 0 || answer.exit_code > kExitCodeMax) return std::nullopt;
  answer.key = *key;
  if (code.size() < line.size()) answer.words = line.substr(code.size() + 1);
  return answer;
}

std::optional<ReadyLine> parse_ready_line(std::string_view line) {
  if (!line.starts_with(kReadyWord)) return std::nullopt;
  line.remove_prefix(kReadyWord.size());
  ReadyLine ready;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), ready.tasks);
  if (error != std::errc{} || ready.tasks < 1 || ready.tasks > kTasksAtOnceMax) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  while (!line.empty()) {
    if (line.front() != ' ') return std::nullopt;
    line.remove_prefix(1);
    const std::string_view word = line.substr(0, line.find(' '));
    ready.cancels = ready.cancels || word == "cancel";
    ready.checked = ready.checked || word == "health";  // Other words are a later worker's.
    line.remove_prefix(word.size());
  }
  return ready;
}

std::optional<uint64_t> parse_healthy_line(std::string_view line) {
  if (!line.starts_with(kHealthyWord)) return std::nullopt;
  line.remove_prefix(kHealthyWord.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc{} || end != line.data() + line.size()) return std::nullopt;
  return number;
}

}  // namespace gpusched::shim
