#include "api/http_server.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>
#include <charconv>
#include <chrono>
#include <ctime>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "api/errors.h"
#include "api/http_parser.h"
#include "base/check.h"

namespace gpusched::api {
namespace http_internal {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr std::size_t kReadBytesFirst = 2 * 1024;  // Of an idle connection: ten thousand of them cost 20 MB.
constexpr std::size_t kReadBytesMax = 64 * 1024;   // While a body arrives.
constexpr std::size_t kPipelinedBytesMax = 64 * 1024;
constexpr std::size_t kLingerBytesMax = 1u << 20;  // Read and dropped after a refusal, so that it is seen.
constexpr Duration kLinger = seconds(1);
constexpr Duration kSweepEvery = milliseconds(500);
constexpr std::size_t kOutBytesKept = 64 * 1024;
constexpr rlim_t kFilesKeptFree = 256;  // For everything that is no HTTP connection.

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

enum class Phase {
  kIdle,      // Waits for a request's first byte.
  kHeader,    // Receives a header.
  kBody,      // Receives a body.
  kHandling,  // The handler has it.
  kWriting,   // The answer goes out.
  kLinger,    // Answered for the last time; reads and drops.
  kClosed,
};

/// One connection. Everything runs on the server's thread.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Core> core, Tcp::socket socket, const HttpHandler& handler);

  void begin();
  void respond(uint64_t request, HttpResponse response);
  void stream_begin(uint64_t request, HttpResponse head);
  void stream_write(uint64_t request, std::string_view data, std::function<void(bool)> written);
  void stream_end(uint64_t request, bool well);
  void set_gone(uint64_t request, std::function<void()> gone);
  void on_deadline();
  void begin_shutdown();
  void close();

  bool idle() const { return phase_ == Phase::kIdle || phase_ == Phase::kHeader; }
  int64_t deadline_ns() const { return deadline_ns_; }
  int64_t active_at_ns() const { return active_at_ns_; }
  Core& core() { return *core_; }
  std::size_t index = 0;  // Its place in the core's list.

 private:
  bool current(uint64_t request) const { return request == request_ && phase_ != Phase::kClosed; }
  void set_phase(Phase phase, Duration limit);
  void read();
  void on_read(const error_code& error, std::size_t size);
  void process();
  bool parse_some();
  bool begin_body();
  void dispatch();
  void refuse(const ApiError& error);
  void append_head(const HttpResponse& response, std::optional<std::size_t> length);
  void write_out();
  void written_out();
  void end_request();
  void begin_linger();
  void release_budget();
  void tell_gone();

  std::shared_ptr<Core> core_;  // First: the socket needs its io_context until the end.
  Tcp::socket socket_;
  const HttpHandler& handler_;
  std::string peer_;
  HttpParser parser_;
  std::vector<char> in_;
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::string out_;
  std::size_t out_begin_ = 0;
  std::function<void(bool)> written_;
  std::function<void()> gone_;
  uint64_t request_ = 0;
  uint64_t budget_ = 0;  // Bytes of bodies that it was granted.
  int64_t deadline_ns_ = 0, active_at_ns_ = 0;
  std::size_t lingered_ = 0;
  Phase phase_ = Phase::kIdle;
  bool reading_ = false, read_closed_ = false, write_waiting_ = false, processing_ = false;
  bool header_seen_ = false, keep_alive_ = true, head_only_ = false, old_version_ = false, pieces_ = false;
  bool streaming_ = false, stream_ended_ = false;
};

/// What the connections share: the thread, the list, the answers on their way, the timers.
class Core final : public std::enable_shared_from_this<Core> {
 public:
  struct Task {
    enum class Kind { kRespond, kStreamBegin, kStreamWrite, kStreamFinish, kStreamAbort, kCall } kind;
    std::shared_ptr<Connection> connection = nullptr;
    uint64_t request = 0;
    HttpResponse response = {};
    std::function<void(bool)> written = nullptr;
    std::function<void()> call = nullptr;
  };

  explicit Core(HttpServerOptions server_options) : options(server_options) {}

  Result<Unit> listen(HttpListener listener, std::vector<uint16_t>& ports);
  void run();
  void stop();

  /// Runs the task at once on the server's thread, else queues it.
  void submit(Task task, bool wake);
  void flush();
  bool on_own_thread() const { return std::this_thread::get_id() == thread_id_; }

