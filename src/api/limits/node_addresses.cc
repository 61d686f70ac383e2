#include "api/limits/node_addresses.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "log/log.h"
#include "ops/machine_addresses.h"

namespace gpusched::api {
namespace {

constexpr std::string_view kLocal = "local";
constexpr Duration kLookEvery = seconds(10);
constexpr std::size_t kLinesMax = 1'000'000;
constexpr mode_t kOwnerAlone = 0600;

Time steady_now() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

std::vector<IpAddress> addresses_of_machine() {
  std::vector<IpAddress> found;
  for (const std::string& text : ops::machine_addresses()) {
    if (const auto address = parse_ip_address(text)) found.push_back(*address);
  }
  return found;
}

/// The address as it is kept: `local` for this machine.
std::string kept(std::string_view address) {
  const std::optional<IpAddress> numeric = parse_ip_address(address);
  return !numeric || numeric->is_loopback() ? std::string(kLocal) : std::string(address);
}

}  // namespace

NodeAddresses::NodeAddresses(std::string path, OwnAddresses own)
    : path_(std::move(path)), own_(own != nullptr ? std::move(own) : addresses_of_machine) {
  if (!path_.empty()) read();
}

// Each line is "ADDRESS NODE", or "- NODE" for one that was removed.
void NodeAddresses::read() {
  const std::lock_guard lock(mutex_);
  errno = 0;
  std::ifstream file(path_);
  if (!file && errno == ENOENT) return;
  if (!file) {
    log_event(LogLevel::kWarning, "scheduler", "node_addresses_not_read", {},
              {{"file", path_}, {"error", std::strerror(errno)}});
    return;
  }
  bool is_short = true;  // Every line counts.
  std::string line;
  for (std::size_t lines = 0; lines < kLinesMax && std::getline(file, line); ++lines) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || space + 1 == line.size()) continue;
    const std::string address = line.substr(0, space), node = line.substr(space + 1);
    if (address == "-") {
      remove(node);
      is_short = false;
    } else if (address == kLocal || parse_ip_address(address)) {
      is_short = take(node, address) && is_short;
    }
  }
  if (!is_short) rewrite();
}

/// Beside it, then in its place: the file is the old one or the new one.
void NodeAddresses::rewrite() const {
  const std::string draft = path_ + ".new";
  {
    std::ofstream file(draft, std::ios::trunc);
    for (const auto& [node, addresses] : nodes_) {
      for (const std::string& address : addresses) file << address << ' ' << node << '\n';
    }
    if (!file.flush()) return;
  }
  (void)::chmod(draft.c_str(), kOwnerAlone);
  (void)::rename(draft.c_str(), path_.c_str());
}

void NodeAddresses::count(const std::string& address, int by) {
  if (address == kLocal) {
    locals_ += by;
    looked_at_ = {};
    return;
  }
  const IpAddress numeric = *parse_ip_address(address);
  if ((counts_[numeric] += by) == 0) counts_.erase(numeric);
}

bool NodeAddresses::take(const std::string& node, const std::string& address) {
  std::vector<std::string>& known = nodes_[node];
  if (std::ranges::find(known, address) != known.end()) return false;
  if (known.size() == kPerNode) {
    count(known.front(), -1);
    known.erase(known.begin());
  }
  known.push_back(address);
  count(address, 1);
  return true;
}

bool NodeAddresses::remove(const std::string& node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return false;
  for (const std::string& address : found->second) count(address, -1);
  nodes_.erase(found);
  return true;
}

void NodeAddresses::add(const std::string& node, std::string_view address) {
  const std::string text = kept(address);
  if (node.empty() || node.find_first_of("\n\r") != std::string::npos) return;
  const std::lock_guard lock(mutex_);
  if (take(node, text)) note(text + " " + node);
}

void NodeAddresses::forget(const std::string& node) {
  const std::lock_guard lock(mutex_);
  if (remove(node)) note("- " + node);
}

/// One short line, appended at once. A lost one costs nothing but that the agent must call again.
void NodeAddresses::note(const std::string& line) const {
  if (path_.empty()) return;
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOwnerAlone);
  if (file >= 0) {
    const std::string bytes = line + "\n";
    const bool written = ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    ::close(file);
    if (written) return;
  }
  log_event(LogLevel::kWarning, "scheduler", "node_addresses_not_written", {},
            {{"file", path_}, {"error", std::strerror(errno)}});
}

/// Interfaces come and go: they are looked up again once in a while.
void NodeAddresses::look_at_machine(Time now) const {
  if (looked_at_.valid() && now - looked_at_ < kLookEvery) return;
  looked_at_ = now;
  machine_.clear();
  for (const IpAddress& address : own_()) machine_.insert(address);
}

bool NodeAddresses::is_node(const IpAddress& address) const {
  const std::lock_guard lock(mutex_);
  if (counts_.contains(address)) return true;
  if (locals_ == 0) return false;
  if (address.is_loopback()) return true;
  look_at_machine(steady_now());
  return machine_.contains(address);
}

}  // namespace gpusched::api
