#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "node/link/trust.h"
#include "sign/tls_trust.h"

namespace gpusched {

/// Whether the way to the scheduler is protected by TLS, and whom the agent believes then.
struct LinkTls {
  bool on = false;
  std::string ca_file = {};      ///< Certificates of authorities (PEM).
  std::string fingerprint = {};  ///< Of one certificate; see TlsTrust::of_fingerprint.
  /// The node's certificate with its key (sign::NodeFile), which is shown; read again at each connection.
  /// Empty: none.
  std::string identity = {};

  /// By the fingerprint, by the file, or by the machine's own authorities. The file is read at each call.
  Result<std::shared_ptr<const sign::TlsTrust>> trust() const;
};

/// What options of the command line mean together. kInvalidArgument names the option at fault.
Result<LinkTls> link_tls_of(bool on, const std::string& ca_file, const std::string& ca);

/// One TLS connection to a scheduler, for a gRPC that is linked without TLS: it speaks plainly into one end
/// of a pair of sockets, which nobody else has, and a thread of its own passes everything on. gRPC with its
/// own TLS would take 3 MB of every agent's memory (docs/adr/tls.md#speak-tls-over-grpc). Thread-safe.
class TlsRelay {
 public:
  /// Begins to connect. `grpc_end` is gRPC's end, which closes when the connection is over or fails. Never
  /// null.
  static std::shared_ptr<TlsRelay> start(const Address& scheduler, const LinkTls& tls, int& grpc_end);
  ~TlsRelay();
  TlsRelay(const TlsRelay&) = delete;
  TlsRelay& operator=(const TlsRelay&) = delete;

  /// Why there is no connection, or none any more, as a sentence without an end; empty: there is one, or its
  /// other end closed it in order.
  std::string why();
  /// Waits until there is a connection, or there will be none.
  void await(Duration patience);
  /// Whether the other end speaks TLS, believed here or not; false: it does not, or that is not known yet.
  bool met_tls();
  /// Ends it, and waits until its thread does no more than look up a name, which cannot be cut short.
  void stop();

 private:
  struct Way;
  TlsRelay(Address scheduler, LinkTls tls, int end);
  void run();
  Result<Unit> relay();
  Result<Unit> shake_hands(sign::TlsChannel& channel, int64_t deadline_ns);
  Result<Unit> pass_on(sign::TlsChannel& channel);
  bool may_begin();
  bool wait(int descriptor, short events, int64_t deadline_ns);
  int connect_to(int64_t deadline_ns, std::string& why);

  const Address scheduler_;
  const LinkTls tls_;
  const int end_;  ///< Ours of the pair.
  const int stop_event_;
  int socket_ = -1;  ///< The thread's alone.

  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable changed_;
  bool stopping_ = false;
  bool busy_ = false;  ///< The thread is beyond the look-up of the name.
  bool shaken_ = false;
  std::optional<Error> trouble_;
};

/// Whether somebody speaks TLS there; waits for at most `patience`.
bool speaks_tls(const Address& scheduler, Duration patience);

}  // namespace gpusched
