// rooms: cli client base
//
// #GPU lines of a script, the words of such a line, and the texts of options: arrays, durations, sizes,
// times.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "cli/submit.h"
#include "cli/units.h"

namespace cli = gpusched::cli;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const std::string& script : {text, "#!/bin/sh\n#GPU " + text + "\n"}) {
    cli::SubmitOptions options;
    cli::Grammar grammar;
    cli::declare_submit_options(grammar, options);
    std::vector<std::string> warnings;
    const auto read = cli::read_script_lines({.text = script, .name = "train.sh"}, grammar, warnings);
    if (!read) CHECK(read.error().message.starts_with("train.sh:"));
  }
  if (const auto words = cli::shell_words(text)) CHECK(words->size() <= text.size() + 1);
  constexpr std::size_t kMost = 1'000;
  if (const auto indexes = cli::parse_array(text, kMost)) {
    CHECK(indexes->size() <= kMost);
    for (std::size_t i = 1; i < indexes->size(); ++i) CHECK((*indexes)[i - 1] < (*indexes)[i]);
  }
  static_cast<void>(cli::parse_duration_seconds(text).ok());
  static_cast<void>(cli::parse_rfc3339(text));
  return 0;
}
