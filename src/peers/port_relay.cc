#include "peers/port_relay.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "peers/relayed_connection.h"

namespace gpusched::peers {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr auto kResolveAgain = std::chrono::milliseconds(500);
constexpr std::size_t kFilesKept = 256;  // Kept for everything else.

uint16_t port_of(const PeerFacts& facts, Door door) {
  switch (door) {
    case Door::kHttp:
      return facts.http;
    case Door::kGrpc:
      return facts.grpc;
    case Door::kTasksGrpc:
      return facts.tasks_grpc;
    case Door::kTasksHttp:
      return facts.tasks_http;
    case Door::kAllocation:
      return facts.allocation;
  }
  return 0;
}

bool speaks_http(Door door) {
  return door == Door::kHttp || door == Door::kTasksHttp || door == Door::kAllocation;
}

std::string whole_answer(const std::string& body) {
  return "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
         "Connection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// A connection has two files.
std::size_t connections_of_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  const std::size_t all = files.rlim_cur;
  return std::max<std::size_t>(16, (all - std::min(all, kFilesKept)) / 2);
}

struct Listener {
  explicit Listener(asio::io_context& io) : acceptor(io), pause(io) {}
  Door door = Door::kHttp;
  uint16_t port = 0;
  tcp::acceptor acceptor;
  asio::steady_timer pause;
};

class Relay final : public PortRelay {
 public:
  explicit Relay(Options options)
      : options_(std::move(options)),
        connections_max_(std::min(options_.connections_max, connections_of_file_limit())),
        resolver_(io_),
        resolve_again_(io_) {}
  ~Relay() override { stop(); }

  Result<Unit> listen();
  void run();
  void follow(std::optional<Leader> leader) override;
  uint16_t port(Door door) const override;
  Counts counts() const override {
    return {.accepted = accepted_, .open = open_, .turned_away = turned_away_};
  }
  void stop() override;

 private:
  void accept(Listener& listener);
  void admit(Door door, tcp::socket socket);
  void lead_by(std::optional<Leader> leader);
  void resolve();
  RelayedConnection::Endpoints endpoints(Door door) const;
  void over(const std::shared_ptr<RelayedConnection>& connection, bool served);

  const Options options_;
  const std::size_t connections_max_;
  asio::io_context io_{1};
  std::vector<std::unique_ptr<Listener>> listeners_;
  tcp::resolver resolver_;
  asio::steady_timer resolve_again_;
  // On the thread only.
  std::optional<Leader> leader_;
  std::vector<asio::ip::address> addresses_;  ///< Addresses of the leader's host.
  std::set<std::shared_ptr<RelayedConnection>> connections_;
  std::map<std::string, std::size_t> by_address_;

  std::atomic<uint64_t> accepted_ = 0, open_ = 0, turned_away_ = 0;
  std::mutex stopping_;
  std::thread thread_;
};

Result<Unit> Relay::listen() {
  for (const Port& wanted : options_.ports) {
    auto listener = std::make_unique<Listener>(io_);
    listener->door = wanted.door;
    error_code failed;
    const auto found =
        tcp::resolver(io_).resolve(options_.address, std::to_string(wanted.port),
                                   tcp::resolver::passive | tcp::resolver::numeric_service, failed);
    if (!failed) {
      const tcp::endpoint at = *found.begin();
      tcp::acceptor& acceptor = listener->acceptor;
      acceptor.open(at.protocol(), failed);
      if (!failed) acceptor.set_option(tcp::acceptor::reuse_address(true), failed);
      if (!failed) acceptor.bind(at, failed);
      if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
    }
    if (failed) {
      return Error{.code = failed == asio::error::address_in_use ? ErrorCode::kLocked : ErrorCode::kIo,
                   .message = "cannot listen on " + options_.address + ":" + std::to_string(wanted.port) +
                              ": " + failed.message(),
                   .field = wanted.setting};
    }
    listener->port = listener->acceptor.local_endpoint().port();
    listeners_.push_back(std::move(listener));
  }
  return Unit{};
}

void Relay::run() {
  for (const auto& listener : listeners_) accept(*listener);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "relay");
    const auto work = asio::make_work_guard(io_);
    io_.run();
  });
}

