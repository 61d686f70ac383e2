// rooms: shim base
//
// What agent and shims say to each other: packets on local sockets, which a job's processes must not be able
// to use against them, the outcome file, and attempts' names.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "shim/protocol.h"

namespace shim = gpusched::shim;

namespace {

void try_packets(std::string_view packet) {
  if (const auto start = shim::decode_start(packet)) {
    CHECK(start->arguments.size() >= 2);
    CHECK(start->arguments.back() == nullptr);
    CHECK(start->environment.back() == nullptr);
    CHECK(shim::decode_start_key(packet) == start->key);
  }
  if (const auto stop = shim::decode_stop(packet)) {
    const auto again = shim::decode_stop(shim::encode(*stop));
    CHECK(again.has_value());
    CHECK(again->key == stop->key);
    CHECK(again->grace == stop->grace);
  }
  if (const auto event = shim::decode_event(packet)) {
    const auto again = shim::decode_event(shim::encode(*event));
    CHECK(again.has_value());
    CHECK(again->key == event->key);
    CHECK(again->outcome == event->outcome);
  }
}

void try_texts(std::string_view text) {
  const gpusched::AttemptKey key{gpusched::JobId{12}, 3, 1};
  if (const auto parsed = shim::parse_key(text)) CHECK(shim::parse_key(shim::key_text(*parsed)) == parsed);
  if (const auto outcome = shim::parse_outcome(key, text))
    CHECK(shim::parse_outcome(key, shim::format_outcome(key, *outcome)) == outcome);
  // With a checksum that fits, so that what stands before it is looked at.
  const std::string line = "attempt=12-3-1 cause=" + std::string(text.substr(0, 200));
  shim::Outcome made{.cause = shim::Cause::kExited, .detail = line};
  CHECK(shim::parse_outcome(key, shim::format_outcome(key, made)) == made);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try_packets(bytes);
  try_texts(bytes);
  return 0;
}
