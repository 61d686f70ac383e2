#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "host/core/interfaces.h"
#include "model/state.h"

/// Orders to start attempts. All members of a gang are told of all others, so what they have in common is
/// packed once and kept once, however many agents it waits for.
namespace gpusched {

/// Part that all members of an attempt have alike: `common` of StartMembers, or a StartAttempt without the
/// rest.
v1::StartAttempt common_start(const State& state, const Attempt& attempt, Duration grace, Duration lease);

/// Part of one member. Nothing when its agent no longer has one of the devices; its registration then settles
/// the attempt. `index_of` gives the agent's number of a device's slot.
using AgentIndex = std::function<std::optional<uint32_t>(uint32_t slot)>;
std::optional<v1::StartAttempt> member_start(const State& state, const Attempt& attempt, uint32_t member,
                                             const AgentIndex& index_of);

/// The packed common parts of the attempts that were ordered last.
class SharedStarts {
 public:
  using Make = std::function<v1::StartAttempt()>;

  /// `by_node` chooses the form: for agents that take StartMembers, or for older ones.
  SharedPart part_of(const AttemptKey& attempt, Time placed_at, bool by_node, const Make& make);
  /// The job's orders have changed.
  void forget(JobId job);
  /// An agent registered: where gangs reach its node may be another address now.
  void node_registered(NodeId node, const std::string& address);
  std::size_t size() const { return parts_.size(); }

 private:
  struct Entry {
    AttemptKey attempt;
    Time placed_at;
    bool by_node = false;
    SharedPart part;
  };
  std::deque<Entry> parts_;  ///< The newest last.
  std::map<NodeId, std::string> addresses_;
};

/// Attempts whose agents are not all told yet, a bounded number of agents at a time.
class PendingStarts {
 public:
  /// False: this attempt is over, forget the rest of it.
  using Tell =
      std::function<bool(const AttemptKey&, Time placed_at, NodeId, const std::vector<uint32_t>& members)>;

  void add(const Attempt& attempt);
  bool empty() const { return attempts_.empty(); }
  /// Tells at most `agents` of them.
  void tell(std::size_t agents, const Tell& tell_one);

 private:
  struct Entry {
    AttemptKey attempt;
    Time placed_at;
    std::vector<std::pair<NodeId, std::vector<uint32_t>>> nodes;
    std::size_t next = 0;
  };
  std::deque<Entry> attempts_;
};

}  // namespace gpusched
