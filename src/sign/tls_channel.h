#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct ssl_st;

namespace gpusched::sign {

/// Outcome of one step on a TlsChannel.
enum class TlsStep {
  kDone,
  kWantRead,   ///< Call again when the socket is readable.
  kWantWrite,  ///< Call again when the socket is writable.
  kEnd,        ///< The peer ended its side in order.
  kPlainHttp,  ///< The client sent HTTP without TLS; only from `handshake`.
  kBroken,     ///< `error` says why. Nothing more can be done with the channel.
};

/// One end of a TLS connection over a non-blocking socket that somebody else owns. No step waits, and none is
/// allowed after the socket was closed. Not thread-safe.
class TlsChannel {
 public:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  using Native = std::unique_ptr<ssl_st, Free>;

  /// `ssl` is set up as a client's or a server's end; this gives it the socket.
  TlsChannel(Native ssl, int socket);

  TlsStep handshake();
  /// kDone: `count` bytes came, at least one.
  TlsStep read(char* to, std::size_t size, std::size_t& count);
  /// kDone: `count` bytes were taken, at least one. After kWantWrite the next call must begin with the same
  /// bytes; they may lie elsewhere, and more may follow.
  TlsStep write(const char* from, std::size_t size, std::size_t& count);
  /// Tells the peer that nothing follows, so that it need not fear that something was cut off.
  void end_sending();

  const std::string& error() const { return error_; }
  ssl_st* native() const { return ssl_.get(); }

 private:
  TlsStep outcome(int result);

  Native ssl_;
  std::string error_;
};

}  // namespace gpusched::sign
