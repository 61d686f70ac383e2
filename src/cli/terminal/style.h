#pragma once

#include <string>
#include <string_view>

namespace gpusched::cli {

/// Meaning of a text; it is shown in the terminal's eight colours, so that every theme stays readable.
enum class Style { kPlain, kTitle, kGood, kWarning, kBad, kDim, kMark };

/// `text` with the style around it when `color`, else as it is.
std::string styled(std::string_view text, Style style, bool color);

/// The style of a job's, a node's or a device's state.
Style style_of_state(std::string_view state);

}  // namespace gpusched::cli
