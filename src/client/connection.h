#pragma once

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "client/http_client.h"
#include "sign/tls_channel.h"

/// A connection to a scheduler, with TLS or without. Included by the client's own files only.
namespace gpusched::client_internal {

using boost::system::error_code;

class Connection {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Step { kDone, kAgain, kEnd, kBroken };

  /// Connects, and shakes hands where the URL says https. Errors as HttpClient's, and kUnauthenticated.
  static Result<std::unique_ptr<Connection>> open(const HttpEndpoint& endpoint,
                                                  const HttpClientOptions& options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int descriptor() const { return socket_; }
  /// Without waiting. kDone: `count` bytes, at least one. After kAgain of a write the same bytes come again.
  Step read(char* to, std::size_t size, std::size_t& count);
  Step write(const char* from, std::size_t size, std::size_t& count);
  /// Bytes have come that a poll of the descriptor does not tell of.
  bool buffered() const;
  /// Reason of the last kBroken.
  const std::string& why() const { return why_; }

  /// From here on: a stream of Boost.Beast that waits, until then.
  void expires_at(Clock::time_point deadline) { deadline_ = deadline; }
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers, error_code& error) {
    for (auto at = boost::asio::buffer_sequence_begin(buffers);
         at != boost::asio::buffer_sequence_end(buffers); ++at) {
      const boost::asio::mutable_buffer piece(*at);
      if (piece.size() > 0) return wait_read(static_cast<char*>(piece.data()), piece.size(), error);
    }
    error = {};
    return 0;
  }
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers, error_code& error) {
    // Gathered, so that a head and its body are one packet.
    gathered_.clear();
    for (auto at = boost::asio::buffer_sequence_begin(buffers);
         at != boost::asio::buffer_sequence_end(buffers) && gathered_.size() < kGatheredBytesMax; ++at) {
      const boost::asio::const_buffer piece(*at);
      gathered_.append(static_cast<const char*>(piece.data()),
                       std::min(piece.size(), kGatheredBytesMax - gathered_.size()));
    }
    return wait_write(gathered_, error);
  }
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers) {
    return or_throw([&](error_code& error) { return read_some(buffers, error); });
  }
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers) {
    return or_throw([&](error_code& error) { return write_some(buffers, error); });
  }

 private:
  static constexpr std::size_t kGatheredBytesMax = 64 * 1024;

  explicit Connection(int socket) : socket_(socket) {}
  Result<Unit> shake_hands(const HttpEndpoint& endpoint, const HttpClientOptions& options);
  Step tls_step(sign::TlsStep step);
  std::size_t wait_read(char* to, std::size_t size, error_code& error);
  std::size_t wait_write(const std::string& bytes, error_code& error);
  bool tell(const std::string& bytes);
  bool go_on(Step step, bool to_write, error_code& error);
  template <typename Do>
  static std::size_t or_throw(const Do& what) {
    error_code error;
    const std::size_t count = what(error);
    if (error) throw boost::system::system_error(error);
    return count;
  }

  const int socket_;
  std::unique_ptr<sign::TlsChannel> tls_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::string gathered_;
  std::function<bool(std::string_view)> before_send_;  // As HttpClientOptions have it.
  std::size_t told_ = 0;                               // Bytes that it was told and that were not sent yet.
  std::string why_;
  int errno_ = 0;
};

}  // namespace gpusched::client_internal
