#include "node/kubernetes/node_status.h"

#include <gtest/gtest.h>

#include "client/json.h"

namespace gpusched::kubernetes {
namespace {

Json parsed(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : Json();
}

TEST(NodeStatusJson, SaysWhatTheNodeHas) {
  NodeStatus status{.node = "k1", .devices = {}, .machine = {}, .message = {}};
  status.devices.push_back({.facts = {.uuid = "GPU-1", .model = "NVIDIA A100", .memory_mb = 81'920},
                            .island = {.name = "island-0", .gbs_both_ways = 600},
                            .health = DeviceStatus::Health::kHealthy,
                            .message = {},
                            .in_use_by = {"uid-1"}});
  status.devices.push_back({.facts = {.uuid = "GPU-2", .model = "NVIDIA A100", .memory_mb = 81'920},
                            .island = {},
                            .health = DeviceStatus::Health::kUnhealthy,
                            .message = "xid 79: \"fell off the bus\"",
                            .in_use_by = {}});
  status.machine = {.driver = "570.86.15",
                    .adapters = {{.name = "mlx5_0", .active_ports = 1, .gbps = 200}},
                    .rdma = true,
                    .cu_file = false};
  const Json object = parsed(object_with_status_json(status));
  EXPECT_EQ(object["apiVersion"].text(), "gpu.scheduling/v1");
  EXPECT_EQ(object["kind"].text(), "GpuNodeStatus");
  EXPECT_EQ(object["metadata"]["name"].text(), "k1");
  EXPECT_EQ(object["spec"]["nodeName"].text(), "k1");
  const Json facts = object["status"];
  EXPECT_EQ(facts["total"].integer(), 2);
  EXPECT_EQ(facts["driver"].text(), "570.86.15");
  EXPECT_TRUE(facts["rdma"].boolean());
  EXPECT_FALSE(facts["cuFile"].boolean());
  EXPECT_TRUE(facts["message"].is_null());
  EXPECT_EQ(facts["hcas"].items()[0].serialize(), R"({"name":"mlx5_0","ports":1,"gbps":200})");
  EXPECT_EQ(facts["devices"].items()[0].serialize(),
            R"({"id":0,"uuid":"GPU-1","model":"NVIDIA A100","memoryMB":81920,"health":"Healthy",)"
            R"("island":"island-0","bandwidthGBps":600,"inUseBy":["uid-1"]})");
  EXPECT_EQ(facts["devices"].items()[1].serialize(),
            R"({"id":1,"uuid":"GPU-2","model":"NVIDIA A100","memoryMB":81920,"health":"Unhealthy",)"
            R"("message":"xid 79: \"fell off the bus\""})");
}

TEST(NodeStatusJson, TheObjectAloneHasNoStatus) {
  const NodeStatus status{.node = "k1", .devices = {}, .machine = {}, .message = "no GPU"};
  EXPECT_EQ(object_json(status), R"({"apiVersion":"gpu.scheduling/v1","kind":"GpuNodeStatus",)"
                                 R"("metadata":{"name":"k1"},"spec":{"nodeName":"k1"}})");
  EXPECT_EQ(parsed(object_with_status_json(status))["status"]["message"].text(), "no GPU");
}

std::string pod(const std::string& uid, const std::string& node, const std::string& ids) {
  return R"({"metadata":{"uid":")" + uid + R"(","annotations":{"gpu.scheduling/allocated-node":")" + node +
         R"(","gpu.scheduling/allocated":")" + ids + R"("}}})";
}

using Users = std::vector<std::vector<std::string>>;

TEST(UsersOfDevices, AreThePodsThatWereBoundHereWithThem) {
  const std::string list = R"({"items":[)" + pod("b", "k1", "0,1") + "," + pod("a", "k1", "1") + "," +
                           pod("c", "k2", "0") + R"(,{"metadata":{"uid":"d"}}]})";
  const auto users = users_of(list, "k1", 3);
  ASSERT_TRUE(users.ok()) << users.error().message;
  EXPECT_EQ(*users, (Users{{"b"}, {"a", "b"}, {}}));
}

TEST(UsersOfDevices, IdsThatTheNodeDoesNotHaveAreNobodys) {
  const auto users = users_of(R"({"items":[)" + pod("a", "k1", "7,,x,-1,1") + "]}", "k1", 2);
  ASSERT_TRUE(users.ok());
  EXPECT_EQ(*users, (Users{{}, {"a"}}));
}

TEST(UsersOfDevices, WhatIsNoListIsRefused) {
  EXPECT_FALSE(users_of("", "k1", 1).ok());
  EXPECT_FALSE(users_of(R"({"kind":"Status"})", "k1", 1).ok());
  const auto none = users_of(R"({"items":[]})", "k1", 1);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, Users(1));
}

}  // namespace
}  // namespace gpusched::kubernetes
