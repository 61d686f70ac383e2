#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/style.h"

namespace gpusched::cli {

struct Column {
  std::string title;
  bool right = false;       ///< Aligned right, for numbers.
  bool may_shrink = false;  ///< Long texts, cut with an ellipsis when the terminal is narrow.
  int drop_order = 0;       ///< Left out when cutting is not enough: the highest first; 0 never.
  bool wraps = false;       ///< With may_shrink, of the last column: continued beneath instead of cut.
};

/// A text and what it means.
struct Cell {
  std::string text;
  Style style = Style::kPlain;

  Cell(std::string plain) : text(std::move(plain)) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* plain) : text(plain) {}             // NOLINT(google-explicit-constructor)
  Cell(std::string plain, Style meaning) : text(std::move(plain)), style(meaning) {}
};

/// Rows under titles, in columns that fit a terminal. Cells are made printable.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell for each column.
  void add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  /// At most `width` columns wide. Long texts are cut first, then columns with a drop order are left out,
  /// which the last line says; if the rest does not fit either, each row goes on in further lines, indented.
  /// Ends with a newline; no line ends with a blank.
  std::string render(int width, bool color = false) const;
  /// Leaves the titles out, and the remark about columns that had no room.
  void hide_titles() { titles_ = false; }
  /// Leaves that remark out: a live screen has no line for it.
  void hide_dropped() { tells_dropped_ = false; }
  /// Says below the table, where columns were left out, that `-o wide` shows them.
  void offer_wide() { has_wide_form_ = true; }

 private:
  std::vector<int> fit(std::vector<bool>& shown, int width) const;
  std::vector<size_t> line_starts(const std::vector<int>& widths, const std::vector<bool>& shown,
                                  int width) const;

  bool titles_ = true;
  bool tells_dropped_ = true;
  bool has_wide_form_ = false;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// "Title:   value" lines, values aligned; empty values are left out.
class Record {
 public:
  void add(std::string title, Cell value);
  /// Long values are continued beneath in lines of at most `width` columns.
  std::string render(int width, bool color = false) const;

 private:
  std::vector<std::pair<std::string, Cell>> lines_;
};

}  // namespace gpusched::cli