  void add(std::shared_ptr<Connection> connection);
  void remove(Connection& connection);
  bool grant(uint64_t bytes);
  void release(uint64_t bytes) { bodies_bytes_ -= bytes; }
  bool stopping() const { return stopping_; }
  const std::string& date();

  HttpTimer run_after(Duration delay, std::function<void()> due);
  void cancel(HttpTimer timer);

  const HttpServerOptions options;
  std::atomic<uint64_t> requests{0}, accepted{0}, open{0};

 private:
  struct Listening {
    Listening(asio::io_context& io, HttpHandler h) : acceptor(io), retry(io), handler(std::move(h)) {}
    Tcp::acceptor acceptor;
    asio::steady_timer retry;
    HttpHandler handler;
  };
  void accept(Listening& listening);
  void accepted_one(Listening& listening, const error_code& error, Tcp::socket socket);
  void make_room();
  void limit_connections();
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
  std::size_t connection_max_ = 0;
  uint64_t bodies_bytes_ = 0;
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

// --- Connection --------------------------------------------------------------------------------------------

Connection::Connection(std::shared_ptr<Core> core, Tcp::socket socket, const HttpHandler& handler)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      handler_(handler),
      parser_(core_->options.header_bytes_max, core_->options.body_bytes_max) {
  error_code error;
  const auto endpoint = socket_.remote_endpoint(error);
  if (!error) peer_ = endpoint.address().to_string();
}

void Connection::begin() {
  // The first request has a header's time from now on; the idle time is for later ones.
  set_phase(Phase::kIdle, core_->options.header_timeout);
  read();
}

void Connection::set_phase(Phase phase, Duration limit) {
  phase_ = phase;
  active_at_ns_ = now_ns();
  deadline_ns_ = limit.ns == 0 ? INT64_MAX : active_at_ns_ + limit.ns;
}

void Connection::read() {
  if (reading_ || read_closed_ || phase_ == Phase::kClosed) return;
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
  } else if (in_begin_ > 0) {
    std::copy(in_.begin() + static_cast<std::ptrdiff_t>(in_begin_),
              in_.begin() + static_cast<std::ptrdiff_t>(in_end_), in_.begin());
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (phase_ == Phase::kHandling || phase_ == Phase::kWriting) {
    if (in_end_ >= kPipelinedBytesMax) return;  // The next ones wait in the kernel.
  }
  std::size_t size = kReadBytesFirst;
  if (phase_ == Phase::kBody || phase_ == Phase::kLinger) size = kReadBytesMax;
  if (in_.size() < in_end_ + size) in_.resize(in_end_ + size);
  if (in_end_ == 0 && phase_ == Phase::kIdle && in_.size() > kReadBytesFirst) {
    in_.resize(kReadBytesFirst);
    in_.shrink_to_fit();
  }
  reading_ = true;
  socket_.async_read_some(asio::buffer(in_.data() + in_end_, in_.size() - in_end_),
                          [self = shared_from_this()](const error_code& error, std::size_t count) {
                            self->on_read(error, count);
                          });
}

void Connection::on_read(const error_code& error, std::size_t size) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) {
    read_closed_ = true;
    // A client may close its sending side and still wait for the answer, but not for a long one.
    const bool answering = phase_ == Phase::kHandling || phase_ == Phase::kWriting;
    if (error == asio::error::eof && answering && gone_ == nullptr && !streaming_) {
      keep_alive_ = false;
      return;
    }
    close();
    return;
  }
  if (phase_ == Phase::kLinger) {
    lingered_ += size;
    if (lingered_ >= kLingerBytesMax) {
      close();
      return;
    }
    read();
    return;
  }
  in_end_ += size;
  process();
}

void Connection::process() {
  if (processing_) return;  // The loop below is running further up the stack.
  processing_ = true;
  while (phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    if (!parse_some()) break;
  }
  processing_ = false;
  if (read_closed_ && phase_ != Phase::kHandling && phase_ != Phase::kWriting) {
    close();
    return;
  }
  read();
}

