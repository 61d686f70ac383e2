#include "api/doors/native/native_rest_openapi.h"

#include <google/protobuf/timestamp.pb.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "api/contract/errors.h"
#include "api/contract/json_writer.h"
#include "api/doors/docs/door_openapi.h"
#include "api/doors/native/native_rest_json.h"
#include "api/fields/field_shapes.h"
#include "api/fields/job_rows.h"
#include "api/fields/node_rows.h"
#include "api/fields/reservation_rows.h"
#include "api/fields/tenants/tenant_rows.h"
#include "base/limits.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

/// "Job" and, for a message in a message, "CancelJobsResponse.Result".
std::string schema_name(const pb::Descriptor& type) {
  const std::string& package = type.file()->package();
  return type.full_name().substr(package.size() + 1);
}

/// The row of a field of a job's request; null when it is another's.
const JobRow* row_of(const FieldDescriptor& field) {
  const pb::Descriptor* const type = field.containing_type();
  if (type == v1::JobSpec::descriptor()) return find_job_row(JobMessage::kSpec, field.number());
  if (type == v1::Resources::descriptor()) return find_job_row(JobMessage::kResources, field.number());
  if (type == v1::RetryPolicy::descriptor()) return find_job_row(JobMessage::kRetry, field.number());
  if (type == v1::JobRequest::descriptor()) return find_job_row(JobMessage::kRequest, field.number());
  return nullptr;
}

/// The words of a field's row.
std::optional<FieldWords> words_about(const FieldDescriptor& field) {
  const pb::Descriptor& type = *field.containing_type();
  if (&type == v1::Tenant::descriptor()) return tenant_words(field.number());
  if (&type == v1::Reservation::descriptor()) return reservation_words(field.number());
  const JobRow* const row = row_of(field);
  if (row == nullptr) return node_words(type, field.number());
  return FieldWords{.meaning = row->meaning,
                    .bounded = row->most != kNoBound,
                    .least = static_cast<double>(row->least),
                    .most = static_cast<double>(row->most)};
}

/// The paths that `fields` takes: "job_id", "spec", "spec.name".
std::string fields_pattern() {
  std::string one;
  for (int i = 0; i < v1::Job::descriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *v1::Job::descriptor()->field(i);
    one += (one.empty() ? "" : "|") + field.name();
    const bool has_parts = field.message_type() == v1::JobSpec::descriptor() ||
                           field.message_type() == v1::Resources::descriptor() ||
                           field.message_type() == v1::RetryPolicy::descriptor();
    if (!has_parts) continue;
    one += "(\\.(";
    for (int part = 0; part < field.message_type()->field_count(); ++part)
      one += (part == 0 ? "" : "|") + field.message_type()->field(part)->name();
    one += "))?";
  }
  return "^((" + one + ")(,(" + one + "))*)?$";
}

/// Writes the document; messages are noted when they are named and written at the end.
class Document {
 public:
  explicit Document(std::string& out) : json_(out) {}

  void write(std::span<const NativeRoute> routes, std::string_view version) {
    json_.begin_object().field("openapi", "3.1.0");
    json_.key("info").begin_object().field("title", "gpu-scheduler").field("version", version);
    json_.field("description",
                "All doors over HTTP. The native API is JSON of the messages in proto/gpusched/v1; "
                "docs/reference/native-rest.md explains it, docs/reference/doors.md which door is whose.");
    json_.end_object();
    tags();
    json_.key("paths").begin_object();
    std::vector<std::string_view> paths;
    for (const NativeRoute& route : routes) {
      if (std::find(paths.begin(), paths.end(), route.path) == paths.end()) paths.push_back(route.path);
    }
    for (const std::string_view path : paths) {
      json_.text_key("/" + std::string(path)).begin_object();
      for (const NativeRoute& route : routes) {
        if (route.path == path) operation(route);
      }
      json_.end_object();
    }
    write_door_paths(json_, door_docs());
    json_.end_object();
    components();
    json_.key("security").begin_array();
    json_.begin_object().end_object();
    json_.begin_object().key("token").begin_array().end_array().end_object();
    json_.begin_object().key("session").begin_array().end_array().end_object();
    json_.end_array().end_object();
  }

