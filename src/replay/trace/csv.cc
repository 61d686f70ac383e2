#include "replay/trace/csv.h"

#include <algorithm>
#include <charconv>

#include "base/limits.h"

namespace gpusched::replay {

std::optional<Duration> parse_duration(std::string_view word, Duration unit) {
  constexpr int kDigitsMax = 9;
  int64_t whole = 0;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, whole);
  if (error != std::errc() || whole < 0 || word.front() == '-') return std::nullopt;
  if (whole > limits::kSettingMax.ns / unit.ns) return std::nullopt;
  int64_t ns = whole * unit.ns;
  if (rest != end) {
    if (*rest != '.') return std::nullopt;
    int64_t place_ns = unit.ns;
    int digits = 0;
    for (const char* digit = rest + 1; digit != end; ++digit) {
      if (*digit < '0' || *digit > '9') return std::nullopt;
      if (++digits > kDigitsMax) continue;
      place_ns /= 10;
      ns += place_ns * (*digit - '0');
    }
  }
  return Duration{ns};
}

Result<CsvFile> CsvFile::open(const std::string& path, const std::vector<std::string_view>& columns) {
  Result<LineFile> lines = LineFile::open(path);
  if (!lines) return lines.error();
  CsvFile file(std::move(*lines));
  std::string_view line;
  while (true) {
    const Result<bool> more = file.lines_.next(line);
    if (!more) return more.error();
    if (!*more)
      return Error{.code = ErrorCode::kCorrupt,
                   .message = path + ": the header line with the names of columns is missing"};
    if (!line.empty() && line.front() != '#') break;
  }
  file.split(line);
  file.names_.assign(file.fields_.begin(), file.fields_.end());
  for (const std::string_view column : columns) {
    const auto at = std::find(file.names_.begin(), file.names_.end(), column);
    if (at == file.names_.end())
      return file.broken("lacks the column '" + std::string(column) + "', which this format has");
    file.places_.push_back(static_cast<std::size_t>(at - file.names_.begin()));
  }
  return file;
}

void CsvFile::split(std::string_view line) {
  line_.assign(line);
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  fields_.clear();
  std::string_view rest = line_;
  while (true) {
    const std::size_t comma = rest.find(',');
    fields_.push_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

Result<bool> CsvFile::next() {
  std::string_view line;
  do {
    const Result<bool> more = lines_.next(line);
    if (!more || !*more) return more;
  } while (line.empty() || line == "\r");
  split(line);
  if (fields_.size() != names_.size()) {
    return broken("has " + std::to_string(fields_.size()) + " fields, its first line names " +
                  std::to_string(names_.size()) + " columns");
  }
  return true;
}

Result<int64_t> CsvFile::count(std::size_t column, int64_t max) const {
  const std::string_view word = field(column);
  int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  bool good = error == std::errc() && value >= 0 && value <= max;
  if (good && rest != end) {
    good = *rest == '.' && rest + 1 != end && std::all_of(rest + 1, end, [](char c) { return c == '0'; });
  }
  if (good) return value;
  return broken("column " + names_[places_[column]] + " is not a whole number from 0 to " +
                std::to_string(max) + ": " + std::string(word));
}

Result<Duration> CsvFile::time(std::size_t column, Duration unit) const {
  const std::string_view word = field(column);
  const std::optional<Duration> parsed =
      word.empty() ? std::optional<Duration>() : parse_duration(word, unit);
  if (parsed.has_value()) return *parsed;
  return broken("column " + names_[places_[column]] + " is not a time: '" + std::string(word) + "'");
}

}  // namespace gpusched::replay
