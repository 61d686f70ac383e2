#include "sign/strict_json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <limits>

namespace gpusched::sign {
namespace {

namespace json = boost::json;

/// Counts members as they are written.
struct Counter {
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = max_object_size;
  static constexpr std::size_t max_key_size = max_object_size;
  static constexpr std::size_t max_string_size = max_object_size;
  std::size_t members = 0;

  using Error = json::error_code;
  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_array_begin(Error&) { return true; }
  bool on_array_end(std::size_t, Error&) { return true; }
  bool on_object_begin(Error&) { return true; }
  bool on_object_end(std::size_t count, Error&) {
    members += count;
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, Error&) { return true; }
  bool on_string(json::string_view, std::size_t, Error&) { return true; }
  bool on_key_part(json::string_view, std::size_t, Error&) { return true; }
  bool on_key(json::string_view, std::size_t, Error&) { return true; }
  bool on_number_part(json::string_view, Error&) { return true; }
  bool on_int64(int64_t, json::string_view, Error&) { return true; }
  bool on_uint64(uint64_t, json::string_view, Error&) { return true; }
  bool on_double(double, json::string_view, Error&) { return true; }
  bool on_bool(bool, Error&) { return true; }
  bool on_null(Error&) { return true; }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }
};

/// As deep as the parser goes.
std::size_t members_in(const json::value& value) {
  std::size_t count = 0;
  if (const json::object* const object = value.if_object()) {
    count += object->size();
    for (const auto& member : *object) count += members_in(member.value());
  } else if (const json::array* const array = value.if_array()) {
    for (const json::value& item : *array) count += members_in(item);
  }
  return count;
}

}  // namespace

std::optional<json::object> parse_strict_object(std::string_view text, std::size_t depth_max) {
  json::parse_options options;
  options.max_depth = depth_max;
  json::error_code failure;
  const json::string_view bytes(text.data(), text.size());
  json::value value = json::parse(bytes, failure, {}, options);
  if (failure || !value.is_object()) return std::nullopt;
  json::basic_parser<Counter> counted(options);
  counted.write_some(false, text.data(), text.size(), failure);
  if (failure || counted.handler().members != members_in(value)) return std::nullopt;
  return std::move(value.get_object());
}

}  // namespace gpusched::sign