 private:
  void tags() {
    json_.key("tags").begin_array();
    const auto tag = [this](std::string_view name, std::string_view meaning) {
      json_.begin_object().field("name", name).field("description", meaning).end_object();
    };
    tag("native", "The native API: docs/reference/native-rest.md.");
    for (const DoorDoc& door : door_docs()) tag(door.tag, door.meaning);
    json_.end_array();
  }

  void operation(const NativeRoute& route) {
    json_.text_key(method_key(route.method)).begin_object();
    json_.field("operationId", route.operation).field("summary", route.summary);
    json_.key("tags").begin_array().value("native").end_array();
    parameters(route);
    if (route.request != nullptr) {
      json_.key("requestBody").begin_object().field("required", !route.optional_body);
      json_.key("content").begin_object();
      const bool lines = route.answer == NativeRoute::Answer::kLines;
      // For lines, each line is such a request.
      content(lines ? "application/x-ndjson" : "application/json", [&] { request_schema(route); });
      json_.end_object().end_object();
    }
    json_.key("responses").begin_object();
    json_.text_key(std::to_string(route.status)).begin_object();
    json_.field("description", route.summary);
    json_.key("content").begin_object();
    switch (route.answer) {
      case NativeRoute::Answer::kMessage:
        content("application/json", [&] { reference(*route.response); });
        break;
      case NativeRoute::Answer::kEvents:
        content("text/event-stream", [&] { json_.begin_object().field("type", "string").end_object(); });
        break;
      case NativeRoute::Answer::kLines:
        content("application/x-ndjson", [&] { json_.begin_object().field("type", "string").end_object(); });
        break;
      case NativeRoute::Answer::kBytes:
        content("application/octet-stream", [&] { json_.begin_object().end_object(); });
        // With format=json; either is a stream while follow is given.
        content("application/x-ndjson", [&] { json_.begin_object().field("type", "string").end_object(); });
        break;
      case NativeRoute::Answer::kPage:
        content("text/html", [&] { json_.begin_object().field("type", "string").end_object(); });
        break;
      case NativeRoute::Answer::kDocument:
        content("application/json", [&] { json_.begin_object().field("type", "object").end_object(); });
        break;
    }
    if (route.response != nullptr) note(*route.response);
    json_.end_object().end_object();
    write_refusals(json_, "Error");
    json_.end_object().end_object();
  }

  void parameters(const NativeRoute& route) {
    json_.key("parameters").begin_array();
    for (std::size_t at = route.path.find('{'); at != std::string_view::npos;
         at = route.path.find('{', at + 1)) {
      const std::string_view name = route.path.substr(at + 1, route.path.find('}', at) - at - 1);
      json_.begin_object().field("name", name).field("in", "path").field("required", true);
      json_.key("schema").begin_object().field("type", "string").end_object().end_object();
    }
    for (const NativeParameter& parameter : route.query) query(parameter);
    if (route.takes_key) {
      json_.begin_object().field("name", "Idempotency-Key").field("in", "header");
      json_.field("description", "Makes the call safe to repeat for 24 hours.");
      json_.key("schema").begin_object().field("type", "string").field("pattern", kKeyPattern).end_object();
      json_.end_object();
    }
    json_.end_array();
  }

  void query(const NativeParameter& parameter) {
    json_.begin_object().field("name", parameter.name).field("in", "query");
    json_.field("description", parameter.meaning);
    json_.key("schema").begin_object();
    switch (parameter.type) {
      case NativeParameter::Type::kText:
        json_.field("type", "string");
        if (parameter.name == "fields") {
          json_.field("pattern", fields_pattern());
        } else {
          json_.field("pattern", parameter.pattern.empty() ? kText : parameter.pattern);
        }
        break;
      case NativeParameter::Type::kCount:
        json_.field("type", "integer").field("minimum", 0).field("maximum", parameter.most);
        break;
      case NativeParameter::Type::kFlag:
        json_.field("type", "boolean");
        break;
      case NativeParameter::Type::kTexts:
        json_.field("type", "array").field("maxItems", parameter.most);
        json_.key("items").begin_object().field("type", "string").field("pattern", kText).end_object();
        break;
    }
    json_.end_object().end_object();
  }

