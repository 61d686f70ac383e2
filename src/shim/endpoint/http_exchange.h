#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/net/webhook_url.h"
#include "base/time.h"
#include "shim/endpoint/http_answer.h"

namespace gpusched::shim {

/// A request and its answer over a connection of their own, which never waits: its owner polls `descriptor`
/// for `events` and calls `advance`. Redirections are not followed, proxies not used, names not looked up.
/// The destructor closes the connection, whatever is under way.
class HttpExchange {
 public:
  enum class End : uint8_t {
    kNone,        ///< It is under way.
    kAnswered,    ///< It was answered, with any status.
    kNotReached,  ///< No connection came to be.
    kBroken,      ///< The connection ended before the answer did.
    kNoAnswer,    ///< The answer is invalid, or too large.
    kLate,        ///< The deadline came first.
  };

  /// `url.host`: an IP address, or "localhost". `deadline`: of `boot_now`.
  HttpExchange(const WebhookUrl& url, std::string request, std::size_t body_bytes_max, Time deadline);
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;
  ~HttpExchange();

  int descriptor() const { return socket_; }
  short events() const;
  Time deadline() const { return deadline_; }
  /// Does what is possible without waiting.
  void advance(Time now);

  End end() const { return end_; }
  const std::string& problem() const { return problem_; }  ///< In words, of any end but kAnswered.
  HttpAnswer& answer() { return answer_; }

 private:
  void connect_to(const WebhookUrl& url);
  void write_request();
  void read_answer();
  void finish(End end, std::string problem);

  int socket_ = -1;
  bool connected_ = false;
  std::string request_;
  std::size_t written_ = 0;
  HttpAnswer answer_;
  const Time deadline_;
  End end_ = End::kNone;
  std::string problem_;
};

}  // namespace gpusched::shim
