#include "grammar/grammar.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "grammar/job_name.h"

namespace gpusched {
namespace {

constexpr size_t kDistanceMax = 3;

Error usage(std::string sentence) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(sentence)};
}

std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

bool is_one_of(const std::string& word, const std::vector<std::string>& words) {
  return std::ranges::find(words, word) != words.end();
}

Result<Unit> check_word(const std::string& name, const std::string& text,
                        const std::vector<std::string>& words) {
  if (words.empty() || is_one_of(text, words)) return Unit{};
  const std::string near = nearest_of(text, words);
  return usage(name + ": \"" + text + "\" is not known" +
               (near.empty() ? "; there is " + listed(words) : "; did you mean " + near + "?"));
}

template <typename Number>
Result<Number> number_of(const std::string& name, const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const char* begin = text.data();
  if (text.size() > 1 && *begin == '+') ++begin;
  const auto [stop, failure] = std::from_chars(begin, end, value);
  if (failure == std::errc{} && stop == end && !text.empty()) return value;
  return usage(name + ": \"" + text + "\" is not a " + (std::is_integral_v<Number> ? "whole " : "") +
               "number");
}

Result<int64_t> bounded(const std::string& name, const std::string& text, int64_t least, int64_t most) {
  Result<int64_t> value = number_of<int64_t>(name, text);
  if (!value || (*value >= least && *value <= most)) return value;
  const std::string refused = name + ": " + text + " is not possible; give ";
  if (most == INT64_MAX) return usage(refused + std::to_string(least) + " or more");
  return usage(refused + std::to_string(least) + " to " + std::to_string(most));
}

bool takes_whole_number(const OptionSpec& option) {
  return std::holds_alternative<int64_t*>(option.target) ||
         std::holds_alternative<std::optional<int64_t>*>(option.target);
}

std::string stored_text(Complete kind, const std::string& given) {
  return kind == Complete::kJob ? full_job_id(given) : given;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_of(std::string_view word, const std::vector<std::string>& candidates) {
  const auto without_dashes = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('-'), text.size()));
  };
  const std::string_view bare = without_dashes(word);
  std::string best;
  size_t best_distance = kDistanceMax + 1;
  for (const std::string& candidate : candidates) {
    const std::string_view other = without_dashes(candidate);
    size_t distance = edit_distance(bare, other);
    // An abbreviation is nearer than a misspelling, and two short words are not alike because both are short.
    if (bare.size() >= 3 && other.starts_with(bare)) distance = std::min<size_t>(distance, 1);
    // People seldom mistake the first letter: "queue" is not meant as "requeue".
    const bool begins_alike = bare.starts_with(other.substr(0, 1));
    if (!begins_alike && distance > 1) continue;
    if (distance < best_distance && distance * 2 <= std::max(bare.size(), size_t{2})) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

Result<Unit> check_value(const OptionSpec& option, const std::string& given) {
  const std::string& name = option.name;
  const std::string text = stored_text(option.complete, given);
  if (option.comma_list) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      std::string word = text.substr(begin, end - begin);
      if (word.starts_with('-') || word.starts_with('+')) word.erase(0, 1);  // The order of a sort key.
      if (Result<Unit> good = check_word(name, word, option.words); !good) return good;
      begin = end + 1;
    }
  } else if (Result<Unit> good = check_word(name, text, option.words); !good) {
    return good;
  }
  if (std::holds_alternative<bool*>(option.target)) {
    if (text != "true" && text != "false") return usage(name + " takes no value");
  } else if (std::holds_alternative<std::optional<double>*>(option.target)) {
    const Result<double> value = number_of<double>(name, text);
    if (!value) return value.error();
    if (!std::isfinite(*value)) return usage(name + ": \"" + text + "\" is not a number");
  } else if (takes_whole_number(option)) {
    const Result<int64_t> value = bounded(name, text, option.least, option.most);
    if (!value) return value.error();
  }
  return Unit{};
}

