#include "cli/verbs/submit/host_list.h"

#include <algorithm>

#include "cli/terminal/output.h"

namespace gpusched::cli {
namespace {

constexpr std::size_t kHostNamesMax = 1'000;

Error not_a_list(const std::string& text) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = "\"" + text + "\" is not a list of nodes; write it as n1,n2 or n[1-3,7]"};
}

bool is_digits(const std::string& text) {
  return !text.empty() && text.size() <= 9 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// "1-3" or "07" as numbers with their leading zeros; empty: it is neither.
std::vector<std::string> expand_range(const std::string& range) {
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
  if (!is_digits(first) || !is_digits(last)) return {};
  const int64_t begin = std::stoll(first);
  const int64_t end = std::stoll(last);
  if (end < begin || end - begin >= static_cast<int64_t>(kHostNamesMax)) return {};
  std::vector<std::string> numbers;
  for (int64_t number = begin; number <= end; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
  return numbers;
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& part : split_outside_brackets(text)) {
    const std::size_t open = part.find('[');
    if (open == std::string::npos) {
      if (part.empty()) return not_a_list(text);
      names.push_back(part);
      continue;
    }
    const std::size_t close = part.find(']');
    const std::string inside = part.substr(open + 1, close - open - 1);
    if (part.find('[', close) != std::string::npos || inside.empty()) return not_a_list(text);
    for (const std::string& range : split_outside_brackets(inside)) {
      const std::vector<std::string> numbers = expand_range(range);
      if (numbers.empty()) return not_a_list(text);
      for (const std::string& number : numbers)
        names.push_back(part.substr(0, open) + number + part.substr(close + 1));
    }
  }
  if (names.empty() || names.size() > kHostNamesMax) return not_a_list(text);
  return names;
}

}  // namespace gpusched::cli
