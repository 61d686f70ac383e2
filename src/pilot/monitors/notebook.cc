#include "pilot/monitors/notebook.h"

#include "client/json.h"

namespace gpusched::pilot {

std::optional<std::vector<std::string>> code_cells(std::string_view text) {
  const Result<Json> whole = Json::parse(text);
  if (!whole || !(*whole)["cells"].is_array()) return std::nullopt;
  std::vector<std::string> cells;
  for (const Json& cell : (*whole)["cells"].items()) {
    if (cell["cell_type"].text() != "code") continue;
    const Json source = cell["source"];
    std::string code = source.text();
    if (source.is_array()) {
      for (const Json& line : source.items()) code += line.text();
    }
    if (!code.empty()) cells.push_back(std::move(code));
  }
  return cells;
}

}  // namespace gpusched::pilot
