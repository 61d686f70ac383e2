#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Pure.
namespace gpusched {

/// Bytes of the character that `text` begins with; 0 when it begins with none, or is empty.
std::size_t utf8_character_bytes(std::string_view text);

/// The bytes at the beginning of `text` that are whole characters.
std::size_t utf8_prefix_bytes(std::string_view text);

/// Whether all of `text` is UTF-8. ASCII is.
bool is_utf8(std::string_view text);

/// `text` with a '?' in place of each byte that belongs to no character.
std::string utf8_cleaned(std::string_view text);

/// At most `bytes_max` bytes from the beginning of `text`, without a part of a character at the end.
std::string_view utf8_cut(std::string_view text, std::size_t bytes_max);

}  // namespace gpusched
