#include "base/text/host_name.h"

#include <algorithm>
#include <cstddef>

namespace gpusched {
namespace {

constexpr std::size_t kNameBytesMax = 253;
constexpr std::size_t kWordBytesMax = 63;

bool is_word(std::string_view word) {
  if (word.empty() || word.size() > kWordBytesMax || word.starts_with('-') || word.ends_with('-'))
    return false;
  return std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

}  // namespace

bool is_host_name(std::string_view name) {
  if (name.size() > kNameBytesMax) return false;
  for (std::size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.')) {
    if (!is_word(name.substr(0, dot))) return false;
    name.remove_prefix(dot + 1);
  }
  return is_word(name);
}

}  // namespace gpusched
