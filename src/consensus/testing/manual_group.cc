#include "consensus/testing/manual_group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpusched::consensus {

struct ManualGroup::Member final : public ReplicaClient {
  explicit Member(ManualGroup& of) : group(of) {}

  void send(PeerFrame frame) override { group.waiting_.push_back(std::move(frame)); }
  void committed(const Entry& entry) override { applied.push_back(entry.data); }
  Result<Unit> install(const Snapshot& snapshot) override {
    ++installed;
    held = snapshot.index;
    return Unit{};
  }
  void readable(uint64_t read) override { reads.push_back(read); }
  void read_lost(uint64_t read) override { lost.push_back(read); }
  void role_changed(const CoreState&) override {}
  void members_changed(const Members&) override {}

  ManualGroup& group;
  MemoryLogStore disk;
  std::unique_ptr<Replica> replica;
  std::vector<std::string> applied;
  std::vector<uint64_t> reads;
  std::vector<uint64_t> lost;
  uint64_t installed = 0;
  uint64_t held = 0;
  uint64_t boots = 0;
};

ManualGroup::ManualGroup(uint64_t replicas) {
  for (uint64_t id = 1; id <= replicas; ++id) {
    first_.voters.push_back(id);
    first_.stores.push_back({.id = id, .store = store_id(id)});
  }
  first_.id_max = replicas;
  for (uint64_t id = 1; id <= replicas; ++id) add(id);
}

ManualGroup::~ManualGroup() = default;

void ManualGroup::add(uint64_t id) {
  auto member = std::make_unique<Member>(*this);
  CHECK(member->disk.create({.cluster = kCluster, .replica = id, .store = store_id(id)}, first_).ok());
  members_.emplace(id, std::move(member));
  CHECK(start(id).ok());
}

Replica& ManualGroup::at(uint64_t id) { return *members_.at(id)->replica; }
MemoryLogStore& ManualGroup::disk(uint64_t id) { return members_.at(id)->disk; }
const std::vector<std::string>& ManualGroup::applied(uint64_t id) const { return members_.at(id)->applied; }
const std::vector<uint64_t>& ManualGroup::readable(uint64_t id) const { return members_.at(id)->reads; }
const std::vector<uint64_t>& ManualGroup::lost_reads(uint64_t id) const { return members_.at(id)->lost; }
uint64_t ManualGroup::installed(uint64_t id) const { return members_.at(id)->installed; }

void ManualGroup::stop(uint64_t id) {
  members_.at(id)->replica.reset();
  CHECK(disk(id).sync().ok());  // The system writes what a process leaves behind.
}

Result<Unit> ManualGroup::start(uint64_t id, uint64_t held) {
  Member& member = *members_.at(id);
  member.held = std::max(member.held, held);
  member.applied.clear();
  Result<std::unique_ptr<Replica>> started = Replica::start(
      {.cluster = kCluster, .core = {.id = id, .boot = ++member.boots, .seed = 1}, .held = member.held},
      member.disk, member);
  if (!started) return started.error();
  member.replica = std::move(*started);
  return Unit{};
}

Result<Unit> ManualGroup::run(uint64_t id) { return at(id).run(); }

void ManualGroup::tick(uint64_t id, uint64_t ticks) {
  for (uint64_t i = 0; i < ticks; ++i) {
    at(id).tick();
    CHECK(run(id).ok());
  }
}

void ManualGroup::elect(uint64_t id) {
  // Who heard of a leader lately grants no vote.
  for (const auto& [other, member] : members_) {
    if (member->replica && other != id && !isolated_.contains(other)) tick(other, 10);
  }
  (void)take();
  at(id).campaign();
  CHECK(run(id).ok());
  settle();
  tick(id);
  settle();
  CHECK(at(id).state().role == Role::kLeader);
}

void ManualGroup::commit(uint64_t id, const std::string& data) {
  CHECK(at(id).propose(data).ok());
  CHECK(run(id).ok());
  settle();
  tick(id);
  settle();
}

std::vector<PeerFrame> ManualGroup::take() { return std::exchange(waiting_, {}); }

Result<Unit> ManualGroup::deliver(const PeerFrame& frame) {
  const uint64_t to = frame.message.to;
  if (!members_.contains(to) || !members_.at(to)->replica) return Unit{};
  const Result<Unit> received = at(to).receive(frame);
  CHECK(run(to).ok());
  return received;
}

void ManualGroup::settle() {
  while (!waiting_.empty()) {
    for (const PeerFrame& frame : take()) {
      if (isolated_.contains(frame.message.from) || isolated_.contains(frame.message.to)) continue;
      (void)deliver(frame);
      const bool snapshot = frame.message.kind == MessageKind::kSnapshot;
      if (snapshot && members_.at(frame.message.from)->replica) {
        at(frame.message.from).snapshot_sent(frame.message.to, true);
        CHECK(run(frame.message.from).ok());
      }
    }
  }
}

}  // namespace gpusched::consensus
