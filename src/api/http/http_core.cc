#include "api/http/http_core.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstring>

#include "api/contract/token.h"
#include "api/http/unix_callers.h"
#include "api/limits/address_group.h"
#include "base/check.h"
#include "base/text/civil_time.h"

namespace gpusched::api::http_internal {
namespace {

constexpr Duration kSweepEvery = milliseconds(500);
constexpr rlim_t kFilesKeptFree = 256;  // For everything that is no HTTP connection.

/// The other end's, without its port; empty: it is gone.
std::string address_of(const StreamSocket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return {};
  Tcp::endpoint address;
  if (endpoint.size() > address.capacity()) return {};
  std::memcpy(address.data(), endpoint.data(), endpoint.size());
  return address.address().to_string();
}

}  // namespace

Result<Unit> Core::listen_locally(HttpListener listener) {
  auto listening = std::make_unique<Listening>(io_, std::move(listener));
  const std::shared_ptr<ops::SocketFile> file = listening->listener.unix_socket;
  error_code error;
  listening->local.assign(asio::local::stream_protocol(), file->take_descriptor(), error);
  if (!error) listening->local.listen(4'096, error);
  if (error) {
    return Error{ErrorCode::kIo, "cannot listen on the Unix socket " + file->path() + ": " + error.message(),
                 listening->listener.setting};
  }
  listening_.push_back(std::move(listening));
  return Unit{};
}

Result<Unit> Core::listen(HttpListener listener, std::vector<uint16_t>& ports) {
  if (listener.unix_socket != nullptr) {
    ports.push_back(0);
    return listen_locally(std::move(listener));
  }
  const std::string where = listener.address + ":" + std::to_string(listener.port);
  error_code error;
  const auto address =
      asio::ip::make_address(listener.address == "localhost" ? "127.0.0.1" : listener.address, error);
  if (error)
    return Error{ErrorCode::kInvalidArgument, listener.address + " is not a numeric address", "address"};
  const Tcp::endpoint endpoint(address, listener.port);
  auto listening = std::make_unique<Listening>(io_, std::move(listener));
  Tcp::acceptor& acceptor = listening->acceptor;
  if (!acceptor.open(endpoint.protocol(), error))
    acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(4'096, error);
  if (error) {
    const bool taken = error == asio::error::address_in_use;
    return Error{taken ? ErrorCode::kLocked : ErrorCode::kIo,
                 "cannot listen on " + where + ": " + error.message(), listening->listener.setting};
  }
  ports.push_back(acceptor.local_endpoint(error).port());
  listening_.push_back(std::move(listening));
  return Unit{};
}

void Core::limit_connections() {
  rlimit files{};
  connection_max_ = options.connection_max;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  // The other half is for the gRPC port's connections, the journal and everything else.
  const rlim_t wanted = 2 * connection_max_ + kFilesKeptFree;
  if (files.rlim_cur < wanted) {
    files.rlim_cur = std::min(files.rlim_max, wanted);
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
  }
  if (files.rlim_cur < wanted) {
    connection_max_ = std::max<std::size_t>(
        16, files.rlim_cur > kFilesKeptFree ? (files.rlim_cur - kFilesKeptFree) / 2 : 0);
  }
}

void Core::run() {
  for (const auto& listening : listening_) accept(*listening);
  sweep();
  thread_ = std::thread([self = shared_from_this()] {
    self->thread_id_ = std::this_thread::get_id();
    pthread_setname_np(pthread_self(), "api-http");
    self->io_.run();
  });
}

void Core::accept(Listening& listening) {
  const auto take = [this, &listening](const error_code& error, auto socket) {
    const LoopStep step(watch, "a new connection");
    accepted_one(listening, error, StreamSocket(std::move(socket)));
  };
  if (listening.local.is_open()) return listening.local.async_accept(take);
  listening.acceptor.async_accept(take);
}

void Core::accepted_one(Listening& listening, const error_code& error, StreamSocket socket) {
  if (stopping_ || error == asio::error::operation_aborted) return;
  if (error) {
    // Out of files or memory: the waiting client stays in the kernel's queue until there is room.
    make_room();
    listening.retry.expires_after(std::chrono::milliseconds(50));
    listening.retry.async_wait([this, &listening](const error_code& failed) {
      const LoopStep step(watch, "a new connection");
      if (!failed && !stopping_) accept(listening);
    });
    return;
  }
  if (connections_.size() >= connection_max_) make_room();
  if (connections_.size() < connection_max_) {  // Else it is closed: every other one is at work.
    begin(listening, std::move(socket));
  }
  accept(listening);
}

/// Whether the party may have one more: for which its own longest idle one is closed if it has to be.
bool Core::admit(const std::string& party) {
  const std::size_t most =
      std::min(options.address_connections_max, std::max<std::size_t>(connection_max_ / 2, 1));
  const auto found = of_party_.find(party);
  if (party.empty() || found == of_party_.end() || found->second.size() < most) return true;
  Connection* oldest = nullptr;
  for (Connection* const connection : found->second) {  // Others' are not looked at, however many.
    if (!connection->idle()) continue;
    if (oldest == nullptr || connection->active_at_ns() < oldest->active_at_ns()) oldest = connection;
  }
  if (oldest != nullptr) oldest->close();
  if (oldest == nullptr) turned_away.fetch_add(1, std::memory_order_relaxed);
  return oldest != nullptr;
}

void Core::begin(Listening& listening, StreamSocket socket) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  accepted.fetch_add(1, std::memory_order_relaxed);
  const HttpListener& listener = listening.listener;
  const auto make = [&](std::string peer, std::string party) {
    auto connection =
        std::make_shared<Connection>(shared_from_this(), std::move(socket), listener, std::move(peer));
    connection->party = std::move(party);
    add(connection);
    return connection;
  };
  if (listener.unix_socket == nullptr) {
    socket.set_option(Tcp::no_delay(true), ignored);
    std::string address = address_of(socket);
    std::string party = address_group(address);
    const bool is_of_machine = is_loopback(address) || is_loopback(party);
    if (options.address_connections_max == 0 || (is_of_machine && !options.bounds_loopback)) party.clear();
    if (!admit(party)) return;  // It is closed.
    return make(std::move(address), std::move(party))->begin();
  }
  const std::optional<sign::PeerCredential> peer = sign::read_peer_credential(socket.native_handle());
  const auto connection = make("unix:" + (peer ? std::to_string(peer->uid) : std::string()), {});
  connection->begin_naming();
  if (!peer || listener.unix_callers == nullptr) return connection->begin_as(nullptr);
  listener.unix_callers->caller_of(*peer, [this, connection](CallerPtr caller) {
    submit({.kind = Task::Kind::kCall,
            .call = [connection, caller = std::move(caller)] { connection->begin_as(caller); }},
           true);
  });
}

/// Closes the connection that has been waiting for a request the longest; without one, that which has been
/// sending its body or reading a refusal the longest.
void Core::make_room() {
  Connection* oldest = nullptr;
  for (const auto& connection : connections_) {
    if (!connection->idle() && !connection->receiving() && !connection->is_dismissed()) continue;
    const bool better =
        oldest == nullptr || (connection->idle() && !oldest->idle()) ||
        (connection->idle() == oldest->idle() && connection->active_at_ns() < oldest->active_at_ns());
    if (better) oldest = connection.get();
  }
  if (oldest != nullptr) oldest->close();
}

void Core::handshake_began() {
  if (handshakes_++ < options.handshakes_max) return;
  Connection* oldest = nullptr;
  for (const auto& connection : connections_) {
    if (!connection->handshaking()) continue;
    if (oldest == nullptr || connection->active_at_ns() < oldest->active_at_ns()) oldest = connection.get();
  }
  if (oldest != nullptr) oldest->close();
}

void Core::add(std::shared_ptr<Connection> connection) {
  if (!connection->party.empty()) {
    std::vector<Connection*>& own = of_party_[connection->party];
    connection->index_in_party = own.size();
    own.push_back(connection.get());
  }
  connection->index = connections_.size();
  connections_.push_back(std::move(connection));
  open.store(connections_.size(), std::memory_order_relaxed);
}

void Core::remove(Connection& connection) {
  CHECK(connection.index < connections_.size());
  if (const auto found = of_party_.find(connection.party); found != of_party_.end()) {
    std::vector<Connection*>& own = found->second;
    CHECK(own[connection.index_in_party] == &connection);
    own.back()->index_in_party = connection.index_in_party;
    own[connection.index_in_party] = own.back();
    own.pop_back();
    if (own.empty()) of_party_.erase(found);
  }
  connections_.back()->index = connection.index;
  std::swap(connections_[connection.index], connections_.back());
  connections_.pop_back();
  open.store(connections_.size(), std::memory_order_relaxed);
  if (stopping_) maybe_finish();
}

bool Core::grant(const std::string& payer, uint64_t bytes) {
  if (bytes == 0) return true;
  if (!bodies_.fits(payer, bytes)) return false;
  bodies_.take(payer, bytes);
  return true;
}

const std::string& Core::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    date_ = http_date(now);
  }
  return date_;
}

