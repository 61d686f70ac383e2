#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpusched::pilot {

/// Duties of a helper, out of the configuration.
struct HelperDuties {
  std::vector<std::string> patterns = {};               ///< Files that it opens, see path_search.h.
  std::vector<std::vector<std::string>> programs = {};  ///< Words of programs that it starts.
};

/// A process beside this one that is held to no rules of the kernel. It opens files to read, of those that
/// the patterns match, and starts and ends the user's own programs. It reads no file, speaks to nobody, and
/// was forked before this process knew a secret. It ends with this process, and its programs with it.
///
/// Calls block for as long as the kernel takes to open a file. Not thread-safe.
class Helper {
 public:
  /// Forks; call it while this process has one thread. kIo.
  static Result<std::unique_ptr<Helper>> start(HelperDuties duties);
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper();

  /// A descriptor that reads the file and does not wait for it; -1: no pattern matches, or it cannot be read.
  int open_file(const std::string& path) const;
  /// Starts a program of the duties, by its number there; it ends an earlier run first. A descriptor that
  /// reads its output and does not wait for it; -1: it could not be started.
  int start_program(std::size_t number) const;
  /// Ends the program and all of its process group.
  void end_program(std::size_t number) const;

 private:
  Helper(pid_t process, int socket) : process_(process), socket_(socket) {}
  /// The descriptor of the answer, or -1.
  int ask(char what, const std::string& about) const;

  const pid_t process_;
  const int socket_;
};

}  // namespace gpusched::pilot
