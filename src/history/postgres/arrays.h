#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpusched::history {

/// Rows for one statement, as PostgreSQL takes many at once: a text of an array for each column. Values come
/// row by row, in the order of the columns.
class Arrays {
 public:
  explicit Arrays(std::size_t columns) : arrays_(columns, "{") {}

  Arrays& integer(int64_t value);
  /// NULL for 0.
  Arrays& integer_or_null(int64_t value);
  Arrays& real(double value);
  Arrays& boolean(bool value);
  /// Bytes that are no text for PostgreSQL become '?'.
  Arrays& text(std::string_view value);
  /// NULL for a text that is empty.
  Arrays& text_or_null(std::string_view value);
  Arrays& null();

  bool empty() const { return rows_ == 0 && column_ == 0; }
  /// The arrays; afterwards there are no rows.
  std::vector<std::string> take();

 private:
  std::string& next();

  std::vector<std::string> arrays_;
  std::size_t column_ = 0;
  std::size_t rows_ = 0;
};

}  // namespace gpusched::history