/// Feeds the parser; false when it needs more bytes.
bool Connection::parse_some() {
  if (phase_ == Phase::kIdle) {
    // Empty lines between requests are tolerated (RFC 9112, 2.2).
    while (in_begin_ < in_end_ && (in_[in_begin_] == '\r' || in_[in_begin_] == '\n')) ++in_begin_;
    if (in_begin_ == in_end_) return false;
    parser_.reset();
    header_seen_ = false;
    set_phase(Phase::kHeader, core_->options.header_timeout);
  }
  if (in_begin_ == in_end_) return false;
  std::size_t used = 0;
  const auto status = parser_.put({in_.data() + in_begin_, in_end_ - in_begin_}, used);
  in_begin_ += used;
  switch (status) {
    case HttpParser::Status::kHeaderTooLarge:
      refuse({ErrorKind::kHeadersTooLarge, "the header is larger than " +
                                               std::to_string(core_->options.header_bytes_max) +
                                               " bytes; send fewer or shorter fields"});
      return false;
    case HttpParser::Status::kBodyTooLarge:
      refuse({ErrorKind::kTooLarge, "the body is larger than " +
                                        std::to_string(core_->options.body_bytes_max) +
                                        " bytes; put large data into a file that the job reads"});
      return false;
    case HttpParser::Status::kBad:
      refuse({ErrorKind::kInvalidArgument, "this is no HTTP/1.1 request: " + parser_.error()});
      return false;
    case HttpParser::Status::kDone:
      dispatch();
      return phase_ == Phase::kIdle;
    case HttpParser::Status::kNeedMore:
      if (!header_seen_ && parser_.header_done() && !begin_body()) return false;
      return used > 0 && in_begin_ < in_end_;
  }
  UNREACHABLE();
}

/// The header is complete and the body is not; false when it is refused.
bool Connection::begin_body() {
  header_seen_ = true;
  // A chunked body does not say how long it gets: it is charged with the most that it may be.
  const uint64_t wanted = parser_.content_length().value_or(core_->options.body_bytes_max);
  if (!core_->grant(wanted)) {
    refuse({ErrorKind::kUnavailable,
            "too many large requests arrive at the same time; send it again in a second", "", seconds(1)});
    return false;
  }
  budget_ = wanted;
  set_phase(Phase::kBody, core_->options.body_timeout);
  if (parser_.expects_continue() && out_.empty()) {
    error_code error;
    static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    socket_.write_some(asio::buffer(kGoOn.data(), kGoOn.size()), error);
    // A full buffer here means a client that waits for nothing: it sends the body without being told.
  }
  return true;
}

void Connection::dispatch() {
  HttpRequest request = std::move(parser_.request());
  keep_alive_ = parser_.keep_alive() && !read_closed_;
  old_version_ = parser_.version_1_0();
  head_only_ = request.method == HttpMethod::kHead;
  request.peer = peer_;
  ++request_;
  core_->requests.fetch_add(1, std::memory_order_relaxed);
  set_phase(Phase::kHandling, {});
  handler_(std::move(request), HttpReply(shared_from_this(), request_));
}

/// Answers what is no request, or none that we take, and ends the connection.
void Connection::refuse(const ApiError& error) {
  keep_alive_ = false;
  head_only_ = false;
  ++request_;
  set_phase(Phase::kHandling, {});
  HttpResponse response{.status = row_of(error.kind).http_status, .body = error_json(error)};
  if (error.retry_after.ns > 0) response.headers.emplace_back("Retry-After", "1");
  respond(request_, std::move(response));
}

void Connection::append_head(const HttpResponse& response, std::optional<std::size_t> length) {
  const auto number = [this](uint64_t value) {
    char buffer[24];
    out_.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  };
  if (core_->stopping()) keep_alive_ = false;
  out_.append("HTTP/1.1 ");
  number(static_cast<uint64_t>(response.status));
  out_.push_back(' ');
  out_.append(reason_phrase(response.status));
  out_.append("\r\nDate: ").append(core_->date());
  if (response.status != 204) {
    out_.append("\r\nContent-Type: ").append(response.content_type);
    if (length) {
      out_.append("\r\nContent-Length: ");
      number(*length);
    } else if (!old_version_) {
      out_.append("\r\nTransfer-Encoding: chunked");
    }
  }
  for (const auto& [name, value] : response.headers) {
    out_.append("\r\n").append(name).append(": ").append(value);
  }
  if (!keep_alive_) {
    out_.append("\r\nConnection: close");
  } else if (old_version_) {
    out_.append("\r\nConnection: keep-alive");
  }
  out_.append("\r\n\r\n");
}

void Connection::respond(uint64_t request, HttpResponse response) {
  if (!current(request) || streaming_) return;
  gone_ = nullptr;
  append_head(response, response.body.size());
  if (!head_only_ && response.status != 204) out_.append(response.body);
  set_phase(Phase::kWriting, core_->options.write_timeout);
  write_out();
}

