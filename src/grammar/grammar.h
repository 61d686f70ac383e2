#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace gpusched {

/// Completions that a shell offers for a value. The grammar knows files and folders, the program the others.
enum class Complete { kNothing, kFile, kFolder, kJob, kNode, kGpu, kTenant, kContext, kColumn, kCommand };

/// Destination of a value. A number that was not given leaves its optional empty.
using OptionTarget = std::variant<bool*, std::string*, int64_t*, std::optional<int64_t>*,
                                  std::optional<double>*, std::vector<std::string>*>;

/// One option of a command. The setters return it, so that they can be written one behind the other.
struct OptionSpec {
  std::string short_name;  ///< "-f"; empty: none.
  std::string name;        ///< "--follow"
  std::string value;       ///< Name of its value in the help, such as "N"; empty: a flag.
  std::string help;        ///< One sentence without its full stop.
  OptionTarget target;
  std::vector<std::string> words = {};    ///< The values that there are; empty: any.
  std::vector<std::string> aliases = {};  ///< Further long names, which the help does not show.
  Complete complete = Complete::kNothing;
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
  bool required = false;
  bool comma_list = false;       ///< The value is several of `words`, with commas between them.
  std::string heading = {};      ///< Group in the help; empty: there are no groups.
  bool is_common = false;        ///< In the first group, whatever its heading.
  bool is_hidden = false;        ///< Understood, but neither in the help nor on the pages.
  bool switches_off = false;     ///< A flag whose target becomes false.
  std::string environment = {};  ///< Variable whose value holds when the option is not given; empty: none.

  OptionSpec& of(std::vector<std::string> allowed) { return words = std::move(allowed), *this; }
  OptionSpec& commas() { return comma_list = true, *this; }
  OptionSpec& range(int64_t low, int64_t high) { return least = low, most = high, *this; }
  OptionSpec& completes(Complete kind) { return complete = kind, *this; }
  OptionSpec& alias(std::string other) { return aliases.push_back(std::move(other)), *this; }
  OptionSpec& common() { return is_common = true, *this; }
  OptionSpec& must() { return required = true, *this; }
  OptionSpec& turns_off() { return switches_off = true, *this; }
  OptionSpec& from_environment(std::string variable) { return environment = std::move(variable), *this; }
};

/// One word, or all that are left, that stands without an option's name before it.
struct ArgumentSpec {
  std::string name;  ///< "JOB"
  std::string help;
  std::variant<std::string*, int64_t*, std::vector<std::string>*>
      target;  ///< A vector takes all that follow.
  bool required = true;
  std::vector<std::string> words = {};
  Complete complete = Complete::kNothing;
  bool ends_options = false;  ///< Takes all following words, even with a dash (a script's arguments).

  ArgumentSpec& optional() { return required = false, *this; }
  ArgumentSpec& of(std::vector<std::string> allowed) { return words = std::move(allowed), *this; }
  ArgumentSpec& completes(Complete kind) { return complete = kind, *this; }
  ArgumentSpec& greedy() { return ends_options = true, *this; }
};

/// Grammar of a command: the one source of parsing, help, manual pages, completion and the reference page.
/// Keeps pointers to the destinations of values, which must outlive it.
class Grammar {
 public:
  struct Example {
    std::string command;
    std::string meaning;
  };

  /// The group of the options that are declared from now on.
  void heading(std::string title) { heading_ = std::move(title); }
  /// `names` is "--gpus" or "-f,--follow".
  OptionSpec& option(std::string_view names, std::string value, OptionTarget target, std::string help);
  OptionSpec& flag(std::string_view names, bool& target, std::string help);
  ArgumentSpec& argument(std::string name, decltype(ArgumentSpec::target) target, std::string help);
  /// Stores the words after "--" in `command`.
  void takes_command(std::vector<std::string>& command, std::string meaning);
  /// Shows in the usage line that the command may be left out.
  void command_may_be_missing() { command_optional_ = true; }
  /// The same; without "--" the command begins behind the last argument, and takes all words from there on.
  void takes_bare_command(std::vector<std::string>& command, std::string meaning);
  /// Takes a short name such as "-t" from its option, for one that is declared later.
  void free_short_name(std::string_view short_name);
  /// Hides the options that are declared so far.
  void hide_options();
  /// Refuses an option that is given twice, unless it is a flag or takes a list; without this, the last wins.
  void refuses_repetitions() { refuses_repetitions_ = true; }
  /// Refuses an empty value of an option that takes any text, and an empty argument: most likely a variable
  /// of the shell is not set. Without this, an empty value is a value.
  void refuses_empty_values() { refuses_empty_values_ = true; }
  /// A paragraph for the manual page and the reference page; several follow each other.
  void details(std::string paragraph) { details_.push_back(std::move(paragraph)); }
  void example(std::string command, std::string meaning) {
    examples_.push_back({std::move(command), std::move(meaning)});
  }

