#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shim/box.h"

/// Another command in the box of a running attempt, as its owner: `gpu-shim --enter`, a program of its own,
/// because a process with threads cannot safely do all this between fork and execve.
namespace gpusched::shim {

inline constexpr const char* kEnterFlag = "--enter";

struct EnterRequest {
  int64_t pid = 0;                        ///< Of the attempt's command.
  std::string title;                      ///< shim_title of the attempt: its parent must have this name.
  std::optional<Credentials> user = {};   ///< Nothing: the caller's own.
  std::vector<std::string> cgroups = {};  ///< The attempt's groups' folders.
  std::string directory = {};             ///< Empty: where the attempt's command works now.
  bool terminal = false;  ///< Standard input becomes the controlling terminal of a new session.
  std::vector<std::string> command = {};  ///< Looked for by the attempt's PATH. At least one word.
};
/// The words of a command line that does it: program, then arguments. Whoever runs it gives it the
/// descriptors 0 to 2, and as environment nothing but what the command is to have beyond the attempt's own.
std::vector<std::string> enter_words(const std::string& shim_program, const EnterRequest& request);

/// Reads such words again; nothing when they are none.
std::optional<EnterRequest> parse_enter_words(const std::vector<std::string>& words);

/// Enters and becomes the command. Returns only when that fails, with what `main` returns: 127 when there is
/// no such command, 126 when it may not run, 125 when the box cannot be entered; the reason is on standard
/// error in one sentence.
int run_enter(const std::vector<std::string>& words);

}  // namespace gpusched::shim
