#include "main/replicas/follower_server.h"

#include <algorithm>
#include <utility>

#include "api/http/http_server.h"
#include "api/metrics/metrics_text.h"
#include "base/text/prometheus_text.h"
#include "client/json.h"

namespace gpusched {
namespace {

api::HttpResponse answer(const api::HttpRequest& request, const Config::Metrics& metrics,
                         const ReplicaReport& report) {
  if (request.method != api::HttpMethod::kGet && request.method != api::HttpMethod::kHead)
    return {.status = 405, .body = R"({"error":"this port supports GET only","code":"method_not_allowed"})"};
  if (request.path == "/health") {
    api::HttpResponse health{.status = is_healthy(report) ? 200 : 503, .body = health_json(report)};
    if (health.status == 503) health.headers.emplace_back("Retry-After", "1");
    return health;
  }
  if (request.path == metrics.path)
    return {.body = replica_metrics(report, metrics.name_space), .content_type = api::kMetricsContentType};
  return {.status = 404,
          .body = R"({"error":"no such path; /health and the metrics are here","code":"not_found"})"};
}

class ServerOfFollower final : public FollowerServer {
 public:
  explicit ServerOfFollower(std::unique_ptr<api::HttpServer> server) : server_(std::move(server)) {}
  ~ServerOfFollower() override { stop(); }
  void stop() override {
    if (server_ != nullptr) server_->shutdown();
    server_.reset();
  }

 private:
  std::unique_ptr<api::HttpServer> server_;
};

}  // namespace

bool is_healthy(const ReplicaReport& report) { return report.trouble.empty() && report.leader != 0; }

std::string health_json(const ReplicaReport& report) {
  JsonObjectWriter object;
  object.add("status", is_healthy(report) ? "ok" : "unavailable");
  object.add("id", static_cast<int64_t>(report.id));
  object.add("role", report.role);
  object.add("leader", static_cast<int64_t>(report.leader));
  object.add("term", static_cast<int64_t>(report.term));
  object.add("commit", static_cast<int64_t>(report.commit));
  object.add("applied", static_cast<int64_t>(report.applied));
  if (!report.trouble.empty()) {
    object.add("why", report.trouble);
  } else if (report.leader == 0) {
    object.add("why", "no scheduler is the leader: fewer than half of them reach each other");
  }
  std::string peers;
  for (const peers::PeerStatus& peer : report.peers) {
    JsonObjectWriter one;
    one.add("id", static_cast<int64_t>(peer.id));
    one.add("reachable", peer.connected && peer.heard);
    one.add("version", peer.facts.version);
    if (!peer.why.empty()) one.add("why", peer.why);
    peers += (peers.empty() ? "" : ",") + one.text();
  }
  object.add_json("peers", "[" + peers + "]");
  return object.text();
}

std::vector<std::string> absent_replicas(const std::vector<peers::PeerStatus>& others) {
  const auto heard = static_cast<std::size_t>(std::ranges::count_if(others, &peers::PeerStatus::heard));
  const std::size_t majority = (others.size() + 1) / 2 + 1;
  const std::size_t spare = heard + 1 - std::min(heard + 1, majority);
  std::vector<std::string> sentences;
  for (const peers::PeerStatus& peer : others) {
    if (peer.heard) continue;
    sentences.push_back("replica " + std::to_string(peer.id) + " of " + std::to_string(others.size() + 1) +
                        " is away: " + (peer.why.empty() ? "it sends nothing" : peer.why) +
                        (spare == 0 ? "; if another one is lost, no command is accepted until one is back"
                                    : "; " + std::to_string(spare) + " more may be lost"));
  }
  return sentences;
}

std::string replica_metrics(const ReplicaReport& report, const std::string& name_space) {
  PrometheusText text(name_space);
  const auto gauge = [&](const char* name, const char* help, auto value) {
    text.family(name, "gauge", help);
    text.sample(name).value(value);
  };
  const auto counter = [&](const char* name, const char* help, uint64_t value) {
    text.family(name, "counter", help);
    text.sample(name).value(value);
  };
  text.family("replica_role", "gauge", "1 for the role that this scheduler has among several.");
  for (const char* role : {"follower", "candidate", "leader"})
    text.sample("replica_role").label("role", role).value(report.role == role ? 1 : 0);
  gauge("replica_leader", "Id of the scheduler that leads; 0: none is known.", report.leader);
  gauge("replica_term", "Term of the scheduler that leads.", report.term);
  gauge("replica_commit_index", "Last entry that is known to be committed.", report.commit);
  gauge("replica_lag_entries", "Committed entries that are not in the journal here.",
        report.commit - std::min(report.commit, report.applied));
  gauge("replica_healthy", "Whether this scheduler takes part and knows a leader.",
        is_healthy(report) ? 1 : 0);
  counter("replica_elections_total", "Elections that this scheduler began since its start.",
          report.elections);
  text.family("replica_peer_reachable", "gauge", "Whether another scheduler is reached, by its id.");
  for (const peers::PeerStatus& peer : report.peers)
    text.sample("replica_peer_reachable")
        .label("peer", std::to_string(peer.id))
        .value(peer.connected && peer.heard ? 1 : 0);
  text.family("replica_peer_frames_dropped_total", "counter",
              "Messages to another scheduler that were dropped, by its id.");
  for (const peers::PeerStatus& peer : report.peers)
    text.sample("replica_peer_frames_dropped_total")
        .label("peer", std::to_string(peer.id))
        .value(peer.frames_dropped);
  gauge("relay_connections", "Connections that are passed on to the leader now.", report.relay.open);
  counter("relay_connections_total", "Connections to the ports of a scheduler that does not lead.",
          report.relay.accepted);
  counter("relay_connections_refused_total",
          "Those that were not passed on: there was no leader in time, or there were too many.",
          report.relay.turned_away);
  return text.take();
}

Result<std::unique_ptr<FollowerServer>> FollowerServer::start(const Config& config,
                                                              std::shared_ptr<const sign::TlsServer> tls,
                                                              std::function<ReplicaReport()> look,
                                                              uint16_t* bound) {
  if (!config.metrics.enabled) return std::unique_ptr<FollowerServer>();
  api::HttpListener listener{
      .address = config.api.address,
      .port = static_cast<uint16_t>(config.metrics.port),
      .handler = [look = std::move(look), metrics = config.metrics](
                     api::HttpRequest&& request,
                     api::HttpReply reply) { reply.send(answer(request, metrics, look())); },
      .setting = "metrics.port",
      .tls = std::move(tls)};
  std::vector<api::HttpListener> listeners;
  listeners.push_back(std::move(listener));
  Result<std::unique_ptr<api::HttpServer>> server = api::HttpServer::start(
      {.connection_max = 256, .shutdown_wait = milliseconds(200)}, std::move(listeners));
  if (!server.ok()) return server.error();
  if (bound != nullptr) *bound = (*server)->ports().front();
  return std::unique_ptr<FollowerServer>(std::make_unique<ServerOfFollower>(std::move(*server)));
}

}  // namespace gpusched
