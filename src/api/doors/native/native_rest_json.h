#pragma once

#include <google/protobuf/message.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/errors.h"
#include "api/contract/json_writer.h"

/// The native API's messages as JSON, by their descriptors: field names as they are (snake_case), numbers as
/// numbers, enumerators as lower-case words without their prefix, instants as RFC 3339 texts. Pure functions;
/// reading takes untrusted bytes.
namespace gpusched::api {

/// The outermost level of a body, as far as the messages cannot say it.
struct NativeBody {
  std::vector<std::string> given;  ///< Fields with a value.
  std::vector<std::string> nulls;  ///< Fields that are null, which else is like leaving them out.
};

/// Reads one JSON object into messages; a field of the outermost level goes into the first of `roots` that
/// has it. kMalformedJson (syntax, UTF-8, depth) or kInvalidArgument with the field's place, such as
/// "jobs[3].spec.command[0]": a wrong type, a number out of range, a NUL in a text, an unknown field (with
/// the nearest one that exists), too many entries.
std::optional<ApiError> read_native_json(std::string_view bytes,
                                         std::span<google::protobuf::Message* const> roots, NativeBody& body);

/// Writes a message as one JSON object. Fields without presence are always there; those with (optional ones,
/// messages, instants) only when they are set. Empty fields of a JobSpec are all left out: it shows what was
/// asked for.
void write_native_json(const google::protobuf::Message& message, JsonWriter& json);
std::string native_json(const google::protobuf::Message& message);
/// The same of these fields of a message alone, and of those only what is not empty.
void write_native_fields(const google::protobuf::Message& message,
                         std::span<const google::protobuf::FieldDescriptor* const> fields, JsonWriter& json);

/// "pending" for JOB_STATE_PENDING.
std::string enum_word(const google::protobuf::EnumValueDescriptor& value);
/// Null when there is no such word; the unspecified one has none.
const google::protobuf::EnumValueDescriptor* enum_of_word(const google::protobuf::EnumDescriptor& type,
                                                          std::string_view word);
/// "pending, scheduled or running".
std::string enum_words(const google::protobuf::EnumDescriptor& type);

}  // namespace gpusched::api
