#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "host/core/journal_writer.h"
#include "host/core/standby.h"
#include "main/replicas/follower_server.h"
#include "main/replicas/replica_place.h"
#include "main/serve.h"
#include "peers/peer_transport.h"
#include "peers/port_relay.h"
#include "replication/replication_thread.h"

namespace gpusched {

/// Place of this scheduler among its peers.
enum class Place : uint8_t {
  kFollows,  ///< Another one leads, or none.
  kLeads,    ///< This one leads, and its journal has all that was agreed on.
  kLost,     ///< It led and does no more: the process has to start again.
  kAway,     ///< It takes no part: an operator has to act.
};

struct ReplicaNodeOptions {
  Config config;
  std::string data_dir;
  ReplicaPlace at;
  /// Called on a thread of the node's whenever `place` changed.
  std::function<void()> changed;
};

/// This scheduler as one of several: the ordinary journal, the replica, its links to the others, and the
/// relay of its public ports while another one leads. Thread-safe, but for `start` and `stop`.
class ReplicaNode final : public SharedJournal,
                          private ReplicationClient,
                          private peers::PeerTransport::Handler {
 public:
  /// Opens the journals and takes part from now on. Errors of `FileJournal::open`,
  /// `ReplicationThread::start`, `PeerTransport::start` and `PortRelay::start`.
  static Result<std::shared_ptr<ReplicaNode>> start(ReplicaNodeOptions options);
  ~ReplicaNode() override;

  Place place() const;
  /// For people and monitoring.
  ReplicaReport report() const;

  /// Frees the public ports.
  void close_relay();
  /// Tells the others which ports this scheduler serves.
  void tell(const BoundPorts& ports) { transport_->tell(leader_facts(ports)); }

  FileJournal& journal() override { return *journal_; }
  uint64_t term() const override { return place() == Place::kLeads ? thread_->status().term : 0; }
  std::shared_ptr<Standby> standby() override;
  std::vector<std::string> concerns() const override;
  std::unique_ptr<JournalWriter> writer(std::function<void(Result<Unit>)> done) override;

  /// Gives the lead to another one, if this one has it, and returns when it has, or after `patience`.
  void hand_over(Duration patience) { (void)thread_->hand_over(patience); }
  /// Ends everything; both journals are sealed.
  Result<Unit> stop();

 private:
  class Writer;

  explicit ReplicaNode(ReplicaNodeOptions options) : options_(std::move(options)) {}
  Result<Unit> open();
  Result<Unit> open_standby();
  uint64_t id() const { return options_.at.group.id; }
  void follow_leader();
  void change(Place place);

  void send(consensus::PeerFrame frame) override;
  void leads() override;
  void lost_lead() override;
  void leader_changed(uint64_t leader) override;
  void appended(const JournalRecord& record) override;
  void failed(const Error& error) override;
  void received(uint64_t peer, consensus::PeerFrame frame) override;
  void unreachable(uint64_t peer) override;
  void told(uint64_t peer, peers::PeerFacts facts) override;

  const ReplicaNodeOptions options_;
  std::unique_ptr<FileJournal> journal_;
  std::shared_ptr<Standby> standby_;  ///< Until this one leads.
  std::unique_ptr<ReplicationThread> thread_;
  std::unique_ptr<peers::PeerTransport> transport_;
  std::atomic<peers::PeerTransport*> way_out_{nullptr};  ///< The transport, once it is there.
  std::atomic<ReplicationThread*> shortens_{nullptr};    ///< The thread, once it is there.
  std::atomic<Place> place_{Place::kFollows};

  mutable std::mutex mutex_;
  std::unique_ptr<peers::PortRelay> relay_;
  uint64_t leader_ = 0;
  std::map<uint64_t, peers::PeerFacts> facts_;
};

}  // namespace gpusched
