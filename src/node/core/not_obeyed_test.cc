#include <gtest/gtest.h>

#include "node/core/node_core.h"
#include "node/testing/attempt_key.h"
#include "node/testing/node_core_fakes.h"

namespace gpusched {
namespace {

const char* const kWhy = "it is not signed";

/// A node with a certificate, whose link does not let orders pass when the test says so.
class PinnedNode : public testing::Node {
 public:
  PinnedNode() {
    use_hooks = true;
    begin("boot-1");
  }
  void refuse(const v1::SchedulerMessage& message) {
    core->on_not_obeyed(message, kWhy);
    core->settle();
  }
  static v1::SchedulerMessage start_of(const AttemptKey& key) {
    v1::SchedulerMessage message;
    *message.mutable_start()->mutable_key() = to_wire(key);
    message.mutable_start()->set_placed_at_ns(5);
    v1::JobSpec spec;
    spec.add_command("/bin/true");
    message.mutable_start()->set_spec(spec.SerializeAsString());
    message.mutable_start()->add_devices()->set_index(0);
    return message;
  }
  std::string verdict() const {
    const std::vector<v1::Report> said = reports(v1::Report::kValidated);
    return said.empty() ? "none" : said.back().validated().detail();
  }
};

TEST(NotObeyed, AStartIsTheNodesFaultAndNothingOfItIsKept) {
  PinnedNode node;
  node.connect();
  node.core->on_checked("");
  node.core->settle();
  node.refuse(PinnedNode::start_of(kKey));
  node.sync();
  EXPECT_TRUE(node.spawner.started.empty());
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  const v1::Ended ended = node.reports(v1::Report::kEnded).front().ended();
  EXPECT_EQ(ended.outcome().cause(), v1::Outcome::NODE_FAULT);
  EXPECT_EQ(ended.placed_at_ns(), 5);
  EXPECT_NE(ended.outcome().detail().find(kWhy), std::string::npos);
  EXPECT_NE(node.verdict().find(kWhy), std::string::npos);  // It gets no more work for a while.
  EXPECT_EQ(node.core->known_count(), 0u);
  node.acknowledge_all();
  // The number is not used up: the scheduler's own order under it is carried out.
  node.order_start(kKey);
  EXPECT_EQ(node.spawner.started.size(), 1u);
}

TEST(NotObeyed, AStartOfWhatRunsChangesNothing) {
  PinnedNode node;
  node.connect();
  node.order_start(kKey);
  node.core->on_shim_started(kKey, 42, 1);
  node.core->settle();
  const std::size_t said = node.count(v1::Report::kEnded) + node.count(v1::Report::kStarted);
  node.refuse(PinnedNode::start_of(kKey));
  EXPECT_EQ(node.count(v1::Report::kEnded) + node.count(v1::Report::kStarted), said);
  EXPECT_EQ(node.core->running_count(), 1u);
}

TEST(NotObeyed, EveryMemberOfAGangIsRefused) {
  PinnedNode node;
  node.connect();
  v1::SchedulerMessage message;
  message.mutable_start_members()->mutable_common()->set_placed_at_ns(9);
  for (uint32_t member = 0; member < 3; ++member)
    *message.mutable_start_members()->add_members()->mutable_key() = to_wire({JobId{7}, 1, member});
  node.refuse(message);
  ASSERT_EQ(node.count(v1::Report::kEnded), 3u);
  EXPECT_EQ(node.reports(v1::Report::kEnded).back().ended().key().member(), 2u);
  EXPECT_EQ(node.reports(v1::Report::kEnded).back().ended().placed_at_ns(), 9);
}

TEST(NotObeyed, NothingIsStoppedAndNothingRebooted) {
  PinnedNode node;
  node.connect();
  node.order_start(kKey);
  node.core->on_shim_started(kKey, 42, 1);
  node.core->settle();
  v1::SchedulerMessage message;
  *message.mutable_stop()->mutable_key() = to_wire(kKey);
  node.refuse(message);
  message.mutable_reboot()->set_reason("because");
  node.refuse(message);
  node.refuse({});
  EXPECT_TRUE(node.spawner.stopped.empty());
  EXPECT_TRUE(node.hooks.reboots.empty());
  EXPECT_EQ(node.core->running_count(), 1u);
}

TEST(NotObeyed, WhoeverWaitsForAnAnswerGetsOne) {
  PinnedNode node;
  node.connect();
  node.link.sent.clear();
  v1::SchedulerMessage message;
  message.mutable_open_session()->set_session(3);
  node.refuse(message);
  message.mutable_read_file()->set_request(4);
  node.refuse(message);
  message.mutable_read_log()->set_request(5);
  node.refuse(message);
  std::string answered;
  for (const v1::AgentMessage& sent : node.link.sent) {
    if (sent.has_session_output() && sent.session_output().ended())
      answered += "session " + std::to_string(sent.session_output().session()) + sent.session_output().code();
    if (sent.has_file_chunk() && !sent.file_chunk().error().empty())
      answered += ", file " + std::to_string(sent.file_chunk().request());
    if (sent.has_log_chunk() && !sent.log_chunk().error().empty())
      answered += ", log " + std::to_string(sent.log_chunk().request());
  }
  EXPECT_EQ(answered, "session 3session_failed, file 4, log 5");
}

TEST(NotObeyed, ARegistrationThatIsNotSignedHoldsTheNodeUntilOneIs) {
  PinnedNode node;
  node.core->on_link_up();
  v1::SchedulerMessage registered;
  registered.mutable_registered()->set_heartbeat_ms(1'000);
  node.refuse(registered);
  EXPECT_TRUE(node.core->registered());  // Running attempts are reported on.
  EXPECT_NE(node.verdict().find(kWhy), std::string::npos);
  node.pass(minutes(60));
  node.core->on_checked("");
  node.core->settle();
  EXPECT_NE(node.verdict().find(kWhy), std::string::npos);
  node.core->on_link_down();
  node.connect();
  node.core->on_checked("");
  node.core->settle();
  EXPECT_EQ(node.verdict(), "");
}

}  // namespace
}  // namespace gpusched
