#include "main/replicas/replica_node.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "host/core/data_folder.h"
#include "log/log.h"

namespace gpusched {
namespace {

/// As of a failed write of a scheduler alone: what became of the bytes is unknown, only a restart can tell.
constexpr int kExitWriteFailed = 74;
constexpr int kExitStateDiffers = 70;
constexpr Duration kHandOverPatience = seconds(1);

bool is_write_failure(const Error& error) {
  return error.code == ErrorCode::kIo || error.code == ErrorCode::kOutcomeUnknown ||
         error.code == ErrorCode::kStorageFull;
}

const char* role_word(consensus::Role role) {
  switch (role) {
    case consensus::Role::kFollower:
      return "follower";
    case consensus::Role::kPreCandidate:
    case consensus::Role::kCandidate:
      return "candidate";
    case consensus::Role::kLeader:
      return "leader";
  }
  UNREACHABLE();
}

[[noreturn]] void end_after_difference(const Error& error) {
  log_event(LogLevel::kError, "scheduler", "state_differs", {}, {{"error", error.message}});
  log_flush();
  std::fprintf(
      stderr,
      "gpu-scheduler: this scheduler comes to another state than the one that leads: %s; exiting: the next "
      "start rebuilds it from the journal. Report this, and check the machine's memory\n",
      error.message.c_str());
  std::_Exit(kExitStateDiffers);
}

[[noreturn]] void end_after_failed_write(const Error& error) {
  log_event(LogLevel::kError, "journal", "write_failed", {}, {{"error", error.message}});
  log_flush();
  std::fprintf(stderr,
               "gpu-scheduler: writing the replicated log failed: %s; exiting, because it is unknown which "
               "records are durable\n",
               error.message.c_str());
  std::_Exit(kExitWriteFailed);
}

}  // namespace

/// The host's way to the journal of all: a group is durable when the replicas agreed on it.
class ReplicaNode::Writer final : public JournalWriter {
 public:
  Writer(ReplicaNode& node, std::function<void(Result<Unit>)> done) : node_(node), done_(std::move(done)) {}

  void start(DurableGroup group) override {
    thread().propose({.position = group.position,
                      .first_sequence = group.first_sequence,
                      .command_count = group.command_count},
                     std::move(group.payload), [this](Result<Unit> result) {
                       if (!result && result.error().code == ErrorCode::kOutcomeUnknown)
                         result = Error{.code = ErrorCode::kLocked, .message = result.error().message};
                       done_(std::move(result));
                     });
  }
  JournalSpace space() const override {
    return std::max(limit_.load(std::memory_order_relaxed), thread().space());
  }
  std::size_t payload_max() const override { return thread().payload_max(); }
  void hold(JournalSpace limit) override { limit_.store(limit, std::memory_order_relaxed); }
  uint64_t sync_count() const override { return thread().commit_count(); }
  Duration sync_time() const override { return thread().commit_time(); }
  std::string space_reason() const override { return thread().space_reason(); }
  void compact_before(uint64_t position) override { thread().compact_before(position); }
  void hand_over() override { (void)thread().hand_over(kHandOverPatience); }
  Result<Unit> stop(bool) override { return Unit{}; }  // The node seals both journals.

 private:
  ReplicationThread& thread() const { return *node_.thread_; }

