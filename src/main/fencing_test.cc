#include "main/fencing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>
#include <vector>

#include "base/check.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

/// A cluster of which some nodes are silent, and what was confirmed of them.
class Fenced {
 public:
  explicit Fenced(int nodes) {
    CHECK(::mkdtemp(folder_.data()) != nullptr);
    for (int i = 0; i < nodes; ++i)
      nodes_.push_back(engine_.add_node("n" + std::to_string(i + 1), {.gpus = 1}));
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { std::filesystem::remove_all(folder_); }
  NodeId silence(std::size_t index) {
    engine_.apply(NodeLeaseLost{.node = nodes_[index]});
    return nodes_[index];
  }
  NodeId report(std::size_t index) {
    engine_.apply(NodeLeaseBack{.node = nodes_[index]});
    return nodes_[index];
  }
  const State& state() const { return engine_.state(); }
  FencingOptions options(std::string command) const {
    return {.command = std::move(command), .after = milliseconds(1), .pause = milliseconds(1)};
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string text(const std::string& name) const {
    std::ifstream file(path(name));
    return (std::ostringstream() << file.rdbuf()).str();
  }

 private:
  std::string folder_ = ::testing::TempDir() + "gpusched_fencing_XXXXXX";
  gpusched::testing::TestEngine engine_;
  std::vector<NodeId> nodes_;
};

TEST(Fencing, ANodeThatIsOffForCertainIsConfirmedDead) {
  Fenced cluster(3);
  std::promise<NodeId> confirmed;
  Fencing fencing(cluster.options("echo \"$GPU_SCHEDULER_NODE\" > " + cluster.path("off")),
                  [&](NodeId node, const std::string&) { confirmed.set_value(node); });
  const NodeId silent = cluster.silence(1);
  fencing.look(cluster.state());
  EXPECT_EQ(confirmed.get_future().get(), silent);
  fencing.stop();
  EXPECT_EQ(cluster.text("off"), "n2\n");
}

TEST(Fencing, ACommandThatFailsIsRunAgainAndConfirmsNothing) {
  Fenced cluster(3);
  std::promise<void> confirmed;
  // It succeeds at the third run.
  const std::string runs = cluster.path("runs");
  Fencing fencing(cluster.options("echo x >> " + runs + "; test $(wc -l < " + runs + ") -ge 3"),
                  [&](NodeId, const std::string&) { confirmed.set_value(); });
  cluster.silence(0);
  fencing.look(cluster.state());
  confirmed.get_future().get();
  fencing.stop();
  EXPECT_EQ(cluster.text("runs"), "x\nx\nx\n");
}

TEST(Fencing, ANodeThatReportsAgainIsLeftAlone) {
  Fenced cluster(3);
  std::promise<NodeId> confirmed;
  FencingOptions options = cluster.options("true");
  options.after = hours(1);
  Fencing slow(options, [&](NodeId node, const std::string&) { confirmed.set_value(node); });
  cluster.silence(0);
  slow.look(cluster.state());
  cluster.report(0);
  slow.look(cluster.state());
  // Another, of no delay, is told of what is silent then: the first node is not.
  Fencing fencing(cluster.options("true"),
                  [&](NodeId node, const std::string&) { confirmed.set_value(node); });
  const NodeId silent = cluster.silence(2);
  fencing.look(cluster.state());
  EXPECT_EQ(confirmed.get_future().get(), silent);
}

TEST(Fencing, NothingIsFencedWhileMostNodesAreSilent) {
  Fenced cluster(3);
  std::promise<NodeId> confirmed;
  FencingOptions options = cluster.options("echo x >> " + cluster.path("runs"));
  options.pause = milliseconds(20);
  options.pause_max = milliseconds(20);
  Fencing fencing(options, [&](NodeId node, const std::string&) { confirmed.set_value(node); });
  cluster.silence(0);
  const NodeId gone = cluster.silence(1);
  fencing.look(cluster.state());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(cluster.text("runs"), "");
  // One of the two is back: the other one is gone then.
  cluster.report(0);
  fencing.look(cluster.state());
  EXPECT_EQ(confirmed.get_future().get(), gone);
}

TEST(Fencing, AStopEndsACommandThatRuns) {
  Fenced cluster(1);
  bool confirmed = false;
  Fencing fencing(cluster.options("touch " + cluster.path("runs") + "; exec sleep 1000"),
                  [&](NodeId, const std::string&) { confirmed = true; });
  cluster.silence(0);
  fencing.look(cluster.state());
  while (!std::filesystem::exists(cluster.path("runs")))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fencing.stop();
  EXPECT_FALSE(confirmed);
}

}  // namespace
}  // namespace gpusched
