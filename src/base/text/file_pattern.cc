#include "base/text/file_pattern.h"

#include <algorithm>

namespace gpusched {
namespace {

constexpr std::string_view kLetters = "jAatxuN%";

std::string word_of(char letter, const FileWords& words) {
  std::string word;
  switch (letter) {
    case 'j':
      word = words.job;
      break;
    case 'A':
      word = words.array;
      break;
    case 'a':
      word = words.array_index;
      break;
    case 't':
      word = words.member;
      break;
    case 'x':
      word = words.name;
      break;
    case 'u':
      word = words.user;
      break;
    case 'N':
      word = words.node;
      break;
    default:
      return std::string(1, letter);
  }
  std::replace(word.begin(), word.end(), '/', '_');
  return word;
}

}  // namespace

std::string_view unknown_file_pattern(std::string_view path) {
  for (std::size_t at = 0; (at = path.find('%', at)) != std::string_view::npos; at += 2) {
    if (at + 1 < path.size() && kLetters.find(path[at + 1]) != std::string_view::npos) continue;
    std::size_t size = std::min<std::size_t>(2, path.size() - at);
    while (at + size < path.size() && (static_cast<unsigned char>(path[at + size]) & 0xC0) == 0x80) ++size;
    return path.substr(at, size);
  }
  return {};
}

std::string fill_file_pattern(std::string_view path, const FileWords& words) {
  std::string out;
  for (std::size_t at = 0; at < path.size(); ++at) {
    const bool known =
        path[at] == '%' && at + 1 < path.size() && kLetters.find(path[at + 1]) != std::string_view::npos;
    if (known) {
      out += word_of(path[++at], words);
    } else {
      out += path[at];
    }
  }
  return out;
}

}  // namespace gpusched
