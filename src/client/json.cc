// The one file that includes Boost.JSON, with its definitions, so that the command line links no library for
// it.
#include "client/json.h"

#include <boost/json/src.hpp>
#include <cmath>
#include <limits>

namespace gpusched {
namespace {

const boost::json::value& at(const void* node) {
  static const boost::json::value kNull;
  return node == nullptr ? kNull : *static_cast<const boost::json::value*>(node);
}

int64_t whole_number(double value) {
  if (std::isnan(value)) return 0;
  // 2^63 is a double, INT64_MAX is none.
  if (value >= 9223372036854775808.0) return std::numeric_limits<int64_t>::max();
  if (value <= -9223372036854775808.0) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

void append_text(std::string& out, std::string_view text) {
  out += boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

/// Boost.JSON reads 0e999, which is 0, as 0 * infinity. Only a number whose mantissa ends in 0 can be one.
bool may_hold_nan(std::string_view text) {
  return text.find("0e") != std::string_view::npos || text.find("0E") != std::string_view::npos;
}

/// As deep as the parser goes, which is 32 levels.
void clear_nan(boost::json::value& value) {
  if (double* const number = value.if_double(); number != nullptr && std::isnan(*number)) *number = 0;
  if (boost::json::array* const items = value.if_array()) {
    for (boost::json::value& item : *items) clear_nan(item);
  }
  if (boost::json::object* const members = value.if_object()) {
    for (auto& member : *members) clear_nan(member.value());
  }
}

}  // namespace

Result<Json> Json::parse(std::string_view text) {
  boost::json::error_code failure;
  // Nothing is ever taken out of the tree: one arena that grows is several times faster than an allocation
  // each.
  boost::json::value value =
      boost::json::parse(boost::json::string_view(text.data(), text.size()), failure,
                         boost::json::make_shared_resource<boost::json::monotonic_resource>());
  if (failure) {
    return Error{.code = ErrorCode::kInvalidArgument, .message = "not valid JSON: " + failure.message()};
  }
  if (may_hold_nan(text)) clear_nan(value);
  auto whole = std::make_shared<const boost::json::value>(std::move(value));
  const void* const node = whole.get();
  return Json(std::move(whole), node);
}

bool Json::is_null() const { return at(node_).is_null(); }
bool Json::is_string() const { return at(node_).is_string(); }
bool Json::is_number() const { return at(node_).is_number(); }
bool Json::is_object() const { return at(node_).is_object(); }
bool Json::is_array() const { return at(node_).is_array(); }

Json Json::operator[](std::string_view key) const {
  const boost::json::object* const object = at(node_).if_object();
  if (object == nullptr) return {};
  const boost::json::value* const member =
      object->if_contains(boost::json::string_view(key.data(), key.size()));
  return member == nullptr ? Json() : Json(whole_, member);
}

std::vector<Json> Json::items() const {
  std::vector<Json> out;
  const boost::json::array* const array = at(node_).if_array();
  if (array == nullptr) return out;
  out.reserve(array->size());
  for (const boost::json::value& item : *array) out.push_back(Json(whole_, &item));
  return out;
}

std::vector<std::pair<std::string, Json>> Json::members() const {
  std::vector<std::pair<std::string, Json>> out;
  const boost::json::object* const object = at(node_).if_object();
  if (object == nullptr) return out;
  for (const auto& member : *object)
    out.emplace_back(std::string(member.key()), Json(whole_, &member.value()));
  return out;
}

std::string Json::text() const {
  const boost::json::string* const string = at(node_).if_string();
  return string == nullptr ? std::string() : std::string(string->data(), string->size());
}

int64_t Json::integer() const {
  const boost::json::value& value = at(node_);
  if (const int64_t* const number = value.if_int64()) return *number;
  if (value.if_uint64() != nullptr) return std::numeric_limits<int64_t>::max();
  if (const double* const number = value.if_double()) return whole_number(*number);
  return 0;
}

double Json::number() const {
  const boost::json::value& value = at(node_);
  if (const int64_t* const number = value.if_int64()) return static_cast<double>(*number);
  if (const uint64_t* const number = value.if_uint64()) return static_cast<double>(*number);
  if (const double* const number = value.if_double()) return *number;
  return 0;
}

bool Json::boolean() const {
  const bool* const flag = at(node_).if_bool();
  return flag != nullptr && *flag;
}

std::string Json::serialize() const { return boost::json::serialize(at(node_)); }

void JsonObjectWriter::begin(std::string_view key) {
  if (!empty()) text_ += ',';
  append_text(text_, key);
  text_ += ':';
}

void JsonObjectWriter::add(std::string_view key, std::string_view value) {
  begin(key);
  append_text(text_, value);
}

void JsonObjectWriter::add(std::string_view key, int64_t value) {
  begin(key);
  text_ += std::to_string(value);
}

void JsonObjectWriter::add(std::string_view key, double value) {
  CHECK(std::isfinite(value));
  constexpr double kWholeMax = 9007199254740992.0;  // 2^53: above, not every whole number is a double.
  if (value == std::floor(value) && std::abs(value) <= kWholeMax) {
    add(key, static_cast<int64_t>(value));
    return;
  }
  begin(key);
  text_ += boost::json::serialize(boost::json::value(value));
}

void JsonObjectWriter::add(std::string_view key, bool value) {
  begin(key);
  text_ += value ? "true" : "false";
}

void JsonObjectWriter::add(std::string_view key, const std::vector<std::string>& value) {
  begin(key);
  text_ += '[';
  for (size_t i = 0; i < value.size(); ++i) {
    if (i > 0) text_ += ',';
    append_text(text_, value[i]);
  }
  text_ += ']';
}

void JsonObjectWriter::add(std::string_view key, const std::map<std::string, std::string>& value) {
  begin(key);
  JsonObjectWriter inner;
  for (const auto& [name, text] : value) inner.add(name, text);
  text_ += inner.text();
}

std::string Json::quoted(std::string_view text) {
  std::string out;
  append_text(out, text);
  return out;
}

void JsonObjectWriter::add_null(std::string_view key) {
  begin(key);
  text_ += "null";
}

void JsonObjectWriter::add_json(std::string_view key, std::string_view json) {
  begin(key);
  text_ += json;
}

}  // namespace gpusched
