#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.h"

namespace gpusched::api {

/// Appends `text` as a JSON string with its quotes. Bytes that are no valid UTF-8 become U+FFFD.
void append_json_text(std::string& out, std::string_view text);
/// Appends "2025-01-31T09:00:00.123456Z"; fractions end where zeros follow.
void append_time(std::string& out, Time wall);

/// Writes JSON into a string, commas included. The caller keeps begin and end in balance.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  /// `name` must need no escaping: it is one of ours.
  JsonWriter& key(std::string_view name) {
    comma();
    out_.push_back('"');
    out_.append(name);
    out_.append("\":");
    fresh_ = true;
    return *this;
  }
  JsonWriter& text_key(std::string_view name) {
    comma();
    append_json_text(out_, name);
    out_.push_back(':');
    fresh_ = true;
    return *this;
  }
  JsonWriter& value(std::string_view text) {
    comma();
    append_json_text(out_, text);
    return *this;
  }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(std::same_as<bool> auto flag) {
    comma();
    out_.append(flag ? "true" : "false");
    return *this;
  }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& value(T number) {
    comma();
    char buffer[24];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
    out_.append(buffer, end);
    return *this;
  }
  JsonWriter& value(double number);
  /// An instant as text; null when it is not yet.
  JsonWriter& value(Time wall);
  JsonWriter& null() {
    comma();
    out_.append("null");
    return *this;
  }
  /// Puts a value that is JSON already.
  JsonWriter& raw(std::string_view json) {
    comma();
    out_.append(json);
    return *this;
  }
  template <typename T>
  JsonWriter& field(std::string_view name, const T& what) {
    return key(name).value(what);
  }

 private:
  JsonWriter& open(char bracket) {
    comma();
    out_.push_back(bracket);
    fresh_ = true;
    return *this;
  }
  JsonWriter& close(char bracket) {
    out_.push_back(bracket);
    fresh_ = false;
    return *this;
  }
  void comma() {
    if (!fresh_) out_.push_back(',');
    fresh_ = false;
  }
  std::string& out_;
  bool fresh_ = true;
};

}  // namespace gpusched::api
