#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

/// Help for terminals, made of grammars. Widths are in columns; no text is wider than kHelpWidthMax.
namespace gpusched {

inline constexpr int kHelpWidthMax = 100;

/// `text` in lines of at most `width` columns, each behind `indent` blanks but the first.
std::string wrapped_text(std::string_view text, int indent, int width);

/// Titles, and beside each what it means.
using HelpRows = std::vector<std::pair<std::string, std::string>>;
std::string rows_text(const HelpRows& rows, int width);
std::string options_text(const std::vector<const OptionSpec*>& options, int width);

/// "-f, --follow SPAN"
std::string option_title(const OptionSpec& option);
/// "-- COMMAND...", or without the dashes where they may be left out.
std::string command_title(const Grammar& grammar);
/// "gpu-cli node drain [options] NODE" for the command "gpu-cli node drain".
std::string usage_line(const std::string& command, const Grammar& grammar);

/// The whole help of one command; `summary` has no full stop.
std::string command_help(std::string_view summary, const std::string& command, const Grammar& grammar,
                         int width);

}  // namespace gpusched
