#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>

#include "base/time.h"
#include "peers/link_tls.h"
#include "peers/peer_transport.h"

namespace gpusched::peers {

/// The connection to one peer, over which frames are sent: it is made again whenever it ends.
class OutgoingLink : public std::enable_shared_from_this<OutgoingLink> {
 public:
  struct Options {
    Peer peer;
    sign::ReplicaClaim own;
    std::size_t queue_bytes_max = 0;
    Duration reconnect_first, reconnect_max;
    /// Called on the transport's thread, once until the peer is reachable again.
    std::function<void()> unreachable;
  };
  OutgoingLink(boost::asio::io_context& io, LinkTls& tls, Options options);

  /// Begins to connect. On the transport's thread, as `tick` is, which is due once a second.
  void start();
  void tick();

  /// Queues a frame's bytes; drops them without a connection. Any thread.
  void send(std::string bytes);
  /// Sends these bytes now and first on each later connection. Any thread.
  void greet_with(std::string bytes);
  /// Sends nothing from now on. Any thread.
  void close();
  /// Sets what this link knows. Any thread.
  void describe(PeerStatus& status) const;

 private:
  using Stream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;
  /// One connection, or the attempt to make it.
  struct Attempt {
    explicit Attempt(boost::asio::io_context& io, LinkTls& tls) : stream(io, tls.client) {}
    Stream stream;
    std::string read;
    char piece[1'024];
  };
  using AttemptPtr = std::shared_ptr<Attempt>;

  void connect();
  void handshake(const AttemptPtr& attempt);
  void say_hello(const AttemptPtr& attempt);
  void read_answer(const AttemptPtr& attempt);
  void take_answer(const AttemptPtr& attempt);
  void opened(const AttemptPtr& attempt);
  void pump();
  void fail(const std::string& why);
  void wait_and_connect();
  std::string wrong_claim(const std::optional<sign::ReplicaClaim>& claim) const;

  boost::asio::io_context& io_;
  LinkTls& tls_;
  const Options options_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer timer_;  ///< Limit of setting up, or the wait until the next attempt.
  std::minstd_rand jitter_;
  Duration wait_;
  AttemptPtr attempt_;
  bool welcome_ = false;  ///< The peer takes frames.
  std::string writing_;   ///< Empty: nothing is being written.
  int ticks_writing_ = 0;
  bool wrote_since_tick_ = false;

  mutable std::mutex mutex_;
  bool open_ = false;
  bool closed_ = false;
  bool pump_posted_ = false;
  bool told_ = false;  ///< That it is unreachable.
  std::string why_ = "it was not reached yet";
  std::string greeting_;
  std::deque<std::string> queue_;
  std::size_t queue_bytes_ = 0;
  uint64_t sent_ = 0;
  uint64_t dropped_ = 0;
};

/// Has the kernel send small frames at once, and notice a dead peer within seconds.
void set_link_options(boost::asio::ip::tcp::socket& socket);

}  // namespace gpusched::peers
