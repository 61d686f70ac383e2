// Texts about keys, and the search for keys.
#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "base/check.h"
#include "config/keys.h"

namespace gpusched {
namespace {

std::string number_text(double value) {
  std::array<char, 64> digits;
  const auto [end, error] =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  CHECK(error == std::errc{});
  return {digits.data(), end};
}

/// A double-quoted YAML scalar.
std::string quoted(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct TextOf {
  std::optional<double> automatic;

  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const {
    return automatic && *value == *automatic ? "auto" : number_text(*value);
  }
  std::string operator()(const std::string* value) const { return quoted(*value); }
  std::string operator()(const std::vector<std::string>* value) const {
    std::string out = "[";
    for (const std::string& item : *value) {
      if (out.size() > 1) out += ", ";
      out += quoted(item);
    }
    return out + "]";
  }
};

}  // namespace

std::string ConfigKey::full_name() const {
  return section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
}

std::string ConfigKey::environment() const {
  std::string out(kConfigEnvironmentPrefix);
  for (const char c : full_name()) {
    out += c == '.' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return out;
}

std::string ConfigKey::expectation() const {
  Config scratch;
  const ConfigSlot value = slot(scratch);
  const std::string range = " from " + number_text(min) + " to " + number_text(max);
  if (std::holds_alternative<bool*>(value)) return "true or false";
  if (std::holds_alternative<int64_t*>(value)) return "an integer" + range;
  if (std::holds_alternative<double*>(value)) return "a number" + range + (automatic ? ", or auto" : "");
  if (std::holds_alternative<std::string*>(value)) {
    if (one_of.empty()) return "a string";
    std::string out = "one of ";
    for (const char c : one_of) out += c == ' ' ? std::string(", ") : std::string(1, c);
    return out;
  }
  return "a list of strings";
}

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    for (const auto part :
         {scheduler_config_keys(), service_config_keys(), task_config_keys(), replica_config_keys()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return keys;
}

const ConfigKey* find_config_key(std::string_view section, std::string_view name) {
  const auto found = std::ranges::find_if(
      config_keys(), [&](const ConfigKey& key) { return key.section == section && key.name == name; });
  return found == config_keys().end() ? nullptr : &*found;
}

bool is_config_section(std::string_view section) {
  return !section.empty() &&
         std::ranges::any_of(config_keys(), [&](const ConfigKey& key) { return key.section == section; });
}

std::vector<ConfigChange> config_changes(const Config& before, const Config& after) {
  std::vector<ConfigChange> changes;
  for (const ConfigKey& key : config_keys()) {
    std::string old_text = config_value_text(key, before);
    std::string new_text = config_value_text(key, after);
    if (old_text == new_text) continue;
    if (key.secret) {
      // Whether there is one may be known, and that it changed.
      for (std::string* text : {&old_text, &new_text}) {
        if (*text != "\"\"") *text = kConfigMask;
      }
    }
    changes.push_back({.key = &key, .before = std::move(old_text), .after = std::move(new_text)});
  }
  return changes;
}

size_t edit_distance(std::string_view from, std::string_view to) {
  // Three rows of the table are enough: a swap looks two rows back.
  std::vector<size_t> before_last(to.size() + 1);
  std::vector<size_t> last(to.size() + 1);
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[to.size()];
}

const ConfigKey* nearest_config_key(std::string_view section, std::string_view name) {
  // The right name in the wrong section is nearer than any misspelling.
  for (const ConfigKey& key : config_keys()) {
    if (key.name == name && !key.section.empty() &&
        (section.empty() || edit_distance(section, key.section) <= 2))
      return &key;
  }
  const ConfigKey* best = nullptr;
  size_t best_distance = 0;
  for (const ConfigKey& key : config_keys()) {
    const size_t distance = edit_distance(section, key.section) + edit_distance(name, key.name);
    if (best == nullptr || distance < best_distance) {
      best = &key;
      best_distance = distance;
    }
  }
  const size_t limit = std::max<size_t>(2, (section.size() + name.size()) / 3);
  if (best_distance <= limit) return best;
  for (const ConfigKey& key : config_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string config_value_text(const ConfigKey& key, const Config& config) {
  Config copy = config;  // A slot points into a Config that may be changed.
  return std::visit([&](const auto* value) { return TextOf{key.automatic}(value); }, key.slot(copy));
}

}  // namespace gpusched
