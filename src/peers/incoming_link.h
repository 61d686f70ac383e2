#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "peers/link_frame.h"
#include "peers/link_tls.h"

namespace gpusched::peers {

/// A connection that somebody made to this replica, over which a peer sends. All on the transport's thread.
class IncomingLink : public std::enable_shared_from_this<IncomingLink> {
 public:
  struct Events {
    /// Why whoever showed this certificate is refused; empty: the replica is let in.
    std::function<std::string(const std::optional<sign::ReplicaClaim>& claim)> check;
    std::function<void(const std::shared_ptr<IncomingLink>& link)> admitted;
    /// A frame of an admitted peer. False: it is not one that the peer may send, and the link ends.
    std::function<bool(uint64_t peer, const LinkFrame& frame)> frame;
    /// The link ended. Once.
    std::function<void(const std::shared_ptr<IncomingLink>& link, const std::string& why)> ended;
  };
  IncomingLink(boost::asio::ip::tcp::socket socket, LinkTls& tls, Events events);

  void start();
  /// Ends it; nothing is told.
  void close();
  /// The peer's id; 0: it is not admitted yet.
  uint64_t peer() const { return peer_; }
  /// Where it comes from, for people.
  const std::string& from() const { return from_; }

 private:
  void read();
  void take();
  void refuse(const std::string& why);
  void end(const std::string& why);
  bool admit(const LinkFrame& frame);

  boost::asio::ssl::stream<boost::asio::ip::tcp::socket> stream_;
  boost::asio::steady_timer limit_;  ///< Limit of silence, and of being admitted.
  const Events events_;
  std::string from_;
  sign::ReplicaClaim claim_;
  uint64_t peer_ = 0;
  bool over_ = false;
  std::string last_word_;
  std::string pending_;  ///< Read and not taken yet.
  char piece_[65'536];
};

}  // namespace gpusched::peers
