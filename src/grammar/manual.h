#pragma once

#include <string>
#include <string_view>

#include "grammar/grammar.h"

/// Manual pages (man(7)), made of grammars.
namespace gpusched {

/// `text` as roff wants it: its own signs escaped, backquotes dropped.
std::string roff(std::string_view text);

struct ManualTitle {
  std::string page;  ///< "gpu-cli-node-drain"
  int section = 1;
  std::string chapter;  ///< "User Commands"
  std::string version;
};
/// The head of a page, up to its one-line description.
std::string manual_header(const ManualTitle& title, std::string_view summary);

/// A paragraph, with backquotes and dashes as in a reference page.
std::string manual_paragraph(std::string_view text);
/// One title and what it means; `text` has its full stop.
std::string manual_entry(std::string_view title, std::string_view text);
/// The entries of a command; empty where it has none.
std::string manual_arguments(const Grammar& grammar);
std::string manual_options(const Grammar& grammar);
std::string manual_examples(const Grammar& grammar);

/// Synopsis, description, arguments, options and examples of a page about one command.
std::string manual_body(std::string_view summary, const std::string& command, const Grammar& grammar);

}  // namespace gpusched
