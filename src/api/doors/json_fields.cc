#include "api/doors/json_fields.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "api/doors/field_finder.h"
#include "api/doors/rfc3339.h"

namespace gpusched::api {
namespace {

namespace json = boost::json;

/// Takes back what a field was given.
struct Reset {
  void operator()(const ScaledNumber& place) const { place.to->reset(); }
  void operator()(auto* place) const { place->reset(); }
};

/// Fields that stand one after another.
class ListedFields final : public FieldFinder {
 public:
  explicit ListedFields(std::span<const JsonField> fields) : fields_(fields) {}
  const JsonField* find(std::string_view name) override {
    const JsonField* found = nullptr;
    for (const JsonField& field : fields_) {
      if (field.name == name) found = &field;
    }
    return found;
  }

 private:
  std::span<const JsonField> fields_;
};

/// Puts the values of known fields into their places while the parser runs: no tree is built, so that neither
/// many keys nor colliding ones cost more than their length.
class Handler {
 public:
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = 64 * 1024;
  static constexpr std::size_t max_string_size = 64u << 20;

  Handler(FieldFinder& fields, std::vector<std::string>* unknown) : fields_(fields), unknown_(unknown) {}
  std::optional<ApiError> problem;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& error) {
    depth_ += 1;
    if (depth_ == 1) return true;
    if (depth_ > 2 || field_ == nullptr) return depth_ > 2 && field_ != nullptr ? wrong_element(error) : true;
    if (auto* const* numbers = std::get_if<std::optional<IntegerMap>*>(&field_->place)) {
      (*numbers)->emplace();
      numbers_ = &***numbers;
      return true;
    }
    auto* const* place = std::get_if<std::optional<StringMap>*>(&field_->place);
    if (place == nullptr) return wrong_type(error);
    (*place)->emplace();
    map_ = &***place;
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) { return container_end(); }
  bool on_array_begin(json::error_code& error) {
    depth_ += 1;
    if (depth_ == 1) return not_an_object(error);
    if (depth_ > 2 || field_ == nullptr) return depth_ > 2 && field_ != nullptr ? wrong_element(error) : true;
    auto* const* place = std::get_if<std::optional<StringList>*>(&field_->place);
    if (place == nullptr) return wrong_type(error);
    (*place)->emplace();
    list_ = &***place;
    return true;
  }
  bool on_array_end(std::size_t, json::error_code&) { return container_end(); }

  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    if (depth_ <= 2) text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view last, std::size_t, json::error_code& error) {
    if (depth_ > 2) return true;
    std::string_view key(last.data(), last.size());
    if (!text_.empty()) {
      text_.append(key);
      key = text_;
    }
    if (depth_ == 1) {
      field_ = fields_.find(key);
      if (field_ == nullptr) note_unknown(key);
    } else if (map_ != nullptr) {
      if (key.find('\0') != std::string_view::npos) return has_nul(error);
      map_->emplace_back(key, std::string());
    } else if (numbers_ != nullptr) {
      if (key.find('\0') != std::string_view::npos) return has_nul(error);
      numbers_->emplace_back(key, 0);
    }
    text_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    if (field_ != nullptr && depth_ <= 2) text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view last, std::size_t, json::error_code& error) {
    if (depth_ == 0) return not_an_object(error);
    if (field_ == nullptr) return true;
    text_.append(last.data(), last.size());
    std::string text = std::exchange(text_, {});
    if (text.find('\0') != std::string::npos) return has_nul(error);
    if (list_ != nullptr) {
      list_->push_back(std::move(text));
      return true;
    }
    if (map_ != nullptr) {
      map_->back().second = std::move(text);
      return true;
    }
    if (numbers_ != nullptr) return wrong_element(error);
    if (auto* const* place = std::get_if<std::optional<std::string>*>(&field_->place)) {
      **place = std::move(text);
      return true;
    }
    if (auto* const* place = std::get_if<std::optional<NumberOrWord>*>(&field_->place)) {
      **place = std::move(text);
      return true;
    }
    if (auto* const* place = std::get_if<std::optional<Time>*>(&field_->place)) {
      return put_time(text, **place, error);
    }
    return wrong_type(error);
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t number, json::string_view, json::error_code& error) {
    if (numbers_ != nullptr && depth_ == 2) {
      numbers_->back().second = number;
      return true;
    }
    if (!scalar_wanted(error)) return field_ == nullptr && depth_ > 0;
    if (auto* const* place = std::get_if<std::optional<int64_t>*>(&field_->place)) {
      **place = number;
      return true;
    }
    if (auto* const* place = std::get_if<std::optional<double>*>(&field_->place)) {
      **place = static_cast<double>(number);
      return true;
    }
    if (auto* const* place = std::get_if<std::optional<NumberOrWord>*>(&field_->place)) {
      **place = number;
      return true;
    }
    if (auto* place = std::get_if<ScaledNumber>(&field_->place)) {
      *place->to = scaled(static_cast<double>(number), place->scale);
      return true;
    }
    return wrong_type(error);
  }
  bool on_uint64(uint64_t number, json::string_view text, json::error_code& error) {
    return on_double(static_cast<double>(number), text, error);
  }
  bool on_double(double number, json::string_view text, json::error_code& error) {
    // 4.0 and 1e3 are whole numbers too; beyond 2^53 a double cannot say which one.
    constexpr double kExact = 9'007'199'254'740'992.0;
    if (std::fabs(number) < kExact && number == std::floor(number)) {
      return on_int64(static_cast<int64_t>(number), text, error);
    }
    if (!scalar_wanted(error)) return field_ == nullptr && depth_ > 0;
    if (auto* const* place = std::get_if<std::optional<double>*>(&field_->place)) {
      **place = number;
      return true;
    }
    if (auto* place = std::get_if<ScaledNumber>(&field_->place)) {
      *place->to = scaled(number, place->scale);
      return true;
    }
    if (std::fabs(number) >= kExact && std::holds_alternative<std::optional<int64_t>*>(field_->place)) {
      return stop(ErrorKind::kInvalidArgument, std::string(field_->name) + " is too large", error);
    }
    return wrong_type(error);
  }
  bool on_bool(bool flag, json::error_code& error) {
    if (!scalar_wanted(error)) return field_ == nullptr && depth_ > 0;
    auto* const* place = std::get_if<std::optional<bool>*>(&field_->place);
    if (place == nullptr) return wrong_type(error);
    **place = flag;
    return true;
  }
  bool on_null(json::error_code& error) {
    if (!scalar_wanted(error)) return field_ == nullptr && depth_ > 0;
    std::visit(Reset{}, field_->place);
    if (field_->was_null != nullptr) *field_->was_null = true;
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  void note_unknown(std::string_view key) {
    if (unknown_ == nullptr || unknown_->size() >= kUnknownFieldsMax) return;
    std::size_t end = std::min(key.size(), kUnknownFieldBytesMax);
    // A character is not cut in two.
    while (end < key.size() && end > 0 && (static_cast<unsigned char>(key[end]) & 0xC0) == 0x80) --end;
    const std::string_view shown = key.substr(0, end);
    if (std::find(unknown_->begin(), unknown_->end(), shown) == unknown_->end())
      unknown_->emplace_back(shown);
  }
  static int64_t scaled(double number, int64_t scale) {
    constexpr double kLargest = 9.2e18;
    const double exact = number * static_cast<double>(scale);
    if (exact >= kLargest) return INT64_MAX;
    if (exact <= -kLargest) return INT64_MIN;
    const int64_t rounded = std::llround(exact);
    return rounded != 0 || number == 0 ? rounded : number < 0 ? -1 : 1;
  }
  /// An empty text is no instant, and none is given.
  bool put_time(const std::string& text, std::optional<Time>& place, json::error_code& error) {
    place = parse_rfc3339(text);
    if (place || text.empty()) return true;
    return stop(ErrorKind::kInvalidArgument,
                std::string(field_->name) + " must be a time such as 2025-01-31T09:00:00Z", error);
  }
  bool container_end() {
    depth_ -= 1;
    if (depth_ == 1) {
      list_ = nullptr;
      map_ = nullptr;
      numbers_ = nullptr;
    }
    return true;
  }
  /// Whether a scalar goes into the place of `field_`; else it is ignored, or a problem is set.
  bool scalar_wanted(json::error_code& error) {
    if (depth_ == 0) return not_an_object(error);
    if (field_ == nullptr) return false;
    if (list_ != nullptr || map_ != nullptr || numbers_ != nullptr) return wrong_element(error);
    return true;
  }
  bool stop(ErrorKind kind, std::string message, json::error_code& error) {
    problem =
        ApiError{kind, std::move(message), field_ != nullptr ? std::string(field_->name) : std::string()};
    error = json::error::exception;  // Any one: it only ends the parsing.
    return false;
  }
  bool not_an_object(json::error_code& error) {
    return stop(ErrorKind::kMalformedJson, "the body must be one JSON object, such as {\"name\":\"x\"}",
                error);
  }
  bool has_nul(json::error_code& error) {
    return stop(ErrorKind::kInvalidArgument, std::string(field_->name) + " must not contain a NUL character",
                error);
  }
  bool wrong_type(json::error_code& error) {
    struct Wanted {
      std::string_view operator()(std::optional<std::string>*) const { return "a string"; }
      std::string_view operator()(std::optional<int64_t>*) const { return "a whole number"; }
      std::string_view operator()(std::optional<double>*) const { return "a number"; }
      std::string_view operator()(std::optional<bool>*) const { return "true or false"; }
      std::string_view operator()(std::optional<StringList>*) const { return "an array of strings"; }
      std::string_view operator()(std::optional<StringMap>*) const {
        return "an object whose values are strings";
      }
      std::string_view operator()(std::optional<IntegerMap>*) const {
        return "an object whose values are whole numbers";
      }
      std::string_view operator()(std::optional<NumberOrWord>*) const { return "a number or a word"; }
      std::string_view operator()(std::optional<Time>*) const { return "a string"; }
      std::string_view operator()(const ScaledNumber&) const { return "a number"; }
    };
    std::string message(field_->name);
    message.append(" must be ").append(std::visit(Wanted{}, field_->place)).append(field_->hint);
    return stop(ErrorKind::kInvalidArgument, std::move(message), error);
  }
  bool wrong_element(json::error_code& error) {
    std::string message(field_->name);
    if (list_ != nullptr) message.append("[").append(std::to_string(list_->size())).append("]");
    if (map_ != nullptr && !map_->empty()) message.append(".").append(map_->back().first);
    if (numbers_ != nullptr && !numbers_->empty()) message.append(".").append(numbers_->back().first);
    return stop(ErrorKind::kInvalidArgument,
                message + (numbers_ != nullptr ? " must be a whole number" : " must be a string"), error);
  }

  FieldFinder& fields_;
  std::vector<std::string>* unknown_;
  const JsonField* field_ = nullptr;  // Field of the last key of the outer object; null when it is unknown.
  StringList* list_ = nullptr;        // Where the elements of the open array go.
  StringMap* map_ = nullptr;          // Where the members of the open object go.
  IntegerMap* numbers_ = nullptr;     // The same for numbers.
  std::string text_;                  // Parts of a key or a string.
  int depth_ = 0;
};

}  // namespace

