#include "grammar/job_name.h"

#include <algorithm>
#include <string_view>

namespace gpusched {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string full_job_id(const std::string& text) {
  constexpr std::string_view kPrefix = "job-";
  std::string_view rest = text;
  if (rest.starts_with(kPrefix)) rest.remove_prefix(kPrefix.size());
  const size_t end = std::min(rest.find_first_of("_["), rest.size());
  const std::string number(rest.substr(0, end));
  if (!is_number(number)) return text;
  std::string_view place = rest.substr(end);
  if (place.empty()) return std::string(kPrefix) + number;
  if (place.starts_with('_')) {
    place.remove_prefix(1);
    if (is_number(place)) return std::string(kPrefix) + number + "[" + std::string(place) + "]";
  }
  // "5[3]", and Slurm's "5_[1-3]".
  const bool bracketed = place.size() > 2 && place.starts_with('[') && place.ends_with(']');
  return bracketed ? std::string(kPrefix) + number + std::string(place) : text;
}

}  // namespace gpusched
