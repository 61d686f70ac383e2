#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpusched::pilot {

/// The sources of a Jupyter notebook's code cells, in order; nothing when `text` is none. Outputs and notes
/// are left out.
std::optional<std::vector<std::string>> code_cells(std::string_view text);

}  // namespace gpusched::pilot
