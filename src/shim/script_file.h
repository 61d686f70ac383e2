#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shim/box.h"

/// A job's script as a file: which program runs it, and how the file is made.
namespace gpusched::shim {

/// The words that a `#!` line puts before the script's path, as the kernel reads them: the interpreter, and
/// the rest of the line as one argument, if there is any. Empty: the script names no interpreter. Pure.
std::vector<std::string> interpreter_words(std::string_view script);

/// Makes the file `name` below `folder` with `text`, owned by `user` where one is given. What has the name
/// before is removed: nothing of it is written to, and a link is not followed. The file is given away by its
/// descriptor, so that it does not matter what the name leads to by then. False, and errno says why, when it
/// cannot be made.
bool write_script(int folder, const std::string& name, std::string_view text,
                  const std::optional<Credentials>& user, mode_t mode);

}  // namespace gpusched::shim
