#include "machines/drivers/program.h"

#include <unistd.h>

#include <cctype>

extern char** environ;

namespace gpusched::machines {

std::vector<std::string> program_environment() {
  std::vector<std::string> entries;
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::string entry = *each; !entry.starts_with("GPU_SCHEDULER_")) entries.push_back(std::move(entry));
  }
  return entries;
}

std::string shown_text(std::string_view text) {
  constexpr std::size_t kMessageBytesMax = 400;
  std::string out;
  for (const char c : text.substr(0, kMessageBytesMax))
    out += std::iscntrl(static_cast<unsigned char>(c)) ? ' ' : c;
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string program_failure(const CommandResult& ran, Duration timeout) {
  const std::string words = shown_text(ran.errors.empty() ? ran.output : ran.errors);
  const std::string why = ran.exit_code > 0 ? "exit status " + std::to_string(ran.exit_code)
                                            : "it could not be run, was killed, or took longer than " +
                                                  std::to_string(timeout.ms() / 1'000) + " s";
  return why + (words.empty() ? "" : ": " + words);
}

}  // namespace gpusched::machines
