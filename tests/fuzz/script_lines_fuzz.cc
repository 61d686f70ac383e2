// rooms: base
// source: grammar/grammar.cc
// source: cli/verbs/submit/submit_body.cc
// source: cli/verbs/submit/submit_options.cc
// source: cli/verbs/submit/environment.cc
// source: cli/verbs/submit/script_advice.cc
// source: cli/verbs/submit/script_text.cc
// source: cli/verbs/submit/slurm.cc
// source: cli/verbs/submit/submit_script.cc
// source: grammar/job_name.cc
// source: cli/terminal/units.cc
// source: client/json.cc
//
// #GPU lines of a script, the words of such a line, and the texts of options: durations, sizes, times. Any
// that are understood make a body that is JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/text/civil_time.h"
#include "base/text/shell_words.h"
#include "cli/terminal/units.h"
#include "cli/verbs/submit/submit.h"

namespace cli = gpusched::cli;

namespace {

cli::CliIo fixed_io() {
  cli::CliIo io;
  io.environment = [](const char*) { return std::string("value"); };
  io.environment_all = [] { return std::vector<std::string>{"HOME=/home/ada", "LANG=C.UTF-8"}; };
  io.working_directory = [] { return std::string("/home/ada/work"); };
  io.login_name = [] { return std::string("ada"); };
  io.wall_now = [] { return gpusched::Time{1'760'000'000'000'000'000}; };
  return io;
}

/// JSON is UTF-8; bytes that are not are the scheduler's to refuse.
bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void try_script(const std::string& text) {
  static const cli::CliIo kIo = fixed_io();
  const cli::Script script{.text = text, .name = "train.sh", .folder = {}};
  static cli::SubmitOptions options;
  static const gpusched::Grammar kGrammar = [] {
    gpusched::Grammar grammar;
    cli::declare_submit_options(grammar, options);
    return grammar;
  }();
  options = {};
  const cli::ScriptLines read = cli::read_script_lines(script, kGrammar);
  for (const std::string& warning : read.warnings) CHECK(warning.starts_with("train.sh:"));
  for (const std::string& problem : read.problems) CHECK(!problem.empty());
  if (!read.problems.empty()) return;
  options.script_file = "train.sh";
  std::vector<std::string> warnings;
  const auto body = cli::job_body({}, options, script, kIo, warnings);
  if (!body) {
    CHECK(body.error().message.starts_with("--"));
  } else if (is_ascii(text)) {
    const auto parsed = gpusched::Json::parse(*body);
    CHECK(parsed.ok());
    CHECK((*parsed)["script"].text() == text);
  }
}

/// Every word in single quotes is that word again.
void try_words(const std::string& text) {
  const auto words = gpusched::shell_words(text);
  if (!words) return;
  CHECK(words->size() <= text.size() + 1);
  std::string quoted;
  for (const std::string& word : *words) {
    std::string inner = word;
    for (std::size_t at = 0; (at = inner.find('\'', at)) != std::string::npos; at += 4)
      inner.replace(at, 1, "'\\''");
    quoted += "'" + inner + "' ";
  }
  const auto again = gpusched::shell_words(quoted);
  CHECK(again.ok());
  CHECK(*again == *words);
}

void try_values(const std::string& text) {
  if (const auto seconds = cli::parse_duration_seconds(text)) {
    CHECK(*seconds > 0);
    CHECK(*cli::parse_duration_seconds(std::to_string(*seconds) + "s") == *seconds);
  }
  if (const auto mb = cli::parse_size_mb(text)) {
    CHECK(*mb >= 0);
    CHECK(*cli::parse_size_mb(std::to_string(*mb)) == *mb);
  }
  const gpusched::Time time = cli::parse_rfc3339(text);
  const gpusched::Time second{time.ns - ((time.ns % 1'000'000'000) + 1'000'000'000) % 1'000'000'000};
  CHECK(cli::parse_rfc3339(gpusched::utc_text(second)) == second);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_script(text);
  try_script("#!/bin/sh\n#GPU " + text + "\n");
  try_words(text);
  try_values(text);
  return 0;
}