std::optional<ApiError> read_json_object(std::string_view bytes, std::span<const JsonField> fields,
                                         std::vector<std::string>* unknown) {
  ListedFields listed(fields);
  return read_json_object(bytes, listed, unknown);
}

std::optional<ApiError> read_json_object(std::string_view bytes, FieldFinder& fields,
                                         std::vector<std::string>* unknown) {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  json::basic_parser<Handler> parser(options, fields, unknown);
  json::error_code error;
  const std::size_t used = parser.write_some(false, bytes.data(), bytes.size(), error);
  if (parser.handler().problem) return std::move(parser.handler().problem);
  return json_problem(bytes, used, error);
}

std::optional<ApiError> json_problem(std::string_view bytes, std::size_t used,
                                     boost::system::error_code error) {
  while (!error && used < bytes.size() &&
         std::string_view(" \t\r\n").find(bytes[used]) != std::string_view::npos)
    ++used;
  if (!error && used < bytes.size()) error = json::error::extra_data;
  if (!error) return std::nullopt;
  if (bytes.empty()) return ApiError{ErrorKind::kMalformedJson, "the body is empty; send one JSON object"};
  if (error == json::error::too_deep) {
    return ApiError{ErrorKind::kMalformedJson,
                    "the body has more than 32 levels of nesting; send a flatter object"};
  }
  return ApiError{ErrorKind::kMalformedJson, "the body is not valid JSON (" + error.message() +
                                                 " near byte " + std::to_string(used) +
                                                 "); send one JSON object in UTF-8"};
}

}  // namespace gpusched::api
