#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.h"

namespace gpusched {

struct MetricsPortOptions {
  std::string address = "127.0.0.1";  ///< IPv4 or IPv6.
  uint16_t port = 0;                  ///< 0: any free one.
  std::string token = {};             ///< Asked for as a bearer token; empty: everybody may read.
};

/// Answers Prometheus' scrapes: GET /metrics, one request a connection, one connection at a time, each for at
/// most two seconds. More than that an agent's few figures do not need; a server that serves more is in
/// api/http. On a thread of its own.
class MetricsPort {
 public:
  /// `text` makes the answer, on the thread. An error names the address: kLocked when it is taken.
  static Result<std::unique_ptr<MetricsPort>> open(const MetricsPortOptions& options,
                                                   std::function<std::string()> text);
  ~MetricsPort();
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;

  uint16_t port() const { return port_; }

 private:
  MetricsPort(int listener, uint16_t port, std::string token, std::function<std::string()> text);
  void run();
  void serve(int connection) const;
  std::string answer_to(std::string_view request) const;

  const int listener_;
  const uint16_t port_;
  const std::string token_;
  const std::function<std::string()> text_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace gpusched