Result<Unit> set_value(const OptionSpec& option, const std::string& given) {
  if (Result<Unit> good = check_value(option, given); !good) return good;
  const std::string text = stored_text(option.complete, given);
  if (auto* const flag = std::get_if<bool*>(&option.target)) {
    **flag = (text == "true") != option.switches_off;
  } else if (auto* const string = std::get_if<std::string*>(&option.target)) {
    **string = text;
  } else if (auto* const list = std::get_if<std::vector<std::string>*>(&option.target)) {
    (*list)->push_back(text);
  } else if (auto* const real = std::get_if<std::optional<double>*>(&option.target)) {
    **real = *number_of<double>(option.name, text);
  } else if (auto* const whole = std::get_if<int64_t*>(&option.target)) {
    **whole = *number_of<int64_t>(option.name, text);
  } else {
    *std::get<std::optional<int64_t>*>(option.target) = *number_of<int64_t>(option.name, text);
  }
  return Unit{};
}

OptionSpec& Grammar::option(std::string_view names, std::string value, OptionTarget target,
                            std::string help) {
  const size_t comma = names.find(',');
  OptionSpec spec{.value = std::move(value), .help = std::move(help), .target = target, .heading = heading_};
  spec.name = comma == std::string_view::npos ? names : names.substr(comma + 1);
  if (comma != std::string_view::npos) spec.short_name = names.substr(0, comma);
  CHECK(spec.name.starts_with("--"));
  CHECK(spec.value.empty() == std::holds_alternative<bool*>(target));
  options_.push_back(std::move(spec));
  return options_.back();
}

OptionSpec& Grammar::flag(std::string_view names, bool& target, std::string help) {
  return option(names, "", &target, std::move(help));
}

ArgumentSpec& Grammar::argument(std::string name, decltype(ArgumentSpec::target) target, std::string help) {
  arguments_.push_back({.name = std::move(name), .help = std::move(help), .target = target});
  return arguments_.back();
}

void Grammar::takes_command(std::vector<std::string>& command, std::string meaning) {
  command_ = &command;
  command_meaning_ = std::move(meaning);
}

void Grammar::takes_bare_command(std::vector<std::string>& command, std::string meaning) {
  takes_command(command, std::move(meaning));
  bare_command_ = true;
}

void Grammar::free_short_name(std::string_view short_name) {
  for (OptionSpec& option : options_) {
    if (option.short_name == short_name) option.short_name.clear();
  }
}

const OptionSpec* Grammar::find(std::string_view name) const {
  const auto found = std::ranges::find_if(options_, [&](const OptionSpec& option) {
    return option.name == name || (!option.short_name.empty() && option.short_name == name) ||
           is_one_of(std::string(name), option.aliases);
  });
  return found == options_.end() ? nullptr : &*found;
}

void Grammar::hide_options() {
  for (OptionSpec& option : options_) option.is_hidden = true;
}

bool Grammar::was_given(const OptionSpec& option) const {
  return std::ranges::find(given_, &option, &Given::option) != given_.end();
}

std::vector<std::string> Grammar::values_of(const OptionSpec& option) const {
  std::vector<std::string> values;
  for (const Given& given : given_) {
    if (given.option == &option) values.push_back(given.value);
  }
  return values;
}

Result<Unit> Grammar::give(const OptionSpec& option, const std::string& value) const {
  const bool takes_many =
      option.value.empty() || std::holds_alternative<std::vector<std::string>*>(option.target);
  if (refuses_repetitions_ && !takes_many && was_given(option))
    return usage(option.name + " is given twice; give it once");
  const bool takes_any_text =
      option.words.empty() && (std::holds_alternative<std::string*>(option.target) ||
                               std::holds_alternative<std::vector<std::string>*>(option.target));
  if (refuses_empty_values_ && value.empty() && takes_any_text)
    return usage(option.name + ": its value is empty; give one, or leave the option out");
  given_.push_back({.option = &option, .value = value});
  return set_value(option, value);
}

