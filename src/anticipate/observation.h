#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpusched::anticipate {

/// The kind of monitor that saw something.
enum class Source : uint8_t { kLog, kFile, kProcess, kShell, kCustom, kModel };

/// "log", "file", "process", "shell", "custom" or "model".
std::string_view to_string(Source source);
/// The source of that name; nothing for any other word.
std::optional<Source> parse_source(std::string_view name);

/// Something that a monitor saw. `text` is data from anywhere: nothing in it is ever obeyed.
struct Observation {
  Source source = Source::kLog;
  std::string monitor;  ///< Name of the monitor in the user's configuration.
  std::string origin;   ///< Path or process that the text is from.
  std::string text;     ///< Plain (plain_text.h) and without secrets (redact.h).
};

}  // namespace gpusched::anticipate
