#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace gpusched {

/// A JSON value that somebody else wrote, to look into without fear: what is missing or of another type reads
/// as null, empty or zero. Cheap to copy; a part keeps its whole alive. Immutable, so thread-safe.
class Json {
 public:
  /// Null.
  Json() = default;
  /// kInvalidArgument when `text` is no JSON, or is nested deeper than 32 levels.
  static Result<Json> parse(std::string_view text);

  bool is_null() const;
  bool is_string() const;
  bool is_number() const;
  bool is_object() const;
  bool is_array() const;

  /// An object's member; null when there is none.
  Json operator[](std::string_view key) const;
  /// An array's items in order; an object's members in the order they were written.
  std::vector<Json> items() const;
  std::vector<std::pair<std::string, Json>> members() const;

  std::string text() const;  ///< A string's bytes.
  int64_t integer() const;   ///< A number, cut to a whole one; beyond 64 bits the nearest end.
  double number() const;
  bool boolean() const;

  std::string serialize() const;
  /// `text` as a JSON string, with its quotes.
  static std::string quoted(std::string_view text);

 private:
  Json(std::shared_ptr<const void> whole, const void* node) : whole_(std::move(whole)), node_(node) {}

  std::shared_ptr<const void> whole_;
  const void* node_ = nullptr;  // A value inside `whole_`.
};

/// Writes one JSON object, member by member. Not thread-safe.
class JsonObjectWriter {
 public:
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, int64_t value);
  void add(std::string_view key, double value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, const std::vector<std::string>& value);
  void add(std::string_view key, const std::map<std::string, std::string>& value);
  void add_null(std::string_view key);
  /// A value that is JSON already.
  void add_json(std::string_view key, std::string_view json);

  bool empty() const { return text_.size() == 1; }
  /// The object so far.
  std::string text() const { return text_ + "}"; }

 private:
  void begin(std::string_view key);
  std::string text_ = "{";
};

}  // namespace gpusched
