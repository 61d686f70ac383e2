#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shim/box.h"

/// How an attempt's command begins: between clone and execve everything that its box asks for.
namespace gpusched::shim {

/// Steps of a new process before its command, in this order.
enum class StartStep : uint8_t {
  kNone,
  kCgroup,
  kLimit,
  kPrivateFolders,
  kUser,
  kDirectory,
  kInput,
  kOutput,
  kErrorOutput,
  kCommand,
};

/// Plan of the new process. Unless `patient`, it shares our memory and must not allocate.
struct ChildPlan {
  pid_t parent = 0;
  const Box* box = nullptr;
  int input = -1;
  int output = -1;
  int error_output = -1;
  int folder = -1;                          ///< The attempt's; with `work/` and `tmp/` if its box has them.
  const char* working_directory = nullptr;  ///< Null: its own, `work/` or `folder`.
  bool working_directory_optional =
      false;  ///< Its own, and a line on the error output, where it cannot be entered.
  std::vector<int> cgroup_files = {};  ///< Version 1 groups' `tasks`, open for writing.
  int unified_cgroup = -1;             ///< The version 2 group's folder; -1: none.
  char* const* paths = nullptr;        ///< Paths of the command, tried in order; ends with null.
  char* const* arguments = nullptr;
  char* const* environment = nullptr;

  /// The new process comes to paths of the job's choice, which may be on a file system that does not answer:
  /// we do not stand still meanwhile. `report` says then how it went: its end when the command runs, or a
  /// StartFailure.
  bool patient = false;
  int report = -1;  ///< Result, where patient: to be read and closed; does not wait.
  int report_to = -1;

  StartStep failed = StartStep::kNone;  ///< Result: there is no command, because of `error`.
  int error = 0;
};

/// Report that a patient plan's new process writes if it fails.
struct StartFailure {
  StartStep step = StartStep::kNone;
  int error = 0;
};

/// For the calling process and its children: keys of its own, of no other job; and, where `login_uid` is
/// given and the kernel lets us, what its audit is told. Nothing that fails here keeps a job from running.
void take_own_keys();
void set_login_uid(uint32_t login_uid);

/// The new process, which runs its command, or has failed and waits to be reaped; of a patient plan: or is on
/// the way to either. -1 with errno: none. One at a time in a process.
pid_t start_child(ChildPlan& plan);

/// Makes the calling process the user's. 0, or errno; then it is nobody's to go on with.
int become(const Credentials& user);

/// Where a command is to be looked for, as the shell does, by the PATH in an environment block.
std::vector<std::string> command_candidates(const char* command, char* const* environment);

/// "No such file or directory (ENOENT)"
std::string error_words(int error);

}  // namespace gpusched::shim
