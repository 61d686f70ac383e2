// Words of shims that do not fit where the agent has their attempts.
#include <gtest/gtest.h>

#include "node/core/node_core.h"
#include "node/testing/attempt_key.h"
#include "node/testing/node_core_fakes.h"

namespace gpusched {
namespace {

using testing::Node;

// Its record was lost with the disk's last writes, and the scheduler ordered it again meanwhile.
TEST(ShimWords, AnAttemptWhoseShimIsFoundBeforeItsStartIsNotStartedAgain) {
  Node node;
  node.connect();
  node.store.full = true;
  node.order_start(kKey);
  node.core->on_shim_found(kKey, 100, 1);
  node.store.full = false;
  node.pass(seconds(2));
  EXPECT_TRUE(node.spawner.started.empty()) << "it runs twice";
  ASSERT_EQ(node.count(v1::Report::kStarted), 1u);
  node.order_stop(kKey);
  EXPECT_EQ(node.spawner.stopped.size(), 1u);
}

TEST(ShimWords, AnAttemptWhoseShimIsFoundDuringItsPrologIsNotStartedAgain) {
  Node node;
  node.use_hooks = true;
  node.hooks.with_prolog = true;
  node.begin("boot-1");
  node.connect();
  node.order_start(kKey);
  ASSERT_EQ(node.hooks.prologs.size(), 1u);
  node.core->on_shim_found(kKey, 100, 1);
  node.core->on_prolog_done(kKey, "");
  node.core->settle();
  EXPECT_TRUE(node.spawner.started.empty()) << "it runs twice";
}

TEST(ShimWords, WhatAShimCannotHaveDoneIsRefused) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 1}});
  node.devices.slow = true;
  node.end(kKey, 3);  // Its device is looked at.
  node.core->on_shim_started(kKey, 100, 1);
  node.core->on_shim_prepared(kKey);
  node.core->settle();
  EXPECT_EQ(node.count(v1::Report::kStarted), 0u);
  EXPECT_EQ(node.count(v1::Report::kPrepared), 0u);
  node.pass(seconds(3));
  node.sync();
  EXPECT_EQ(node.last_outcome().exit_code(), 3);
}

}  // namespace
}  // namespace gpusched
