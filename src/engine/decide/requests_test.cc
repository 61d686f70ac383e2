// Where jobs may run: what decide holds to whatever a plan says, and what nodes tell of their links.
#include <gtest/gtest.h>

#include "engine/decide/feasible.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::links_of;
using testing::registration_of;
using testing::TestEngine;
using testing::Want;

std::size_t placed_by(TestEngine& engine, JobId job, NodeId node, uint64_t mask = 0) {
  MemberPlacement member{.node = node, .part = 0, .device_mask = mask, .generations = {}};
  for (uint32_t i = 0; i < 64; ++i) {
    if (((mask >> i) & 1) != 0) member.generations.push_back(engine.device(node, i).generation);
  }
  const std::size_t before = engine.state().attempts.size();
  engine.apply(CommitPlan{
      .based_on = engine.state().last.sequence,
      .groups = {PlanGroup{.job = job, .attempt = engine.job(job).attempt_count + 1, .members = {member}}}});
  return engine.state().attempts.size() - before;
}

TEST(Requests, NobodyIsPlacedBesideWhoHasANodeForItselfWhateverAPlanSays) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 4});
  const JobId alone = engine.submit({.gpus = 1, .place = {{.exclusive = true}}});
  const JobId other = engine.submit({.gpus = 1});
  const JobId second = engine.submit({.place = {{.exclusive = true}}});
  EXPECT_EQ(placed_by(engine, other, node, 1), 1u);
  EXPECT_EQ(placed_by(engine, alone, node, 2), 0u);
  engine.started(other);
  engine.ended(other);
  EXPECT_EQ(placed_by(engine, alone, node, 2), 0u);  // Its device drains.
  engine.release_all();
  EXPECT_EQ(placed_by(engine, alone, node, 2), 1u);
  EXPECT_EQ(engine.node(node).exclusive_count, 1u);
  const JobId third = engine.submit({.gpus = 1});
  EXPECT_EQ(placed_by(engine, third, node, 4), 0u);
  EXPECT_EQ(placed_by(engine, second, node), 0u);
  engine.started(alone);
  engine.ended(alone);
  EXPECT_EQ(engine.node(node).exclusive_count, 0u);
  EXPECT_EQ(placed_by(engine, third, node, 4), 1u);
}

TEST(Requests, WhatAPlanChoseIsDroppedWhenTheNodeNoLongerPleases) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 4, .labels = {{"zone", "eu"}}, .islands = {2, 2}});
  const JobId labeled = engine.submit({.place = {{.labels = {{.name = "zone", .value = "eu"}}}}});
  engine.apply(LabelNode{.node = node, .set = {{.name = "zone", .value = "us"}}});
  EXPECT_EQ(placed_by(engine, labeled, node), 0u);
  engine.apply(LabelNode{.node = node, .set = {}, .remove = {"zone"}});
  EXPECT_EQ(placed_by(engine, labeled, node), 1u);
  const JobId named = engine.submit({.gpus = 1, .place = {{.device_mask = 2}}});
  EXPECT_EQ(placed_by(engine, named, node, 1), 0u);
  EXPECT_EQ(placed_by(engine, named, node, 2), 1u);
  const JobId linked = engine.submit({.gpus = 2, .place = {{.bandwidth_min = 100}}});
  EXPECT_EQ(placed_by(engine, linked, node, 0b0101), 0u);
  EXPECT_EQ(placed_by(engine, linked, node, 0b1100), 1u);
}

