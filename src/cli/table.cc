#include "cli/table.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "cli/text.h"

namespace gpusched::cli {
namespace {

constexpr int kGap = 2;
constexpr int kShrunkWidthMin = 6;

int total_width(const std::vector<int>& widths, const std::vector<bool>& shown) {
  int total = -kGap;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (shown[i]) total += widths[i] + kGap;
  }
  return total;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

/// The width of each column; takes those that have no room out of `shown`.
std::vector<int> Table::fit(std::vector<bool>& shown, int width) const {
  std::vector<int> natural(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    natural[i] = display_width(columns_[i].title);
    for (const auto& row : rows_) natural[i] = std::max(natural[i], display_width(row[i]));
  }
  for (;;) {
    std::vector<int> widths = natural;
    while (total_width(widths, shown) > width) {
      // The widest gives a column, so that the long ones end up alike.
      size_t widest = columns_.size();
      for (size_t i = 0; i < columns_.size(); ++i) {
        const int least = std::max(kShrunkWidthMin, display_width(columns_[i].title));
        if (!shown[i] || !columns_[i].may_shrink || widths[i] <= least) continue;
        if (widest == columns_.size() || widths[i] > widths[widest]) widest = i;
      }
      if (widest == columns_.size()) break;
      --widths[widest];
    }
    if (total_width(widths, shown) <= width) return widths;
    size_t dropped = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!shown[i] || columns_[i].drop_order == 0) continue;
      if (dropped == columns_.size() || columns_[i].drop_order > columns_[dropped].drop_order) dropped = i;
    }
    if (dropped == columns_.size()) return widths;
    shown[dropped] = false;
  }
}

std::string Table::render(int width) const {
  std::vector<bool> shown(columns_.size(), true);
  const std::vector<int> widths = fit(shown, width);
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!shown[i]) continue;
      const std::string cell = fitted(cell_of(i), std::max(widths[i], 1));
      const std::string fill(static_cast<size_t>(std::max(0, widths[i] - display_width(cell))), ' ');
      if (!line.empty()) line.append(kGap, ' ');
      line += columns_[i].right ? fill + cell : cell + fill;
    }
    while (line.ends_with(' ')) line.pop_back();
    out += line + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&](size_t i) -> const std::string& { return row[i]; });
  return out;
}

void Record::add(std::string title, std::string_view value) {
  if (!value.empty()) lines_.emplace_back(std::move(title), printable(value));
}

std::string Record::render() const {
  size_t widest = 0;
  for (const auto& line : lines_) widest = std::max(widest, line.first.size());
  std::string out;
  for (const auto& [title, value] : lines_) {
    out += title + ":" + std::string(widest - title.size() + 2, ' ') + value + "\n";
  }
  return out;
}

}  // namespace gpusched::cli
