#include "config/yaml_problem.h"

#include <algorithm>

namespace gpusched {

std::string yaml_problem(const std::string& path, std::string_view text, int line,
                         const std::string& message) {
  int number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view one = text.substr(begin, end - begin);
    const std::size_t word = std::min(one.find_first_not_of(" \t"), one.size());
    // The parser stumbles at most one line behind the tab that it took for text.
    if (number <= line + 2 && word < one.size() && one[word] != '#' &&
        one.substr(0, word).find('\t') != std::string_view::npos) {
      return path + ":" + std::to_string(number) +
             ": the line is indented with a tab, but YAML allows only spaces; replace the tab with spaces";
    }
    begin = end + 1;
  }
  return path + ":" + std::to_string(line + 1) + ": not valid YAML: " + message;
}

}  // namespace gpusched