void Core::submit(Task task, bool wake) {
  if (on_own_thread()) {
    apply(task);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    tasks_.push_back(std::move(task));
    if (!wake || woken_) return;
    woken_ = true;
  }
  asio::post(io_, [this] { drain(); });
}

void Core::flush() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || woken_ || tasks_.empty()) return;
    woken_ = true;
  }
  asio::post(io_, [this] { drain(); });
}

void Core::later(std::function<void()> call) {
  asio::post(io_, [this, call = std::move(call)] {
    const LoopStep step(watch, "a call");
    call();
  });
}

void Core::drain() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    draining_.swap(tasks_);
  }
  for (Task& task : draining_) {
    const LoopStep step(watch, task.kind == Task::Kind::kCall ? "a call" : "an answer");
    apply(task);
  }
  draining_.clear();
}

void Core::apply(Task& task) {
  switch (task.kind) {
    case Task::Kind::kRespond:
      task.connection->respond(task.request, std::move(task.response));
      return;
    case Task::Kind::kStreamBegin:
      task.connection->stream_begin(task.request, std::move(task.response));
      return;
    case Task::Kind::kStreamWrite:
      task.connection->stream_write(task.request, task.response.body, std::move(task.written));
      return;
    case Task::Kind::kStreamFinish:
      task.connection->stream_end(task.request, true);
      return;
    case Task::Kind::kStreamAbort:
      task.connection->stream_end(task.request, false);
      return;
    case Task::Kind::kSocketSend:
      task.connection->socket_send(task.request, task.response.status == 1, task.response.body,
                                   std::move(task.written));
      return;
    case Task::Kind::kSocketClose:
      task.connection->socket_close(task.request, static_cast<uint16_t>(task.response.status),
                                    task.response.body);
      return;
    case Task::Kind::kCall:
      task.call();
      return;
  }
}

