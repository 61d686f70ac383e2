#include "history/postgres/arrays.h"

#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace gpusched::history {

std::string& Arrays::next() {
  std::string& array = arrays_[column_];
  if (rows_ > 0) array += ',';
  if (++column_ == arrays_.size()) {
    column_ = 0;
    ++rows_;
  }
  return array;
}

Arrays& Arrays::integer(int64_t value) {
  next() += std::to_string(value);
  return *this;
}

Arrays& Arrays::integer_or_null(int64_t value) { return value == 0 ? null() : integer(value); }

Arrays& Arrays::real(double value) {
  next() += std::to_string(value);
  return *this;
}

Arrays& Arrays::boolean(bool value) {
  next() += value ? 't' : 'f';
  return *this;
}

Arrays& Arrays::text(std::string_view value) {
  std::string& array = next();
  std::string cleaned;
  if (!is_utf8(value)) {
    cleaned = utf8_cleaned(value);
    value = cleaned;
  }
  array += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') array += '\\';
    array += c == '\0' ? '?' : c;
  }
  array += '"';
  return *this;
}

Arrays& Arrays::text_or_null(std::string_view value) { return value.empty() ? null() : text(value); }

Arrays& Arrays::null() {
  next() += "NULL";
  return *this;
}

std::vector<std::string> Arrays::take() {
  CHECK(column_ == 0);
  const std::size_t columns = arrays_.size();
  std::vector<std::string> taken = std::exchange(arrays_, std::vector<std::string>(columns, "{"));
  for (std::string& array : taken) array += '}';
  rows_ = 0;
  return taken;
}

}  // namespace gpusched::history
