#include "main/replicas/replica_place.h"

#include <algorithm>

#include "api/contract/errors.h"
#include "main/own_certificate.h"
#include "main/replicas/replica_folders.h"
#include "replication/replica_folder.h"
#include "sign/authority.h"

namespace gpusched {
namespace {

constexpr Duration kPeerValid = hours(24 * 365 * 5);

std::string ids_of(const std::vector<uint64_t>& ids) {
  std::string text;
  for (const uint64_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
  return text;
}

/// Why folder and configuration do not belong together; empty: they do.
std::string misfit(const ReplicaGroup& group, const std::vector<ReplicaPeer>& peers, const Config& config,
                   const std::string& data_dir) {
  if (group.id != static_cast<uint64_t>(config.replica.id))
    return data_dir + " is the data folder of replica " + std::to_string(group.id) + ", and replica.id is " +
           std::to_string(config.replica.id) + "; correct one of them";
  std::vector<uint64_t> members, listed;
  for (const auto& [id, store] : group.stores) members.push_back(id);
  for (const ReplicaPeer& peer : peers) listed.push_back(peer.id);
  std::ranges::sort(listed);
  if (members == listed) return {};
  return "the cluster of " + data_dir + " has the replicas " + ids_of(members) +
         ", and replica.peers lists " + ids_of(listed) + "; list the same ones";
}

}  // namespace

std::string ReplicaPlace::host_of(uint64_t id) const {
  for (const ReplicaPeer& peer : peers) {
    if (peer.id == id) return peer.host;
  }
  return {};
}

std::string peer_certificate_file(const std::string& data_dir) { return data_dir + "/replica/peer.pem"; }

Result<Unit> renew_peer_certificate(const ReplicaGroup& group, const std::string& data_dir) {
  const Result<sign::Authority> authority = sign::Authority::open(authority_folder(data_dir));
  if (!authority.ok()) return authority.error();
  const sign::ReplicaClaim claim{.cluster = group.cluster, .replica = group.id};
  const std::string path = peer_certificate_file(data_dir);
  if (authority->has_issued_replica(path, claim)) return Unit{};
  return authority->issue_replica(path, claim, kPeerValid);
}

Result<std::optional<ReplicaPlace>> find_replica_place(const Config& config, const std::string& data_dir) {
  Result<std::vector<ReplicaPeer>> peers = replica_peers(config);
  if (!peers.ok()) return peers.error();
  if (peers->empty()) {
    if (const Result<Unit> alone = check_alone(config, data_dir); !alone.ok()) return alone.error();
    return std::optional<ReplicaPlace>();
  }
  if (!has_replica_log(data_dir)) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "replica.peers lists several schedulers, and " + data_dir +
                            " is the data folder of none of them: on the first one run gpu-scheduler members "
                            "init, then members export for each other one and members join there "
                            "(docs/operate/high-availability.md)"};
  }
  Result<ReplicaGroup> group = read_replica_group(data_dir);
  if (!group.ok()) return group.error();
  const std::string fault = misfit(*group, *peers, config, data_dir);
  if (!fault.empty()) return Error{.code = ErrorCode::kInvalidArgument, .message = fault};
  if (const Result<Unit> renewed = renew_peer_certificate(*group, data_dir); !renewed.ok())
    return renewed.error();
  ReplicaPlace place{.group = *group, .peers = *peers};
  place.transport = {.cluster = group->cluster,
                     .id = group->id,
                     .address = config.replica.address,
                     .certificate_file = peer_certificate_file(data_dir),
                     .authority_file = authority_folder(data_dir) + "/ca.pem"};
  for (const ReplicaPeer& peer : *peers) {
    place.transport.peers.push_back({.id = peer.id, .host = peer.host, .port = peer.port});
    if (peer.id != group->id) continue;
    place.transport.port = peer.port;
    if (place.transport.address.empty()) place.transport.address = peer.host;
  }
  return std::optional(std::move(place));
}

peers::PortRelay::Options relay_options(const Config& config) {
  using peers::Door;
  peers::PortRelay::Options options{
      .address = config.api.address,
      .https = config.api.enable_tls,
      .no_leader = R"({"error":"no scheduler is the leader at the moment; try again in a second",)"
                   R"("code":"no_leader"})",
      .address_connections_max = static_cast<std::size_t>(config.api.address_connections_max)};
  const std::tuple<Door, int64_t, const char*> doors[] = {
      {Door::kHttp, config.api.http_port, "api.http_port"},
      {Door::kGrpc, config.api.grpc_port, "api.grpc_port"},
      {Door::kTasksGrpc, config.tasks.grpc_port, "tasks.grpc_port"},
      {Door::kTasksHttp, config.tasks.http_port, "tasks.http_port"},
      {Door::kAllocation, config.doors.allocation_port, "doors.allocation_port"}};
  for (const auto& [door, port, setting] : doors) {
    if (port > 0)
      options.ports.push_back({.door = door, .port = static_cast<uint16_t>(port), .setting = setting});
  }
  return options;
}

peers::PeerFacts leader_facts(const BoundPorts& ports) {
  return {.version = GPUSCHED_VERSION,
          .http = ports.http,
          .grpc = ports.grpc,
          .tasks_grpc = ports.tasks_grpc,
          .tasks_http = ports.tasks_http,
          .allocation = ports.allocation,
          .metrics = ports.metrics,
          .https = ports.https};
}

peers::PeerFacts follower_facts() { return {.version = GPUSCHED_VERSION}; }

}  // namespace gpusched
