#include "published/placement_replay.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "published/placement_moves.h"
#include "published/placement_queue.h"

namespace gpusched::replay {
namespace {

class PlacementFilesTest : public ::testing::Test {
 protected:
  PlacementFilesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "placement.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~PlacementFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  Result<PlacementTrace> openb(const std::string& nodes, const std::string& pods) {
    return read_openb_placement(write("nodes", nodes), write("pods", pods));
  }

  std::filesystem::path folder_;
};

constexpr const char* kNodes =
    "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,8,G2\n";
constexpr const char* kPodColumns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";

TEST_F(PlacementFilesTest, OpenbIsNodesAndTasks) {
  const auto trace =
      openb(kNodes, std::string(kPodColumns) + "p0,12000,16384,1,460,G2|H9\np1,8000,30517,0,0,\n");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->capacity_milli, 10'000);
  ASSERT_EQ(trace->nodes.size(), 2u);
  EXPECT_EQ(trace->nodes[1].device_class, 1u);
  EXPECT_EQ(trace->nodes[1].milli[7], 1000);
  ASSERT_EQ(trace->tasks.size(), 2u);
  EXPECT_EQ(trace->tasks[0].gpu_milli, 460);
  EXPECT_EQ(trace->tasks[0].device_classes, 0b10u);
  EXPECT_EQ(trace->tasks[1].gpu_count, 0);
}

TEST_F(PlacementFilesTest, OpenbWithoutTheColumnOfModelsAllowsAll) {
  const auto trace = openb(kNodes, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,12000,16384,8,1000\n");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->tasks[0].device_classes, ~uint64_t{0});
}

TEST_F(PlacementFilesTest, OpenbSharesOfSeveralDevicesAreBroken) {
  const auto trace = openb(kNodes, std::string(kPodColumns) + "p0,12000,16384,2,460,\n");
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(trace.error().message.find("shares of several devices"), std::string::npos)
      << trace.error().message;
  EXPECT_FALSE(openb(kNodes, std::string(kPodColumns) + "p0,12000,16384,1,0,\n").ok());
  EXPECT_FALSE(openb(kNodes, std::string(kPodColumns) + "p0,12000,16384,1,1001,\n").ok());
}

TEST_F(PlacementFilesTest, PaiMachinesWithoutGpusAreLeftOut) {
  const auto trace = read_pai_machines(write("machines", "a,CPU,96,512,0\nb,T4,96,512,2\nc,V100,96,384,8\n"));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->nodes.size(), 2u);
  EXPECT_EQ(trace->nodes[1].device_count, 8u);
  EXPECT_EQ(trace->nodes[1].memory_mb, 384 * 1024);
  EXPECT_FALSE(read_pai_machines(write("machines", "a,T4,96,512\n")).ok());
  EXPECT_FALSE(read_pai_machines(write("machines", "a,T4,96,512,65\n")).ok());
}

PlacementTrace small_trace() {
  PlacementTrace trace;
  for (int i = 0; i < 5; ++i) {
    policy::NodeSpace node{.cpu_milli = 16'000, .memory_mb = 64'000, .device_count = 2};
    node.milli[0] = node.milli[1] = policy::kWholeMilli;
    trace.nodes.push_back(node);
    trace.capacity_milli += 2000;
  }
  for (const int32_t milli : {1000, 500, 300})
    trace.tasks.push_back({.cpu_milli = 2000, .memory_mb = 4000, .gpu_count = 1, .gpu_milli = milli});
  return trace;
}

TEST(Inflation, AsksForMoreThanThereIsAndIsTheSameForASeed) {
  const PlacementTrace trace = small_trace();
  const Inflation inflation = inflate(trace, 42, 130);
  int64_t asked = 0;
  for (const policy::TaskShape& task : inflation.arrivals) asked += task.total_milli();
  EXPECT_GE(asked, 13'000);
  EXPECT_LT(asked, 14'000);
  EXPECT_EQ(inflate(trace, 42, 130).arrivals, inflation.arrivals);
}

// A workload that asks for more than the last mark is not played to its end.
TEST(Inflation, IsNotedWhenTheMarkIsReached) {
  PlacementTrace trace = small_trace();
  for (int i = 0; i < 4; ++i) trace.tasks.insert(trace.tasks.end(), trace.tasks.begin(), trace.tasks.end());
  const Inflation inflation = inflate(trace, 42, 130);
  RandomPlacer placer(inflation.nodes, 42);
  const int64_t marks[] = {50, 100};
  const InflationOutcome outcome = replay_inflation(inflation, placer, marks);
  ASSERT_EQ(outcome.allocated_milli.size(), 2u);
  EXPECT_GE(outcome.allocated_milli[0], 5000);
  EXPECT_LE(outcome.allocated_milli[0], 6000);
  EXPECT_LE(outcome.allocated_milli[1], trace.capacity_milli);
  EXPECT_LT(outcome.placed + outcome.refused, inflation.arrivals.size());
}

TEST(Inflation, AFittingTaskIsNeverRefused) {
  const PlacementTrace trace = small_trace();
  const Inflation inflation = inflate(trace, 7, 200);
  LearningPlacer placer(inflation.nodes, {});
  for (const policy::TaskShape& task : inflation.arrivals) {
    bool fits = false;
    for (uint32_t slot = 0; slot < placer.index().size(); ++slot)
      fits |= policy::fits(task, placer.index().node(slot));
    placer.arrived(task);
    EXPECT_EQ(placer.place(task).has_value(), fits);
  }
}

// Two nodes of one GPU: 300 and 500 on the first, 600 on the second. For another 500 the 300 goes to the
// second.
TEST(MovingPlacer, MovesOneForWhatFitsNowhereWithinItsBudget) {
  std::vector<policy::NodeSpace> nodes(2);
  for (policy::NodeSpace& node : nodes) {
    node.device_count = 1;
    node.milli[0] = policy::kWholeMilli;
  }
  const auto share = [](int32_t milli) { return policy::TaskShape{.gpu_count = 1, .gpu_milli = milli}; };
  MovingPlacer placer(nodes, {}, 334);
  EXPECT_EQ(placer.place(share(300))->slot, 0u);
  EXPECT_EQ(placer.place(share(500))->slot, 0u);
  EXPECT_EQ(placer.place(share(600))->slot, 1u);
  const auto found = placer.place(share(500));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->slot, 0u);
  EXPECT_EQ(placer.moves(), 1u);
  // Full now: 1,000 and 900.
  EXPECT_FALSE(placer.place(share(200)));
  EXPECT_EQ(placer.place(share(100))->slot, 1u);
}

TEST(MovingPlacer, MovesNothingBeyondItsBudget) {
  std::vector<policy::NodeSpace> nodes(2);
  for (policy::NodeSpace& node : nodes) {
    node.device_count = 1;
    node.milli[0] = policy::kWholeMilli;
  }
  MovingPlacer placer(nodes, {}, 333);
  for (const int32_t milli : {300, 500, 600}) EXPECT_TRUE(placer.place({.gpu_count = 1, .gpu_milli = milli}));
  EXPECT_FALSE(placer.place({.gpu_count = 1, .gpu_milli = 500}));
  EXPECT_EQ(placer.moves(), 0u);
}

QueuedTask queued(int64_t arrival_s, int64_t run_s, int32_t gpus, uint32_t members = 1) {
  QueuedTask task{.arrival = seconds(arrival_s), .run = seconds(run_s)};
  task.member.gpu_count = gpus;
  task.member.gpu_milli = policy::kWholeMilli;
  task.members = members;
  return task;
}

// One node of two GPUs: the pair waits for the first, the gang for the pair, and who fits passes.
TEST(ReplayQueue, WaitsForRoomAndLetsPassWhatFits) {
  policy::NodeSpace node{.device_count = 2};
  node.milli[0] = node.milli[1] = policy::kWholeMilli;
  RulePlacer placer(std::span(&node, 1), std::make_unique<policy::PublishedBestFit>());
  const std::vector<QueuedTask> tasks = {queued(0, 10, 1), queued(1, 10, 2), queued(2, 5, 1, 2),
                                         queued(3, 4, 1)};
  const QueueOutcome outcome = replay_queue(tasks, placer);
  EXPECT_EQ(outcome.waits[0], seconds(0));
  EXPECT_EQ(outcome.waits[3], seconds(0));
  EXPECT_EQ(outcome.waits[1], seconds(9));
  EXPECT_EQ(outcome.waits[2], seconds(18));
  EXPECT_DOUBLE_EQ(outcome.until_last_start_s, 20);
  EXPECT_DOUBLE_EQ(outcome.busy_milli_s, 1000.0 * (10 + 4 + 20));
  EXPECT_DOUBLE_EQ(outcome.pressed_s, 19);
}

}  // namespace
}  // namespace gpusched::replay
