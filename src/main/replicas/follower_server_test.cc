#include "main/replicas/follower_server.h"

#include <gtest/gtest.h>

#include <atomic>

#include "client/http_client.h"
#include "client/json.h"

namespace gpusched {
namespace {

ReplicaReport report() {
  return {.id = 2,
          .role = "follower",
          .leader = 1,
          .term = 7,
          .commit = 100,
          .applied = 98,
          .elections = 3,
          .trouble = "",
          .peers = {{.id = 1, .connected = true, .heard = true, .facts = {.version = "1.2"}},
                    {.id = 3, .why = "Connection refused", .frames_dropped = 4}},
          .relay = {.accepted = 9, .open = 2, .turned_away = 1}};
}

TEST(ReplicaReport, IsHealthyOnlyWithALeaderAndWithoutTrouble) {
  ReplicaReport now = report();
  EXPECT_TRUE(is_healthy(now));
  now.leader = 0;
  EXPECT_FALSE(is_healthy(now));
  EXPECT_NE(health_json(now).find("\"why\":\"no scheduler is the leader"), std::string::npos);
  now = report();
  now.trouble = "it is too far behind";
  EXPECT_FALSE(is_healthy(now));
  EXPECT_NE(health_json(now).find("\"status\":\"unavailable\""), std::string::npos);
  EXPECT_NE(health_json(now).find("\"why\":\"it is too far behind\""), std::string::npos);
}

TEST(ReplicaReport, NamesThoseThatAreAwayAndHowManyMoreMayGo) {
  const peers::PeerStatus well{.id = 1, .connected = true, .heard = true};
  const peers::PeerStatus refuses{.id = 3, .why = "Connection refused"};
  EXPECT_TRUE(absent_replicas({}).empty());
  EXPECT_TRUE(absent_replicas({well, well}).empty());
  EXPECT_EQ(absent_replicas({well, refuses}),
            std::vector<std::string>{"replica 3 of 3 is away: Connection refused; if another one is lost, no "
                                     "command is accepted until one is back"});
  EXPECT_EQ(absent_replicas({well, well, well, {.id = 5, .connected = true}}),
            std::vector<std::string>{"replica 5 of 5 is away: it sends nothing; 1 more may be lost"});
}

TEST(ReplicaReport, IsReadByMonitoring) {
  const std::string text = replica_metrics(report(), "gpu");
  for (const char* line :
       {"gpu_replica_role{role=\"follower\"} 1\n", "gpu_replica_role{role=\"leader\"} 0\n",
        "gpu_replica_leader 1\n", "gpu_replica_term 7\n", "gpu_replica_lag_entries 2\n",
        "gpu_replica_elections_total 3\n", "gpu_replica_peer_reachable{peer=\"1\"} 1\n",
        "gpu_replica_peer_reachable{peer=\"3\"} 0\n", "gpu_replica_peer_frames_dropped_total{peer=\"3\"} 4\n",
        "gpu_relay_connections 2\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(FollowerServer, AnswersHealthAndMetricsAndNothingElse) {
  std::atomic<bool> has_leader = true;
  Config config;
  config.metrics.port = 0;
  const auto off = [] {
    Config none;
    none.metrics.enabled = false;
    return FollowerServer::start(none, nullptr, report);
  }();
  ASSERT_TRUE(off.ok());
  EXPECT_EQ(*off, nullptr);
  uint16_t port = 0;
  Result<std::unique_ptr<FollowerServer>> server = FollowerServer::start(
      config, nullptr,
      [&] {
        ReplicaReport now = report();
        if (!has_leader) now.leader = 0;
        return now;
      },
      &port);
  ASSERT_TRUE(server.ok()) << server.error().message;
  Result<HttpClient> client = HttpClient::create({.url = "http://127.0.0.1:" + std::to_string(port)});
  ASSERT_TRUE(client.ok());
  const auto get = [&](const std::string& path) {
    const Result<HttpAnswer> answer = client->request({.method = "GET", .target = path});
    EXPECT_TRUE(answer.ok());
    return *answer;
  };
  EXPECT_EQ(get("/health").status, 200);
  const Result<Json> health = Json::parse(get("/health").body);
  ASSERT_TRUE(health.ok());
  EXPECT_EQ((*health)["role"].text(), "follower");
  EXPECT_EQ((*health)["peers"].items().size(), 2u);
  EXPECT_NE(get("/metrics").body.find("gpu_scheduler_replica_term 7\n"), std::string::npos);
  EXPECT_EQ(get("/v1/jobs").status, 404);
  EXPECT_EQ(client->request({.method = "POST", .target = "/health"})->status, 405);
  has_leader = false;
  EXPECT_EQ(get("/health").status, 503);
  (*server)->stop();
  (*server)->stop();
}

}  // namespace
}  // namespace gpusched
