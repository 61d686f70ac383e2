#include "shim/worker/task_wire.h"

#include <charconv>

#include "base/bytes.h"
#include "shim/key_bytes.h"
#include "shim/protocol.h"

namespace gpusched::shim {
namespace {

/// Each packet's first byte: what it is, and the version of what follows.
constexpr uint8_t kTaskPacket = 0x11;
constexpr uint8_t kGreetingPacket = 0x12;
constexpr int32_t kExitCodeMax = 255;

}  // namespace

std::string encode(const WorkerTask& task) {
  std::string packet;
  ByteWriter out(packet);
  out.u8(kTaskPacket);
  put_key(out, task.key);
  out.svarint(task.max_runtime.ns);
  out.bytes(task.frame);
  return packet;
}

std::optional<WorkerTask> decode_task(std::string_view packet) {
  ByteReader in(packet);
  if (in.u8() != kTaskPacket) return std::nullopt;
  WorkerTask task;
  task.key = get_key(in);
  task.max_runtime = Duration{in.svarint()};
  task.frame = std::string(in.bytes());
  if (!in.ok() || !in.at_end() || task.max_runtime.ns < 0 || task.frame.size() > kTaskFrameBytesMax)
    return std::nullopt;
  return task;
}

std::string encode(const WorkerGreeting& greeting) {
  std::string packet;
  ByteWriter out(packet);
  out.u8(kGreetingPacket);
  out.svarint(greeting.pid);
  out.svarint(greeting.shim_pid);
  out.u8(greeting.task ? 1 : 0);
  put_key(out, greeting.task.value_or(AttemptKey{}));
  out.svarint(greeting.started_unix_ns);
  return packet;
}

std::optional<WorkerGreeting> decode_greeting(std::string_view packet) {
  ByteReader in(packet);
  if (in.u8() != kGreetingPacket) return std::nullopt;
  WorkerGreeting greeting;
  greeting.pid = in.svarint();
  greeting.shim_pid = in.svarint();
  const bool has_task = in.u8() != 0;
  const AttemptKey task = get_key(in);
  if (has_task) greeting.task = task;
  greeting.started_unix_ns = in.svarint();
  if (!in.ok()) return std::nullopt;
  return greeting;
}

std::optional<AnswerLine> parse_answer_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::optional<AttemptKey> key = parse_key(line.substr(0, space));
  const std::string_view code = line.substr(space + 1);
  AnswerLine answer;
  const auto [end, error] = std::from_chars(code.data(), code.data() + code.size(), answer.exit_code);
  if (!key || error != std::errc{} || end != code.data() + code.size()) return std::nullopt;
  if (answer.exit_code < 0 || answer.exit_code > kExitCodeMax) return std::nullopt;
  answer.key = *key;
  return answer;
}

}  // namespace gpusched::shim
