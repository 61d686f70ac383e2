#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <ctime>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "api/http/http_connection.h"
#include "host/core/shared_room.h"
#include "log/loop_step.h"

/// The HTTP server's thread and what its connections share. Included by the server's own files only.
namespace gpusched::api::http_internal {

namespace asio = boost::asio;

/// Common parts of the connections: the thread, the list, the answers on their way, the timers.
class Core final : public std::enable_shared_from_this<Core> {
 public:
  struct Task {
    enum class Kind {
      kRespond,
      kStreamBegin,
      kStreamWrite,
      kStreamFinish,
      kStreamAbort,
      kSocketSend,   // `response.status`: 1 for text; its body is the message.
      kSocketClose,  // `response`: the code and the reason.
      kCall
    } kind;
    std::shared_ptr<Connection> connection = nullptr;
    uint64_t request = 0;
    HttpResponse response = {};
    std::function<void(bool)> written = nullptr;
    std::function<void()> call = nullptr;
  };

  explicit Core(HttpServerOptions server_options)
      : options(server_options),
        watch("HTTP", server_options.step_max),
        bodies_(server_options.bodies_bytes_max) {}

  Result<Unit> listen(HttpListener listener, std::vector<uint16_t>& ports);
  void run();
  void stop();

  /// Runs the task at once on the server's thread, else queues it.
  void submit(Task task, bool wake);
  void flush();
  /// Runs it on the server's thread, after all that was submitted before and after what runs now.
  void later(std::function<void()> call);
  bool on_own_thread() const { return std::this_thread::get_id() == thread_id_; }

  void add(std::shared_ptr<Connection> connection);
  void remove(Connection& connection);
  /// A handshake begins; the oldest one under way ends when there are too many.
  void handshake_began();
  void handshake_ended() { --handshakes_; }
  /// Room for the bytes of a body; false: there is none for the payer.
  bool grant(const std::string& payer, uint64_t bytes);
  void release(const std::string& payer, uint64_t bytes) { bodies_.give_back(payer, bytes); }
  /// Before it runs.
  void limit_connections();
  std::size_t connection_max() const { return connection_max_; }
  bool stopping() const { return stopping_; }
  const std::string& date();

  HttpTimer run_after(Duration delay, std::function<void()> due);
  void cancel(HttpTimer timer);

  const HttpServerOptions options;
  const LoopWatch watch;  ///< Each handler of the thread is a LoopStep of it.
  std::atomic<uint64_t> requests{0}, accepted{0}, open{0};
  std::atomic<uint64_t> turned_away{0};  ///< Connections of addresses that had as many as they may.

 private:
  struct Listening {
    Listening(asio::io_context& io, HttpListener l)
        : acceptor(io), local(io), retry(io), listener(std::move(l)) {}
    Tcp::acceptor acceptor;
    asio::local::stream_protocol::acceptor local;  // Open instead of the other: of a Unix socket.
    asio::steady_timer retry;
    HttpListener listener;
  };
  void accept(Listening& listening);
  void accepted_one(Listening& listening, const error_code& error, StreamSocket socket);
  void begin(Listening& listening, StreamSocket socket);
  Result<Unit> listen_locally(HttpListener listener);
  void make_room();
  bool admit(const std::string& party);
  void apply(Task& task);
  void drain();
  void sweep();
  void arm_timer();
  void run_due();
  void begin_stop();
  void maybe_finish();

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  asio::steady_timer sweep_timer_{io_}, due_timer_{io_}, stop_timer_{io_};
  std::vector<std::unique_ptr<Listening>> listening_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::unordered_map<std::string, std::vector<Connection*>> of_party_;  // Open ones by Connection::party.
  std::size_t connection_max_ = 0;
  std::size_t handshakes_ = 0;
  SharedRoom<std::string> bodies_;
  bool stopping_ = false;
  std::time_t date_second_ = 0;
  std::string date_;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> timers_;
  std::atomic<uint64_t> timer_number_{0};

  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};
  std::mutex mutex_;  // Guards the three below.
  std::vector<Task> tasks_;
  bool woken_ = false;
  bool stopped_ = false;
  std::vector<Task> draining_;
};

}  // namespace gpusched::api::http_internal
