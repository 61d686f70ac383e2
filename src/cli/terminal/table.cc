#include "cli/terminal/table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "cli/terminal/text.h"

namespace gpusched::cli {
namespace {

constexpr int kGap = 2;
constexpr int kShrunkWidthMin = 6;
constexpr int kFurtherIndent = 4;
constexpr int kRecordRoomMin = 20;

int total_width(const std::vector<int>& widths, const std::vector<bool>& shown) {
  int total = -kGap;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (shown[i]) total += widths[i] + kGap;
  }
  return total;
}

/// Every byte is one printable column: what nearly all cells are.
bool is_plain_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F; });
}

/// The cell's text in lines of `room` columns, those behind the first indented.
void add_wrapped(const Cell& cell, int indent, int room, bool color, std::string& out) {
  bool first = true;
  for (const std::string& line : wrapped(cell.text, room)) {
    if (!std::exchange(first, false)) out += '\n' + std::string(static_cast<size_t>(indent), ' ');
    out += styled(line, cell.style, color);
  }
}

int columns_of(std::string_view text) {
  return is_plain_ascii(text) ? static_cast<int>(text.size()) : display_width(text);
}

}  // namespace

void Table::add(std::vector<Cell> cells) {
  CHECK(cells.size() == columns_.size());
  for (Cell& cell : cells) {
    if (!is_plain_ascii(cell.text)) cell.text = printable(cell.text);
  }
  rows_.push_back(std::move(cells));
}

/// The width of each column; takes those that have no room out of `shown`.
std::vector<int> Table::fit(std::vector<bool>& shown, int width) const {
  std::vector<int> natural(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    natural[i] = titles_ ? display_width(columns_[i].title) : 1;
    for (const auto& row : rows_) natural[i] = std::max(natural[i], columns_of(row[i].text));
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
    if (dropped == columns_.size()) {
      // The rows go on in further lines, and nothing needs to be shorter than one of these.
      for (size_t i = 0; i < columns_.size(); ++i)
        widths[i] =
            columns_[i].may_shrink ? std::min(natural[i], std::max(width - kFurtherIndent, 1)) : natural[i];
      return widths;
    }
    shown[dropped] = false;
  }
}

/// The columns with which a further line of each row begins.
std::vector<size_t> Table::line_starts(const std::vector<int>& widths, const std::vector<bool>& shown,
                                       int width) const {
  std::vector<size_t> starts;
  int used = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!shown[i]) continue;
    if (used > 0 && used + widths[i] > width) {
      starts.push_back(i);
      used = kFurtherIndent;
    }
    used += widths[i] + kGap;
  }
  return starts;
}

std::string Table::render(int width, bool color) const {
  std::vector<bool> shown(columns_.size(), true);
  const std::vector<int> widths = fit(shown, width);
  const std::vector<size_t> starts = line_starts(widths, shown, width);
  std::string out;
  out.reserve((rows_.size() + 1) * static_cast<size_t>(std::min(width, 200) + 1));
  const auto add_line = [&](const auto& cell_of) {
    int blanks = 0;        // Owed, and paid only when something follows: no line ends with one.
    bool further = false;  // A new line is owed too.
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!shown[i]) continue;
      if (std::ranges::find(starts, i) != starts.end()) {
        further = true;
        blanks = kFurtherIndent;
      }
      const Cell& cell = cell_of(i);
      const int room = std::max(widths[i], 1);
      const int natural = columns_of(cell.text);
      const bool cut = natural > room;
      if (cut && columns_[i].wraps && starts.empty()) {
        out.append(static_cast<size_t>(blanks), ' ');
        add_wrapped(cell, total_width(widths, shown) - widths[i], room, color, out);
        blanks = 0;
        continue;
      }
      const std::string text = cut ? fitted(cell.text, room) : cell.text;
      const int missing = room - (cut ? display_width(text) : natural);
      if (columns_[i].right) blanks += missing;
      if (!text.empty()) {
        if (std::exchange(further, false)) out += '\n';
        out.append(static_cast<size_t>(blanks), ' ');
        blanks = 0;
        out += styled(text, cell.style, color);
      }
      blanks += columns_[i].right ? (text.empty() ? room - missing : 0) : missing;
      blanks += kGap;
    }
    out += '\n';
  };
  if (titles_) {
    std::vector<Cell> titles;
    for (const Column& column : columns_) titles.emplace_back(column.title, Style::kTitle);
    add_line([&](size_t i) -> const Cell& { return titles[i]; });
  }
  for (const auto& row : rows_) add_line([&](size_t i) -> const Cell& { return row[i]; });
  std::string dropped;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!shown[i]) dropped += (dropped.empty() ? "" : ", ") + columns_[i].title;
  }
  if (dropped.empty() || !titles_ || !tells_dropped_) return out;
  return out +
         fitted(dropped + (dropped.find(',') == std::string::npos ? " does" : " do") +
                    " not fit: " + (has_wide_form_ ? "use -o wide" : "widen the terminal"),
                std::max(width, 1)) +
         "\n";
}

void Record::add(std::string title, Cell value) {
  if (value.text.empty()) return;
  value.text = printable(value.text);
  lines_.emplace_back(std::move(title), std::move(value));
}

std::string Record::render(int width, bool color) const {
  size_t widest = 0;
  for (const auto& line : lines_) widest = std::max(widest, line.first.size());
  const int indent = static_cast<int>(widest) + 1 + kGap;
  const int room = std::max(width - indent, kRecordRoomMin);
  std::string out;
  for (const auto& [title, value] : lines_) {
    out += styled(title + ":", Style::kDim, color) + std::string(widest - title.size() + kGap, ' ');
    add_wrapped(value, indent, room, color, out);
    out += '\n';
  }
  return out;
}

}  // namespace gpusched::cli