Result<Unit> Grammar::take_environment(
    const std::function<std::string(const char* name)>& environment) const {
  for (const OptionSpec& option : options_) {
    if (option.environment.empty() || was_given(option)) continue;
    const std::string value = environment(option.environment.c_str());
    if (value.empty()) continue;
    if (const Result<Unit> given = give(option, value); !given)
      return usage("environment variable " + option.environment + ": " + given.error().message);
  }
  return Unit{};
}

void Grammar::take_missing_from(const Grammar& other) const {
  CHECK(options_.size() >= other.options_.size());
  for (size_t i = 0; i < other.options_.size(); ++i) {
    CHECK(options_[i].name == other.options_[i].name);
    if (!other.was_given(other.options_[i])) continue;
    const bool mine = was_given(options_[i]);
    std::visit(
        [&](auto* to) {
          const auto* const from = std::get<decltype(to)>(other.options_[i].target);
          if constexpr (std::is_same_v<decltype(to), std::vector<std::string>*>) {
            to->insert(to->begin(), from->begin(), from->end());
          } else {
            if (!mine) *to = *from;
          }
        },
        options_[i].target);
  }
}

std::vector<Grammar::Group> Grammar::groups() const {
  std::vector<Group> groups;
  const auto group_of = [&](const std::string& title) -> Group& {
    const auto found = std::ranges::find(groups, title, &Group::title);
    return found != groups.end() ? *found : groups.emplace_back(Group{.title = title, .options = {}});
  };
  for (const OptionSpec& option : options_) {
    if (option.is_common && !option.is_hidden) group_of("Common options").options.push_back(&option);
  }
  for (const OptionSpec& option : options_) {
    if (!option.is_common && !option.is_hidden)
      group_of(option.heading.empty() ? "Options" : option.heading).options.push_back(&option);
  }
  return groups;
}

std::string Grammar::nearest(std::string_view name, const Grammar* also) const {
  std::vector<std::string> names;
  for (const OptionSpec& option : options_) names.push_back(option.name);
  if (also != nullptr) {
    for (const OptionSpec& option : also->options_) names.push_back(option.name);
  }
  return nearest_of(name, names);
}