  ReplicaNode& node_;
  const std::function<void(Result<Unit>)> done_;
  std::atomic<JournalSpace> limit_{JournalSpace::kOpen};
};

Result<std::shared_ptr<ReplicaNode>> ReplicaNode::start(ReplicaNodeOptions options) {
  std::shared_ptr<ReplicaNode> node(new ReplicaNode(std::move(options)));
  const Result<Unit> opened = node->open();
  if (!opened) return opened.error();
  return node;
}

ReplicaNode::~ReplicaNode() {
  standby().reset();
  thread_.reset();
  if (transport_ != nullptr) transport_->stop();
}

Result<Unit> ReplicaNode::open_standby() {
  Result<std::unique_ptr<Standby>> standby =
      Standby::open(host_options(options_.config, options_.data_dir), *this,
                    {.differs = [](const Error& error) { end_after_difference(error); },
                     .committed =
                         [this](uint64_t position) {
                           if (ReplicationThread* const thread = shortens_.load())
                             thread->compact_before(position);
                         }});
  if (!standby) return standby.error();
  standby_ = std::move(*standby);
  return Unit{};
}

std::shared_ptr<Standby> ReplicaNode::standby() {
  const std::lock_guard lock(mutex_);
  return std::exchange(standby_, nullptr);
}

void ReplicaNode::appended(const JournalRecord& record) {
  const std::lock_guard lock(mutex_);
  if (standby_ != nullptr) standby_->follow(record);
}

std::vector<std::string> ReplicaNode::concerns() const { return absent_replicas(transport_->statuses()); }

Result<Unit> ReplicaNode::open() {
  Result<std::unique_ptr<FileJournal>> journal =
      FileJournal::open(options_.data_dir + "/journal",
                        ordinary_journal_options(host_options(options_.config, options_.data_dir)));
  if (!journal) return journal.error();
  journal_ = std::move(*journal);
  if (const Result<Unit> stands_by = open_standby(); !stands_by) return stands_by;
  // First: from its start on the thread may tell of a leader.
  Result<std::unique_ptr<peers::PortRelay>> relay = peers::PortRelay::start(relay_options(options_.config));
  if (!relay) return relay.error();
  relay_ = std::move(*relay);
  Result<std::unique_ptr<ReplicationThread>> thread = ReplicationThread::start(
      {.data_dir = options_.data_dir, .cluster = options_.at.group.cluster, .id = id()}, *journal_, *this);
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  shortens_ = thread_.get();
  Result<std::unique_ptr<peers::PeerTransport>> transport =
      peers::PeerTransport::start(options_.at.transport, *this);
  if (!transport) return transport.error();
  transport_ = std::move(*transport);
  transport_->tell(follower_facts());
  way_out_ = transport_.get();
  return Unit{};
}

Place ReplicaNode::place() const { return place_.load(); }

ReplicaReport ReplicaNode::report() const {
  const ReplicaStatus status = thread_->status();
  ReplicaReport report{.id = id(),
                       .role = role_word(status.role),
                       .leader = status.leader,
                       .term = status.term,
                       .commit = status.commit,
                       .applied = status.applied,
                       .elections = status.elections,
                       .trouble = status.trouble,
                       .peers = transport_->statuses()};
  const std::lock_guard lock(mutex_);
  if (relay_ != nullptr) report.relay = relay_->counts();
  return report;
}

void ReplicaNode::close_relay() {
  std::unique_ptr<peers::PortRelay> relay;
  {
    const std::lock_guard lock(mutex_);
    relay = std::move(relay_);
  }
  if (relay != nullptr) relay->stop();
}

std::unique_ptr<JournalWriter> ReplicaNode::writer(std::function<void(Result<Unit>)> done) {
  return std::make_unique<Writer>(*this, std::move(done));
}

Result<Unit> ReplicaNode::stop() {
  close_relay();
  way_out_ = nullptr;
  transport_->stop();
  standby().reset();
  return thread_->stop();
}

void ReplicaNode::change(Place place) {
  place_ = place;
  options_.changed();
}

/// Connections go where the replica says that the leader is, once that one serves.
void ReplicaNode::follow_leader() {
  const std::lock_guard lock(mutex_);
  if (relay_ == nullptr) return;
  const auto facts = facts_.find(leader_);
  if (leader_ == id() || facts == facts_.end() || facts->second.http == 0)
    return relay_->follow(std::nullopt);
  relay_->follow(peers::PortRelay::Leader{.host = options_.at.host_of(leader_), .facts = facts->second});
}

void ReplicaNode::send(consensus::PeerFrame frame) {
  if (peers::PeerTransport* const transport = way_out_.load()) transport->send(std::move(frame));
}

void ReplicaNode::leads() {
  log_event(LogLevel::kInfo, "replica", "elected", {}, {{"replica", id()}});
  change(Place::kLeads);
}

void ReplicaNode::lost_lead() {
  log_event(LogLevel::kWarning, "replica", "lost_lead", {}, {{"replica", id()}});
  if (peers::PeerTransport* const transport = way_out_.load()) transport->tell(follower_facts());
  change(Place::kLost);
}

void ReplicaNode::leader_changed(uint64_t leader) {
  log_event(LogLevel::kInfo, "replica", "leader_changed", {}, {{"leader", leader}, {"replica", id()}});
  {
    const std::lock_guard lock(mutex_);
    leader_ = leader;
  }
  follow_leader();
}

void ReplicaNode::failed(const Error& error) {
  if (is_write_failure(error) || place() == Place::kLeads) end_after_failed_write(error);
  change(Place::kAway);
}

void ReplicaNode::received(uint64_t, consensus::PeerFrame frame) { thread_->received(std::move(frame)); }

void ReplicaNode::unreachable(uint64_t peer) { thread_->unreachable(peer); }

void ReplicaNode::told(uint64_t peer, peers::PeerFacts facts) {
  {
    const std::lock_guard lock(mutex_);
    facts_[peer] = std::move(facts);
  }
  follow_leader();
}

}  // namespace gpusched
