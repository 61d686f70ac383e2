#include "main/cluster_file.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

std::string refusal(const std::string& text) {
  const Result<ClusterFile> read = parse_cluster_file("c.yaml", text);
  return read.ok() ? "accepted" : read.error().message;
}

ClusterFile read(const std::string& text) {
  const Result<ClusterFile> file = parse_cluster_file("c.yaml", text);
  EXPECT_TRUE(file.ok()) << file.error().message;
  return file.ok() ? *file : ClusterFile{};
}

Json json(const std::string& text) {
  const Result<Json> parsed = Json::parse(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? *parsed : Json();
}

ClusterFile present() {
  return cluster_of(
      json(R"({"tenants":[
        {"id":"tenant-1","name":"default","email":"","organization":"","max_gpus":null,"priority_tier":"medium",
         "fair_share_weight":1.0,"allow_preemption":false,"can_preempt_others":false},
        {"id":"tenant-7","name":"research","max_gpus":8,"priority_tier":1000,"fair_share_weight":2.5,
         "allow_preemption":true,"can_preempt_others":false},
        {"id":"tenant-9","name":"vision","parent_id":"tenant-7","max_gpus":4,"priority_tier":500,
         "fair_share_weight":1,"allow_preemption":false,"can_preempt_others":false}]})"),
      json(R"({"nodes":[{"name":"n2","labels":{"zone":"b","rack":"3"}},{"name":"n1","labels":{}}]})"));
}

std::vector<ClusterChange> changes(const std::string& text) {
  const Result<std::vector<ClusterChange>> planned = plan_changes(present(), read(text));
  EXPECT_TRUE(planned.ok()) << planned.error().message;
  return planned.ok() ? *planned : std::vector<ClusterChange>{};
}

TEST(ClusterFile, OfThePresentChangesNothing) {
  const std::string printed = print_cluster_file(present());
  EXPECT_NE(printed.find("  - name: vision\n    parent: research\n"), std::string::npos) << printed;
  EXPECT_NE(printed.find("    fair_share_weight: 2.500\n"), std::string::npos) << printed;
  EXPECT_NE(printed.find("  - name: n2\n    labels: {rack: \"3\", zone: b}\n"), std::string::npos) << printed;
  EXPECT_TRUE(changes(printed).empty());
}

TEST(ClusterFile, RefusesANameThatSeveralTenantsHave) {
  ClusterFile twice = present();
  twice.tenants.push_back(twice.tenants.back());
  const Result<std::vector<ClusterChange>> planned =
      plan_changes(twice, read("tenants:\n  - {name: vision, max_gpus: 5}\n"));
  ASSERT_FALSE(planned.ok());
  EXPECT_NE(planned.error().message.find("2 tenants have the name vision; rename all but one"),
            std::string::npos)
      << planned.error().message;
  EXPECT_TRUE(plan_changes(twice, read("tenants:\n  - {name: research, max_gpus: 5}\n")).ok());
}

TEST(ClusterFile, LeavesAloneWhatItLeavesOut) {
  EXPECT_TRUE(changes("tenants:\n  - name: research\n").empty());
  EXPECT_TRUE(changes("").empty());
}

TEST(ClusterFile, ChangesOnlyWhatDiffers) {
  const std::vector<ClusterChange> planned = changes(
      "tenants:\n  - {name: vision, parent: research, max_gpus: null, priority_tier: high, "
      "fair_share_weight: 1.0}\n");
  ASSERT_EQ(planned.size(), 1u);
  EXPECT_EQ(planned[0].json, R"({"name":"vision","max_gpus":null,"priority_tier":1000})");
  EXPECT_EQ(planned[0].lines,
            (std::vector<std::string>{"max_gpus: 4 -> no limit", "priority_tier: 500 -> 1000"}));
}

TEST(ClusterFile, GuaranteesGpuHoursAndLiftsThem) {
  const std::vector<ClusterChange> planned = changes(
      "tenants:\n  - {name: vision, parent: research, guaranteed_gpus: 2, max_gpu_hours: 12.5, "
      "gpu_hours_window_seconds: "
      "86400, "
      "allow_preemption: true}\n");
  ASSERT_EQ(planned.size(), 1u);
  EXPECT_EQ(
      planned[0].json,
      R"({"name":"vision","allow_preemption":true,"gpu_hours_window_seconds":86400,"guaranteed_gpus":2,)"
      R"("max_gpu_hours":12.500})");
  EXPECT_TRUE(changes("tenants:\n  - {name: vision, parent: research, max_gpu_hours: null}\n").empty());
  EXPECT_EQ(refusal("tenants:\n  - {name: a, guaranteed_gpus: null}\n"),
            "c.yaml:2: tenant a: guaranteed_gpus must be a whole number up to 100000");
}

