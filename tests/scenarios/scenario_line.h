#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/time.h"
#include "model/types.h"

/// The contents of a scenario's line; tests/scenarios/README.md has the verbs.
namespace gpusched {

/// One line: words, key=value options and flags, and what is expected behind "->". Copies of it share what is
/// known of the options that were asked for.
struct Line {
  std::string verb, name;
  std::map<std::string, std::string> options;
  std::string expected;
  std::shared_ptr<std::set<std::string>> asked = std::make_shared<std::set<std::string>>();

  bool has(const std::string& key) const {
    asked->insert(key);
    return options.contains(key);
  }
  std::string text(const std::string& key, const std::string& fallback = "") const {
    asked->insert(key);
    const auto it = options.find(key);
    return it == options.end() ? fallback : it->second;
  }
  int64_t number(const std::string& key, int64_t fallback = 0) const {
    if (!has(key)) return fallback;
    const std::string digits = text(key);
    char* rest = nullptr;
    const int64_t value = std::strtoll(digits.c_str(), &rest, 10);
    if (digits.empty() || *rest != '\0') ADD_FAILURE() << key << "=" << digits << " is not a number";
    return value;
  }
  /// The options that nobody asked for: words that the verb does not know.
  std::vector<std::string> unknown() const {
    std::vector<std::string> words;
    for (const auto& [key, value] : options) {
      if (!asked->contains(key)) words.push_back(key);
    }
    return words;
  }
};

inline Duration duration_of(const std::string& text) {
  char* unit = nullptr;
  const int64_t count = std::strtoll(text.c_str(), &unit, 10);
  const std::string name = unit;
  if (name == "ms") return milliseconds(count);
  if (name == "s") return seconds(count);
  if (name == "m") return minutes(count);
  if (name == "h") return hours(count);
  ADD_FAILURE() << "not a duration: " << text;
  return {};
}

/// "online" or "batch"; empty: it does not say.
inline WorkClass work_named(const std::string& word) {
  if (word.empty()) return WorkClass::kUnset;
  return word == "online" ? WorkClass::kOnline : WorkClass::kBatch;
}

/// "60,600"
inline std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> numbers;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    numbers.push_back(std::strtoll(word.c_str(), nullptr, 10));
  return numbers;
}

/// "n1[0-2,5]" from a mask; "n1" without devices.
inline std::string place_text(const std::string& node, uint64_t mask) {
  if (mask == 0) return node;
  std::string text;
  for (int i = 0; i < 64; ++i) {
    if (((mask >> i) & 1) == 0) continue;
    int last = i;
    while (last + 1 < 64 && ((mask >> (last + 1)) & 1) != 0) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(i) + (last > i ? "-" + std::to_string(last) : "");
    i = last;
  }
  return node + "[" + text + "]";
}

inline Line parse(const std::string& raw) {
  Line line;
  const std::size_t arrow = raw.find("->");
  std::istringstream words(raw.substr(0, arrow));
  if (arrow != std::string::npos) {
    line.expected = raw.substr(arrow + 2);
    line.expected.erase(0, line.expected.find_first_not_of(' '));
    line.expected.erase(line.expected.find_last_not_of(' ') + 1);
  }
  words >> line.verb;
  std::string word;
  while (words >> word) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      line.options[word.substr(0, equals)] = word.substr(equals + 1);
    } else if (line.name.empty()) {
      line.name = word;
    } else {
      line.options[word] = "";
    }
  }
  return line;
}

}  // namespace gpusched
