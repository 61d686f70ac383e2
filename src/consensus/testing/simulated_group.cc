#include "consensus/testing/simulated_group.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace gpusched::consensus {
namespace {

constexpr uint64_t kCluster = 77;
constexpr uint64_t kHealingSteps = 4'000;
constexpr uint64_t kMembersGrowTo = 5;

std::string value_bytes(uint64_t value) {
  std::string bytes;
  ByteWriter(bytes).fixed64(value);
  return bytes;
}

}  // namespace

struct SimulatedGroup::Node final : public ReplicaClient {
  /// The state machine: a digest of all data in order.
  struct State {
    uint64_t index = 0;
    Digest digest;
  };

  Node(SimulatedGroup& of, uint64_t with_id) : group(of), id(with_id) {}

  void send(PeerFrame frame) override { group.transmit(id, frame); }
  void committed(const Entry& entry) override { group.on_committed(*this, entry); }
  Result<Unit> install(const Snapshot& snapshot) override { return group.on_install(*this, snapshot); }
  void readable(uint64_t read) override { group.on_readable(*this, read); }
  void read_lost(uint64_t read) override { reads.erase(read); }
  void role_changed(const CoreState& now) override { group.on_role(*this, now); }
  void members_changed(const Members& members) override { group.note(members.voters.size()); }

  SimulatedGroup& group;
  const uint64_t id;
  std::unique_ptr<SimulatedDisk> disk;
  std::unique_ptr<Replica> replica;  ///< Null: down.
  State state;
  State durable;  ///< The newest snapshot of the state.
  uint64_t boots = 0;
  bool doomed = false;                 ///< Crashes as soon as it has sent what it sends.
  uint64_t up_at = 0;                  ///< Step of the next start, while it is down.
  std::map<uint64_t, uint64_t> reads;  ///< Open reads, and what they must see.
};