Result<Unit> Grammar::parse(const std::vector<std::string>& words, const Grammar* also) const {
  next_argument_ = 0;
  given_.clear();
  bool options_over = false;
  for (size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    Result<Unit> taken = Unit{};
    if (options_over) {
      taken = take_argument(word, options_over);
    } else if (word == "--") {
      if (command_ == nullptr) return usage("this command takes no arguments after --");
      command_->assign(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
      break;
    } else if (word.starts_with("--")) {
      taken = parse_option(words, at, also);
    } else if (word.size() > 1 && word[0] == '-') {
      taken = parse_short(words, at, also);
    } else {
      taken = take_argument(word, options_over);
    }
    if (!taken) return taken;
  }
  return Unit{};
}

namespace {

/// The sentence on an argument that was not given: the question, and a command line that answers it.
std::string missing_sentence(const ArgumentSpec& argument, std::string_view command) {
  const auto example = [&](std::string_view kind, std::string_view value) {
    return "which " + std::string(kind) + "? For example: " + std::string(command) + " " + std::string(value);
  };
  if (!command.empty() && argument.complete == Complete::kJob) return example("job", "job-12");
  if (!command.empty() && argument.complete == Complete::kNode) return example("node", "n1");
  if (!command.empty() && argument.complete == Complete::kTenant) return example("tenant", "vision");
  return argument.name + " is missing: " + argument.help;
}

}  // namespace

Result<Unit> Grammar::check_complete(std::string_view command) const {
  for (const OptionSpec& option : options_) {
    if (option.required && !was_given(option)) {
      return usage(option.name + " is missing");
    }
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const ArgumentSpec& argument = arguments_[i];
    if (!argument.required || i < next_argument_) continue;
    const auto* const list = std::get_if<std::vector<std::string>*>(&argument.target);
    if (list != nullptr && !(*list)->empty()) continue;
    return usage(missing_sentence(argument, arguments_.size() == 1 ? command : std::string_view()));
  }
  return Unit{};
}

Result<Unit> Grammar::parse_option(const std::vector<std::string>& words, size_t& at,
                                   const Grammar* also) const {
  const std::string& word = words[at];
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const OptionSpec* option = find(name);
  if (option == nullptr && also != nullptr) option = also->find(name);
  if (option == nullptr) {
    const bool has_next = at + 1 < words.size() && !words[at + 1].starts_with('-');
    const std::string value = equals != std::string::npos ? word.substr(equals + 1)
                              : has_next                  ? words[at + 1]
                                                          : std::string();
    if (const std::string hint = hint_for(name, value); !hint.empty())
      return usage("there is no option " + name + "; " + hint);
    const std::string near = nearest(name, also);
    return usage("there is no option " + name + (near.empty() ? "" : "; did you mean " + near + "?"));
  }
  if (equals != std::string::npos) return give(*option, word.substr(equals + 1));
  if (option->value.empty()) return give(*option, "true");
  if (at + 1 >= words.size()) return usage(name + " needs a value: " + option->value);
  return give(*option, words[++at]);
}

Result<Unit> Grammar::parse_short(const std::vector<std::string>& words, size_t& at,
                                  const Grammar* also) const {
  const std::string& word = words[at];
  for (size_t i = 1; i < word.size(); ++i) {
    const std::string name = std::string("-") + word[i];
    const OptionSpec* option = find(name);
    if (option == nullptr && also != nullptr) option = also->find(name);
    if (option == nullptr) {
      const bool has_next = at + 1 < words.size() && !words[at + 1].starts_with('-');
      const std::string value = i + 1 < word.size() ? word.substr(i + 1) : has_next ? words[at + 1] : "";
      if (const std::string hint = i == 1 ? hint_for(name, value) : ""; !hint.empty())
        return usage("there is no option " + name + "; " + hint);
      const bool one_dash_short = word.size() > 2 && !nearest("-" + word, also).empty();
      return usage("there is no option " + (one_dash_short ? word : name) +
                   (one_dash_short ? "; did you mean " + nearest("-" + word, also) + "?" : ""));
    }
    if (option->value.empty()) {
      if (Result<Unit> set = give(*option, "true"); !set) return set;
      continue;
    }
    if (i + 1 < word.size()) return give(*option, word.substr(word[i + 1] == '=' ? i + 2 : i + 1));
    if (at + 1 >= words.size()) return usage(name + " needs a value: " + option->value);
    return give(*option, words[++at]);
  }
  return Unit{};
}

Result<Unit> Grammar::take_argument(const std::string& word, bool& options_over) const {
  if (next_argument_ >= arguments_.size() && bare_command_) {
    options_over = true;
    command_->push_back(word);
    return Unit{};
  }
  if (next_argument_ >= arguments_.size()) {
    const OptionSpec* const name = find("--name");
    if (arguments_.empty() && name != nullptr && name->required && !was_given(*name))
      return usage("\"" + word + "\" is an extra argument; the name is given as --name " + word);
    return usage("\"" + word + "\" is an extra argument" +
                 (has_command() ? "; the command to run goes after --" : ""));
  }
  const ArgumentSpec& argument = arguments_[next_argument_];
  if (refuses_empty_values_ && word.empty() && !options_over)
    return usage(argument.name + " is empty: " + argument.help);
  if (Result<Unit> good = check_word(argument.name, word, argument.words); !good) return good;
  if (argument.ends_options) options_over = true;
  const std::string text = stored_text(argument.complete, word);
  if (auto* const list = std::get_if<std::vector<std::string>*>(&argument.target)) {
    (*list)->push_back(text);
    return Unit{};
  }
  ++next_argument_;
  if (auto* const string = std::get_if<std::string*>(&argument.target)) {
    **string = text;
    return Unit{};
  }
  const Result<int64_t> value = bounded(argument.name, word, 0, INT64_MAX);
  if (!value) return value.error();
  *std::get<int64_t*>(argument.target) = *value;
  return Unit{};
}

}  // namespace gpusched
