#include "cli/terminal/output.h"

#include <algorithm>

namespace gpusched::cli {
namespace {

/// Whether YAML reads `text` as this very text when it stands bare.
bool is_bare(std::string_view text) {
  if (text.empty()) return false;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '/' || c == '.';
  };
  if (!std::ranges::all_of(text, is_word)) return false;
  const char first = text.front();
  if (!((first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') || first == '/')) return false;
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const char* const word : {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}) {
    if (lower == word) return false;
  }
  return true;
}

/// A JSON text is a YAML text.
std::string scalar(const Json& value) {
  if (value.is_string()) {
    std::string text = value.text();
    if (is_bare(text)) return text;
  }
  return value.serialize();
}

bool is_nested(const Json& value) {
  return (value.is_object() && !value.members().empty()) || (value.is_array() && !value.items().empty());
}

void add_yaml(const Json& value, size_t indent, bool in_list, std::string& out) {
  const std::string space(indent, ' ');
  bool first = true;
  if (value.is_object()) {
    for (const auto& [name, member] : value.members()) {
      // A list's dash stands where the first member's indentation would.
      if (!(in_list && first)) out += space;
      first = false;
      out += (is_bare(name) ? name : Json::quoted(name)) + ":";
      if (is_nested(member)) {
        out += "\n";
        add_yaml(member, indent + (member.is_array() ? 0 : 2), false, out);
      } else {
        out += " " + scalar(member) + "\n";
      }
    }
    return;
  }
  for (const Json& item : value.items()) {
    out += space + "- ";
    if (item.is_object() && is_nested(item)) {
      add_yaml(item, indent + 2, true, out);
    } else {
      out += scalar(item) + "\n";
    }
  }
}

}  // namespace

OptionSpec& declare_format(Grammar& grammar, std::string& format) {
  return grammar.option("-o,--output", "FORMAT", &format, "Output format")
      .of({"wide", "json", "yaml", "name"});
}

Format format_of(const std::string& word, bool json) {
  if (word == "json" || (word.empty() && json)) return Format::kJson;
  if (word == "yaml") return Format::kYaml;
  if (word == "wide") return Format::kWide;
  return word == "name" ? Format::kName : Format::kTable;
}

std::string yaml_text(const Json& value) {
  std::string out;
  if (is_nested(value)) {
    add_yaml(value, 0, false, out);
  } else {
    out = scalar(value) + "\n";
  }
  return out;
}

std::vector<std::string> comma_list(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> split_outside_brackets(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (depth < 0 || depth > 1) return {};
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return depth == 0 ? parts : std::vector<std::string>{};
}

}  // namespace gpusched::cli
