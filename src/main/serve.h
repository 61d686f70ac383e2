#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "config/config.h"
#include "history/postgres/options.h"
#include "host/core/journal_writer.h"
#include "host/host.h"
#include "sign/tls_context.h"

namespace gpusched {

/// Options of the host of a scheduler with this configuration.
HostOptions host_options(const Config& config, const std::string& data_dir);

/// The database that gets the history; its host is empty when there is none.
history::PostgresServer postgres_server(const Config::Database& config);

/// The ports that are really bound.
struct BoundPorts {
  uint16_t http = 0;
  uint16_t grpc = 0;
  uint16_t metrics = 0;               ///< 0: metrics are off.
  uint16_t tasks_grpc = 0;            ///< 0: gRPC has no second port.
  uint16_t tasks_http = 0;            ///< 0: tasks of agents have no HTTP port of their own.
  uint16_t allocation = 0;            ///< 0: allocations have no port of their own.
  bool https = false;                 ///< HTTP and metrics speak TLS.
  std::string grpc_certificate = {};  ///< Its fingerprint; empty: gRPC is plain.
  std::string unix_socket = {};       ///< Path of the Unix socket; empty: there is none.
  std::string agent_socket = {};      ///< The same of the one for agents.
};

/// Things that the leader of several schedulers has beside its configuration.
struct LeaderSeat {
  std::shared_ptr<SharedJournal> journal;
  /// Called once, before the doors are opened: frees their ports.
  std::function<void()> free_ports;
  /// Texts about the replicas on the port of the metrics; see api::MetricsPage.
  std::function<std::string()> health, metrics;
};

/// A scheduler with all its doors, serving in threads of its own.
class Service {
 public:
  /// Recovers `data_dir`, listens, writes `data_dir/ports.json`. Errors say what to do. Signals must be
  /// blocked (`block_signals`): SIGINT and SIGTERM end the process while it recovers, later ones are for
  /// `supervise`.
  /// `seat`: of one that leads several; null: it is the only one.
  static Result<std::unique_ptr<Service>> start(const Config& config, const std::string& data_dir,
                                                const LeaderSeat* seat = nullptr);
  virtual ~Service() = default;

  virtual const BoundPorts& ports() const = 0;
  /// Jobs that are placed or running, for a last word to the user.
  virtual int64_t active_jobs() = 0;
  /// Takes the keys of `config` that are live; the others wait for a restart. Returns when that is durable.
  virtual Result<Unit> reconfigure(const Config& config) = 0;
  /// Makes a new certificate of the scheduler's own authority when the one that is served is old, and serves
  /// it. Does nothing where the configuration names a certificate.
  virtual void renew_certificate() = 0;
  /// Goes on in the audit's file of that name: after somebody renamed the old one.
  virtual void reopen_audit() = 0;
  /// For the metrics: the configuration was just read again, and taken or refused.
  virtual void note_reload(bool worked) = 0;
  /// Calls `alive`, on a thread of the service, once its loops have all gone round after this call.
  virtual void touch(std::function<void()> alive) = 0;
  /// Ends the doors only, within about `patience`: for a scheduler that another one has replaced, whose
  /// process ends next.
  virtual void close_doors(Duration patience) = 0;
  /// Doors first, then the host: what was accepted is finished, then the journal is sealed. Once.
  virtual void stop() = 0;
};

}  // namespace gpusched
