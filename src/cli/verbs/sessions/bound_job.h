#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cli/framework/session.h"
#include "cli/terminal/signal_watch.h"
#include "cli/verbs/submit/submit.h"
#include "grammar/grammar.h"

/// Jobs that end with the command that submitted them.
namespace gpusched::cli {

/// Time limit of such a job when none is given: what bounds it if its command was killed.
inline constexpr const char* kBoundTimeDefault = "12h";

/// Cancels the job, and says so. A scheduler that is away for a moment is asked again.
void cancel_job(Session& session, const std::string& job);

/// As long as this lives, a signal that ends the process, or the loss of its output's reader, ends the job
/// first. SIGQUIT leaves the job running. Create it before other threads.
class BoundJob {
 public:
  explicit BoundJob(const Session& session);
  BoundJob(const BoundJob&) = delete;
  BoundJob& operator=(const BoundJob&) = delete;
  ~BoundJob();

  /// Binds the job from now on. A signal that came before takes effect now. Thread-safe, as is `release`.
  void take(const std::string& job);
  /// Signals leave the job running from now on, and print `how_to_return`: whole lines.
  void release(const std::string& how_to_return);

 private:
  void on_signal(int signal);
  [[noreturn]] void leave(int signal);
  void on_lost_output();

  Session session_;
  const std::shared_ptr<std::function<void()>> lost_;
  std::mutex mutex_;
  std::string job_;
  std::optional<std::string> how_to_return_;  ///< Given: the job continues without us.
  int early_ = 0;                             ///< A signal that came before the job was known.
  SignalWatch watch_;
};

/// Submits, binds the job to `bound`, and says on standard error which it is. Returns its id; empty: it was
/// refused, and `exit_code` says how.
std::string submit_bound(Session& session, SubmitOptions& submit, const Grammar& grammar, BoundJob& bound,
                         int& exit_code);

}  // namespace gpusched::cli
