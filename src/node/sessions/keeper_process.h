#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "shim/sessions/session.h"

namespace gpusched {

/// Events that whoever waits for keepers takes at once.
constexpr std::size_t kKeeperEventsMax = 64;
/// Between two looks whether a keeper that was ended has gone.
constexpr Duration kReapPause = milliseconds(50);

/// A descriptor that is closed with its owner.
class OwnedDescriptor {
 public:
  OwnedDescriptor() = default;
  explicit OwnedDescriptor(int descriptor) : descriptor_(descriptor) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnedDescriptor() { reset(); }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void reset();

 private:
  int descriptor_ = -1;
};

/// The keeper's command's descriptors 0, 1 and 2; each of them -1: /dev/null.
using StandardStreams = std::array<int, 3>;

/// A running keeper (see shim/sessions/session.h), held by its socket: it ends when that is closed. Not
/// thread-safe.
class KeeperProcess {
 public:
  /// The socket does not block.
  static Result<KeeperProcess> start(const std::string& shim_program, const shim::SessionRequest& request,
                                     const StandardStreams& streams);

  int socket() const { return socket_.get(); }
  pid_t pid() const { return pid_; }
  void send(const shim::SessionOrder& order) const;
  /// The next event. Nothing with `closed` false: none now; with `closed` true: none ever.
  std::optional<shim::SessionEvent> receive(bool& closed) const;

 private:
  OwnedDescriptor socket_;
  pid_t pid_ = -1;
};

/// Keepers whose sockets are closed, until the kernel gives their pids away.
class EndedKeepers {
 public:
  void add(pid_t pid) { pids_.push_back(pid); }
  /// Forgets those that have ended.
  void reap();
  bool empty() const { return pids_.empty(); }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace gpusched
