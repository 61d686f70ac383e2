#include "api/doors/native/native_rest_json.h"

#include <google/protobuf/timestamp.pb.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <limits>

#include "api/doors/json_fields.h"
#include "api/doors/nearest_name.h"
#include "api/doors/rfc3339.h"
#include "base/limits.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

namespace json = boost::json;
namespace pb = google::protobuf;
using pb::FieldDescriptor;

constexpr std::size_t kEntriesMax = limits::kCommandWordsMax;  // Entries of one list or map of words.

bool is_time(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field.message_type() == pb::Timestamp::descriptor();
}

/// The type that a value of the field, or of its list's or map's entries, must have.
std::string type_word(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "a string";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case FieldDescriptor::CPPTYPE_ENUM:
      return enum_words(*field.enum_type());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return is_time(field) ? "a time such as \"2025-01-31T09:00:00Z\"" : "an object";
    default:
      return "a whole number";
  }
}

std::string wanted_words(const FieldDescriptor& field) {
  if (field.is_map()) {
    return "an object, the value of each member " + type_word(*field.message_type()->map_value());
  }
  if (field.is_repeated()) return "an array, each entry " + type_word(field);
  return type_word(field);
}

/// Sets fields while the parser runs: no tree is built, and every list has its bound.
class Handler {
 public:
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = 64 * 1024;
  static constexpr std::size_t max_string_size = 64u << 20;

