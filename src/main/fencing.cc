#include "main/fencing.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "log/log.h"
#include "ops/run_command.h"

namespace gpusched {
namespace {

constexpr std::size_t kOutputShown = 400;

Time now() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

bool is_silent(const Node& node) {
  return node.state == NodeState::kUnreachable || node.state == NodeState::kLost;
}

/// Our own environment, and the name of the node.
std::vector<std::string> environment_for(const std::string& node) {
  std::vector<std::string> entries = {"GPU_SCHEDULER_NODE=" + node};
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::string entry = *each; !entry.starts_with("GPU_SCHEDULER_")) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

Fencing::Fencing(FencingOptions options, std::function<void(NodeId, const std::string&)> confirm)
    : options_(std::move(options)), confirm_(std::move(confirm)) {
  if (wanted()) thread_ = std::thread([this] { run(); });
}

void Fencing::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Fencing::look(const State& state) {
  {
    const std::lock_guard lock(mutex_);
    nodes_ = 0;
    std::map<NodeId, Target> silent;
    for (const Node& node : state.nodes) {
      if (node.removed || node.state == NodeState::kDead) continue;
      ++nodes_;
      if (!is_silent(node)) continue;
      const auto known = targets_.find(node.id);
      const bool same = known != targets_.end() && known->second.boot_id == node.boot_id;
      silent.emplace(node.id, same ? known->second
                                   : Target{.name = node.name,
                                            .boot_id = node.boot_id,
                                            .due = now() + options_.after,
                                            .pause = options_.pause});
    }
    targets_ = std::move(silent);
  }
  wake_.notify_all();
}

void Fencing::on_changes(const Observer::View& view, const Changes& changes) {
  const bool is_about_nodes = std::ranges::any_of(changes.events, [](const Event& event) {
    return std::holds_alternative<NodeStateChanged>(event) || std::holds_alternative<NodeRegistered>(event) ||
           std::holds_alternative<NodeRemoved>(event);
  });
  if (is_about_nodes) look(view.state);
}

void Fencing::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto first =
        std::ranges::min_element(targets_, {}, [](const auto& target) { return target.second.due; });
    if (first == targets_.end()) {
      wake_.wait(lock);
      continue;
    }
    if (first->second.due > now()) {
      wake_.wait_for(lock, std::chrono::nanoseconds((first->second.due - now()).ns));
      continue;
    }
    const NodeId id = first->first;
    const Target target = first->second;
    bool off = false;
    if (is_cut_off()) {
      log_event(LogLevel::kError, "scheduler", "fencing_withheld", {},
                {{"node", target.name},
                 {"silent_nodes", static_cast<int64_t>(targets_.size())},
                 {"nodes", static_cast<int64_t>(nodes_)},
                 {"why",
                  "more than half of the nodes are silent, so the scheduler itself may be disconnected; "
                  "check its network, or declare nodes dead by hand (gpu-cli node confirm-dead NODE)"}});
    } else {
      lock.unlock();
      off = fence(target);
      if (off) confirm_(id, target.boot_id);
      lock.lock();
    }
    const auto found = targets_.find(id);
    if (found == targets_.end() || found->second.boot_id != target.boot_id) continue;
    // A node that is off leaves the map with the confirmation, unless that could not be written: again then.
    found->second.due = now() + target.pause;
    found->second.pause = std::min(target.pause * 2, options_.pause_max);
  }
}

bool Fencing::fence(const Target& target) {
  log_event(LogLevel::kWarning, "scheduler", "node_fencing", {}, {{"node", target.name}});
  const Time began = now();
  const CommandResult ran = run_command({"/bin/sh", "-c", options_.command}, environment_for(target.name),
                                        options_.timeout, &stopping_);
  if (ran.exit_code == 0) {
    log_event(LogLevel::kWarning, "scheduler", "node_fenced", {}, {{"node", target.name}});
    return true;
  }
  const bool killed = ran.exit_code < 0 && (stopping_ || now() - began >= options_.timeout);
  const std::string why = killed              ? (stopping_ ? "the scheduler is stopping"
                                                           : "it took longer than scheduler.fence_timeout_seconds")
                          : ran.exit_code < 0 ? "it could not be run, or was killed by a signal"
                                              : "exit status " + std::to_string(ran.exit_code);
  log_event(LogLevel::kError, "scheduler", "fencing_failed", {},
            {{"node", target.name},
             {"why", why},
             {"output", (ran.errors.empty() ? ran.output : ran.errors).substr(0, kOutputShown)},
             {"again_in_seconds", target.pause.ms() / 1'000}});
  return false;
}

}  // namespace gpusched
