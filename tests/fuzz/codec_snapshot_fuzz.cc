// rooms: codec engine model base
//
// A snapshot of arbitrary bytes, and a real one that is changed at arbitrary places. It is refused, or it is
// a state with which the engine can go on.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "engine/testing/random_commands.h"

namespace {

using namespace gpusched;  // NOLINT(google-build-using-namespace)

std::string real_snapshot() {
  testing::RandomCommands random(5);
  State state;
  Time now = Time{} + seconds(1'700'000'000);
  for (int i = 0; i < 200; ++i) {
    now = now + milliseconds(random.prng().between(0, 2000));
    Events events;
    const Command command = i % 3 == 0 ? random.plan(state) : random.next(state);
    apply(state, command, {.sequence = state.last.sequence + 1, .at = now}, events);
  }
  std::string bytes;
  CHECK(encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
          bytes += piece;
          return Unit{};
        }).ok());
  return bytes;
}

void try_snapshot(std::string_view bytes, uint64_t seed) {
  Result<State> state = decode_snapshot(bytes);
  if (!state.ok()) {
    CHECK(!state.error().message.empty());
    return;
  }
  static_cast<void>(snapshot_digest(*state));
  if (state->last.sequence > UINT64_MAX / 2) return;
  testing::RandomCommands random(seed);
  Time now = state->last.at;
  for (int i = 0; i < 30; ++i) {
    now = std::min(now + random.pause(), Time{int64_t{1} << 62});
    Events events;
    const Command command = i % 4 == 0   ? Command(AdvanceTime{})
                            : i % 4 == 1 ? random.plan(*state)
                                         : random.next(*state);
    apply(*state, command, {.sequence = state->last.sequence + 1, .at = now}, events);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const std::string kReal = real_snapshot();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) return 0;
  if ((input.front() & 1) == 0) {
    try_snapshot(input.substr(1), 1);
    return 0;
  }
  std::string changed = kReal;
  ByteReader script(input.substr(1));
  while (script.remaining() >= 3) {
    const std::size_t at = (script.u8() | static_cast<std::size_t>(script.u8()) << 8) % changed.size();
    changed[at] = static_cast<char>(script.u8());
  }
  try_snapshot(changed, size);
  return 0;
}
