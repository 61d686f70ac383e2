// Any commands to the engine: the state that comes of them can be written, read and goes on as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/limits.h"
#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "engine/testing/wild_commands.h"

namespace gpusched {
namespace {

using testing::WildCommands;

std::string snapshot_of(const State& state) {
  std::string bytes;
  const Result<Unit> written = encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
    bytes += piece;
    return Unit{};
  });
  EXPECT_TRUE(written.ok());
  return bytes;
}

/// True if the registration fits: devices that are gone and held by nothing make room for new ones.
bool has_room(const State& state, const RegisterNode& offer) {
  const Node* node = state.find_node_named(offer.name);
  std::set<std::string> slots;
  for (const DeviceOffer& device : offer.devices) slots.insert(device.uuid);
  for (const Device& device : node == nullptr ? std::vector<Device>{} : node->devices) {
    const bool kept = device.state != DeviceState::kFree || device.promised_to.valid() || device.barred;
    if (kept) slots.insert(device.uuid);
  }
  const std::size_t kinds = static_cast<std::size_t>(std::popcount(state.used_device_classes()));
  return slots.size() <= limits::kDevicesPerNodeMax &&
         kinds + offer.devices.size() <= limits::kDeviceClassesMax;
}

/// Where in time and under which rules a history takes place.
struct Era {
  const char* name;
  Time begin;
  int64_t feature_level;
};

class WildHistory : public ::testing::TestWithParam<std::tuple<Era, uint64_t>> {
 protected:
  const Era& era() const { return std::get<0>(GetParam()); }

  /// Passes the time, but not beyond its end.
  void let_time_pass(Duration by) { now_ = std::min(now_ + by, limits::kTimeMax); }
  Command next() {
    if (state_.last.sequence < kFirstSequence)
      return Configure{.config = {.feature_level = era().feature_level}};
    if (state_.next_due() <= now_ && random_.prng().chance(700)) return AdvanceTime{};
    Command command = random_.next(state_, now_);
    // Levels do not fall.
    if (auto* configure = std::get_if<Configure>(&command))
      configure->config.feature_level = era().feature_level;
    return command;
  }

  WildCommands random_{std::get<1>(GetParam())};
  State state_;
  Time now_ = era().begin;
};

TEST_P(WildHistory, EveryStateIsReadAsItWasWritten) {
  for (int i = 0; i < 400; ++i) {
    let_time_pass(random_.pause());
    const Command command = next();
    ASSERT_TRUE(well_formed(command)) << name_of(command);
    GroupEncoder encoder;
    encoder.begin(now_);
    encoder.add(command);
    const Result<CommandGroup> decoded = decode_group(encoder.payload());
    ASSERT_TRUE(decoded.ok()) << decoded.error().message << " " << name_of(command);
    const std::string said = dump_group(*decoded);
    const auto* offer = std::get_if<RegisterNode>(&command);
    const bool room = offer != nullptr && state_.config.feature_level >= 6 && has_room(state_, *offer);
    Events events;
    const Applied applied =
        apply(state_, decoded->commands.front(), {.sequence = state_.last.sequence + 1, .at = now_}, events);
    if (room && applied.rejection) {
      ASSERT_NE(applied.rejection->code, RejectionCode::kNodeLimit) << said.substr(0, 4'000);
    }
    const std::string bytes = snapshot_of(state_);
    const Result<State> copy = decode_snapshot(bytes);
    ASSERT_TRUE(copy.ok()) << copy.error().message << " at step " << i << " after " << said.substr(0, 4'000);
    ASSERT_EQ(snapshot_of(*copy), bytes) << "at step " << i << " after " << said.substr(0, 4'000);
    ASSERT_EQ(copy->digest, state_.digest);
    ASSERT_EQ(copy->next_due(), state_.next_due()) << "at step " << i << " after " << said.substr(0, 4'000);
  }
}

/// More of them on request: GPUSCHED_WILD_SEEDS=1000.
uint64_t seeds() {
  const char* wanted = std::getenv("GPUSCHED_WILD_SEEDS");
  return wanted == nullptr ? 12 : std::strtoull(wanted, nullptr, 10);
}

constexpr Time kToday = Time{} + seconds(1'750'000'000);

INSTANTIATE_TEST_SUITE_P(
    Seeds, WildHistory,
    ::testing::Combine(
        ::testing::Values(Era{"today", kToday, kFeatureLevel}, Era{"level_8", kToday, 8},
                          Era{"level_7", kToday, 7}, Era{"level_5", kToday, 5}, Era{"level_0", kToday, 0},
                          Era{"at_the_end_of_time", limits::kTimeMax - hours(24), kFeatureLevel}),
        ::testing::Range<uint64_t>(0, seeds())),
    [](const auto& param) {
      return std::string(std::get<0>(param.param).name) + "_" + std::to_string(std::get<1>(param.param));
    });

}  // namespace
}  // namespace gpusched
