#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "shim/box.h"

namespace gpusched::shim {

/// What a running attempt's process lives in, taken from that process: control groups, namespaces, user,
/// limits, environment, working directory. Another process can then live in the same. One thread.
class RunningBox {
 public:
  RunningBox() = default;
  RunningBox(RunningBox&&) noexcept;
  RunningBox& operator=(RunningBox&&) noexcept;
  ~RunningBox();

  /// Looks at `pid`, which must be a descendant of the shim that owns `key`: a pid may have been given away.
  /// kNotFound when it is not, or is gone; kUnavailable when it is a container's runner.
  static Result<RunningBox> of(pid_t pid, const AttemptKey& key, const std::string& instance);

  /// For the calling process, its next children, and for ever: joins the groups and namespaces. The user
  /// stays.
  Result<Unit> join() const;
  /// Becomes the user, with its limits, cores and umask. After `join`, and behind everything that needs root.
  Result<Unit> become_user() const;

  const Credentials& identity() const { return identity_; }
  const std::vector<std::string>& environment() const { return environment_; }
  /// Open on the working directory; the box's.
  int working_directory() const { return directory_; }

 private:
  Result<Unit> read_status();
  void find_groups();
  void read_environment();

  pid_t pid_ = 0;
  int pidfd_ = -1;
  int directory_ = -1;
  int namespaces_ = 0;  ///< CLONE_NEW*: those that are not our own.
  Credentials identity_;
  mode_t umask_ = 022;
  std::string oom_score_;
  bool no_new_privileges_ = false;
  std::vector<std::string> groups_;  ///< Files cgroup.procs.
  std::vector<std::string> environment_;
};

/// Makes this process the user's. Whoever is not root can only be what it is.
Result<Unit> become_identity(const Credentials& identity);

}  // namespace gpusched::shim