void Core::sweep() {
  const int64_t now = now_ns();
  // Deadlines close connections, which moves the last one into the place of the closed one.
  for (std::size_t i = connections_.size(); i-- > 0;) {
    if (i < connections_.size() && connections_[i]->deadline_ns() <= now) {
      const std::shared_ptr<Connection> late = connections_[i];
      late->on_deadline();
    }
  }
  sweep_timer_.expires_after(std::chrono::nanoseconds(kSweepEvery.ns));
  sweep_timer_.async_wait([this](const error_code& error) {
    const LoopStep step(watch, "deadlines of connections");
    if (!error) sweep();
  });
}

HttpTimer Core::run_after(Duration delay, std::function<void()> due) {
  const HttpTimer timer{now_ns() + delay.ns, timer_number_.fetch_add(1) + 1};
  submit({.kind = Task::Kind::kCall,
          .call =
              [this, timer, fn = std::move(due)]() mutable {
                timers_.emplace(std::pair(timer.due_ns, timer.number), std::move(fn));
                if (timers_.begin()->first.second == timer.number) arm_timer();
              }},
         true);
  return timer;
}

void Core::cancel(HttpTimer timer) {
  submit({.kind = Task::Kind::kCall, .call = [this, timer] { timers_.erase({timer.due_ns, timer.number}); }},
         true);
}

void Core::arm_timer() {
  if (timers_.empty()) return;
  due_timer_.expires_at(
      std::chrono::steady_clock::time_point(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(timers_.begin()->first.first))));
  due_timer_.async_wait([this](const error_code& error) {
    if (!error) run_due();
  });
}

void Core::run_due() {
  const int64_t now = now_ns();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto due = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    const LoopStep step(watch, "a timer");
    due();
  }
  arm_timer();
}

void Core::stop() {
  CHECK(!on_own_thread());
  if (!thread_.joinable()) return;
  asio::post(io_, [this] { begin_stop(); });
  thread_.join();
  thread_id_ = std::thread::id();
  // Aborted operations hold connections, which hold this: running them lets all go.
  io_.restart();
  io_.poll();
  std::vector<Task> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(tasks_);
  }
  timers_.clear();
}

void Core::begin_stop() {
  const LoopStep step(watch, "the beginning of the end");
  stopping_ = true;
  error_code ignored;
  for (const auto& listening : listening_) {
    // First: the next scheduler may have the place as soon as nobody answers there.
    if (listening->listener.unix_socket != nullptr) listening->listener.unix_socket->remove();
    listening->acceptor.close(ignored);
    listening->local.close(ignored);
    listening->retry.cancel();
  }
  const std::vector<std::shared_ptr<Connection>> all = connections_;
  for (const auto& connection : all) connection->begin_shutdown();
  stop_timer_.expires_after(std::chrono::nanoseconds(options.shutdown_wait.ns));
  stop_timer_.async_wait([this](const error_code& error) {
    if (error) return;
    const LoopStep closing(watch, "the end of connections");
    const std::vector<std::shared_ptr<Connection>> late = connections_;
    for (const auto& connection : late) connection->close();
    io_.stop();
  });
  maybe_finish();
}

void Core::maybe_finish() {
  if (!connections_.empty()) return;
  // Posted, so that everything under way on this thread is over first.
  asio::post(io_, [this] { io_.stop(); });
}

}  // namespace gpusched::api::http_internal
