#include "grammar/testing/program_checks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpusched {
namespace {

using Words = std::vector<std::string>;

std::string full_name(const Program& program, const ProgramCommand& command) {
  return command.path.empty() ? program.name : program.name + " " + command.path;
}

Words words_of(const std::string& path) {
  Words words;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(' ', begin), path.size());
    words.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string joined(const Words& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

/// Text without roff's backslashes, and with one blank between words.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') continue;
    const char shown = c == '\n' ? ' ' : c;
    if (shown != ' ' || out.empty() || out.back() != ' ') out += shown;
  }
  return out;
}

void expect_refusal(const Program& program, const ProgramCommand& command, const Words& more,
                    const std::string& sentence) {
  Words words = words_of(command.path);
  words.insert(words.end(), more.begin(), more.end());
  const ProgramRun run = run_caught(program, words);
  EXPECT_EQ(run.status, kProgramUsage) << joined(words);
  EXPECT_EQ(run.out, "") << joined(words);
  EXPECT_EQ(run.err.find(full_name(program, command) + ": " + sentence), 0u) << joined(words) << "\n"
                                                                             << run.err;
  EXPECT_NE(run.err.find("--help)\n"), std::string::npos) << run.err;
  EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
}

/// A value that the option takes.
std::string good_value(const OptionSpec& option) {
  if (!option.words.empty()) return option.words.front();
  const bool is_number = std::holds_alternative<int64_t*>(option.target) ||
                         std::holds_alternative<std::optional<int64_t>*>(option.target);
  return is_number ? std::to_string(std::clamp<int64_t>(1, option.least, option.most)) : "x";
}

void expect_sound(const Program& program, const ProgramCommand& command, const OptionSpec& option,
                  const std::string& help, const std::string& manual, const std::string& offered) {
  const std::string where = full_name(program, command) + " " + option.name;
  if (!option.is_hidden) {
    EXPECT_NE(plain(help).find(option.name + " "), std::string::npos) << where;
    EXPECT_NE(plain(manual).find(option.name), std::string::npos) << where;
  }
  EXPECT_FALSE(option.help.empty() || option.help.ends_with('.')) << where;
  EXPECT_NE(offered.find(option.name + "\t"), std::string::npos) << where;
  if (option.value.empty()) {
    expect_refusal(program, command, {option.name + "=perhaps"}, option.name + " takes no value");
    return;
  }
  expect_refusal(program, command, {option.name}, option.name + " needs a value: " + option.value);
  const std::string value = good_value(option);
  if (!std::holds_alternative<std::vector<std::string>*>(option.target)) {
    expect_refusal(program, command, {option.name, value, option.name, value},
                   option.name + " is given twice; give it once");
  }
  if (!option.words.empty()) {
    expect_refusal(program, command, {option.name, "no-such-word"},
                   option.name + ": \"no-such-word\" is not known");
  }
  if (std::holds_alternative<int64_t*>(option.target) ||
      std::holds_alternative<std::optional<int64_t>*>(option.target)) {
    expect_refusal(program, command, {option.name, "many"}, option.name + ": \"many\" is not a whole number");
    if (option.most != INT64_MAX)
      expect_refusal(program, command, {option.name, std::to_string(option.most + 1)}, option.name + ": ");
    if (option.least != INT64_MIN)
      expect_refusal(program, command, {option.name, std::to_string(option.least - 1)}, option.name + ": ");
  }
}

}  // namespace

ProgramRun run_caught(const Program& program, const Words& words, const Words& environment) {
  ProgramRun run;
  const ProgramIo io{.out = [&run](std::string_view text) { run.out += text; },
                     .err = [&run](std::string_view text) { run.err += text; },
                     .environment =
                         [&environment](const char* name) {
                           const std::string prefix = std::string(name) + "=";
                           for (const std::string& one : environment) {
                             if (one.starts_with(prefix)) return one.substr(prefix.size());
                           }
                           return std::string();
                         }};
  run.status = run_program(program, words, io);
  return run;
}

void expect_a_sound_grammar(const Program& program) {
  const ProgramRun main = run_caught(program, {"--help"});
  EXPECT_EQ(main.status, 0);
  const std::string manual = program_manual(program);
  for (const ProgramCommand& command : program.commands) {
    Grammar grammar;
    const ProgramAction action = command.define(grammar);
    EXPECT_NE(main.out.find(command.path), std::string::npos) << command.path;
    EXPECT_NE(plain(manual).find(command.path), std::string::npos) << command.path;
    EXPECT_FALSE(command.summary.empty() || command.summary.ends_with('.')) << command.path;
    Words words = words_of(command.path);
    words.push_back("--help");
    const ProgramRun help = run_caught(program, words);
    EXPECT_EQ(help.status, 0) << command.path;
    EXPECT_EQ(help.err, "") << command.path;
    words.back() = "--";
    words.insert(words.begin(), "__complete");
    const std::string offered = run_caught(program, words).out;
    expect_refusal(program, command, {"--no-such-option"}, "there is no option --no-such-option");
    for (const OptionSpec& option : grammar.options())
      expect_sound(program, command, option, help.out, manual, offered);
  }
}

}  // namespace gpusched
