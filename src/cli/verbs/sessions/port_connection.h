#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "cli/framework/session.h"

namespace gpusched::cli {

/// A descriptor that many threads can wait for. It becomes readable once, and stays so. Thread-safe.
class StopSign {
 public:
  StopSign();
  StopSign(const StopSign&) = delete;
  StopSign& operator=(const StopSign&) = delete;
  ~StopSign();
  int descriptor() const { return descriptor_; }
  void set() const;
  bool is_set() const;

 private:
  int descriptor_;
};

/// The job whose ports are forwarded, and what its connections have in common. Thread-safe.
class PortJob {
 public:
  PortJob(const CliIo& io, std::string job, int64_t member, const StopSign& stop)
      : io_(io), job_(std::move(job)), member_(member), stop_(stop) {}

  const std::string& job() const { return job_; }
  int64_t member() const { return member_; }
  const StopSign& stop() const { return stop_; }

  /// Prints why a connection was refused or broke. A browser that tries again and again repeats no line.
  void say_refusal(const std::string& sentence);
  /// A connection succeeded: the next refusal is printed again.
  void forget_refusal();

 private:
  const CliIo& io_;
  const std::string job_;
  const int64_t member_;
  const StopSign& stop_;
  std::mutex mutex_;
  std::string said_;
};

/// Joins the accepted socket `local`, which it closes, to a port of the job until both directions have ended
/// or the stop sign is set. The end of one direction is passed on and leaves the other open; a connection
/// that broke in the job or on the way is reset here. Blocks.
void carry_connection(PortJob& job, Session session, int local, uint16_t remote);

}  // namespace gpusched::cli
