#include "cli/terminal/style.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::cli {
namespace {

std::string_view sequence_of(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kTitle:
      return "\x1b[1m";
    case Style::kGood:
      return "\x1b[32m";
    case Style::kWarning:
      return "\x1b[33m";
    case Style::kBad:
      return "\x1b[31m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kMark:
      return "\x1b[7m";
  }
  UNREACHABLE();
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

std::string styled(std::string_view text, Style style, bool color) {
  if (!color || style == Style::kPlain || text.empty()) return std::string(text);
  return std::string(sequence_of(style)).append(text).append("\x1b[0m");
}

Style style_of_state(std::string_view state) {
  if (is_one_of(state, {"running", "ready", "held", "free", "ok", "connected"})) return Style::kGood;
  if (is_one_of(state, {"pending", "scheduled", "preempted", "validating", "draining", "drained",
                        "unreachable", "hot"})) {
    return Style::kWarning;
  }
  if (is_one_of(state, {"failed", "down", "lost", "dead", "quarantined", "unhealthy", "missing", "faulty"}))
    return Style::kBad;
  if (is_one_of(state, {"completed", "cancelled"})) return Style::kDim;
  return Style::kPlain;
}

}  // namespace gpusched::cli
