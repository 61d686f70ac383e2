#include "anticipate/observation.h"

#include <array>

namespace gpusched::anticipate {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"log", "file", "process", "shell", "custom", "model"};

}  // namespace

std::string_view to_string(Source source) { return kNames.at(static_cast<std::size_t>(source)); }

std::optional<Source> parse_source(std::string_view name) {
  for (std::size_t at = 0; at < kNames.size(); ++at) {
    if (kNames.at(at) == name) return static_cast<Source>(at);
  }
  return std::nullopt;
}

}  // namespace gpusched::anticipate
