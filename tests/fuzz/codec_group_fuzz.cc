// rooms: codec engine model base
//
// A journal record's payload of arbitrary bytes. Whatever can be decoded can be applied to a busy state: the
// engine answers, and never ends the process. The state that comes of it survives a snapshot.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/policies.h"
#include "engine/testing/random_commands.h"

namespace {

using namespace gpusched;  // NOLINT(google-build-using-namespace)

const Time kStart = Time{} + seconds(1'700'000'000);

/// A state with jobs in every state, made once.
const State& busy_state() {
  static const State kBusy = [] {
    testing::RandomCommands random(3);
    State state;
    Time now = kStart;
    for (int i = 0; i < 300; ++i) {
      now = now + milliseconds(random.prng().between(0, 2000));
      Events events;
      const Command command = i % 3 == 0 ? random.plan(state) : random.next(state);
      apply(state, command, {.sequence = state.last.sequence + 1, .at = now}, events);
    }
    return state;
  }();
  return kBusy;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view payload(reinterpret_cast<const char*>(data), size);
  const Result<CommandGroup> group = decode_group(payload);
  if (!group) {
    CHECK(!group.error().message.empty());
    return 0;
  }
  static_cast<void>(dump_group(*group));
  State state = busy_state().clone();
  Planner planner(policy::default_policies());
  planner.reset(state);
  const Time at = std::max(group->at, state.last.at);
  for (const Command& command : group->commands) {
    Events events;
    const Applied applied = apply(state, command, {.sequence = state.last.sequence + 1, .at = at}, events);
    if (applied.rejection) CHECK(!describe(*applied.rejection).empty());
    for (const Event& event : events) planner.observe(state, event);
  }
  const Planner::Slice slice = planner.plan(state, state.last.at);
  Events events;
  apply(state, slice.plan, {.sequence = state.last.sequence + 1, .at = at}, events);
  std::string bytes;
  CHECK(encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
          bytes += piece;
          return Unit{};
        }).ok());
  const Result<State> copy = decode_snapshot(bytes);
  CHECK(copy.ok());
  CHECK(snapshot_digest(*copy) == snapshot_digest(state));
  return 0;
}
