#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "consensus/replica.h"
#include "consensus/testing/memory_log_store.h"

namespace gpusched::consensus {

/// Voters 1 to n, whose messages a test delivers, keeps back or repeats by hand.
class ManualGroup {
 public:
  static constexpr uint64_t kCluster = 77;
  static uint64_t store_id(uint64_t id) { return 1'000 + id; }

  explicit ManualGroup(uint64_t replicas);
  ~ManualGroup();

  Replica& at(uint64_t id);
  MemoryLogStore& disk(uint64_t id);
  /// Data that the replica applied since its start, in order.
  const std::vector<std::string>& applied(uint64_t id) const;
  /// Reads that it was told it may serve, and those that it lost.
  const std::vector<uint64_t>& readable(uint64_t id) const;
  const std::vector<uint64_t>& lost_reads(uint64_t id) const;
  uint64_t installed(uint64_t id) const;

  /// Makes `id` the leader, with the votes of everybody that is not isolated.
  void elect(uint64_t id);
  /// Proposes at `id`, which leads, and delivers until nothing is left.
  void commit(uint64_t id, const std::string& data);
  /// Carries out what is due at `id`; its messages wait.
  Result<Unit> run(uint64_t id);
  void tick(uint64_t id, uint64_t ticks = 1);

  /// Messages that wait, which the group then forgets.
  std::vector<PeerFrame> take();
  /// Delivers one message, whoever is isolated.
  Result<Unit> deliver(const PeerFrame& frame);
  /// Delivers everything, and what follows from it, until nothing waits.
  void settle();
  /// Nothing reaches this replica any more, and nothing of it reaches others.
  void isolate(uint64_t id) { isolated_.insert(id); }
  void join(uint64_t id) { isolated_.erase(id); }

  void stop(uint64_t id);
  /// Starts it; its owner's state holds the entries up to `held`, or up to the snapshot that it took last.
  Result<Unit> start(uint64_t id, uint64_t held = 0);
  /// A new replica with an empty log, which is no member yet.
  void add(uint64_t id);

 private:
  struct Member;
  std::map<uint64_t, std::unique_ptr<Member>> members_;
  std::vector<PeerFrame> waiting_;
  std::set<uint64_t> isolated_;
  Members first_;
};

}  // namespace gpusched::consensus
