#include "host/nodes/telemetry.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

constexpr NodeId kNode{3};
constexpr AttemptKey kKey{JobId{7}, 1, 0};

NodeTelemetry told(uint32_t port, std::optional<bool> ready) {
  NodeTelemetry telemetry;
  telemetry.endpoints[kKey] = {.port = port, .ready = ready, .detail = ready.value_or(true) ? "" : "why"};
  return telemetry;
}

TEST(Telemetry, WhatAProbeSaidHoldsUntilTheNextAnswer) {
  TelemetryTable table;
  EXPECT_FALSE(table.endpoint(kNode, kKey));
  table.set(kNode, told(12'000, true));
  EXPECT_EQ(table.endpoint(kNode, kKey)->ready, true);
  table.set(kNode, told(12'000, std::nullopt));  // The agent has just begun again.
  EXPECT_EQ(table.endpoint(kNode, kKey)->ready, true);
  table.set(kNode, told(12'000, false));
  EXPECT_EQ(table.endpoint(kNode, kKey)->ready, false);
  EXPECT_EQ(table.endpoint(kNode, kKey)->detail, "why");
  table.set(kNode, told(12'001, std::nullopt));  // Another port was never probed.
  EXPECT_FALSE(table.endpoint(kNode, kKey)->ready);
  table.set(kNode, {});
  EXPECT_FALSE(table.endpoint(kNode, kKey));
}

}  // namespace
}  // namespace gpusched