SimulatedGroup::SimulatedGroup(const SimulationOptions& options) : options_(options), draw_(options.seed) {
  for (uint64_t id = 1; id <= options_.replicas; ++id) {
    first_members_.voters.push_back(id);
    first_members_.stores.push_back({.id = id, .store = 1'000 + id});
  }
  first_members_.id_max = options_.replicas;
  next_id_ = options_.replicas + 1;
  for (uint64_t id = 1; id <= options_.replicas; ++id) add_node(id);
}

SimulatedGroup::~SimulatedGroup() = default;

void SimulatedGroup::add_node(uint64_t id) {
  auto node = std::make_unique<Node>(*this, id);
  if (options_.make_disk) {
    node->disk = options_.make_disk(draw_.next());
  } else {
    auto disk = std::make_unique<MemoryLogStore>();
    disk->lies = options_.bugs.store;
    node->disk = std::move(disk);
  }
  const Result<LogStore*> store = node->disk->open();
  CHECK(store.ok());
  CHECK((*store)->create({.cluster = kCluster, .replica = id, .store = 1'000 + id}, first_members_).ok());
  start_node(*node);
  nodes_.emplace(id, std::move(node));
}

void SimulatedGroup::start_node(Node& node) {
  ++node.boots;
  node.state = node.durable;
  const ReplicaOptions options = {.cluster = kCluster,
                                  .core = {.id = node.id,
                                           .boot = node.boots,
                                           .seed = options_.seed,
                                           .message_bytes_max = 64,
                                           .messages_in_flight_max = 4,
                                           .uncommitted_bytes_max = 1'024,
                                           .committed_bytes_max = 64},
                                  .behind_max = 5,
                                  .held = node.durable.index};
  const Result<LogStore*> store = node.disk->open();
  if (!store) {
    fail("the disk of replica " + std::to_string(node.id) + " does not open: " + store.error().message);
    return;
  }
  Result<std::unique_ptr<Replica>> started = Replica::start(options, **store, node);
  if (!started) {
    fail("replica " + std::to_string(node.id) + " does not start: " + started.error().message);
    return;
  }
  node.replica = std::move(*started);
}

void SimulatedGroup::crash(Node& node) {
  ++report_.crashes;
  node.replica.reset();
  node.reads.clear();
  node.disk->lose_power(draw_);
  node.doomed = false;
  // One that is back at once is asked again for what it may have forgotten.
  node.up_at = now_ + (draw_.chance(500) ? draw_.below(60) : draw_.below(4));
}

void SimulatedGroup::run_node(Node& node) {
  if (node.replica == nullptr) return;
  const Result<Unit> run = node.replica->run();
  if (!run || node.doomed) crash(node);
}

void SimulatedGroup::fail(const std::string& what) {
  if (report_.violation.empty()) report_.violation = "step " + std::to_string(now_) + ": " + what;
}

SimulatedGroup::Node* SimulatedGroup::leader() {
  Node* found = nullptr;
  for (auto& [id, node] : nodes_) {
    if (node->replica == nullptr || node->replica->state().role != Role::kLeader) continue;
    // Clients find any of several leaders, each in a term of its own.
    if (found == nullptr || draw_.chance(500)) found = node.get();
  }
  return found;
}

SimulatedGroup::Node* SimulatedGroup::any_up() {
  auto it = nodes_.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(draw_.below(nodes_.size())));
  return it->second->replica == nullptr ? nullptr : it->second.get();
}

void SimulatedGroup::transmit(uint64_t from, const PeerFrame& frame) {
  const uint64_t to = frame.message.to;
  const bool snapshot = frame.message.kind == MessageKind::kSnapshot;
  const bool grants = frame.message.kind == MessageKind::kVoteAnswer && !frame.message.reject;
  if (grants && faults_ && draw_.chance(300)) nodes_.at(from)->doomed = true;
  const bool lost = cut_.contains({from, to}) || draw_.chance(static_cast<uint32_t>(loss_per_mille_));
  if (lost) {
    if (options_.bugs.acknowledges_for_others) forge_answer(frame);
    // The sender's transport notices that sooner or later.
    if (snapshot) later_report(from, to);
    return;
  }
  const uint64_t copies = faults_ && draw_.chance(50) ? 2 : 1;
  for (uint64_t i = 0; i < copies; ++i) {
    const uint64_t delay = faults_ && draw_.chance(100) ? draw_.below(40) : draw_.below(3);
    flights_.push_back(
        {.at = now_ + 1 + delay, .from = from, .to = to, .bytes = encode_frame(frame), .snapshot = snapshot});
  }
}

void SimulatedGroup::later_report(uint64_t from, uint64_t to) {
  flights_.push_back({.at = now_ + 20, .from = to, .to = from, .bytes = {}, .snapshot = true});
}

void SimulatedGroup::forge_answer(const PeerFrame& frame) {
  const PeerMessage& append = frame.message;
  if (append.kind != MessageKind::kAppend || append.entries.empty()) return;
  PeerFrame answer{.cluster = kCluster, .from_store = 1'000 + append.to, .to_store = frame.from_store};
  answer.message.kind = MessageKind::kAppendAnswer;
  answer.message.from = append.to;
  answer.message.to = append.from;
  answer.message.term = append.term;
  answer.message.index = append.entries.back().index;
  flights_.push_back({.at = now_ + 1,
                      .from = append.to,
                      .to = append.from,
                      .bytes = encode_frame(answer),
                      .snapshot = false});
}

void SimulatedGroup::deliver() {
  std::deque<Flight> due;
  std::deque<Flight> later;
  for (Flight& flight : flights_) (flight.at <= now_ ? due : later).push_back(std::move(flight));
  flights_ = std::move(later);
  for (const Flight& flight : due) {
    const auto to = nodes_.find(flight.to);
    if (to == nodes_.end() || to->second->replica == nullptr) {
      if (flight.snapshot && !flight.bytes.empty()) later_report(flight.from, flight.to);
      continue;
    }
    Node& node = *to->second;
    if (flight.bytes.empty()) {
      node.replica->snapshot_sent(flight.from, false);
      run_node(node);
      continue;
    }
    const Result<PeerFrame> frame = decode_frame(flight.bytes);
    CHECK(frame.ok());
    note(frame->message.term);
    note(static_cast<uint64_t>(frame->message.kind));
    const Result<Unit> received = node.replica->receive(*frame);
    if (!received) {
      ++report_.refused;
      if (received.error().code == ErrorCode::kCorrupt) fail(received.error().message);
    }
    run_node(node);
    if (!flight.snapshot) continue;
    const auto sender = nodes_.find(flight.from);
    if (sender == nodes_.end() || sender->second->replica == nullptr) continue;
    sender->second->replica->snapshot_sent(flight.to, received.ok());
    run_node(*sender->second);
  }
}

void SimulatedGroup::inject_faults() {
  if (draw_.chance(8)) {
    if (Node* node = any_up()) {
      if (draw_.chance(500)) {
        crash(*node);
      } else {
        node->disk->fail_after(draw_.below(6), draw_.chance(500));
      }
    }
  }
  if (draw_.chance(10)) {
    cut_.clear();
    const uint64_t kind = draw_.below(4);
    for (const auto& [from, sender] : nodes_) {
      for (const auto& [to, receiver] : nodes_) {
        if (from == to) continue;
        if (kind == 0) continue;                              // Whole again.
        const bool half = (from % 2 == 0) != (to % 2 == 0);   // Two halves.
        const bool one_way = kind == 2 && draw_.chance(300);  // Some links in one direction.
        const bool alone = kind == 3 && (from == 1 + now_ % nodes_.size() || to == 1 + now_ % nodes_.size());
        if ((kind == 1 && half) || one_way || alone) cut_.insert({from, to});
      }
    }
  }
  if (draw_.chance(10)) loss_per_mille_ = draw_.chance(500) ? 0 : draw_.below(300);
}

void SimulatedGroup::use_clients() {
  if (Node* node = leader(); node != nullptr && draw_.chance(300)) {
    (void)node->replica->propose(value_bytes(next_value_++));
    run_node(*node);
  }
  if (Node* node = any_up(); node != nullptr && draw_.chance(200)) {
    const Result<uint64_t> read = node->replica->read();
    if (read) node->reads[*read] = applied_max_;
    run_node(*node);
  }
  if (options_.bugs.reads_without_asking) {
    if (Node* node = leader(); node != nullptr && node->state.index < applied_max_) {
      fail("a read saw less than was applied before it");
    }
  }
  if (Node* node = any_up(); node != nullptr && draw_.chance(15)) {
    take_snapshot(*node);
  }
  if (Node* node = leader(); node != nullptr && draw_.chance(20)) {
    (void)node->replica->transfer(1 + draw_.below(next_id_ - 1));
    run_node(*node);
  }
}

void SimulatedGroup::take_snapshot(Node& node) {
  node.durable = node.state;
  if (!node.replica->compact(value_bytes(node.state.digest.value()))) crash(node);
}

void SimulatedGroup::change_members() {
  Node* node = leader();
  if (node == nullptr || !draw_.chance(15)) return;
  const Members members = node->replica->members();
  if (!members.learners.empty()) {
    const uint64_t id = members.learners.front();
    std::vector<MemberChange> changes = {{.kind = ChangeKind::kAddVoter, .id = id, .store = 1'000 + id}};
    // A replacement: one comes and another one goes, together.
    if (draw_.chance(500)) changes.push_back({.kind = ChangeKind::kRemove, .id = members.voters.front()});
    (void)node->replica->propose_members(changes);
  } else if (members.voters.size() < kMembersGrowTo && draw_.chance(500) && next_id_ < 15) {
    const uint64_t id = next_id_++;
    add_node(id);
    (void)node->replica->propose_members({{.kind = ChangeKind::kAddLearner, .id = id, .store = 1'000 + id}});
  } else if (members.voters.size() > 3) {
    const uint64_t id = members.voters[draw_.below(members.voters.size())];
    if (node->replica->propose_members({{.kind = ChangeKind::kRemove, .id = id}})) ++report_.removed;
  }
  run_node(*node);
}

void SimulatedGroup::step() {
  ++now_;
  for (auto& [id, node] : nodes_) {
    if (node->replica == nullptr && now_ >= node->up_at) start_node(*node);
    // Clocks run at their own speed.
    if (node->replica != nullptr && draw_.chance(330)) {
      node->replica->tick();
      run_node(*node);
    }
  }
  deliver();
  for (auto& [id, node] : nodes_) {
    // A new member needs a snapshot that knows it.
    if (node->replica != nullptr && node->replica->wants_snapshot()) take_snapshot(*node);
  }
}

SimulationReport SimulatedGroup::run() {
  while (now_ < options_.steps && report_.violation.empty()) {
    inject_faults();
    step();
    use_clients();
    if (options_.changes_members) change_members();
  }
  if (report_.violation.empty()) heal_and_check();
  report_.committed = history_.size();
  report_.trace = trace_.value();
  return report_;
}

void SimulatedGroup::heal_and_check() {
  faults_ = false;
  cut_.clear();
  loss_per_mille_ = 0;
  for (auto& [id, node] : nodes_) {
    node->disk->heal();
    node->up_at = now_;
  }
  const uint64_t end = now_ + kHealingSteps;
  const uint64_t before = applied_max_;
  while (now_ < end && report_.violation.empty()) {
    step();
    Node* node = leader();
    if (node == nullptr) continue;
    // A proposal of a leader's last step is lost with it: propose until one is committed.
    if (applied_max_ == before && now_ % 20 == 0) (void)node->replica->propose(value_bytes(next_value_++));
    run_node(*node);
    bool converged = applied_max_ > before;
    const Members& members = node->replica->members();
    for (const uint64_t id : members.voters) {
      const Node& voter = *nodes_.at(id);
      converged = converged && voter.replica != nullptr && voter.state.index >= applied_max_ &&
                  voter.replica->state().leader == node->id;
    }
    if (converged && !node->replica->state().joint) return;
  }
  fail("the group did not come together after the faults ended");
}

void SimulatedGroup::on_committed(Node& node, const Entry& entry) {
  note(entry.index);
  const auto [known, first] = history_.try_emplace(entry.index, entry);
  if (known->second != entry) fail("entry " + std::to_string(entry.index) + " differs between replicas");
  if (entry.index <= node.state.index) fail("an entry was handed out twice");
  node.state.digest.mix(entry.data);
  node.state.index = entry.index;
  const auto [digest, new_one] = digest_after_.try_emplace(entry.index, node.state.digest.value());
  if (digest->second != node.state.digest.value()) {
    fail("the states differ at entry " + std::to_string(entry.index));
  }
  if (first && entry.index < applied_max_) fail("a new entry appeared before an applied one");
  applied_max_ = std::max(applied_max_, entry.index);
}

Result<Unit> SimulatedGroup::on_install(Node& node, const Snapshot& snapshot) {
  ++report_.installed;
  ByteReader in(snapshot.data);
  const uint64_t digest = in.fixed64();
  if (snapshot.index < node.state.index) fail("a snapshot took a state back");
  node.state = {.index = snapshot.index, .digest = Digest(digest)};
  node.durable = node.state;
  return Unit{};
}

void SimulatedGroup::on_readable(Node& node, uint64_t read) {
  const auto it = node.reads.find(read);
  if (it == node.reads.end()) return;
  ++report_.reads;
  if (node.state.index < it->second) fail("a read saw less than was applied before it");
  node.reads.erase(it);
}

void SimulatedGroup::on_role(Node& node, const CoreState& state) {
  note(static_cast<uint64_t>(state.role));
  if (state.role != Role::kLeader) return;
  ++report_.elections;
  const auto [it, first] = leader_of_term_.try_emplace(state.hard_state.term, node.id);
  if (!first && it->second != node.id) {
    fail("replicas " + std::to_string(it->second) + " and " + std::to_string(node.id) + " both lead term " +
         std::to_string(state.hard_state.term));
  }
}

}  // namespace gpusched::consensus
