#pragma once

#include <string>

#include "cli/framework/run.h"
#include "client/json.h"

namespace gpusched::cli {

/// Says on standard error why a job waits: after two seconds, again when the reason changes, and when it
/// starts. Not thread-safe.
class WaitNotice {
 public:
  WaitNotice(const CliIo& io, std::string job) : io_(io), job_(std::move(job)) {}

  /// Looks at the job's present record.
  void look(const Json& record);
  /// How long to wait for the job's end before the next look: short while it waits, more so at first.
  Duration next_look() const;

 private:
  void say(const std::string& sentence);

  const CliIo& io_;
  const std::string job_;
  bool waits_ = true;
  int looks_ = 0;  ///< While it waits.
  Time since_{};   ///< When it was first seen waiting.
  Time said_at_{};
  std::string said_reason_;
  std::string said_;  ///< The last sentence; empty: nothing was said of this wait.
};

/// "job-12 waits: it requests 2 GPUs ...", or empty for a job that does not wait.
std::string wait_sentence(const std::string& job, const Json& record);

}  // namespace gpusched::cli
