#include "shim/protocol.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "shim/key_bytes.h"

namespace gpusched::shim {
namespace {

constexpr uint8_t kKindBits = 0x0F;  ///< Kind in a packet's first byte; the other bits are its version.
constexpr std::string_view kUsageLine = "\nusage ";
constexpr int kSignalMax = 31;  ///< Highest signal with a name.
constexpr int kStopSignalShift = 32;
constexpr uint64_t kStopUntilSaved = uint64_t{1} << 40;

constexpr std::array<std::string_view, 12> kCauseWords = {
    "unspecified", "exited",    "signaled",     "start_failed",  "timeout",    "stopped",
    "shim_lost",   "node_lost", "contact_lost", "out_of_memory", "node_fault", "over_limit"};

template <typename Number>
bool take_number(std::string_view& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

/// With its terminating zero, so that the receiver can point at it.
void put_c_string(ByteWriter& out, const std::string& value) {
  CHECK(value.find('\0') == std::string::npos);
  out.bytes(std::string_view(value.c_str(), value.size() + 1));
}

char* get_c_string(ByteReader& in) {
  const std::string_view value = in.bytes();
  if (!in.ok() || value.empty() || value.back() != '\0') {
    in.fail();
    return nullptr;
  }
  return const_cast<char*>(value.data());  // execve's signature; nobody writes through it.
}

void put_c_strings(ByteWriter& out, const std::vector<std::string>& values) {
  out.varint(values.size());
  for (const std::string& value : values) put_c_string(out, value);
}

std::vector<char*> get_c_strings(ByteReader& in) {
  std::vector<char*> values;
  const uint64_t count = in.varint();
  if (count > in.remaining()) in.fail();
  if (!in.ok()) return values;
  values.reserve(count + 1);
  for (uint64_t i = 0; i < count && in.ok(); ++i) values.push_back(get_c_string(in));
  values.push_back(nullptr);
  return values;
}

void put_outcome(ByteWriter& out, const Outcome& outcome) {
  out.u8(static_cast<uint8_t>(outcome.cause));
  out.svarint(outcome.exit_code);
  out.svarint(outcome.signal);
  out.bytes(outcome.detail);
  out.svarint(outcome.started_unix_ns);
  out.svarint(outcome.ended_unix_ns);
}

Outcome get_outcome(ByteReader& in) {
  Outcome outcome;
  const uint8_t cause = in.u8();
  if (cause >= kCauseWords.size()) in.fail();
  outcome.cause = static_cast<Cause>(cause);
  outcome.exit_code = static_cast<int32_t>(in.svarint());
  outcome.signal = static_cast<int32_t>(in.svarint());
  outcome.detail = std::string(in.bytes());
  outcome.started_unix_ns = in.svarint();
  outcome.ended_unix_ns = in.svarint();
  return outcome;
}

std::string usage_line(const MeasuredUsage& usage) {
  return std::string(kUsageLine) + "peak_memory_bytes=" + std::to_string(usage.peak_memory_bytes) +
         " peak_of_process=" + (usage.peak_of_process ? "1" : "0") +
         " cpu_ns=" + std::to_string(usage.cpu_ns);
}

/// Takes the line from the end of `text`, where there is one.
void take_usage_line(std::string_view& text, MeasuredUsage& usage) {
  const std::size_t at = text.rfind(kUsageLine);
  if (at == std::string_view::npos) return;
  std::string_view line = text.substr(at + kUsageLine.size());
  MeasuredUsage read;
  int of_process = 0;
  const bool whole = take_word(line, "peak_memory_bytes=") && take_number(line, read.peak_memory_bytes) &&
                     take_word(line, " peak_of_process=") && take_number(line, of_process) &&
                     take_word(line, " cpu_ns=") && take_number(line, read.cpu_ns) && line.empty();
  if (!whole) return;
  read.peak_of_process = of_process != 0;
  usage = read;
  text = text.substr(0, at);
}

}  // namespace

std::string_view to_string(Cause cause) { return kCauseWords.at(static_cast<std::size_t>(cause)); }

std::string format_outcome(const AttemptKey& key, const Outcome& outcome) {
  std::string text = "attempt=" + key_text(key) + " cause=";
  text += to_string(outcome.cause);
  text += " exit_code=" + std::to_string(outcome.exit_code);
  text += " signal=" + std::to_string(outcome.signal);
  text += " started_unix_ns=" + std::to_string(outcome.started_unix_ns);
  text += " ended_unix_ns=" + std::to_string(outcome.ended_unix_ns);
  text += " detail=" + outcome.detail;
  // A detail that looks like such a line is not taken for one: the last line is.
  const bool ambiguous = outcome.detail.find(kUsageLine) != std::string::npos;
  if (outcome.usage != MeasuredUsage{} || ambiguous) text += usage_line(outcome.usage);
  std::array<char, 24> sum{};
  std::snprintf(sum.data(), sum.size(), "\ncrc32c=%08x\n", crc32c(text.data(), text.size()));
  return text + sum.data();
}

std::optional<Outcome> parse_outcome(const AttemptKey& key, std::string_view text) {
  const std::size_t tail = text.rfind("\ncrc32c=");
  if (tail == std::string_view::npos) return std::nullopt;
  std::array<char, 24> sum{};
  std::snprintf(sum.data(), sum.size(), "\ncrc32c=%08x\n", crc32c(text.data(), tail));
  if (text.substr(tail) != sum.data()) return std::nullopt;
  text = text.substr(0, tail);

  Outcome outcome;
  if (!take_word(text, "attempt=" + key_text(key) + " cause=")) return std::nullopt;
  const std::string_view word = text.substr(0, text.find(' '));
  for (std::size_t i = 0; i < kCauseWords.size(); ++i) {
    if (kCauseWords[i] == word) outcome.cause = static_cast<Cause>(i);
  }
  if (outcome.cause == Cause::kUnspecified) return std::nullopt;
  text.remove_prefix(word.size());
  const bool whole = take_word(text, " exit_code=") && take_number(text, outcome.exit_code) &&
                     take_word(text, " signal=") && take_number(text, outcome.signal) &&
                     take_word(text, " started_unix_ns=") && take_number(text, outcome.started_unix_ns) &&
                     take_word(text, " ended_unix_ns=") && take_number(text, outcome.ended_unix_ns) &&
                     take_word(text, " detail=");
  if (!whole) return std::nullopt;
  take_usage_line(text, outcome.usage);
  outcome.detail = std::string(text);
  return outcome;
}

std::string key_text(const AttemptKey& key) {
  return std::to_string(key.job.value) + '-' + std::to_string(key.attempt) + '-' + std::to_string(key.member);
}

std::optional<AttemptKey> parse_key(std::string_view text) {
  AttemptKey key;
  const bool whole = take_number(text, key.job.value) && take_word(text, "-") &&
                     take_number(text, key.attempt) && take_word(text, "-") &&
                     take_number(text, key.member) && text.empty();
  if (!whole) return std::nullopt;
  return key;
}

std::string encode(const StartRequest& request) {
  CHECK(!request.arguments.empty());
  std::string packet;
  ByteWriter out(packet);
  out.u8(static_cast<uint8_t>(RequestKind::kStart));
  put_key(out, request.key);
  out.svarint(request.grace.ns);
  out.svarint(request.max_runtime.ns);
  out.svarint(request.lost_contact.ns);
  put_c_string(out, request.working_directory);
  put_c_string(out, request.spare_folder);
  out.svarint(request.log_bytes_max);
  put_c_strings(out, request.arguments);
  put_c_strings(out, request.environment);
  put_box(out, request.box);
  out.u8(request.container ? 1 : 0);
  out.u8(request.working_directory_optional ? 1 : 0);
  out.u8(request.gated ? 1 : 0);
  put_c_string(out, request.hosts);
  out.varint(request.port);
  put_c_string(out, request.script);
  out.varint(request.script_argument);
  return packet;
}

std::optional<AttemptKey> decode_start_key(std::string_view packet) {
  ByteReader in(packet);
  if (in.u8() != static_cast<uint8_t>(RequestKind::kStart)) return std::nullopt;
  const AttemptKey key = get_key(in);
  if (!in.ok()) return std::nullopt;
  return key;
}

bool is_start_in_memory(std::string_view packet) {
  return !packet.empty() && (static_cast<uint8_t>(packet.front()) & kKindBits) ==
                                (static_cast<uint8_t>(RequestKind::kStartInMemory) & kKindBits);
}

std::optional<AttemptKey> foreign_start_key(std::string_view packet) {
  ByteReader in(packet);
  const uint8_t kind = in.u8();
  const auto known = static_cast<uint8_t>(RequestKind::kStart);
  if (kind == known || (kind & kKindBits) != (known & kKindBits)) return std::nullopt;
  const AttemptKey key = get_key(in);
  if (!in.ok()) return std::nullopt;
  return key;
}

std::optional<StartView> decode_start(std::string_view packet) {
  ByteReader in(packet);
  if (in.u8() != static_cast<uint8_t>(RequestKind::kStart)) return std::nullopt;
  StartView view;
  view.key = get_key(in);
  view.grace = Duration{in.svarint()};
  view.max_runtime = Duration{in.svarint()};
  view.lost_contact = Duration{in.svarint()};
  view.working_directory = get_c_string(in);
  view.spare_folder = get_c_string(in);
  view.log_bytes_max = in.svarint();
  view.arguments = get_c_strings(in);
  view.environment = get_c_strings(in);
  view.box = get_box(in);
  view.container = in.u8() != 0;
  view.working_directory_optional = in.u8() != 0;
  view.gated = in.u8() != 0;
  view.hosts = get_c_string(in);
  view.port = static_cast<uint32_t>(in.varint() & 0xFFFF);
  view.script = get_c_string(in);
  const uint64_t script_argument = in.varint();
  view.script_argument = static_cast<uint32_t>(script_argument);
  if (!in.ok() || view.arguments.size() < 2 || script_argument + 1 >= view.arguments.size())
    return std::nullopt;
  return view;
}

std::string encode(const StopRequest& request) {
  std::string packet;
  ByteWriter out(packet);
  out.u8(static_cast<uint8_t>(RequestKind::kStop));
  put_key(out, request.key);
  out.svarint(request.grace.ns);
  out.svarint(request.signal);
  out.u8(request.until_saved ? 1 : 0);
  return packet;
}

std::optional<StopRequest> decode_stop(std::string_view packet) {
  ByteReader in(packet);
  if (in.u8() != static_cast<uint8_t>(RequestKind::kStop)) return std::nullopt;
  StopRequest request;
  request.key = get_key(in);
  request.grace = Duration{in.svarint()};
  request.signal = static_cast<int>(std::clamp<int64_t>(in.svarint(), 0, kSignalMax));
  request.until_saved = in.u8() != 0;
  if (!in.ok()) return std::nullopt;
  return request;
}

std::string encode(const Event& event) {
  std::string packet;
  ByteWriter out(packet);
  out.u8(static_cast<uint8_t>(event.kind));
  put_key(out, event.key);
  out.svarint(event.pid);
  out.svarint(event.shim_pid);
  out.svarint(event.started_unix_ns);
  put_outcome(out, event.outcome);
  out.svarint(event.saved_unix_ns);
  // Behind all that readers from before usage look at.
  out.svarint(event.outcome.usage.peak_memory_bytes);
  out.u8(event.outcome.usage.peak_of_process ? 1 : 0);
  out.svarint(event.outcome.usage.cpu_ns);
  return packet;
}

std::optional<Event> decode_event(std::string_view packet) {
  ByteReader in(packet);
  Event event;
  const uint8_t kind = in.u8();
  if (kind < 1 || kind > 6) return std::nullopt;
  event.kind = static_cast<EventKind>(kind);
  event.key = get_key(in);
  event.pid = in.svarint();
  event.shim_pid = in.svarint();
  event.started_unix_ns = in.svarint();
  event.outcome = get_outcome(in);
  event.saved_unix_ns = in.svarint();
  if (in.ok() && !in.at_end()) {
    event.outcome.usage.peak_memory_bytes = in.svarint();
    event.outcome.usage.peak_of_process = in.u8() != 0;
    event.outcome.usage.cpu_ns = in.svarint();
  }
  if (!in.ok()) return std::nullopt;
  return event;
}

sigval stop_value(const StopRequest& request) {
  static_assert(sizeof(sigval) == sizeof(uint64_t));
  const auto grace = static_cast<uint64_t>(std::clamp<int64_t>(request.grace.ms(), 0, INT32_MAX));
  const uint64_t bits = grace | static_cast<uint64_t>(request.signal) << kStopSignalShift |
                        (request.until_saved ? kStopUntilSaved : 0);
  sigval value{};
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

StopRequest read_stop_value(sigval value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  StopRequest request;
  request.grace = milliseconds(static_cast<int64_t>(bits & INT32_MAX));
  const auto signal = static_cast<int>(bits >> kStopSignalShift & 0xFF);
  if (signal <= kSignalMax) request.signal = signal;
  request.until_saved = (bits & kStopUntilSaved) != 0;
  return request;
}

int stop_signal() { return SIGRTMIN; }
int ready_signal() { return SIGRTMIN + 1; }

}  // namespace gpusched::shim
