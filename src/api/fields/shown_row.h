#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/timestamp.pb.h>

#include <string>
#include <string_view>
#include <vector>

#include "api/contract/json_writer.h"
#include "base/time.h"
#include "model/types.h"

/// Rows of shown fields: one function writes the value of a field, compiled for JSON and for messages
/// alike.
namespace gpusched::api {

/// Writes fields as members of a JSON object.
class JsonFields {
 public:
  /// Instants that are not yet: null, or left out.
  enum class Unset : uint8_t { kNull, kLeftOut };

  JsonFields(JsonWriter& json, Unset unset) : json_(json), unset_(unset) {}

  /// The next value is this field's.
  JsonFields& at(int, std::string_view name) {
    name_ = name;
    return *this;
  }
  void text(std::string_view value) { json_.field(name_, value); }
  void number(int64_t value) { json_.field(name_, value); }
  void fraction(double value) { json_.field(name_, value); }
  void flag(bool value) { json_.field(name_, value); }
  /// Thousandths: shown in cores, which are whole numbers wherever they are whole.
  void cores(int64_t milli) {
    if (milli % 1'000 == 0) return number(milli / 1'000);
    fraction(static_cast<double>(milli) / 1'000.0);
  }
  void choice(int, std::string_view word) { json_.field(name_, word); }
  void time(Time value) {
    if (value.valid() || unset_ == Unset::kNull) json_.field(name_, value);
  }
  void words(const std::vector<std::string>& values) {
    json_.key(name_).begin_array();
    for (const std::string& value : values) json_.value(std::string_view(value));
    json_.end_array();
  }
  void labels(const std::vector<Label>& labels) {
    json_.key(name_).begin_object();
    for (const Label& label : labels) json_.text_key(label.name).value(label.value);
    json_.end_object();
  }
  template <typename Write>
  void object(Write&& write) {
    json_.key(name_).begin_object();
    JsonFields inner(json_, unset_);
    write(inner);
    json_.end_object();
  }
  template <typename Items, typename Write>
  void list(const Items& items, Write&& write) {
    json_.key(name_).begin_array();
    for (const auto& item : items) {
      json_.begin_object();
      JsonFields inner(json_, unset_);
      write(item, inner);
      json_.end_object();
    }
    json_.end_array();
  }

 private:
  JsonWriter& json_;
  Unset unset_;
  std::string_view name_;
};

/// Writes fields of a message. Instants that are not yet are left out.
class MessageFields {
 public:
  explicit MessageFields(google::protobuf::Message& message)
      : message_(message), reflection_(*message.GetReflection()), type_(*message.GetDescriptor()) {}

  MessageFields& at(int number, std::string_view) {
    field_ = type_.FindFieldByNumber(number);
    return *this;
  }
  void text(std::string_view value) { reflection_.SetString(&message_, field_, std::string(value)); }
  void number(int64_t value) {
    if (field_->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32) {
      reflection_.SetInt32(&message_, field_, static_cast<int32_t>(value));
    } else {
      reflection_.SetInt64(&message_, field_, value);
    }
  }
  void fraction(double value) { reflection_.SetDouble(&message_, field_, value); }
  void flag(bool value) { reflection_.SetBool(&message_, field_, value); }
  void cores(int64_t milli) { number(milli); }
  void choice(int value, std::string_view) { reflection_.SetEnumValue(&message_, field_, value); }
  void time(Time value) {
    if (!value.valid()) return;
    auto& out = static_cast<google::protobuf::Timestamp&>(*reflection_.MutableMessage(&message_, field_));
    out.set_seconds(value.ns / 1'000'000'000);
    out.set_nanos(static_cast<int32_t>(value.ns % 1'000'000'000));
  }
  void words(const std::vector<std::string>& values) {
    for (const std::string& value : values) reflection_.AddString(&message_, field_, value);
  }
  void labels(const std::vector<Label>& labels) {
    list(labels, [](const Label& label, MessageFields& out) {
      out.at(1, "key").text(label.name);
      out.at(2, "value").text(label.value);
    });
  }
  template <typename Write>
  void object(Write&& write) {
    MessageFields inner(*reflection_.MutableMessage(&message_, field_));
    write(inner);
  }
  template <typename Items, typename Write>
  void list(const Items& items, Write&& write) {
    for (const auto& item : items) {
      MessageFields inner(*reflection_.AddMessage(&message_, field_));
      write(item, inner);
    }
  }

 private:
  google::protobuf::Message& message_;
  const google::protobuf::Reflection& reflection_;
  const google::protobuf::Descriptor& type_;
  const google::protobuf::FieldDescriptor* field_ = nullptr;
};

/// One field of a `View` as it is shown.
template <typename View>
struct ShownRow {
  int number = 0;         ///< In its message; 0: only the jobs door shows it.
  std::string_view name;  ///< There; empty: as the jobs door has it.
  std::string_view door;  ///< At the jobs door; empty: not shown there.
  std::string_view meaning;
  void (*to_json)(const View& view, JsonFields& out) = nullptr;
  void (*to_message)(const View& view, MessageFields& out) = nullptr;
  bool (*has_it)(const View& view) = nullptr;  ///< Whether the jobs door shows it; null: always.

  constexpr ShownRow if_any(bool (*condition)(const View& view)) const {
    ShownRow row = *this;
    row.has_it = condition;
    return row;
  }
};

/// The row of a field whose value `Write` writes.
template <typename View, auto Write>
constexpr ShownRow<View> shown_row(int number, std::string_view name, std::string_view door,
                                   std::string_view meaning) {
  return {.number = number,
          .name = name,
          .door = door,
          .meaning = meaning,
          .to_json = [](const View& view, JsonFields& out) { Write(view, out); },
          .to_message = [](const View& view, MessageFields& out) { Write(view, out); }};
}

/// Writes what the jobs door shows.
template <typename Rows, typename View>
void write_rows(const Rows& rows, const View& view, JsonFields& out) {
  for (const ShownRow<View>& row : rows) {
    if (row.door.empty() || (row.has_it != nullptr && !row.has_it(view))) continue;
    row.to_json(view, out.at(row.number, row.door));
  }
}
/// Writes what the message has.
template <typename Rows, typename View>
void write_rows(const Rows& rows, const View& view, MessageFields& out) {
  for (const ShownRow<View>& row : rows) {
    if (row.number != 0) row.to_message(view, out.at(row.number, row.name));
  }
}

/// Words on a field in the documents: OpenAPI and the reference pages.
struct FieldWords {
  std::string_view meaning;
  bool bounded = false;
  double least = 0, most = 0;  ///< Bounds of a number; a text has at most so many bytes.
  bool only_shown = false;     ///< Nobody sets it.
};

/// "| `native` | `door` | meaning |"
inline std::string reference_line(std::string_view native, std::string_view door, std::string_view meaning) {
  const auto code = [](std::string_view name) { return name.empty() ? "" : "`" + std::string(name) + "`"; };
  return "| " + code(native) + " | " + code(door) + " | " + std::string(meaning) + " |\n";
}

}  // namespace gpusched::api
