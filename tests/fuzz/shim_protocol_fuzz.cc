// rooms: base
// source: shim/box.cc
// source: shim/protocol.cc
//
// Messages between agent and shims: packets on local sockets, which a job's processes must not be able to use
// against them, the outcome file, and attempts' names.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "shim/protocol.h"

namespace shim = gpusched::shim;

namespace {

std::vector<std::string> strings_of(const std::vector<char*>& words) {
  CHECK(!words.empty());
  CHECK(words.back() == nullptr);
  std::vector<std::string> strings;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) strings.emplace_back(words[i]);
  return strings;
}

/// A start that was understood is the same when it is encoded and decoded again.
void try_start(std::string_view packet) {
  const auto start = shim::decode_start(packet);
  if (!start) return;
  CHECK(shim::decode_start_key(packet) == start->key);
  const shim::StartRequest request{.key = start->key,
                                   .grace = start->grace,
                                   .max_runtime = start->max_runtime,
                                   .lost_contact = start->lost_contact,
                                   .working_directory = start->working_directory,
                                   .spare_folder = start->spare_folder,
                                   .log_bytes_max = start->log_bytes_max,
                                   .arguments = strings_of(start->arguments),
                                   .environment = strings_of(start->environment),
                                   .box = start->box,
                                   .container = start->container};
  CHECK(!request.arguments.empty());
  const std::string own = shim::encode(request);
  const auto again = shim::decode_start(own);
  CHECK(again.has_value());
  CHECK(again->key == request.key);
  CHECK(again->grace == request.grace);
  CHECK(again->max_runtime == request.max_runtime);
  CHECK(again->lost_contact == request.lost_contact);
  CHECK(again->working_directory == request.working_directory);
  CHECK(again->spare_folder == request.spare_folder);
  CHECK(again->log_bytes_max == request.log_bytes_max);
  CHECK(strings_of(again->arguments) == request.arguments);
  CHECK(strings_of(again->environment) == request.environment);
  CHECK(again->box == request.box);
  CHECK(again->container == request.container);
}

void try_packets(std::string_view packet) {
  try_start(packet);
  if (const auto stop = shim::decode_stop(packet)) {
    const auto again = shim::decode_stop(shim::encode(*stop));
    CHECK(again.has_value());
    CHECK(again->key == stop->key);
    CHECK(again->grace == stop->grace);
  }
  if (const auto event = shim::decode_event(packet)) {
    const auto again = shim::decode_event(shim::encode(*event));
    CHECK(again.has_value());
    CHECK(again->kind == event->kind);
    CHECK(again->key == event->key);
    CHECK(again->pid == event->pid);
    CHECK(again->shim_pid == event->shim_pid);
    CHECK(again->started_unix_ns == event->started_unix_ns);
    CHECK(again->outcome == event->outcome);
  }
}

void try_texts(std::string_view text) {
  const gpusched::AttemptKey key{gpusched::JobId{12}, 3, 1};
  if (const auto parsed = shim::parse_key(text)) CHECK(shim::parse_key(shim::key_text(*parsed)) == parsed);
  if (const auto outcome = shim::parse_outcome(key, text))
    CHECK(shim::parse_outcome(key, shim::format_outcome(key, *outcome)) == outcome);
  // With a checksum that fits: the detail may be any text, also one that looks like an outcome's own end.
  const shim::Outcome made{.cause = shim::Cause::kExited, .detail = std::string(text)};
  CHECK(shim::parse_outcome(key, shim::format_outcome(key, made)) == made);
  gpusched::AttemptKey other = key;
  other.attempt = 4;
  CHECK(!shim::parse_outcome(other, shim::format_outcome(key, made)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try_packets(bytes);
  try_texts(bytes);
  return 0;
}
