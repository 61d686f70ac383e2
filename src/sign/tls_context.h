#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "sign/tls_channel.h"

struct ssl_ctx_st;

namespace gpusched::sign {

/// Where a server's identity is. Both files are PEM.
struct TlsFiles {
  std::string certificate;  ///< The server's certificate, and behind it those between it and its authority.
  std::string key;
  bool allow_tls12 = true;  ///< Beside TLS 1.3.
};

/// A server's certificate with its key, checked and ready to serve. Immutable, so thread-safe.
class TlsIdentity {
 public:
  /// Errors name the file, what is wrong with it, and what to do: kNotFound and kIo for a file that cannot be
  /// read, kPermissionDenied for a key that every user can read, kInvalidArgument for what is no certificate
  /// or key, a key of another certificate, and a certificate that is not valid now.
  static Result<std::shared_ptr<const TlsIdentity>> load(const TlsFiles& files);
  ~TlsIdentity();

  /// The server's end of a TLS connection on a non-blocking socket.
  std::unique_ptr<TlsChannel> accept(int socket) const;
  /// Its last second, in seconds since 1970.
  int64_t expires_at() const { return expires_at_; }
  /// "CN=scheduler.example", for people.
  const std::string& subject() const { return subject_; }
  /// "sha256:" and digits, as TlsTrust::of_fingerprint takes it.
  std::string fingerprint() const;
  /// The certificate and those behind it, as text, for a library that makes its connections itself.
  std::string certificates_pem() const;
  /// Its key, as text: for that library's memory and nowhere else.
  std::string key_pem() const;

 private:
  explicit TlsIdentity(ssl_ctx_st* context);
  ssl_ctx_st* const context_;
  int64_t expires_at_ = 0;
  std::string subject_;
};

/// The identity that new connections get, and which may be exchanged. Thread-safe.
class TlsServer {
 public:
  explicit TlsServer(std::shared_ptr<const TlsIdentity> identity) : identity_(std::move(identity)) {}

  std::shared_ptr<const TlsIdentity> identity() const {
    const std::lock_guard lock(mutex_);
    return identity_;
  }
  /// For connections from now on; those that are open keep theirs.
  void exchange(std::shared_ptr<const TlsIdentity> identity) {
    const std::lock_guard lock(mutex_);
    identity_ = std::move(identity);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const TlsIdentity> identity_;
};

}  // namespace gpusched::sign
