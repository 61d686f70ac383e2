#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/ip_network.h"
#include "base/time.h"

namespace gpusched::api {

/// Addresses of machines that have an agent, where jobs run: those that agents called from, and, once one of
/// them is on the scheduler's own machine, all of that machine's. Kept over restarts in a small file, a line
/// for each. Thread-safe.
class NodeAddresses {
 public:
  /// Numeric addresses of this machine, as now.
  using OwnAddresses = std::function<std::vector<IpAddress>()>;

  /// `path`: the file; empty: nothing is kept. `own`: for tests; null: the machine's interfaces are asked. A
  /// file that cannot be read costs a warning; lines that say nothing are skipped.
  explicit NodeAddresses(std::string path, OwnAddresses own = nullptr);

  /// The node's agent proved who it is from that address: a numeric one; any other text, such as that of a
  /// Unix socket, and loopback: this machine. A node keeps its newest `kPerNode` addresses.
  void add(const std::string& node, std::string_view address);
  /// The node was removed: nothing runs there for this scheduler any more.
  void forget(const std::string& node);
  bool is_node(const IpAddress& address) const;

  static constexpr std::size_t kPerNode = 32;

 private:
  void read();
  void note(const std::string& line) const;
  void rewrite() const;
  bool take(const std::string& node, const std::string& address);
  bool remove(const std::string& node);
  void count(const std::string& address, int by);
  void look_at_machine(Time now) const;

  const std::string path_;
  const OwnAddresses own_;
  mutable std::mutex mutex_;  // Guards all below.
  std::map<std::string, std::vector<std::string>, std::less<>>
      nodes_;                            ///< Oldest first; "local": this machine.
  std::map<IpAddress, int> counts_;      ///< Nodes at each numeric address.
  int locals_ = 0;                       ///< Nodes on this machine.
  mutable std::set<IpAddress> machine_;  ///< Its own, as last looked up.
  mutable Time looked_at_;
};

}  // namespace gpusched::api