  Handler(std::span<pb::Message* const> roots, NativeBody& body) : roots_(roots), body_(body) {}
  std::optional<ApiError> problem;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& error) {
    if (frames_.empty()) {
      frames_.push_back({.message = roots_.front()});
      return true;
    }
    Frame& top = frames_.back();
    if (top.kind == Frame::Kind::kMessage && top.field->is_map()) {
      frames_.push_back({.kind = Frame::Kind::kMap, .message = top.message, .field = top.field});
      return true;
    }
    const bool message = top.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !is_time(*top.field);
    const bool fits = top.kind == Frame::Kind::kList || !top.field->is_repeated();
    if (top.kind == Frame::Kind::kMap || !message || !fits) return wrong_type(error);
    const pb::Reflection& reflection = *top.message->GetReflection();
    if (top.kind == Frame::Kind::kList && !one_more(error)) return false;
    pb::Message* const inner = top.kind == Frame::Kind::kList
                                   ? reflection.AddMessage(top.message, top.field)
                                   : reflection.MutableMessage(top.message, top.field);
    frames_.push_back({.message = inner});
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    frames_.pop_back();
    return true;
  }
  bool on_array_begin(json::error_code& error) {
    if (frames_.empty()) return not_an_object(error);
    const Frame& top = frames_.back();
    const bool list = top.kind == Frame::Kind::kMessage && top.field->is_repeated() && !top.field->is_map();
    if (!list) return wrong_type(error);
    frames_.push_back({.kind = Frame::Kind::kList, .message = top.message, .field = top.field});
    return true;
  }
  bool on_array_end(std::size_t, json::error_code&) {
    frames_.pop_back();
    return true;
  }

  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view last, std::size_t, json::error_code& error) {
    std::string_view key(last.data(), last.size());
    if (!text_.empty()) {
      text_.append(key);
      key = text_;
    }
    const bool good = frames_.back().kind == Frame::Kind::kMap ? map_key(key, error) : field_key(key, error);
    text_.clear();
    return good;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view last, std::size_t, json::error_code& error) {
    if (frames_.empty()) return not_an_object(error);
    text_.append(last.data(), last.size());
    const std::string text = std::exchange(text_, {});
    if (text.find('\0') != std::string::npos) {
      return stop(ErrorKind::kInvalidArgument, "must not contain a NUL character", error);
    }
    return put_text(text, error);
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t number, json::string_view, json::error_code& error) {
    return put_number(number, static_cast<double>(number), true, error);
  }
  bool on_uint64(uint64_t number, json::string_view, json::error_code& error) {
    // Larger than any signed one, and than any field that we have may be.
    return put_number(INT64_MAX, static_cast<double>(number), false, error);
  }
  bool on_double(double number, json::string_view, json::error_code& error) {
    // 4.0 and 1e3 are whole numbers too; beyond 2^53 a double cannot say which one.
    constexpr double kExact = 9'007'199'254'740'992.0;
    const bool whole = std::fabs(number) < kExact && number == std::floor(number);
    return put_number(whole ? static_cast<int64_t>(number) : 0, number, whole, error);
  }
  bool on_bool(bool flag, json::error_code& error) {
    if (frames_.empty()) return not_an_object(error);
    const FieldDescriptor* field = value_field();
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL) return wrong_type(error);
    if (frames_.back().kind != Frame::Kind::kMessage)
      return wrong_type(error);  // There are no lists of them.
    frames_.back().message->GetReflection()->SetBool(frames_.back().message, field, flag);
    return true;
  }
  bool on_null(json::error_code& error) {
    if (frames_.empty()) return not_an_object(error);
    const Frame& top = frames_.back();
    if (top.kind != Frame::Kind::kMessage) return wrong_type(error);
    if (frames_.size() == 1) {
      body_.nulls.push_back(top.field->name());
      std::erase(body_.given, top.field->name());
    }
    return true;  // It was cleared at its key.
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  struct Frame {
    enum class Kind { kMessage, kList, kMap } kind = Kind::kMessage;
    pb::Message* message = nullptr;          // The one that has `field`.
    const FieldDescriptor* field = nullptr;  // Field of the last key; for a list or map the whole of it.
    std::size_t count = 0;                   // Entries so far.
    std::string key = {};                    // The last one of a map.
  };

  bool field_key(std::string_view key, json::error_code& error) {
    Frame& top = frames_.back();
    const FieldDescriptor* found = nullptr;
    if (frames_.size() == 1) {
      for (pb::Message* const root : roots_) {
        found = root->GetDescriptor()->FindFieldByName(std::string(key));
        if (found == nullptr) continue;
        top.message = root;
        break;
      }
    } else {
      found = top.message->GetDescriptor()->FindFieldByName(std::string(key));
    }
    if (found == nullptr) return unknown_field(key, error);
    top.field = found;
    top.message->GetReflection()->ClearField(top.message, found);  // Given twice: the last one holds.
    if (frames_.size() == 1) body_.given.emplace_back(key);
    return true;
  }
  bool map_key(std::string_view key, json::error_code& error) {
    frames_.back().key = key;
    if (key.find('\0') != std::string_view::npos) {
      return stop(ErrorKind::kInvalidArgument, "has a name that contains a NUL character", error);
    }
    return one_more(error);
  }
  bool unknown_field(std::string_view key, json::error_code& error) {
    std::vector<std::string> names;
    const auto add_all = [&names](const pb::Message& message) {
      for (int i = 0; i < message.GetDescriptor()->field_count(); ++i)
        names.push_back(message.GetDescriptor()->field(i)->name());
    };
    if (frames_.size() == 1) {
      for (const pb::Message* const root : roots_) add_all(*root);
    } else {
      add_all(*frames_.back().message);
    }
    const std::string nearest = nearest_name(key, names);
    std::string name(key.substr(0, 64));
    frames_.back().field = nullptr;
    const std::string before = place();
    const std::string where = before.empty() ? name : before + "." + name;
    std::string message = "there is no field " + where;
    message.append(nearest.empty() ? "; docs/reference/native-rest.md lists the existing ones"
                                   : "; did you mean " + nearest + "?");
    problem = ApiError{ErrorKind::kInvalidArgument, std::move(message), where};
    error = json::error::exception;
    return false;
  }

  /// The descriptor of the value that comes now; null where none may.
  const FieldDescriptor* value_field() const {
    const Frame& top = frames_.back();
    if (top.kind == Frame::Kind::kMap) return top.field->message_type()->map_value();
    if (top.kind == Frame::Kind::kMessage && top.field->is_repeated()) return nullptr;
    return top.field;
  }
  bool one_more(json::error_code& error) {
    Frame& top = frames_.back();
    top.count += 1;
    const bool messages = top.kind == Frame::Kind::kList && top.field->message_type() != nullptr;
    const std::size_t most = messages ? std::size_t{limits::kBatchJobsMax} : kEntriesMax;
    if (top.count <= most) return true;
    frames_.pop_back();  // The sentence is about the whole.
    return stop(ErrorKind::kInvalidArgument,
                "has more than " + std::to_string(most) +
                    (messages ? " entries; send several batches" : " entries; put them into a file"),
                error);
  }

  bool put_text(const std::string& text, json::error_code& error) {
    const FieldDescriptor* field = value_field();
    if (field == nullptr) return wrong_type(error);
    Frame& top = frames_.back();
    const pb::Reflection& reflection = *top.message->GetReflection();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      if (top.kind == Frame::Kind::kMap) {
        pb::Message* const entry = reflection.AddMessage(top.message, top.field);
        const pb::Descriptor& type = *entry->GetDescriptor();
        entry->GetReflection()->SetString(entry, type.map_key(), top.key);
        entry->GetReflection()->SetString(entry, type.map_value(), text);
        return true;
      }
      if (top.kind == Frame::Kind::kMessage) {
        reflection.SetString(top.message, field, text);
        return true;
      }
      if (!one_more(error)) return false;
      reflection.AddString(top.message, field, text);
      return true;
    }
    if (top.kind != Frame::Kind::kMessage) return wrong_type(error);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      const pb::EnumValueDescriptor* value = enum_of_word(*field->enum_type(), text);
      if (value == nullptr) return wrong_type(error);
      reflection.SetEnum(top.message, field, value);
      return true;
    }
    if (!is_time(*field)) return wrong_type(error);
    const std::optional<Time> time = parse_rfc3339(text);
    if (!time) return wrong_type(error);
    auto* const stamp = static_cast<pb::Timestamp*>(reflection.MutableMessage(top.message, field));
    stamp->set_seconds(time->ns / 1'000'000'000);
    stamp->set_nanos(static_cast<int32_t>(time->ns % 1'000'000'000));
    return true;
  }

  bool put_number(int64_t number, double real, bool whole, json::error_code& error) {
    if (frames_.empty()) return not_an_object(error);
    const FieldDescriptor* field = value_field();
    if (field == nullptr) return wrong_type(error);
    Frame& top = frames_.back();
    const pb::Reflection& reflection = *top.message->GetReflection();
    if (top.kind == Frame::Kind::kMap) {  // A map such as JobSpec.limits.
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_INT64 || !whole) return wrong_type(error);
      pb::Message* const entry = reflection.AddMessage(top.message, top.field);
      const pb::Descriptor& type = *entry->GetDescriptor();
      entry->GetReflection()->SetString(entry, type.map_key(), top.key);
      entry->GetReflection()->SetInt64(entry, type.map_value(), number);
      return true;
    }
    if (top.kind == Frame::Kind::kList) return wrong_type(error);
    const auto in_range = [&](int64_t least, int64_t most) {
      if (number >= least && number <= most) return true;
      return stop(ErrorKind::kInvalidArgument,
                  "must be from " + std::to_string(least) + " to " + std::to_string(most), error);
    };
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_DOUBLE:
        if (!std::isfinite(real)) return stop(ErrorKind::kInvalidArgument, "is too large", error);
        reflection.SetDouble(top.message, field, real);
        return true;
      case FieldDescriptor::CPPTYPE_INT32:
        if (!whole) return not_whole(real, error);
        if (!in_range(INT32_MIN, INT32_MAX)) return false;
        reflection.SetInt32(top.message, field, static_cast<int32_t>(number));
        return true;
      case FieldDescriptor::CPPTYPE_UINT32:
        if (!whole) return not_whole(real, error);
        if (!in_range(0, UINT32_MAX)) return false;
        reflection.SetUInt32(top.message, field, static_cast<uint32_t>(number));
        return true;
      case FieldDescriptor::CPPTYPE_INT64:
        if (!whole) return not_whole(real, error);
        reflection.SetInt64(top.message, field, number);
        return true;
      case FieldDescriptor::CPPTYPE_UINT64:
        if (!whole) return not_whole(real, error);
        if (!in_range(0, INT64_MAX)) return false;
        reflection.SetUInt64(top.message, field, static_cast<uint64_t>(number));
        return true;
      default:
        return wrong_type(error);
    }
  }

  bool not_whole(double real, json::error_code& error) {
    if (std::fabs(real) < 1e15 || std::isnan(real)) return wrong_type(error);
    return stop(ErrorKind::kInvalidArgument, "is too large", error);
  }
  bool wrong_type(json::error_code& error) {
    const Frame& top = frames_.back();
    if (top.kind == Frame::Kind::kMap) {
      return stop(ErrorKind::kInvalidArgument,
                  "must be " + type_word(*top.field->message_type()->map_value()), error);
    }
    if (top.kind == Frame::Kind::kList) {
      return stop(ErrorKind::kInvalidArgument, "must be " + type_word(*top.field), error);
    }
    return stop(ErrorKind::kInvalidArgument, "must be " + wanted_words(*top.field), error);
  }
  bool not_an_object(json::error_code& error) {
    problem =
        ApiError{ErrorKind::kMalformedJson, "the body must be one JSON object, such as {\"name\":\"x\"}"};
    error = json::error::exception;
    return false;
  }
  /// "jobs[3].spec.command[0]".
  std::string place() const {
    std::string out;
    for (std::size_t i = 0; i < frames_.size(); ++i) {
      const Frame& frame = frames_[i];
      switch (frame.kind) {
        case Frame::Kind::kMessage:
          if (frame.field == nullptr) break;
          if (!out.empty()) out.push_back('.');
          out.append(frame.field->name());
          break;
        case Frame::Kind::kList: {
          // An entry that is an object has been counted when its own frame began, a word has not.
          const bool inside = i + 1 < frames_.size();
          out.append("[").append(std::to_string(frame.count - (inside ? 1 : 0))).append("]");
          break;
        }
        case Frame::Kind::kMap:
          out.append(".").append(frame.key.substr(0, 64));
          break;
      }
    }
    return out;
  }
  bool stop(ErrorKind kind, const std::string& what, json::error_code& error) {
    std::string where = place();
    problem = ApiError{kind, where + " " + what, where};
    error = json::error::exception;  // Any one: it only ends the parsing.
    return false;
  }

  std::span<pb::Message* const> roots_;
  NativeBody& body_;
  std::vector<Frame> frames_;
  std::string text_;  // Parts of a key or a string.
};

}  // namespace

