#include "sign/tls_channel.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace gpusched::sign {
namespace {

int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

bool must_wait() { return errno == EAGAIN || errno == EINTR; }

int write_socket(BIO* bio, const char* data, std::size_t size, std::size_t* written) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(socket_of(bio), data, size, MSG_NOSIGNAL);
  *written = sent > 0 ? static_cast<std::size_t>(sent) : 0;
  if (sent < 0 && must_wait()) BIO_set_retry_write(bio);
  return sent > 0 ? 1 : 0;
}

int read_socket(BIO* bio, char* data, std::size_t size, std::size_t* got) {
  BIO_clear_retry_flags(bio);
  const ssize_t received = ::recv(socket_of(bio), data, size, 0);
  *got = received > 0 ? static_cast<std::size_t>(received) : 0;
  if (received < 0 && must_wait()) BIO_set_retry_read(bio);
  if (received == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return received > 0 ? 1 : 0;
}

long control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

/// OpenSSL's own writes to a socket raise SIGPIPE when the peer is gone.
BIO_METHOD* quiet_socket() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quiet socket");
    CHECK(made != nullptr);
    BIO_meth_set_write_ex(made, write_socket);
    BIO_meth_set_read_ex(made, read_socket);
    BIO_meth_set_ctrl(made, control);
    return made;
  }();
  return method;
}

}  // namespace

void TlsChannel::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

TlsChannel::TlsChannel(Native ssl, int socket) : ssl_(std::move(ssl)) {
  CHECK(ssl_ != nullptr);
  BIO* const bio = BIO_new(quiet_socket());
  CHECK(bio != nullptr);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
}

TlsStep TlsChannel::handshake() {
  ERR_clear_error();
  return outcome(SSL_do_handshake(ssl_.get()));
}

TlsStep TlsChannel::read(char* to, std::size_t size, std::size_t& count) {
  ERR_clear_error();
  return outcome(SSL_read_ex(ssl_.get(), to, size, &count));
}

TlsStep TlsChannel::write(const char* from, std::size_t size, std::size_t& count) {
  ERR_clear_error();
  return outcome(SSL_write_ex(ssl_.get(), from, size, &count));
}

void TlsChannel::end_sending() {
  if (!error_.empty() || SSL_in_init(ssl_.get()) != 0) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

TlsStep TlsChannel::outcome(int result) {
  if (result > 0) return TlsStep::kDone;
  const int system_error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return TlsStep::kWantRead;
    case SSL_ERROR_WANT_WRITE:
      return TlsStep::kWantWrite;
    case SSL_ERROR_ZERO_RETURN:
      return TlsStep::kEnd;
    default:
      break;
  }
  const unsigned long code = ERR_peek_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  const bool cut = code == 0 || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  if (reason != nullptr && !cut) {
    error_ = reason;
  } else {
    error_ =
        cut && system_error != 0 && code == 0 ? std::strerror(system_error) : "the connection was closed";
  }
  const bool plain =
      code != 0 && ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST;
  ERR_clear_error();
  return plain ? TlsStep::kPlainHttp : TlsStep::kBroken;
}

}  // namespace gpusched::sign