void Connection::stream_begin(uint64_t request, HttpResponse head) {
  if (!current(request) || streaming_) return;
  streaming_ = true;
  stream_ended_ = false;
  if (old_version_) keep_alive_ = false;  // The end of the connection is the end of the body.
  pieces_ = !old_version_;
  append_head(head, std::nullopt);
  write_out();
}

void Connection::stream_write(uint64_t request, std::string_view data, std::function<void(bool)> written) {
  if (!current(request) || !streaming_ || stream_ended_) {
    if (written != nullptr) written(false);
    return;
  }
  if (!data.empty() && !head_only_) {
    if (pieces_) {
      char buffer[24];
      out_.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, data.size(), 16).ptr).append("\r\n");
    }
    out_.append(data);
    if (pieces_) out_.append("\r\n");
  }
  written_ = std::move(written);
  set_phase(Phase::kHandling, core_->options.write_timeout);
  if (!write_waiting_) write_out();
}

void Connection::stream_end(uint64_t request, bool well) {
  if (!current(request) || !streaming_ || stream_ended_) return;
  if (!well) {
    close();
    return;
  }
  stream_ended_ = true;
  if (pieces_ && !head_only_) out_.append("0\r\n\r\n");
  set_phase(Phase::kWriting, core_->options.write_timeout);
  if (!write_waiting_) write_out();
}

void Connection::set_gone(uint64_t request, std::function<void()> gone) {
  if (!current(request)) {
    gone();
    return;
  }
  gone_ = std::move(gone);
}

void Connection::write_out() {
  while (out_begin_ < out_.size()) {
    error_code error;
    const std::size_t sent =
        socket_.write_some(asio::buffer(out_.data() + out_begin_, out_.size() - out_begin_), error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      write_waiting_ = true;
      socket_.async_wait(Tcp::socket::wait_write, [self = shared_from_this()](const error_code& failed) {
        self->write_waiting_ = false;
        if (self->phase_ == Phase::kClosed) return;
        if (failed) {
          self->close();
          return;
        }
        self->write_out();
      });
      return;
    }
    if (error) {
      close();
      return;
    }
    out_begin_ += sent;
    if (deadline_ns_ != INT64_MAX) deadline_ns_ = now_ns() + core_->options.write_timeout.ns;
  }
  written_out();
}

void Connection::written_out() {
  out_begin_ = 0;
  out_.clear();
  if (out_.capacity() > kOutBytesKept) out_ = std::string();
  if (streaming_ && !stream_ended_) {
    deadline_ns_ = INT64_MAX;  // The next piece may take its time.
    if (const auto written = std::exchange(written_, nullptr); written != nullptr) written(true);
    return;
  }
  end_request();
}

void Connection::end_request() {
  release_budget();
  streaming_ = stream_ended_ = false;
  gone_ = nullptr;
  ++request_;  // Late words about it are ignored.
  if (!keep_alive_ || core_->stopping()) {
    begin_linger();
    return;
  }
  set_phase(Phase::kIdle, core_->options.idle_timeout);
  process();
}

/// Closing with unread bytes would reset the connection, and the client might never see the answer.
void Connection::begin_linger() {
  if (read_closed_) {
    close();
    return;
  }
  error_code error;
  socket_.shutdown(Tcp::socket::shutdown_send, error);
  set_phase(Phase::kLinger, kLinger);
  in_begin_ = in_end_ = 0;
  read();
}

void Connection::release_budget() {
  core_->release(budget_);
  budget_ = 0;
}

void Connection::tell_gone() {
  if (const auto gone = std::exchange(gone_, nullptr); gone != nullptr) gone();
  if (const auto written = std::exchange(written_, nullptr); written != nullptr) written(false);
}

void Connection::on_deadline() {
  switch (phase_) {
    case Phase::kHeader:
    case Phase::kBody:
      refuse({ErrorKind::kRequestTimeout, phase_ == Phase::kHeader
                                              ? "the header did not arrive in time; send it faster"
                                              : "the body did not arrive in time; send it faster"});
      return;
    case Phase::kIdle:
    case Phase::kHandling:
    case Phase::kWriting:
    case Phase::kLinger:
      close();
      return;
    case Phase::kClosed:
      return;
  }
}

void Connection::begin_shutdown() {
  keep_alive_ = false;
  if (idle() || phase_ == Phase::kLinger || gone_ != nullptr || streaming_) close();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  const auto self = shared_from_this();  // The list may hold the last reference.
  error_code error;
  socket_.close(error);
  release_budget();
  core_->remove(*this);
  tell_gone();
}

