#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "shim/box.h"

namespace gpusched::shim {

/// Environment of a running attempt's process: control groups, namespaces, limits, environment, working
/// directory. Another process can then live in the same, as the attempt's user. One thread.
///
/// Nothing that the attempt's process shows decides who that user is, or whether this process is root: a job
/// may execute set-user-id programs and make namespaces in which user numbers mean something else. And what
/// root does, it does before it enters a namespace, where paths are what the job made of them.
class RunningBox {
 public:
  RunningBox() = default;
  RunningBox(RunningBox&&) noexcept;
  RunningBox& operator=(RunningBox&&) noexcept;
  ~RunningBox();

  /// Looks at `pid`, which must be a child of the shim with this title: a pid may have been given away.
  /// `identity`: whom the attempt runs as, by the agent's own record. kNotFound when the process is gone or
  /// is not the shim's; kUnavailable when it runs as anybody else. Where it is the runner of a container, the
  /// box is that of the container's first process, with the environment and directory of the job's command;
  /// kUnavailable then for runtimes other than podman, and where the user is the machine's root.
  static Result<RunningBox> of(pid_t pid, const std::string& shim_title, const Credentials& identity);

  /// For the calling process, its next children, and for ever: joins the groups and namespaces and becomes
  /// the user, with the process's limits, cores and umask. `terminal`: a descriptor that becomes the user's;
  /// -1: none.
  Result<Unit> enter(int terminal) const;

  const std::vector<std::string>& environment() const { return environment_; }
  /// Open on the working directory; the box's.
  int working_directory() const { return directory_; }
  /// Its processes have numbers of their own: who entered it is there by its children alone, and what these
  /// leave behind becomes the child of the container's first process.
  bool is_container() const { return command_ != 0; }

 private:
  /// A namespace of the process that is not ours.
  struct Space {
    int file = -1;
    int flag = 0;      ///< CLONE_NEW*.
    bool ours = true;  ///< Made by our own user namespace, so that no user rules in it.
  };

  /// From the runner to the container that it started.
  Result<Unit> go_inside(const std::vector<std::string>& runner);
  Result<Unit> read_status();
  Result<Unit> find_spaces();
  void find_groups();
  /// Reads the surroundings of the process, which must still be there behind that.
  Result<Unit> read_surroundings(pid_t of);
  void read_environment(pid_t of);
  void give_up_rights() const;
  Result<Unit> join_groups() const;
  Result<Unit> join_spaces() const;
  Result<Unit> join_users_spaces() const;
  void take_settings() const;

  pid_t pid_ = 0;
  int pidfd_ = -1;
  pid_t command_ = 0;  ///< In a container the job's command; elsewhere 0: that is `pid_`.
  int directory_ = -1;
  bool is_root_ = false;  ///< This process was, before it entered anything.
  Credentials identity_;
  std::vector<Space> spaces_;
  mode_t umask_ = 022;
  std::string oom_score_;
  bool no_new_privileges_ = false;
  std::vector<std::string> groups_;  ///< Files cgroup.procs.
  std::vector<std::string> environment_;
};

/// Makes this process the user's, before any namespace is joined. Without root it can only be what it is.
Result<Unit> become_identity(const Credentials& identity);

}  // namespace gpusched::shim
