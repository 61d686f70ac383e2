#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace gpusched::anticipate {

/// How often a rule was right.
struct Record {
  int64_t hits = 0;    ///< Leases that it asked for and that were used.
  int64_t misses = 0;  ///< Leases that it asked for and that nobody used.

  friend bool operator==(const Record&, const Record&) = default;
};

/// Lessons of the user's own days about each rule. Not thread-safe.
class Learning {
 public:
  Learning() = default;
  explicit Learning(std::map<std::string, Record> records) : records_(std::move(records)) {}

  /// A lease that the rule asked for is over.
  void count(const std::string& rule, bool was_used);
  /// The weight that the rule has after its hits and misses: `weight * (hits + 4) / (hits + misses + 4)` by
  /// its newest kRemembered outcomes or so, and at least a tenth of it. A negative weight stays.
  int32_t weight_of(std::string_view rule, int32_t weight) const;

  const std::map<std::string, Record>& records() const { return records_; }

 private:
  static constexpr int64_t kRemembered = 64;  // Then both counts are halved: habits change.
  static constexpr std::size_t kRulesMax = 1'000;

  std::map<std::string, Record> records_;
};

}  // namespace gpusched::anticipate
