#include "sign/tls_context.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/text/civil_time.h"
#include "sign/certificate_time.h"
#include "sign/fingerprint.h"

namespace gpusched::sign {
namespace {

constexpr unsigned char kHttp[] = "\x08http/1.1";
constexpr int kSecurityLevel = 2;
constexpr mode_t kKeyModeRefused = 0027;  // Everybody else's, and changed by its group.

std::string last_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

/// OpenSSL's own words for a file that is not there are poor.
Result<Unit> check_file(const std::string& path, const char* what, bool secret) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    return Error{absent ? ErrorCode::kNotFound : ErrorCode::kIo,
                 "cannot read the " + std::string(what) + " " + path + ": " + std::strerror(errno) +
                     (absent ? "; correct the path, or make the file"
                             : "; let the scheduler's user read it, by chown or chgrp")};
  }
  struct stat facts{};
  const bool regular = ::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
  ::close(file);
  if (!regular)
    return Error{ErrorCode::kIo,
                 "the " + std::string(what) + " " + path + " is not a file; correct the path"};
  if (secret && (facts.st_mode & kKeyModeRefused) != 0) {
    return Error{
        ErrorCode::kPermissionDenied,
        "the " + std::string(what) + " " + path +
            " can be read by every user of this machine or changed by its group; run chmod 600 on it, "
            "or 640, and make a new key if it was like that for long"};
  }
  return Unit{};
}

/// A service has nobody to ask: without this OpenSSL asks at the terminal.
int no_passphrase(char*, int, int, void*) { return 0; }

int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                    unsigned int offered_size, void*) {
  unsigned char* found = nullptr;
  const int outcome = SSL_select_next_proto(&found, size, kHttp, sizeof kHttp - 1, offered, offered_size);
  *chosen = found;
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

int64_t checked_second(const ASN1_TIME* time) {
  const std::optional<int64_t> second = unix_second_of(time);
  CHECK(second.has_value());
  return *second;
}

/// To the minute.
std::string shown(int64_t unix_second) {
  std::string text;
  append_civil_time(text, civil_time_of(unix_second), ' ');
  return text.substr(0, text.rfind(':')) + " UTC";
}

/// The text that `write` writes.
template <typename Write>
std::string text_of(const Write& write) {
  BIO* const text = BIO_new(BIO_s_mem());
  CHECK(text != nullptr);
  write(text);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text, &data);
  std::string written(data, static_cast<std::size_t>(size));
  BIO_free(text);
  return written;
}

std::string subject_of(X509* certificate) {
  return text_of([certificate](BIO* to) {
    X509_NAME_print_ex(to, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  });
}

void set_up(SSL_CTX* context, bool allow_tls12) {
  SSL_CTX_set_security_level(context, kSecurityLevel);
  SSL_CTX_set_min_proto_version(context, allow_tls12 ? TLS1_2_VERSION : TLS1_3_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context, 1);
  // Clients resume with tickets, which cost the server nothing to keep.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_default_passwd_cb(context, no_passphrase);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
}

Result<Unit> take_key(SSL_CTX* context, const TlsFiles& files) {
  if (const Result<Unit> read = check_file(files.key, "private key", true); !read) return read;
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) == 1) {
    CHECK(SSL_CTX_check_private_key(context) == 1);
    return Unit{};
  }
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  if (ERR_GET_LIB(code) == ERR_LIB_X509) {
    return Error{ErrorCode::kInvalidArgument, "the private key " + files.key +
                                                  " is not the key of the certificate " + files.certificate +
                                                  "; name the two files that belong together"};
  }
  return Error{
      ErrorCode::kInvalidArgument,
      files.key +
          " holds no private key in PEM format that can be read without a passphrase; convert it with "
          "openssl pkey -in OLD -out NEW"};
}

}  // namespace

TlsIdentity::TlsIdentity(ssl_ctx_st* context) : context_(context) { CHECK(context_ != nullptr); }
TlsIdentity::~TlsIdentity() { SSL_CTX_free(context_); }

Result<std::shared_ptr<const TlsIdentity>> TlsIdentity::load(const TlsFiles& files) {
  ERR_clear_error();
  const std::shared_ptr<TlsIdentity> made(new TlsIdentity(SSL_CTX_new(TLS_server_method())));
  SSL_CTX* const context = made->context_;
  set_up(context, files.allow_tls12);
  if (const Result<Unit> read = check_file(files.certificate, "certificate", false); !read)
    return read.error();
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
    return Error{ErrorCode::kInvalidArgument,
                 files.certificate + " holds no usable certificate in PEM format: " + last_reason() +
                     "; the server's own certificate comes first, then those between it and its authority"};
  }
  if (const Result<Unit> taken = take_key(context, files); !taken) return taken.error();
  X509* const certificate = SSL_CTX_get0_certificate(context);
  CHECK(certificate != nullptr);
  made->subject_ = subject_of(certificate);
  made->expires_at_ = checked_second(X509_get0_notAfter(certificate));
  const int64_t begins_at = checked_second(X509_get0_notBefore(certificate));
  const int64_t now = std::time(nullptr);
  if (made->expires_at_ < now) {
    return Error{ErrorCode::kInvalidArgument, "the certificate " + files.certificate + " expired at " +
                                                  shown(made->expires_at_) + "; renew it"};
  }
  if (begins_at > now) {
    return Error{ErrorCode::kInvalidArgument, "the certificate " + files.certificate + " is valid from " +
                                                  shown(begins_at) +
                                                  " only; wait, or set the clock of this machine"};
  }
  return std::shared_ptr<const TlsIdentity>(made);
}

std::string TlsIdentity::fingerprint() const {
  return "sha256:" + fingerprint_of(SSL_CTX_get0_certificate(context_));
}

std::string TlsIdentity::certificates_pem() const {
  return text_of([this](BIO* to) {
    CHECK(PEM_write_bio_X509(to, SSL_CTX_get0_certificate(context_)) == 1);
    STACK_OF(X509)* behind = nullptr;
    SSL_CTX_get0_chain_certs(context_, &behind);
    for (int i = 0; i < sk_X509_num(behind); ++i)
      CHECK(PEM_write_bio_X509(to, sk_X509_value(behind, i)) == 1);
  });
}

std::string TlsIdentity::key_pem() const {
  return text_of([this](BIO* to) {
    CHECK(PEM_write_bio_PrivateKey(to, SSL_CTX_get0_privatekey(context_), nullptr, nullptr, 0, nullptr,
                                   nullptr) == 1);
  });
}

std::unique_ptr<TlsChannel> TlsIdentity::accept(int socket) const {
  TlsChannel::Native ssl(SSL_new(context_));
  CHECK(ssl != nullptr);
  SSL_set_accept_state(ssl.get());
  return std::make_unique<TlsChannel>(std::move(ssl), socket);
}

}  // namespace gpusched::sign