  /// A submission may also be one job itself, with what else stands beside its jobs.
  void request_schema(const NativeRoute& route) {
    if (route.alternative == nullptr) return body_reference(*route.request, route);
    json_.begin_object().key("anyOf").begin_array();
    body_reference(*route.request, route);
    note(*route.alternative);
    json_.begin_object();
    json_.field("$ref", "#/components/schemas/" + schema_name(*route.alternative) + ".Alone").end_object();
    alone_ = {route.alternative, route.request};
    json_.end_array().end_object();
  }

  /// A message as the body of this call: what its path names is not repeated, and some fields are needed.
  void body_reference(const pb::Descriptor& type, const NativeRoute& route) {
    note(type);
    std::vector<std::string> left_out;
    for (int i = 0; i < type.field_count(); ++i) {
      if (route.path.find("{" + type.field(i)->name() + "}") != std::string_view::npos)
        left_out.push_back(type.field(i)->name());
    }
    const bool is_answer_too = &type == v1::Tenant::descriptor();  // The answer's schema has fewer rules.
    if (left_out.empty() && route.required.empty() && !is_answer_too) return reference(type);
    const std::string name = schema_name(type) + "." + std::string(route.operation);
    bodies_.push_back({name, &type, std::move(left_out), route.required});
    json_.begin_object().field("$ref", "#/components/schemas/" + name).end_object();
  }

  void content(std::string_view type, auto&& schema) {
    json_.text_key(type).begin_object().key("schema");
    schema();
    json_.end_object();
  }