void Relay::accept(Listener& listener) {
  listener.acceptor.async_accept([this, &listener](error_code failed, tcp::socket socket) {
    if (failed == asio::error::operation_aborted) return;
    if (failed) {  // No descriptors are left: more may be soon.
      listener.pause.expires_after(kAcceptPause);
      listener.pause.async_wait([this, &listener](error_code stopped) {
        if (!stopped) accept(listener);
      });
      return;
    }
    admit(listener.door, std::move(socket));
    accept(listener);
  });
}

void Relay::admit(Door door, tcp::socket socket) {
  ++accepted_;
  const bool answers = speaks_http(door) && !options_.https;
  const auto connection = std::make_shared<RelayedConnection>(
      std::move(socket),
      RelayedConnection::Settings{.patience = options_.patience,
                                  .answer = answers ? whole_answer(options_.no_leader) : "",
                                  .leader = [this, door] { return endpoints(door); },
                                  .over = [this](const auto& ended, bool served) { over(ended, served); }});
  std::size_t& of_address = by_address_[connection->client_address()];
  const bool too_many =
      connections_.size() >= connections_max_ ||
      (options_.address_connections_max > 0 && of_address >= options_.address_connections_max);
  if (too_many) {
    if (of_address == 0) by_address_.erase(connection->client_address());
    ++turned_away_;
    connection->close();
    return;
  }
  ++of_address;
  connections_.insert(connection);
  open_ = connections_.size();
  connection->start();
}

void Relay::over(const std::shared_ptr<RelayedConnection>& connection, bool served) {
  if (!served) ++turned_away_;
  connections_.erase(connection);
  open_ = connections_.size();
  const auto counted = by_address_.find(connection->client_address());
  if (counted != by_address_.end() && --counted->second == 0) by_address_.erase(counted);
}

void Relay::follow(std::optional<Leader> leader) {
  asio::post(io_, [this, next = std::move(leader)]() mutable { lead_by(std::move(next)); });
}

void Relay::lead_by(std::optional<Leader> leader) {
  if (leader == leader_) return;
  leader_ = std::move(leader);
  addresses_.clear();
  resolve_again_.cancel();
  const auto all = connections_;  // They leave the set as they end.
  for (const auto& connection : all) connection->leave_leader();
  if (leader_) resolve();
}

void Relay::resolve() {
  resolver_.async_resolve(
      leader_->host, "",
      [this, asked = leader_](error_code failed, const tcp::resolver::results_type& found) {
        if (leader_ != asked) return;
        if (failed) {
          resolve_again_.expires_after(kResolveAgain);
          resolve_again_.async_wait([this](error_code stopped) {
            if (!stopped && leader_) resolve();
          });
          return;
        }
        for (const auto& entry : found) addresses_.push_back(entry.endpoint().address());
        const auto all = connections_;
        for (const auto& connection : all) connection->look_again();
      });
}

RelayedConnection::Endpoints Relay::endpoints(Door door) const {
  RelayedConnection::Endpoints all;
  const uint16_t port = leader_ ? port_of(leader_->facts, door) : uint16_t{0};
  if (port == 0) return all;
  for (const asio::ip::address& address : addresses_) all.emplace_back(address, port);
  return all;
}

uint16_t Relay::port(Door door) const {
  for (const auto& listener : listeners_) {
    if (listener->door == door) return listener->port;
  }
  return 0;
}

void Relay::stop() {
  const std::lock_guard lock(stopping_);
  io_.stop();
  if (thread_.joinable()) thread_.join();
  error_code ignored;
  for (const auto& listener : listeners_) listener->acceptor.close(ignored);
  for (const auto& connection : connections_) connection->close();
  connections_.clear();
  open_ = 0;
}

}  // namespace

Result<std::unique_ptr<PortRelay>> PortRelay::start(Options options) {
  auto relay = std::make_unique<Relay>(std::move(options));
  const Result<Unit> listening = relay->listen();
  if (!listening.ok()) return listening.error();
  relay->run();
  return std::unique_ptr<PortRelay>(std::move(relay));
}

}  // namespace gpusched::peers
