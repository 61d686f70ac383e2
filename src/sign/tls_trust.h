#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "sign/tls_channel.h"

struct ssl_ctx_st;

namespace gpusched::sign {

/// Which servers a client believes. Immutable, so thread-safe.
class TlsTrust {
 public:
  /// The machine's own authorities.
  static Result<std::shared_ptr<const TlsTrust>> of_system();
  /// The certificates of a PEM file, and no others. kInvalidArgument: there are none in it.
  static Result<std::shared_ptr<const TlsTrust>> of_file(const std::string& ca_file);
  /// The server whose certificate is the first one of a PEM file, under whatever name it is reached.
  static Result<std::shared_ptr<const TlsTrust>> of_server(const std::string& certificate_file);
  ~TlsTrust();

  /// The client's end of a TLS connection to `host`, a name or an address, on a non-blocking socket. Its
  /// handshake fails unless the server has a trusted certificate for that name.
  std::unique_ptr<TlsChannel> connect(int socket, const std::string& host) const;

 private:
  TlsTrust(ssl_ctx_st* context, bool any_name) : context_(context), any_name_(any_name) {}
  ssl_ctx_st* const context_;
  const bool any_name_;
};

/// Why the handshake of `channel`, from TlsTrust::connect, broke, as one sentence without an end.
/// kUnauthenticated: the server is not who it should be; kInvalidArgument: it does not speak TLS; else
/// kUnavailable.
Error handshake_error(const TlsChannel& channel, const std::string& host);

}  // namespace gpusched::sign
