#pragma once

#include <string>
#include <vector>

namespace gpusched::cli {

struct Column {
  std::string title;
  bool right = false;       ///< For numbers.
  bool may_shrink = false;  ///< Long texts, cut with an ellipsis when the terminal is narrow.
  int drop_order = 0;       ///< Left out when cutting is not enough: the highest first; 0 never.
};

/// Rows under titles, in columns that fit a terminal. Cells are made printable.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell for each column.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  /// At most `width` columns wide, as long as what must stay fits. Ends with a newline; no line ends with a
  /// blank.
  std::string render(int width) const;

 private:
  std::vector<int> fit(std::vector<bool>& shown, int width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "Title:   value" lines, values aligned; empty values are left out.
class Record {
 public:
  void add(std::string title, std::string_view value);
  std::string render() const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

}  // namespace gpusched::cli