TEST(ClusterFile, CreatesParentsBeforeTheirChildren) {
  const std::vector<ClusterChange> planned = changes(
      "tenants:\n  - {name: leaf, parent: stem}\n  - {name: stem, parent: root, max_gpus: 3}\n  - name: "
      "root\n");
  ASSERT_EQ(planned.size(), 3u);
  EXPECT_EQ(planned[0].what, "tenant root");
  EXPECT_EQ(planned[1].what, "tenant stem");
  EXPECT_EQ(planned[1].json, R"({"name":"stem","parent_id":"root","max_gpus":3})");
  EXPECT_EQ(planned[2].json, R"({"name":"leaf","parent_id":"stem"})");
}

TEST(ClusterFile, SetsAndRemovesLabels) {
  const std::vector<ClusterChange> planned = changes(
      "nodes:\n  - name: n2\n    labels: {zone: c, rack: null, gone: null}\n  - {name: n1, labels: {a: "
      "b}}\n");
  ASSERT_EQ(planned.size(), 2u);
  EXPECT_EQ(planned[0].json, R"({"node_name":"n2","set":{"zone":"c"},"remove":["rack"]})");
  EXPECT_EQ(planned[1].json, R"({"node_name":"n1","set":{"a":"b"}})");
  EXPECT_EQ(edits_json({planned[1]}, true),
            R"({"dry_run":true,"tenants":[],"nodes":[{"node_name":"n1","set":{"a":"b"}}]})");
}

TEST(ClusterFile, RefusesWhatNoCallCanChange) {
  const auto refused = [](const std::string& text) {
    const Result<std::vector<ClusterChange>> planned = plan_changes(present(), read(text));
    return planned.ok() ? "accepted" : planned.error().message;
  };
  EXPECT_NE(refused("tenants:\n  - {name: vision, parent: default}\n")
                .find("c.yaml:2: tenant vision has the parent research"),
            std::string::npos);
  EXPECT_NE(refused("tenants:\n  - {name: x, parent: nobody}\n").find("which does not exist"),
            std::string::npos);
  EXPECT_NE(refused("nodes:\n  - {name: n9, labels: {a: b}}\n").find("no node n9 has ever registered"),
            std::string::npos);
}

TEST(ClusterFileRefuses, EachMistakeWithItsLine) {
  EXPECT_EQ(refusal("pools:\n  - name: a100\n"),
            "c.yaml:1: this version does not support pools; label nodes instead, or remove the section. "
            "Nothing in the file was applied");
  EXPECT_EQ(refusal("tenants:\n  - name: a\n    max_gpu: 3\n"),
            "c.yaml:3: tenant a: this version has no `max_gpu`; did you mean max_gpus?");
  EXPECT_EQ(refusal("tenants:\n  - name: a\n    max_gpus: -1\n"),
            "c.yaml:3: tenant a: max_gpus must be a whole number up to 100000, or null for no limit");
  EXPECT_EQ(refusal("tenants:\n  - {name: a, priority_tier: urgent}\n"),
            "c.yaml:2: tenant a: priority_tier must be low, medium, high, critical or a whole number");
  EXPECT_EQ(refusal("tenants:\n  - {name: a, fair_share_weight: 0}\n"),
            "c.yaml:2: tenant a: fair_share_weight must be a number above 0");
  EXPECT_EQ(refusal("tenants:\n  - max_gpus: 1\n"), "c.yaml:2: a tenant needs a `name:` of 1 to 253 bytes");
  EXPECT_NE(refusal("tenants:\n  - name: a\n  - name: a\n").find("given twice"), std::string::npos);
  EXPECT_NE(
      refusal("tenants:\n  - {name: a, parent: b}\n  - {name: b, parent: a}\n").find("its own ancestor"),
      std::string::npos);
  EXPECT_NE(refusal("nodes:\n  - {name: n1, gpus: 3}\n").find("only labels"), std::string::npos);
  EXPECT_NE(refusal("tenant:\n  - name: a\n").find("unknown section tenant"), std::string::npos);
  EXPECT_NE(refusal("tenants: [a\n").find("not valid YAML"), std::string::npos);
}

}  // namespace
}  // namespace gpusched
