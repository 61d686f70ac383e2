#include "node/link/clean_message.h"

#include <gtest/gtest.h>

#include "gpusched/v1/node.pb.h"

namespace gpusched {
namespace {

/// As the scheduler reads it.
bool can_be_read(const v1::AgentMessage& message) {
  v1::AgentMessage read;
  return read.ParseFromString(message.SerializeAsString());
}

TEST(CleanMessage, LeavesWhatCanBeRead) {
  v1::AgentMessage message;
  message.mutable_log_chunk()->set_data("\xFF\xFE");
  message.mutable_log_chunk()->set_error("n\xC3\xA4mlich");
  const std::string before = message.SerializeAsString();
  EXPECT_FALSE(clean_texts(message));
  EXPECT_EQ(message.SerializeAsString(), before);
  EXPECT_TRUE(can_be_read(message));
}

TEST(CleanMessage, ReplacesWhatTheSchedulerCouldNotRead) {
  v1::AgentMessage message;
  v1::Register& words = *message.mutable_register_();
  words.set_topology_note("a\xFFz");
  words.add_features("\xC0\x80");
  (*words.mutable_labels())["rack"] = "r\xED\xA0\x80";
  words.add_devices()->set_detail("half \xE2\x82");
  EXPECT_FALSE(can_be_read(message));
  EXPECT_TRUE(clean_texts(message));
  ASSERT_TRUE(can_be_read(message));
  EXPECT_EQ(words.topology_note(), "a?z");
  EXPECT_EQ(words.features(0), "??");
  EXPECT_EQ(words.labels().at("rack"), "r???");
  EXPECT_EQ(words.devices(0).detail(), "half ??");
}

}  // namespace
}  // namespace gpusched