  /// Sets the hint for an option that does not exist here, with the value it was given: the text to write
  /// instead, or nothing.
  void hints(std::function<std::string(const std::string& name, const std::string& value)> hint) {
    hint_ = std::move(hint);
  }

  /// Gives the values of `words` to their targets; words that are no option are arguments. With `also`, that
  /// grammar's options are understood too. kInvalidArgument with one sentence.
  Result<Unit> parse(const std::vector<std::string>& words, const Grammar* also = nullptr) const;
  /// Gives the options that the last `parse` did not meet the values of their environment variables; empty
  /// ones are not set. kInvalidArgument names the variable.
  Result<Unit> take_environment(const std::function<std::string(const char* name)>& environment) const;
  /// Gives an option of this grammar a value as if `parse` had met it.
  Result<Unit> give(const OptionSpec& option, const std::string& value) const;
  /// Checks that everything required was given. With `command`, the command line up to its arguments, such as
  /// "gpu-cli logs", the sentence on a missing job, node or tenant is a question with an example.
  Result<Unit> check_complete(std::string_view command = {}) const;

  /// Whether the option was given since the beginning of the last `parse`.
  bool was_given(const OptionSpec& option) const;
  /// The texts that it was given; a flag's is "true" or "false".
  std::vector<std::string> values_of(const OptionSpec& option) const;
  /// Takes the values that `other`, a grammar declared alike, was given and this one was not. The other's
  /// entries of a list come first.
  void take_missing_from(const Grammar& other) const;

  /// The option of this name, long or short, or null.
  const OptionSpec* find(std::string_view name) const;
  /// The long name most like `name`, when one is like it at all; else empty.
  std::string nearest(std::string_view name, const Grammar* also = nullptr) const;

  const std::deque<OptionSpec>& options() const { return options_; }
  /// Options under a title, for the help.
  struct Group {
    std::string title;
    std::vector<const OptionSpec*> options;
  };
  /// The common options, then each heading's others; without headings one group, "Options".
  std::vector<Group> groups() const;
  const std::deque<ArgumentSpec>& arguments() const { return arguments_; }
  const std::vector<std::string>& paragraphs() const { return details_; }
  const std::vector<Example>& examples() const { return examples_; }
  bool has_command() const { return command_ != nullptr; }
  bool has_bare_command() const { return bare_command_; }
  bool has_optional_command() const { return command_optional_; }
  const std::string& command_meaning() const { return command_meaning_; }

 private:
  Result<Unit> parse_option(const std::vector<std::string>& words, size_t& at, const Grammar* also) const;
  Result<Unit> parse_short(const std::vector<std::string>& words, size_t& at, const Grammar* also) const;
  Result<Unit> take_argument(const std::string& word, bool& options_over) const;

  std::string hint_for(const std::string& name, const std::string& value) const {
    return hint_ ? hint_(name, value) : std::string();
  }

  std::function<std::string(const std::string& name, const std::string& value)> hint_;
  std::string heading_;
  std::deque<OptionSpec> options_;  // Does not move what it holds.
  std::deque<ArgumentSpec> arguments_;
  std::vector<std::string>* command_ = nullptr;
  std::string command_meaning_;
  bool bare_command_ = false;
  bool command_optional_ = false;
  bool refuses_repetitions_ = false;
  bool refuses_empty_values_ = false;
  std::vector<std::string> details_;
  std::vector<Example> examples_;
  struct Given {
    const OptionSpec* option;
    std::string value;
  };

  mutable size_t next_argument_ = 0;
  mutable std::vector<Given> given_;
};

/// The one of `candidates` that is most like `word` (small edit distance, or a common beginning); empty: none
/// is.
std::string nearest_of(std::string_view word, const std::vector<std::string>& candidates);

/// Whether an option may have this value. The sentence begins with the option's name.
Result<Unit> check_value(const OptionSpec& option, const std::string& given);
/// Puts `given` into an option's target, checked. The sentence begins with the option's name.
Result<Unit> set_value(const OptionSpec& option, const std::string& given);

}  // namespace gpusched
