#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpusched::cli {

/// `text` for one line of a terminal: control characters and bytes that are not UTF-8 become U+FFFD, so that
/// a job's name can neither move the cursor nor colour the screen.
std::string printable(std::string_view text);

/// Columns that `text` takes on a terminal: 2 for East Asian wide characters and emoji, 0 for combining
/// marks. `text` is UTF-8, as `printable` returns it.
int display_width(std::string_view text);

/// `text` cut to at most `width` columns, with an ellipsis as the last when something was cut. `width` >= 1.
std::string fitted(std::string_view text, int width);

/// `text` in lines of at most `width` columns, broken at blanks; a longer word is broken anywhere. At least
/// one line. `width` >= 1; a double-width character takes its two columns all the same.
std::vector<std::string> wrapped(std::string_view text, int width);

}  // namespace gpusched::cli