// --- Core --------------------------------------------------------------------------------------------------

Result<Unit> Core::listen(HttpListener listener, std::vector<uint16_t>& ports) {
  const std::string where = listener.address + ":" + std::to_string(listener.port);
  error_code error;
  const auto address =
      asio::ip::make_address(listener.address == "localhost" ? "127.0.0.1" : listener.address, error);
  if (error)
    return Error{ErrorCode::kInvalidArgument, listener.address + " is no numeric address", "address"};
  auto listening = std::make_unique<Listening>(io_, std::move(listener.handler));
  const Tcp::endpoint endpoint(address, listener.port);
  Tcp::acceptor& acceptor = listening->acceptor;
  if (!acceptor.open(endpoint.protocol(), error))
    acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(4'096, error);
  if (error) return Error{ErrorCode::kIo, "cannot listen on " + where + ": " + error.message()};
  ports.push_back(acceptor.local_endpoint(error).port());
  listening_.push_back(std::move(listening));
  return Unit{};
}

void Core::limit_connections() {
  rlimit files{};
  connection_max_ = options.connection_max;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = connection_max_ + kFilesKeptFree;
  if (files.rlim_cur < wanted) {
    files.rlim_cur = std::min(files.rlim_max, wanted);
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
  }
  if (files.rlim_cur < wanted) {
    connection_max_ =
        std::max<std::size_t>(16, files.rlim_cur > kFilesKeptFree ? files.rlim_cur - kFilesKeptFree : 0);
  }
}

void Core::run() {
  limit_connections();
  for (const auto& listening : listening_) accept(*listening);
  sweep();
  thread_ = std::thread([self = shared_from_this()] {
    self->thread_id_ = std::this_thread::get_id();
    pthread_setname_np(pthread_self(), "api-http");
    self->io_.run();
  });
}

void Core::accept(Listening& listening) {
  listening.acceptor.async_accept([this, &listening](const error_code& error, Tcp::socket socket) {
    accepted_one(listening, error, std::move(socket));
  });
}

void Core::accepted_one(Listening& listening, const error_code& error, Tcp::socket socket) {
  if (stopping_ || error == asio::error::operation_aborted) return;
  if (error) {
    // Out of files or memory: the waiting client stays in the kernel's queue until there is room.
    make_room();
    listening.retry.expires_after(std::chrono::milliseconds(50));
    listening.retry.async_wait([this, &listening](const error_code& failed) {
      if (!failed && !stopping_) accept(listening);
    });
    return;
  }
  if (connections_.size() >= connection_max_) make_room();
  if (connections_.size() < connection_max_) {  // Else it is closed: every other one is at work.
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.set_option(Tcp::no_delay(true), ignored);
    accepted.fetch_add(1, std::memory_order_relaxed);
    auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket), listening.handler);
    add(connection);
    connection->begin();
  }
  accept(listening);
}

/// Closes the connection that has been waiting for a request the longest.
void Core::make_room() {
  Connection* oldest = nullptr;
  for (const auto& connection : connections_) {
    if (!connection->idle()) continue;
    if (oldest == nullptr || connection->active_at_ns() < oldest->active_at_ns()) oldest = connection.get();
  }
  if (oldest != nullptr) oldest->close();
}

void Core::add(std::shared_ptr<Connection> connection) {
  connection->index = connections_.size();
  connections_.push_back(std::move(connection));
  open.store(connections_.size(), std::memory_order_relaxed);
}

void Core::remove(Connection& connection) {
  CHECK(connection.index < connections_.size());
  connections_.back()->index = connection.index;
  std::swap(connections_[connection.index], connections_.back());
  connections_.pop_back();
  open.store(connections_.size(), std::memory_order_relaxed);
  if (stopping_) maybe_finish();
}

bool Core::grant(uint64_t bytes) {
  if (bodies_bytes_ + bytes > options.bodies_bytes_max) return false;
  bodies_bytes_ += bytes;
  return true;
}

const std::string& Core::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    std::tm parts{};
    gmtime_r(&now, &parts);
    char buffer[40];
    date_.assign(buffer, std::strftime(buffer, sizeof buffer, "%a, %d %b %Y %H:%M:%S GMT", &parts));
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

