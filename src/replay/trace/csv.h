#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "replay/trace/line_file.h"

namespace gpusched::replay {

/// Reads comma-separated values whose first line names the columns, gzip or plain. Lines that begin with `#`
/// before the names, and empty lines, are passed over; a field has no quotes. Not thread-safe.
class CsvFile {
 public:
  /// `columns` are looked up by name, in any order; others are ignored. kCorrupt names one that is missing.
  static Result<CsvFile> open(const std::string& path, const std::vector<std::string_view>& columns);

  /// False at the end. kCorrupt, with the line's number: another number of fields than the first line has.
  Result<bool> next();
  /// Field of the line read last, by the place in `columns`; valid until the next one is read.
  std::string_view field(std::size_t column) const { return fields_[places_[column]]; }
  /// A whole number of at most `max`, a fraction of zeros allowed ("8.0"); kCorrupt with column and line.
  Result<int64_t> count(std::size_t column, int64_t max) const;
  /// A time in `unit`s with or without a fraction, from zero to limits::kSettingMax; kCorrupt as above.
  Result<Duration> time(std::size_t column, Duration unit) const;
  /// A kCorrupt error that names file and line.
  Error broken(std::string_view what) const { return lines_.broken(what); }
  uint64_t line_number() const { return lines_.number(); }

 private:
  explicit CsvFile(LineFile lines) : lines_(std::move(lines)) {}
  void split(std::string_view line);

  LineFile lines_;
  std::string line_;
  std::vector<std::string> names_;
  std::vector<std::size_t> places_;
  std::vector<std::string_view> fields_;
};

/// A number of `unit`s as a duration, down to the nanosecond; nothing when it is none, negative, or beyond
/// limits::kSettingMax.
std::optional<Duration> parse_duration(std::string_view word, Duration unit);

}  // namespace gpusched::replay
