#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "config/keys.h"
#include "engine/policy/policy.h"

namespace gpusched {
namespace {

// The configuration cannot see the engine: that it offers what there is is looked at here.
TEST(PolicyNames, EveryQueueOrderThatTheConfigurationOffersExists) {
  const auto keys = config_keys();
  const auto key = std::find_if(keys.begin(), keys.end(),
                                [](const ConfigKey& each) { return each.name == "queue_order"; });
  ASSERT_NE(key, keys.end());
  std::istringstream names{std::string(key->one_of)};
  std::string name;
  int count = 0;
  while (names >> name) {
    const auto order = policy::make_queue_order(name);
    ASSERT_NE(order, nullptr) << name;
    EXPECT_EQ(order->name(), name);
    ++count;
  }
  EXPECT_GE(count, 5);
}

TEST(PolicyNames, EveryJobOrderThatTheConfigurationOffersExists) {
  const auto keys = config_keys();
  const auto key =
      std::find_if(keys.begin(), keys.end(), [](const ConfigKey& each) { return each.name == "job_order"; });
  ASSERT_NE(key, keys.end());
  std::istringstream names{std::string(key->one_of)};
  std::string name;
  int count = 0;
  while (names >> name) {
    const auto order = policy::make_job_order(name, {});
    ASSERT_NE(order, nullptr) << name;
    EXPECT_EQ(order->name(), name);
    ++count;
  }
  EXPECT_GE(count, 4);
}

}  // namespace
}  // namespace gpusched