void Core::drain() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    draining_.swap(tasks_);
  }
  for (Task& task : draining_) apply(task);
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
  // What was aborted holds connections, which hold this: running it lets all go.
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
  stopping_ = true;
  error_code ignored;
  for (const auto& listening : listening_) {
    listening->acceptor.close(ignored);
    listening->retry.cancel();
  }
  const std::vector<std::shared_ptr<Connection>> all = connections_;
  for (const auto& connection : all) connection->begin_shutdown();
  stop_timer_.expires_after(std::chrono::nanoseconds(options.shutdown_wait.ns));
  stop_timer_.async_wait([this](const error_code& error) {
    if (error) return;
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

}  // namespace http_internal

// --- The public side ---------------------------------------------------------------------------------------

using http_internal::Core;

void HttpStream::write(std::string data, std::function<void(bool)> written) {
  if (connection_ == nullptr) return;
  connection_->core().submit({.kind = Core::Task::Kind::kStreamWrite,
                              .connection = connection_,
                              .request = request_,
                              .response = {.body = std::move(data)},
                              .written = std::move(written)},
                             true);
}

void HttpStream::finish() {
  if (connection_ == nullptr) return;
  connection_->core().submit(
      {.kind = Core::Task::Kind::kStreamFinish, .connection = connection_, .request = request_}, true);
}

void HttpStream::abort() {
  if (connection_ == nullptr) return;
  connection_->core().submit(
      {.kind = Core::Task::Kind::kStreamAbort, .connection = connection_, .request = request_}, true);
}

HttpReply::HttpReply(std::shared_ptr<http_internal::Connection> connection, uint64_t request)
    : connection_(std::move(connection)), request_(request) {}
HttpReply::HttpReply(HttpReply&& other) noexcept = default;

HttpReply& HttpReply::operator=(HttpReply&& other) noexcept {
  std::swap(connection_, other.connection_);
  std::swap(request_, other.request_);
  return *this;
}

HttpReply::~HttpReply() {
  if (connection_ == nullptr) return;
  const ApiError error{ErrorKind::kInternal,
                       "the request was dropped without an answer; this is a fault of ours"};
  send({.status = row_of(error.kind).http_status, .body = error_json(error)});
}

void HttpReply::send(HttpResponse response) {
  CHECK(connection_ != nullptr);  // Answered once.
  const auto connection = std::move(connection_);
  connection->core().submit({.kind = Core::Task::Kind::kRespond,
                             .connection = connection,
                             .request = request_,
                             .response = std::move(response)},
                            true);
}

void HttpReply::send_at_flush(HttpResponse response) {
  CHECK(connection_ != nullptr);  // Answered once.
  const auto connection = std::move(connection_);
  connection->core().submit({.kind = Core::Task::Kind::kRespond,
                             .connection = connection,
                             .request = request_,
                             .response = std::move(response)},
                            false);
}

HttpStream HttpReply::stream(HttpResponse head) {
  CHECK(connection_ != nullptr);  // Answered once.
  const auto connection = std::move(connection_);
  connection->core().submit({.kind = Core::Task::Kind::kStreamBegin,
                             .connection = connection,
                             .request = request_,
                             .response = std::move(head)},
                            true);
  return HttpStream(connection, request_);
}

void HttpReply::on_gone(std::function<void()> gone) {
  CHECK(connection_ != nullptr);
  CHECK(connection_->core().on_own_thread());
  connection_->set_gone(request_, std::move(gone));
}

HttpServer::HttpServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(
    HttpServerOptions options, std::vector<HttpListener> listeners,
    const std::function<void(HttpServer&)>& before_serving) {
  CHECK(!listeners.empty());
  std::unique_ptr<HttpServer> server(new HttpServer(std::make_shared<Core>(options)));
  for (HttpListener& listener : listeners) {
    const Result<Unit> listening = server->core_->listen(std::move(listener), server->ports_);
    if (!listening) return listening.error();
  }
  if (before_serving != nullptr) before_serving(*server);
  server->core_->run();
  return server;
}

HttpServer::~HttpServer() { shutdown(); }

void HttpServer::flush() { core_->flush(); }
HttpTimer HttpServer::run_after(Duration delay, std::function<void()> due) {
  return core_->run_after(delay, std::move(due));
}
void HttpServer::cancel(HttpTimer timer) { core_->cancel(timer); }
void HttpServer::shutdown() { core_->stop(); }

HttpServer::Counts HttpServer::counts() const {
  return {.requests = core_->requests.load(std::memory_order_relaxed),
          .connections_accepted = core_->accepted.load(std::memory_order_relaxed),
          .connections_open = core_->open.load(std::memory_order_relaxed)};
}

}  // namespace gpusched::api
