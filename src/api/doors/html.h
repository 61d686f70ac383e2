#pragma once

#include <string>
#include <string_view>

namespace gpusched::api {

/// Appends text as HTML shows it, between tags or in a quoted attribute.
inline void add_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
}

inline std::string escaped(std::string_view text) {
  std::string out;
  add_escaped(out, text);
  return out;
}

}  // namespace gpusched::api
