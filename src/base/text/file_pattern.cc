#include "base/text/file_pattern.h"

#include <algorithm>

namespace gpusched {
namespace {

constexpr std::string_view kLetters = "jAatxuN%";
constexpr std::string_view kNumbers = "jAat";  ///< Those that a width pads.
constexpr std::size_t kWidthMax = 10;
constexpr std::size_t kWidthDigitsMax = 2;

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

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// One place of a path: "%j", or "%5j" with a width.
struct Place {
  char letter = 0;        ///< 0: it means nothing.
  std::size_t bytes = 0;  ///< With its "%".
  std::size_t width = 0;
};

/// The place that `text` begins with.
Place place_of(std::string_view text) {
  Place place;
  std::size_t at = 1;
  while (at < text.size() && at <= kWidthDigitsMax && is_digit(text[at]))
    place.width = place.width * 10 + static_cast<std::size_t>(text[at++] - '0');
  if (at >= text.size() || kLetters.find(text[at]) == std::string_view::npos) return place;
  if (at > 1 && (text[at] == '%' || place.width > kWidthMax)) return place;
  place.letter = text[at];
  place.bytes = at + 1;
  return place;
}

/// Puts zeros before the number that the word is, or ends with behind its last '-', up to `width` digits.
void pad(std::string& word, std::size_t width) {
  const std::size_t begin = word.rfind('-') + 1;  // Without one: 0.
  const bool is_number = begin < word.size() &&
                         std::all_of(word.begin() + static_cast<std::ptrdiff_t>(begin), word.end(), is_digit);
  if (is_number && word.size() - begin < width) word.insert(begin, width - (word.size() - begin), '0');
}

}  // namespace

std::string_view unknown_file_pattern(std::string_view path) {
  for (std::size_t at = 0; (at = path.find('%', at)) != std::string_view::npos;) {
    const Place place = place_of(path.substr(at));
    if (place.letter != 0) {
      at += place.bytes;
      continue;
    }
    std::size_t size = std::min<std::size_t>(2, path.size() - at);
    while (at + size < path.size() && (static_cast<unsigned char>(path[at + size]) & 0xC0) == 0x80) ++size;
    return path.substr(at, size);
  }
  return {};
}

std::string fill_file_pattern(std::string_view path, const FileWords& words) {
  std::string out;
  for (std::size_t at = 0; at < path.size();) {
    const Place place = path[at] == '%' ? place_of(path.substr(at)) : Place{};
    if (place.letter == 0) {
      out += path[at++];
      continue;
    }
    std::string word = word_of(place.letter, words);
    if (kNumbers.find(place.letter) != std::string_view::npos) pad(word, place.width);
    out += word;
    at += place.bytes;
  }
  return out;
}

}  // namespace gpusched
