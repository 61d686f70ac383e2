#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

/// Completion by a shell, which asks `PROGRAM __complete WORD...` for every word that is typed.
namespace gpusched {

/// The script for "bash", "zsh" or "fish" that asks `program`.
std::string completion_script(std::string_view shell, std::string_view program);

/// The words that could stand for the one that is typed.
struct Candidates {
  std::string_view typed;
  std::string prefix;  ///< Stands before every candidate: "--state=", "name,".
  std::string text;    ///< A line for each: the word, and a tab and its meaning where it has one.
  std::string_view directive = ":";  ///< ":files" and ":folders" let the shell offer these, too.

  void add(std::string_view word, std::string_view meaning = {});
  /// The text that the shell reads.
  std::string lines() const { return text + std::string(directive) + "\n"; }
};

/// Adds the values of a kind that only the program knows.
using LiveValues = std::function<void(Complete kind, Candidates& out)>;

/// Adds what may stand behind the words `before` of a command. `out.typed` is the word that is typed.
void complete_word(const Grammar& own, const Grammar& global, const std::vector<std::string>& before,
                   const LiveValues& live, Candidates& out);

/// Whether the last of `before` is an option of `grammar` whose value stands next; adds the values then.
bool complete_value(const Grammar& grammar, const std::vector<std::string>& before, const LiveValues& live,
                    Candidates& out);

/// Adds the names of the options.
void complete_options(const Grammar& grammar, Candidates& out);

}  // namespace gpusched