  void note(const pb::Descriptor& type) {
    if (!types_.emplace(schema_name(type), &type).second) return;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.message_type() == nullptr || field.is_map()) continue;
      if (field.message_type() != pb::Timestamp::descriptor()) note(*field.message_type());
    }
  }

  void reference(const pb::Descriptor& type) {
    note(type);
    json_.begin_object().field("$ref", "#/components/schemas/" + schema_name(type)).end_object();
  }

  void message_reference(const FieldDescriptor& field, const FieldShape* shape) {
    if (shape == nullptr || shape->schema.empty()) return reference(*field.message_type());
    json_.begin_object().field("$ref", "#/components/schemas/" + std::string(shape->schema)).end_object();
  }

  void describe(const FieldDescriptor& field, const FieldShape* shape) {
    const std::optional<FieldWords> words = words_about(field);
    if (!words) return;
    json_.field("description", without_links(words->meaning));
    if (words->only_shown) json_.field("readOnly", true);
    const bool has_own = shape != nullptr && (shape->least != INT64_MIN || shape->most != INT64_MAX);
    if (!words->bounded || field.is_repeated() || has_own) return;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      bound("maxLength", words->most);
    } else {
      bound("minimum", words->least);
      bound("maximum", words->most);
    }
  }
  void bound(std::string_view name, double number) {
    if (number == std::floor(number)) {
      json_.field(name, static_cast<int64_t>(number));
    } else {
      json_.field(name, number);
    }
  }

  void type_or_null(std::string_view name, bool nullable) {
    if (!nullable) {
      json_.field("type", name);
    } else {
      json_.key("type").begin_array().value(name).value("null").end_array();
    }
  }

  void value_schema(const FieldDescriptor& field, const FieldShape* shape, bool nullable) {
    if (field.message_type() != nullptr && field.message_type() != pb::Timestamp::descriptor())
      return message_reference(field, shape);
    json_.begin_object();
    const auto type = [&](std::string_view name) { type_or_null(name, nullable); };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        type("string");
        json_.field("pattern", shape != nullptr && !shape->pattern.empty() ? shape->pattern : kText);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        type("boolean");
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
      case FieldDescriptor::CPPTYPE_FLOAT:
        type("number");
        json_.field("format", "double");
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        type("integer");
        json_.field("format", "int32");
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        type("integer");
        if (shape == nullptr) json_.field("minimum", 0).field("maximum", UINT32_MAX);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        type("integer");
        json_.field("format", "int64");
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        type("integer");
        json_.field("format", "int64").field("minimum", 0);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        type("string");
        json_.key("enum").begin_array();
        for (int i = 0; i < field.enum_type()->value_count(); ++i) {
          const pb::EnumValueDescriptor& value = *field.enum_type()->value(i);
          const std::string word = enum_word(value);
          const bool taken =
              shape == nullptr || shape->words.empty() ||
              (" " + std::string(shape->words) + " ").find(" " + word + " ") != std::string::npos;
          if (value.number() != 0 && taken) json_.value(std::string_view(word));
        }
        if (nullable) json_.null();
        json_.end_array();
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        type("string");
        json_.field("format", "date-time");
        break;
    }
    if (shape != nullptr && shape->bytes_min >= 0) json_.field("minLength", shape->bytes_min);
    if (shape != nullptr && shape->bytes_max >= 0) json_.field("maxLength", shape->bytes_max);
    if (shape != nullptr && shape->least != INT64_MIN) json_.field("minimum", shape->least);
    if (shape != nullptr && shape->most != INT64_MAX) json_.field("maximum", shape->most);
    if (!field.is_repeated()) describe(field, shape);
    json_.end_object();
  }

  void schema(const pb::Descriptor& type) {
    static constexpr std::string_view kJobs[] = {"jobs"};
    static constexpr std::string_view kPaths[] = {"source", "target"};
    static constexpr std::string_view kRoles[] = {"role"};
    std::span<const std::string_view> needed;
    if (&type == v1::SubmitJobsRequest::descriptor()) needed = kJobs;
    if (&type == v1::Mount::descriptor()) needed = kPaths;
    if (&type == v1::KeyRole::descriptor()) needed = kRoles;
    schema(schema_name(type), {&type}, {}, needed);
  }

  /// Writes schemas of messages that have other rules in requests than by themselves.
  void asked_parts_and_edits() {
    static constexpr std::string_view kName[] = {"name"};
    schema(kAskedPart, {v1::Part::descriptor()}, {}, {});
    schema(kAskedPartResources, {v1::Resources::descriptor()}, {}, {});
    schema(kEditedTenant, {v1::Tenant::descriptor()}, {}, kName);
  }

  void schema(std::string_view name, std::vector<const pb::Descriptor*> types,
              std::span<const std::string> left_out, std::span<const std::string_view> required) {
    json_.text_key(name).begin_object().field("type", "object");
    json_.field("additionalProperties", false);
    if (!required.empty()) {
      json_.key("required").begin_array();
      for (const std::string_view field : required) json_.value(field);
      json_.end_array();
    }
    json_.key("properties").begin_object();
    for (const pb::Descriptor* const type : types) {
      for (int i = 0; i < type->field_count(); ++i) {
        const FieldDescriptor& field = *type->field(i);
        const bool is_list_of_others = type != types.front() && field.message_type() == types.front();
        if (is_list_of_others || std::ranges::find(left_out, field.name()) != left_out.end()) continue;
        property(name, field, std::ranges::find(required, field.name()) != required.end());
      }
    }
    json_.end_object().end_object();
  }

  void property(std::string_view schema, const FieldDescriptor& field, bool needed) {
    const FieldShape* shape = shape_of(std::string(schema) + "." + field.name());
    if (shape == nullptr) shape = shape_of(schema_name(*field.containing_type()) + "." + field.name());
    json_.key(field.name());
    if (!field.is_repeated()) {
      if (field.message_type() == nullptr || field.message_type() == pb::Timestamp::descriptor())
        return value_schema(field, shape, !needed);
      if (needed) return value_schema(field, shape, false);
      json_.begin_object().key("anyOf").begin_array();
      value_schema(field, shape, false);
      json_.begin_object().field("type", "null").end_object();
      json_.end_array().end_object();
      return;
    }
    json_.begin_object();
    type_or_null(field.is_map() ? "object" : "array", !needed);
    if (shape != nullptr && shape->items_min >= 0)
      json_.field(field.is_map() ? "minProperties" : "minItems", shape->items_min);
    if (shape != nullptr && shape->items_max >= 0) {
      json_.field(field.is_map() ? "maxProperties" : "maxItems", shape->items_max);
    } else if (!field.is_map() && words_about(field).has_value()) {
      json_.field("maxItems", field.message_type() != nullptr ? kMessagesMax : kTextsMax);
    }
    if (field.is_map()) {
      const pb::FieldDescriptor& value = *field.message_type()->map_value();
      if (shape != nullptr && !shape->keys.empty()) {
        json_.field("additionalProperties", false).key("properties").begin_object();
        for (std::string_view rest = shape->keys; !rest.empty();) {
          const std::size_t end = std::min(rest.find(' '), rest.size());
          json_.text_key(rest.substr(0, end));
          value_schema(value, shape, false);
          rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        json_.end_object();
      } else {
        json_.key("additionalProperties");
        value_schema(value, shape, false);
      }
    } else {
      json_.key("items");
      value_schema(field, shape, false);
    }
    describe(field, shape);
    json_.end_object();
  }

  void components() {
    json_.key("components").begin_object();
    json_.key("schemas").begin_object();
    for (const auto& [name, type] : types_) schema(*type);
    for (const Body& body : bodies_) schema(body.name, {body.type}, body.left_out, body.required);
    asked_parts_and_edits();
    constexpr std::string_view kAloneNeeds[] = {"spec"};
    if (!alone_.empty()) schema(schema_name(*alone_.front()) + ".Alone", alone_, {}, kAloneNeeds);
    error_schema();
    write_door_schemas(json_, door_docs());
    json_.end_object();
    responses();
    security();
    json_.end_object();
  }

  void error_schema() {
    json_.key("Error").begin_object().field("type", "object");
    json_.key("required").begin_array().value("error").value("code").end_array();
    json_.key("properties").begin_object();
    json_.key("error").begin_object().field("type", "string");
    json_.field("description", "What happened, why, and what to do about it.").end_object();
    json_.key("code").begin_object().field("type", "string").key("enum").begin_array();
    for (const ErrorRow& row : error_table()) json_.value(row.code);
    json_.end_array().end_object();
    json_.key("field").begin_object().field("type", "string");
    json_.field("description", "The field at fault; absent if no single field is.").end_object();
    json_.end_object().end_object();
  }

  void responses() {
    using Pair = std::pair<std::string_view, std::string_view>;
    json_.key("responses").begin_object();
    for (const auto& [name, schema] : {Pair("Error", "Error"), Pair("AllocationError", "allocation.Error")}) {
      json_.key(name).begin_object();
      json_.field("description", "An error; docs/reference/errors.md lists the codes.");
      json_.key("content").begin_object();
      content("application/json", [&] {
        json_.begin_object().field("$ref", "#/components/schemas/" + std::string(schema)).end_object();
      });
      json_.end_object().end_object();
    }
    json_.end_object();
  }

  void security() {
    json_.key("securitySchemes").begin_object().key("token").begin_object();
    json_.field("type", "http").field("scheme", "bearer").end_object();
    json_.key("session").begin_object();
    json_.field("type", "apiKey").field("in", "cookie").field("name", "__Host-gpu-session");
    json_.field(
        "description",
        "A browser's session, from GET /login where an operator has switched that on; for pages of the "
        "scheduler's own origin alone. An Authorization header goes before it. Over plain http on "
        "loopback its name is gpu-session.");
    json_.end_object().end_object();
  }

  /// A message as the body of one call.
  struct Body {
    std::string name;
    const pb::Descriptor* type;
    std::vector<std::string> left_out;
    std::vector<std::string_view> required;
  };

  JsonWriter json_;
  std::map<std::string, const pb::Descriptor*> types_;
  std::vector<Body> bodies_;
  std::vector<const pb::Descriptor*> alone_;  ///< One job as a body, and what has what stands beside it.
};

}  // namespace

std::string openapi_json(std::span<const NativeRoute> routes, std::string_view version) {
  std::string out;
  Document(out).write(routes, version);
  return out;
}

}  // namespace gpusched::api
