#include "base/text/slurm_script.h"

#include <algorithm>
#include <cstddef>

namespace gpusched {
namespace {

constexpr std::string_view kMark = "#SBATCH";
constexpr std::string_view kBlank = " \t\r";

bool is_name_character(char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

}  // namespace

bool has_sbatch_lines(std::string_view script) {
  while (!script.empty()) {
    std::string_view line = script.substr(0, script.find('\n'));
    script.remove_prefix(std::min(line.size() + 1, script.size()));
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    if (line.empty()) continue;
    if (line.front() != '#') return false;
    if (!line.starts_with(kMark)) continue;
    line.remove_prefix(kMark.size());
    if (!line.empty() && kBlank.find(line.front()) != std::string_view::npos) return true;
  }
  return false;
}

std::vector<std::string> slurm_variables_in(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = text.find("SLURM", at)) != std::string_view::npos;) {
    const std::size_t begin = at;
    while (at < text.size() && is_name_character(text[at])) ++at;
    const std::string_view name = text.substr(begin, at - begin);
    const bool is_start = begin == 0 || !is_name_character(text[begin - 1]);
    const bool is_one =
        (name.starts_with("SLURM_") && name.size() > 6) || (name.starts_with("SLURMD_") && name.size() > 7);
    if (is_start && is_one && std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  }
  return names;
}

}  // namespace gpusched
