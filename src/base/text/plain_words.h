#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpusched {

/// Words of a job or a node for people, as one line of at most `bytes_max` bytes of UTF-8: control
/// characters, which move a terminal or forge a line of a log, are written as they are in C ("\n", "\x1b"),
/// and bytes that belong to no character become '?'. Pure.
std::string plain_words(std::string_view text, std::size_t bytes_max);

}  // namespace gpusched
