#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/text/service_port.h"
#include "shim/endpoint/http_answer.h"

namespace gpusched {

/// Judges an answer to a probe by its status: empty for 200 to 399, else why it is not good. Nothing: the
/// status has not come yet.
std::optional<std::string> judge_http_answer(const shim::HttpAnswer& answer);

/// One call of a probe to a port of 127.0.0.1, without ever waiting: poll `descriptor` for `events`, then
/// call `advance`. Its owner ends it when it takes too long. Not thread-safe.
class ProbeCall {
 public:
  ProbeCall(const ReadyProbe& probe, uint32_t port);
  ProbeCall(const ProbeCall&) = delete;
  ProbeCall& operator=(const ProbeCall&) = delete;
  ~ProbeCall();

  int descriptor() const { return socket_; }
  short events() const;
  /// The answer, once it is there: empty when it is good, else why not.
  std::optional<std::string> advance();

 private:
  std::optional<std::string> connected();
  std::optional<std::string> send_rest();
  std::optional<std::string> read_some();

  enum class Step : uint8_t { kConnect, kSend, kRead };
  const std::string path_;
  int socket_ = -1;
  Step step_ = Step::kConnect;
  std::string failed_;  ///< Why it could not even begin.
  std::string request_;
  shim::HttpAnswer answer_;
  std::size_t sent_ = 0;
};

}  // namespace gpusched