std::optional<ApiError> read_native_json(std::string_view bytes, std::span<pb::Message* const> roots,
                                         NativeBody& body) {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  json::basic_parser<Handler> parser(options, roots, body);
  json::error_code error;
  const std::size_t used = parser.write_some(false, bytes.data(), bytes.size(), error);
  if (parser.handler().problem) return std::move(parser.handler().problem);
  return json_problem(bytes, used, error);
}

// --- Writing -----------------------------------------------------------------------------------------------

namespace {

void write_value(const pb::Message& message, const FieldDescriptor& field, int index, JsonWriter& json) {
  const pb::Reflection& reflection = *message.GetReflection();
  const bool listed = index >= 0;
  std::string scratch;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      json.value(
          std::string_view(listed ? reflection.GetRepeatedStringReference(message, &field, index, &scratch)
                                  : reflection.GetStringReference(message, &field, &scratch)));
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      json.value(reflection.GetBool(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_INT32:
      json.value(reflection.GetInt32(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      json.value(reflection.GetUInt32(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      json.value(reflection.GetInt64(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      json.value(reflection.GetUInt64(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      json.value(reflection.GetDouble(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      json.value(static_cast<double>(reflection.GetFloat(message, &field)));
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      json.value(enum_word(*reflection.GetEnum(message, &field)));
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  const pb::Message& inner =
      listed ? reflection.GetRepeatedMessage(message, &field, index) : reflection.GetMessage(message, &field);
  if (const auto* const time = pb::DynamicCastToGenerated<const pb::Timestamp>(&inner)) {
    json.value(Time{time->seconds() * 1'000'000'000 + time->nanos()});
    return;
  }
  write_native_json(inner, json);
}

/// Sorted by key: equal maps give equal texts.
void write_map(const pb::Message& message, const FieldDescriptor& field, JsonWriter& json) {
  const pb::Reflection& reflection = *message.GetReflection();
  const FieldDescriptor& key = *field.message_type()->map_key();
  const FieldDescriptor& value = *field.message_type()->map_value();
  std::vector<std::pair<std::string, const pb::Message*>> entries;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const pb::Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    entries.emplace_back(entry.GetReflection()->GetString(entry, &key), &entry);
  }
  std::sort(entries.begin(), entries.end());
  json.begin_object();
  for (const auto& [name, entry] : entries) {
    json.text_key(name);
    write_value(*entry, value, -1, json);
  }
  json.end_object();
}

bool is_empty(const pb::Message& message, const FieldDescriptor& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) return reflection.FieldSize(message, &field) == 0;
  return !reflection.HasField(message, &field);  // Without presence: it has its default.
}

void write_field(const pb::Message& message, const FieldDescriptor& field, JsonWriter& json) {
  json.key(field.name());
  if (field.is_map()) return write_map(message, field, json);
  if (!field.is_repeated()) return write_value(message, field, -1, json);
  json.begin_array();
  const int count = message.GetReflection()->FieldSize(message, &field);
  for (int at = 0; at < count; ++at) write_value(message, field, at, json);
  json.end_array();
}

}  // namespace

void write_native_fields(const pb::Message& message, std::span<const FieldDescriptor* const> fields,
                         JsonWriter& json) {
  json.begin_object();
  for (const FieldDescriptor* const field : fields) {
    if (!is_empty(message, *field)) write_field(message, *field, json);
  }
  json.end_object();
}

void write_native_json(const pb::Message& message, JsonWriter& json) {
  const pb::Descriptor& type = *message.GetDescriptor();
  const bool only_given = &type == v1::JobSpec::descriptor();
  json.begin_object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool has_none = field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM;  // Zero is "unspecified".
    if ((only_given || has_none || (field.has_presence() && !field.is_repeated())) &&
        is_empty(message, field)) {
      continue;
    }
    write_field(message, field, json);
  }
  json.end_object();
}

std::string native_json(const pb::Message& message) {
  std::string out;
  JsonWriter json(out);
  write_native_json(message, json);
  return out;
}

// --- Words -------------------------------------------------------------------------------------------------

namespace {

/// "JOB_STATE_" for JobState.
std::string prefix_of(const pb::EnumDescriptor& type) {
  std::string out;
  for (const char c : type.name()) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !out.empty()) out.push_back('_');
    out.push_back(upper ? c : static_cast<char>(c - 'a' + 'A'));
  }
  return out + "_";
}

bool is_unspecified(const pb::EnumValueDescriptor& value) { return value.number() == 0; }

}  // namespace

std::string enum_word(const pb::EnumValueDescriptor& value) {
  const std::string prefix = prefix_of(*value.type());
  std::string word = value.name().starts_with(prefix) ? value.name().substr(prefix.size()) : value.name();
  for (char& c : word) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return word;
}

const pb::EnumValueDescriptor* enum_of_word(const pb::EnumDescriptor& type, std::string_view word) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (!is_unspecified(*type.value(i)) && enum_word(*type.value(i)) == word) return type.value(i);
  }
  return nullptr;
}

std::string enum_words(const pb::EnumDescriptor& type) {
  std::vector<std::string> words;
  for (int i = 0; i < type.value_count(); ++i) {
    if (!is_unspecified(*type.value(i))) words.push_back(enum_word(*type.value(i)));
  }
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out.append(i + 1 == words.size() ? " or " : ", ");
    out.append(words[i]);
  }
  return out;
}

}  // namespace gpusched::api
