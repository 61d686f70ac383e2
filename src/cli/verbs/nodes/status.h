#pragma once

#include <optional>
#include <string>

#include "cli/framework/session.h"

namespace gpusched::cli {

struct StatusText {
  std::optional<Trouble> trouble;  ///< Given: there is no text.
  std::string text;
};

/// The text of `gpu-cli status`, in lines of `width` columns: counts, and what is wrong. As JSON where the
/// session's options say so.
StatusText status_text(Session& session, int width, bool color);

}  // namespace gpusched::cli
