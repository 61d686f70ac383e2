#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/text/service_port.h"
#include "base/time.h"
#include "node/endpoints/probe_call.h"
#include "node/ports/ports.h"

namespace gpusched {

/// Probes the ports of running attempts, all at the same time and from one thread of its own, which lives
/// from the first probe on. Thread-safe; no call waits for a probe.
class EndpointWatch final : public AttemptEndpoints {
 public:
  /// `data_folder`: where attempts' folders are, with what their shims noted.
  EndpointWatch(std::string data_folder, const Clock& clock);
  ~EndpointWatch() override;

  void began(const AttemptKey& key) override;
  void ended(const AttemptKey& key) override;
  std::vector<EndpointReading> readings() override;

 private:
  struct Endpoint {
    uint32_t port = 0;
    std::optional<ReadyProbe> probe;
    std::optional<bool> ready;
    std::string detail;
    int64_t failures = 0;  ///< In a row.
    Time next_call;
    Time give_up_at = kNever;
    std::unique_ptr<ProbeCall> call;  ///< Under way.
  };

  void run();
  // With the mutex held.
  static void take_answer(Endpoint& endpoint, const std::string& problem);
  static void look_at(Endpoint& endpoint, Time now);

  const std::string data_folder_;
  const Clock& clock_;
  int wake_ = -1;     ///< An eventfd: there is something new to probe, or the end.
  std::mutex mutex_;  ///< Guards all below.
  bool stopping_ = false;
  std::map<AttemptKey, Endpoint> endpoints_;
  std::thread thread_;
};

}  // namespace gpusched
