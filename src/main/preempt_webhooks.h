#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/webhook_url.h"
#include "base/time.h"
#include "host/readers/observer.h"

namespace gpusched {

struct PreemptWebhookOptions {
  std::string url;                 ///< Told of each preemption; empty: none is.
  std::vector<std::string> hosts;  ///< Jobs' own URLs are only told when their host is one of these.
  Duration grace = {};             ///< For a job that asks for none; zero: its agent's own.
  Duration grace_max = {};         ///< At most so much of what jobs ask for.
  int tries = 3;
  Duration timeout = seconds(3);  ///< For each try.
  Duration pause = seconds(1);    ///< Before the second try; each later one waits twice as long.
};

/// Tells URLs by POST that a job is to be ended for another one, once that is durable. On threads of its own:
/// nobody waits for a URL. An error, a 429 and a 5xx are tried again, anything else is an answer;
/// redirections are not followed. More than kWaitingMax notes at a time are dropped, and what waits at the
/// scheduler's end too: the job's signal is what counts.
class PreemptWebhooks {
 public:
  static constexpr std::size_t kWaitingMax = 1'024;
  static constexpr int kThreads = 4;

  explicit PreemptWebhooks(PreemptWebhookOptions options);
  PreemptWebhooks(const PreemptWebhooks&) = delete;
  PreemptWebhooks& operator=(const PreemptWebhooks&) = delete;
  ~PreemptWebhooks() { stop(); }

  /// Whether there can be anybody to tell.
  bool wanted() const { return !options_.url.empty() || !options_.hosts.empty(); }
  /// For Observer::add_listener; on its thread.
  void on_changes(const Observer::View& view, const Changes& changes);
  /// Ends the threads, after the tries that are being made. May be called twice; nothing is told after it.
  void stop();

 private:
  struct Note {
    uint64_t job = 0;
    WebhookUrl url;
    std::string key;  ///< The same for each try.
    std::string body;
  };
  void tell(const State& state, const StopRequested& stop, Time now);
  void queue(const std::string& url, bool of_job, const Note& note);
  void run();
  void deliver(const Note& note);
  /// False when it should be tried again.
  bool post(const Note& note, std::string& trouble) const;

  const PreemptWebhookOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Note> notes_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gpusched
