#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "sign/tls_channel.h"

struct ssl_ctx_st;

namespace gpusched::sign {

/// Protocol inside a channel: sets its name in the handshake, and the words about a failed one.
enum class TlsUse { kHttp, kGrpc };

/// "sha256:" and the 64 hexadecimal digits of a certificate's fingerprint, in capitals or not, with colons
/// between them or not; the digits in small letters, without colons. kInvalidArgument: it is none.
Result<std::string> parse_fingerprint(std::string_view text);

/// The servers that a client believes. Immutable, so thread-safe.
class TlsTrust {
 public:
  /// The machine's own authorities: where OpenSSL looks for them, or where other distributions keep them.
  /// `root`: of the latter, for tests.
  static Result<std::shared_ptr<const TlsTrust>> of_system(const std::string& root = "");
  /// The certificates of a PEM file, and no others. kInvalidArgument: there are none in it.
  static Result<std::shared_ptr<const TlsTrust>> of_file(const std::string& ca_file);
  /// The server whose certificate is the first one of a PEM file, under whatever name it is reached.
  static Result<std::shared_ptr<const TlsTrust>> of_server(const std::string& certificate_file);
  /// The server that shows a certificate with that fingerprint: as its own, under whatever name it is
  /// reached, or as that of an authority that signed its own, which then must be for the name. `fingerprint`
  /// is as parse_fingerprint takes it.
  static Result<std::shared_ptr<const TlsTrust>> of_fingerprint(std::string_view fingerprint);
  ~TlsTrust();

  /// The client's end of a TLS connection to `host`, a name or an address, on a non-blocking socket. Its
  /// handshake fails unless the server has a trusted certificate for that name.
  std::unique_ptr<TlsChannel> connect(int socket, const std::string& host, TlsUse use = TlsUse::kHttp) const;

 private:
  TlsTrust(ssl_ctx_st* context, bool any_name) : context_(context), any_name_(any_name) {}
  ssl_ctx_st* const context_;
  const bool any_name_;
  std::string fingerprint_;  ///< Digits; empty: by the context's authorities. The context points here.
};

/// Why the handshake of `channel`, from TlsTrust::connect, broke, as one sentence without an end.
/// kUnauthenticated: the server is not who it should be; kInvalidArgument: it does not speak TLS; else
/// kUnavailable.
Error handshake_error(const TlsChannel& channel, const std::string& host, TlsUse use = TlsUse::kHttp);

/// Has a client's end show the certificate in a file that node_file_text wrote, if the server asks for one.
/// Before the handshake. The file's trouble as read_node_file tells it.
Result<Unit> show_certificate(const TlsChannel& channel, const std::string& path);

}  // namespace gpusched::sign