TEST(Requests, LinksStandBySlotsInWhateverOrderAnAgentTellsThem) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", {.gpus = 4, .islands = {2, 2}, .numa_size = 2});
  const NodeId node{engine.apply(offer).first_id};
  const LinkMap before(engine.node(node));
  EXPECT_EQ(before.island_of(0), 0b0011u);
  EXPECT_EQ(before.numa_of(3), 0b1100u);
  // The same in another order, without the third, and with a new one on an island of its own.
  offer.devices = {offer.devices[3], offer.devices[1], offer.devices[0],
                   DeviceOffer{.uuid = "GPU-new", .model = "NVIDIA A100-SXM4-80GB", .memory_mb = 81'920}};
  offer.links = links_of({1, 2, 1});
  offer.topology_note = "NVML";
  engine.apply(offer);
  const LinkMap after(engine.node(node));
  EXPECT_EQ(after.size(), 5u);
  EXPECT_EQ(after.island_of(0), 0b0011u);
  EXPECT_EQ(after.island_of(3), 0b1000u);
  EXPECT_EQ(after.between(2, 3), Link{});  // It is gone.
  EXPECT_EQ(after.between(0, 4).gbs, testing::kPcieGbs);
  EXPECT_EQ(engine.node(node).topology_note, "NVML");
}

TEST(Requests, LinksThatDoNotFitTheDevicesAreRefused) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", {.gpus = 4});
  offer.links = {0, 0};
  EXPECT_FALSE(well_formed(Command(offer)));
  offer.links = std::vector<int64_t>(6, 15);  // No such kind.
  EXPECT_FALSE(well_formed(Command(offer)));
  offer.links = std::vector<int64_t>(6, Link{.kind = LinkKind::kXgmi, .gbs = 50}.code());
  EXPECT_TRUE(well_formed(Command(offer)));
}

TEST(Requests, TheNearestNodeIsTheOneThatLacksLeast) {
  TestEngine engine;
  EXPECT_EQ(nearest_node(engine.state(), Part{.gpu_count = 1}), "");
  engine.add_node("n1", {.gpus = 2});
  engine.add_node("n2", {.gpus = 4, .cpu_milli = 1'000, .labels = {{"zone", "eu"}}});
  const Part part{
      .gpu_count = 8, .cpu_milli = 2'500, .place = {{.labels = {{.name = "zone", .value = "eu"}}}}};
  EXPECT_FALSE(feasible(engine.state(), part));
  EXPECT_EQ(nearest_node(engine.state(), part),
            "node n2 is the closest match: it has 4 of the 8 GPUs, and it has 1 of the 2.500 CPU cores");
  EXPECT_EQ(nearest_node(engine.state(), Part{.gpu_count = 2, .gpu_model = "H100"}),
            "node n2 is the closest match: its GPUs are NVIDIA A100-SXM4-80GB with 81920 MB");
  EXPECT_TRUE(feasible(engine.state(), Part{.gpu_count = 4}));
}

TEST(Requests, AnUpdateThatContradictsIsRefused) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit({.gpus = 2, .place = {{.device_mask = 3}}});
  UpdateJob update{.job = job, .given = kJobParts, .parts = engine.state().class_of(engine.job(job)).parts};
  update.parts.front().gpu_count = 1;
  const Applied applied = engine.apply(update);
  testing::expect_rejected(applied, RejectionCode::kContradiction);
  EXPECT_EQ(describe(*applied.rejection),
            "the number of GPU ids differs from the number of requested GPUs; give one id for each GPU");
}

TEST(ControlCharacters, AreFoundInNamesAndInWhoDidSomething) {
  EXPECT_STREQ(unprintable_field(LabelNode{.node = NodeId{1}, .set = {{.name = "rack", .value = "a\nb"}}}),
               "value");
  EXPECT_STREQ(unprintable_field(CreateTenant{.name = "lab\x1b[2J"}), "name");
  EXPECT_STREQ(unprintable_field(RemoveNode{.node = NodeId{1}, .by = std::string("a\0b", 3)}), "by");
  EXPECT_STREQ(unprintable_field(
                   SubmitJobs{.jobs = {{.parts = {Part{.place = {{.gpu_models = {"H100", "A100\t"}}}}}}}}),
               "gpu_models");
  EXPECT_STREQ(unprintable_field(SubmitJobs{.jobs = {{.parts = {Part{.gpu_model = "A100\t"}}}}}),
               "gpu_model");
}

TEST(ControlCharacters, WhatProgramsSaidMayHaveLines) {
  EXPECT_EQ(unprintable_field(SetDeviceCondition{.node = NodeId{1}, .detail = "one\ntwo", .by = "ada"}),
            nullptr);
  // A label that an older version let in can be removed.
  EXPECT_EQ(unprintable_field(LabelNode{.node = NodeId{1}, .remove = {"old\nname"}}), nullptr);
  EXPECT_EQ(unprintable_field(LabelNode{.node = NodeId{1}, .set = {{.name = "Zürich", .value = "ä"}}}),
            nullptr);
}

}  // namespace
}  // namespace gpusched
