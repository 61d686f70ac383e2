#include "main/replicas/replica_process.h"

#include <signal.h>

#include <chrono>
#include <memory>

#include "log/log.h"
#include "main/own_certificate.h"
#include "main/replicas/follower_server.h"
#include "main/replicas/replica_node.h"
#include "main/replicas/replica_place.h"
#include "main/replicas/start_again.h"
#include "main/serve.h"
#include "main/supervise.h"

namespace gpusched {
namespace {

/// Answers that are under way get so long when the lead was lost.
constexpr Duration kFarewell = milliseconds(300);
constexpr Duration kGiveAwayWithin = seconds(1);

constexpr std::chrono::hours kRenewEvery(1);
constexpr Duration kLookEvery = minutes(10);

class ReplicaProcess {
 public:
  ReplicaProcess(const ConfigInputs& inputs, const Config& config, const std::string& data_dir,
                 const ReplicaPlace& at, const ServiceNotifier& manager)
      : inputs_(inputs), config_(config), data_dir_(data_dir), at_(at), manager_(manager) {}

  /// Returns the exit status.
  Result<int> run();

 private:
  Result<Unit> open();
  /// Returns the signal that ends the process; 0: this replica leads.
  int follow();
  /// For a certificate that grows old while another one leads for months.
  void renew_certificate();
  /// Returns the signal that ends the process.
  Result<int> lead();
  int end(int signal);

  const ConfigInputs& inputs_;
  const Config& config_;
  const std::string& data_dir_;
  const ReplicaPlace& at_;
  const ServiceNotifier& manager_;
  std::shared_ptr<ReplicaNode> node_;
  std::shared_ptr<sign::TlsServer> tls_;             ///< TLS of the follower's own port; none: plain.
  std::unique_ptr<FollowerServer> follower_server_;  ///< Null: metrics are off.
};

Result<Unit> ReplicaProcess::open() {
  if (config_.api.enable_tls) {
    Result<std::shared_ptr<const sign::TlsIdentity>> identity = current_identity(config_, data_dir_);
    if (!identity) return identity.error();
    tls_ = std::make_shared<sign::TlsServer>(std::move(*identity));
  }
  Result<std::shared_ptr<ReplicaNode>> node = ReplicaNode::start(
      {.config = config_, .data_dir = data_dir_, .at = at_, .changed = tell_place_changed});
  if (!node) return node.error();
  node_ = std::move(*node);
  Result<std::unique_ptr<FollowerServer>> server =
      FollowerServer::start(config_, tls_, [this] { return node_->report(); });
  if (!server) return server.error();
  follower_server_ = std::move(*server);
  return Unit{};
}

void ReplicaProcess::renew_certificate() {
  if (tls_ == nullptr) return;
  const Result<bool> made = renew_own_certificate(config_, data_dir_);
  if (made && !*made) return;
  Result<std::shared_ptr<const sign::TlsIdentity>> identity =
      made ? sign::TlsIdentity::load(tls_files(config_, data_dir_)) : made.error();
  if (identity) return tls_->exchange(std::move(*identity));
  log_event(LogLevel::kError, "scheduler", "certificate_not_renewed", {},
            {{"why", identity.error().message}});
}

Result<int> ReplicaProcess::run() {
  const Result<Unit> opened = open();
  if (!opened) return opened.error();
  if (const int signal = follow(); signal != 0) return end(signal);
  const Result<int> signal = lead();
  if (signal) return end(*signal);
  node_->hand_over(kGiveAwayWithin);  // Whatever keeps this one from serving may be another's no trouble.
  (void)end(0);
  return signal.error();
}

int ReplicaProcess::follow() {
  manager_.ready("following the leader of several schedulers");
  const Duration beat = manager_.keep_alive_every();
  auto renewed_at = std::chrono::steady_clock::now();
  while (true) {
    if (beat.ns > 0) manager_.keep_alive();
    if (const auto now = std::chrono::steady_clock::now(); now - renewed_at >= kRenewEvery) {
      renewed_at = now;
      renew_certificate();
    }
    switch (node_->place()) {
      case Place::kLeads:
        return 0;
      case Place::kLost:
        start_again();
      case Place::kAway:
        manager_.status(node_->report().trouble);
        break;
      case Place::kFollows:
        break;
    }
    const int signal = wait_for_signal(beat.ns > 0 ? beat : kLookEvery);
    if (signal == SIGHUP) {
      manager_.reloading();
      manager_.ready("following; a new configuration takes effect at the next start");
    } else if (signal == SIGINT || signal == SIGTERM) {
      manager_.stopping();
      return signal;
    }
  }
}

Result<int> ReplicaProcess::lead() {
  manager_.status("recovering " + data_dir_);
  const auto free_ports = [this] {
    node_->close_relay();
    follower_server_.reset();
  };
  const LeaderSeat seat{
      .journal = node_,
      .free_ports = free_ports,
      .health = [this] { return health_json(node_->report()); },
      .metrics = [this] { return replica_metrics(node_->report(), config_.metrics.name_space); }};
  const Result<std::unique_ptr<Service>> service = Service::start(config_, data_dir_, &seat);
  if (!service) return service.error();
  node_->tell((*service)->ports());
  Reloader reloader(inputs_, config_);
  while (true) {
    if (node_->place() == Place::kLost) {
      log_event(LogLevel::kWarning, "scheduler", "lead_lost", {},
                {{"did", "every open request was answered; this process starts again and follows"}});
      (*service)->close_doors(kFarewell);
      start_again();
    }
    const int signal = supervise(**service, manager_, [&] { return reloader.reload(**service); });
    if (signal == place_signal()) continue;
    const EndsOnSignal second_ends_at_once;
    log_event(LogLevel::kInfo, "scheduler", "scheduler_stopping", {}, {{"signal", signal}});
    (*service)->stop();
    return signal;
  }
}

int ReplicaProcess::end(int signal) {
  log_event(LogLevel::kInfo, "replica", "replica_stopping", {}, {{"signal", signal}});
  follower_server_.reset();
  const Result<Unit> sealed = node_->stop();
  if (!sealed) log_event(LogLevel::kError, "journal", "seal_failed", {}, {{"error", sealed.error().message}});
  log_event(LogLevel::kInfo, "scheduler", "scheduler_stopped", {}, {});
  return 0;
}

}  // namespace

Result<std::optional<int>> serve_as_replica(const ConfigInputs& inputs, const Config& config,
                                            const std::string& data_dir, const ServiceNotifier& manager) {
  const Result<std::optional<ReplicaPlace>> place = find_replica_place(config, data_dir);
  if (!place) return place.error();
  if (!*place) return std::optional<int>();
  const Result<int> status = ReplicaProcess(inputs, config, data_dir, **place, manager).run();
  if (!status) return status.error();
  return std::optional<int>(*status);
}

}  // namespace gpusched
