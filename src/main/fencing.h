#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/ids.h"
#include "base/time.h"
#include "host/readers/observer.h"

namespace gpusched {

struct FencingOptions {
  std::string command;               ///< For `/bin/sh -c`; empty: nodes are not fenced.
  Duration after = seconds(60);      ///< From the end of a node's lease on.
  Duration timeout = seconds(120);   ///< For one run; then it is killed, and has failed.
  Duration pause = seconds(30);      ///< Before a node's second run; doubled for each later one.
  Duration pause_max = minutes(10);  ///< Longest pause.
};

/// Runs an operator's command for each node that is silent for so long, such as one that switches its power
/// off. Exit status 0 means that the node is off for certain: it is confirmed dead, as by an operator's word,
/// and its jobs are tried elsewhere. Any other end means that nothing is known: the command is run again
/// later, as long as the node is silent. One run at a time, on a thread of its own; a node that reports
/// meanwhile is left alone.
///
/// Nothing is fenced while more than one node, and more than half of them, are silent: then it is rather the
/// scheduler that is cut off, and it would switch off a cluster that works.
class Fencing {
 public:
  /// `confirm` is told of a node, in the boot that was fenced; on this class's thread.
  Fencing(FencingOptions options, std::function<void(NodeId node, const std::string& boot_id)> confirm);
  Fencing(const Fencing&) = delete;
  Fencing& operator=(const Fencing&) = delete;
  ~Fencing() { stop(); }

  bool wanted() const { return !options_.command.empty(); }
  /// Takes note of the nodes that are silent, and forgets the others. Thread-safe.
  void look(const State& state);
  /// For Observer::add_listener; on its thread.
  void on_changes(const Observer::View& view, const Changes& changes);
  /// Ends the thread; a command that runs is killed. May be called twice.
  void stop();

 private:
  struct Target {
    std::string name, boot_id;
    Time due;  ///< On the monotonic clock.
    Duration pause;
  };
  void run();
  /// Whether so many nodes are silent that none may be fenced.
  bool is_cut_off() const { return targets_.size() > 1 && 2 * targets_.size() > nodes_; }
  /// Runs the command for a node and says what came of it; returns whether the node is off.
  bool fence(const Target& target);

  const FencingOptions options_;
  const std::function<void(NodeId, const std::string&)> confirm_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<NodeId, Target> targets_;  ///< The silent nodes.
  std::size_t nodes_ = 0;             ///< Those that may have work: all but removed and dead ones.
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace gpusched
