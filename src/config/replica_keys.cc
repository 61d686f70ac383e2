#include <charconv>
#include <set>
#include <tuple>

#include "base/net/ip_network.h"
#include "base/text/host_name.h"
#include "config/keys.h"

namespace gpusched {
namespace {

constexpr int64_t kReplicaIdMax = 1'000'000;
constexpr std::size_t kEntryShownMax = 80;

constexpr ConfigKey kKeys[] = {
    {.section = "replica",
     .name = "id",
     .slot = [](Config& c) -> ConfigSlot { return &c.replica.id; },
     .meaning = "Which of `peers` this scheduler is; 0: it is the only one, and `peers` is empty.",
     .min = 0,
     .max = static_cast<double>(kReplicaIdMax)},
    {.section = "replica",
     .name = "peers",
     .slot = [](Config& c) -> ConfigSlot { return &c.replica.peers; },
     .meaning =
         "All three or five schedulers of the cluster, this one too, as `id=host:port`, the same list on "
         "each; the port is for the links between them. Every call then needs a credential, on loopback "
         "too. Empty: this scheduler is the only one. See [high "
         "availability](../operate/high-availability.md)."},
    {.section = "replica",
     .name = "address",
     .slot = [](Config& c) -> ConfigSlot { return &c.replica.address; },
     .meaning = "Address on which this scheduler listens for the other ones; empty: the host that `peers` "
                "names for it."},
};

/// A host and a port of "host:port" or "[address]:port"; port 0: it is none.
std::pair<std::string, uint16_t> host_and_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  uint16_t port = 0;
  const auto [at, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failed != std::errc{} || at != digits.data() + digits.size()) return {};
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool is_v6 = host.find(':') != std::string_view::npos && IpNetwork::parse(host).has_value() &&
                     host.find('/') == std::string_view::npos;
  if (bracketed ? !is_v6 : !is_host_name(host)) return {};
  return {std::string(host), port};
}

std::optional<ReplicaPeer> parse_replica_peer(std::string_view entry) {
  const std::size_t equals = entry.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  int64_t id = 0;
  const char* const end = entry.data() + equals;
  const auto [at, failed] = std::from_chars(entry.data(), end, id);
  if (failed != std::errc{} || at != end || id < 1 || id > kReplicaIdMax) return std::nullopt;
  auto [host, port] = host_and_port(entry.substr(equals + 1));
  if (port == 0) return std::nullopt;
  return ReplicaPeer{.id = static_cast<uint64_t>(id), .host = std::move(host), .port = port};
}

std::string count_fault(std::size_t count) {
  if (count == 3 || count == 5) return {};
  const std::string lists = "replica.peers lists " + std::to_string(count) + " schedulers; ";
  if (count == 1) return lists + "list three or five, or none";
  if (count % 2 == 0)
    return lists + "an even number survives no more failures than one fewer: list three or five";
  return lists + "list three or five";
}

}  // namespace

std::span<const ConfigKey> replica_config_keys() { return kKeys; }

Result<std::vector<ReplicaPeer>> replica_peers(const Config& config) {
  const auto refuse = [](std::string why) {
    return Error{.code = ErrorCode::kInvalidArgument, .message = std::move(why), .field = "replica.peers"};
  };
  std::vector<ReplicaPeer> peers;
  std::set<uint64_t> ids;
  std::set<std::pair<std::string, uint16_t>> places;
  for (const std::string& entry : config.replica.peers) {
    const std::optional<ReplicaPeer> peer = parse_replica_peer(entry);
    const std::string shown = "replica.peers has the entry \"" + entry.substr(0, kEntryShownMax) + "\"";
    if (!peer) return refuse(shown + "; expected id=host:port, such as 1=scheduler-1.example:7080");
    if (!ids.insert(peer->id).second)
      return refuse(shown + ", and another one with the id " + std::to_string(peer->id) +
                    "; give each scheduler an id of its own");
    if (!places.emplace(peer->host, peer->port).second)
      return refuse(shown + ", and another one with that host and port; each scheduler needs its own");
    peers.push_back(*peer);
  }
  const auto id = static_cast<uint64_t>(config.replica.id);
  if (peers.empty()) {
    if (id == 0) return peers;
    return refuse("replica.id is " + std::to_string(id) +
                  ", and replica.peers is empty; list all schedulers of the cluster there, or remove "
                  "replica.id");
  }
  if (const std::string fault = count_fault(peers.size()); !fault.empty()) return refuse(fault);
  if (!ids.contains(id))
    return refuse("replica.peers has no entry of this scheduler, whose replica.id is " + std::to_string(id) +
                  "; add it, or correct replica.id");
  return peers;
}

}  // namespace gpusched
