#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "peers/port_relay.h"

namespace gpusched::peers {

/// One client's connection, and the one to the leader that its bytes go to. All on the relay's thread.
class RelayedConnection : public std::enable_shared_from_this<RelayedConnection> {
 public:
  using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;
  struct Settings {
    Duration patience;
    std::string answer;  ///< Whole HTTP answer when no leader comes in time; empty: the connection is closed.
    /// Where the door of the leader is now; empty: there is none.
    std::function<Endpoints()> leader;
    /// It is over. Once. `served`: it was passed on.
    std::function<void(const std::shared_ptr<RelayedConnection>&, bool served)> over;
  };
  RelayedConnection(boost::asio::ip::tcp::socket client, Settings settings);

  void start();
  /// Tries the leader at once if it waits for one.
  void look_again();
  /// Ends it if it was passed on: its leader leads no more.
  void leave_leader();
  /// Ends it at once.
  void close();
  const std::string& client_address() const { return address_; }

 private:
  using Socket = boost::asio::ip::tcp::socket;
  /// Bytes on their way in one direction.
  struct Direction {
    Socket& from;
    Socket& to;
    std::string bytes;  ///< Empty while nothing comes: idle connections need no buffer.
  };
  enum class Stage { kWaiting, kConnecting, kPassing, kAnswering, kOver };

  void try_leader();
  void wait_for_leader();
  void pass();
  void read(Direction& direction);
  void write(Direction& direction);
  void give_up();
  void read_request();
  void write_answer();
  void drain();
  void reset();
  void end();

  Socket client_;
  Socket server_;
  boost::asio::steady_timer limit_;  ///< Limit of the stage.
  boost::asio::steady_timer retry_;
  const Settings settings_;
  std::string address_;
  Stage stage_ = Stage::kWaiting;
  bool served_ = false;
  bool out_of_patience_ = false;
  int finished_ = 0;  ///< Directions that have ended.
  std::string request_;
  std::array<char, 4'096> piece_;
  Direction up_, down_;
};

}  // namespace gpusched::peers
