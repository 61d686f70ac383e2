#include "api/doors/docs/door_openapi.h"

#include <algorithm>
#include <cmath>

#include "api/fields/field_shapes.h"

namespace gpusched::api {
namespace {

/// Calls `use` with each of the words.
void each_word(std::string_view words, auto&& use) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    use(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

std::string_view inside(std::string_view type) { return type.substr(1, type.size() - 2); }

void write_number(JsonWriter& json, std::string_view name, double number) {
  if (number == std::floor(number)) {
    json.field(name, static_cast<int64_t>(number));
  } else {
    json.field(name, number);
  }
}

class DoorWriter {
 public:
  explicit DoorWriter(JsonWriter& json) : json_(json) {}

  void path(std::span<const DoorDoc> doors, std::string_view path) {
    json_.text_key("/" + std::string(path)).begin_object();
    for (const DoorDoc& door : doors) {
      for (const CallDoc& call : door.calls) {
        if (call.path == path) operation(door, call);
      }
    }
    json_.end_object();
  }

  void schema(const SchemaDoc& schema) {
    json_.key(schema.name).begin_object().field("type", "object");
    if (!schema.open) json_.field("additionalProperties", false);
    if (std::ranges::any_of(schema.fields, &FieldDoc::required)) {
      json_.key("required").begin_array();
      for (const FieldDoc& field : schema.fields) {
        if (field.required) json_.value(field.name);
      }
      json_.end_array();
    }
    json_.key("properties").begin_object();
    for (const FieldDoc& field : schema.fields) {
      json_.key(field.name);
      value(field, field.type, true);
    }
    json_.end_object().end_object();
  }

 private:
  void operation(const DoorDoc& door, const CallDoc& call) {
    json_.key(method_key(call.method)).begin_object();
    json_.field("operationId", call.operation).field("summary", call.summary);
    json_.key("tags").begin_array().value(door.tag).end_array();
    parameters(call);
    if (!call.body.empty()) {
      json_.key("requestBody").begin_object().field("required", !call.optional_body);
      json_.key("content").begin_object().key("application/json").begin_object().key("schema");
      value({}, call.body, false);
      json_.end_object().end_object().end_object();
    }
    json_.key("responses").begin_object();
    json_.key(std::to_string(call.status)).begin_object().field("description", call.summary);
    if (!call.answer.empty() || !call.media.empty()) answer(call);
    json_.end_object();
    write_refusals(json_, door.error);
    json_.end_object().end_object();
  }

  void answer(const CallDoc& call) {
    json_.key("content").begin_object();
    if (!call.answer.empty()) {
      json_.key("application/json").begin_object().key("schema");
      value({}, call.answer, false);
      json_.end_object();
    }
    each_word(call.media, [&](std::string_view type) {
      json_.key(type).begin_object().key("schema").begin_object();
      if (type != "application/octet-stream") json_.field("type", "string");
      json_.end_object().end_object();
    });
    json_.end_object();
  }

  void parameters(const CallDoc& call) {
    json_.key("parameters").begin_array();
    for (std::size_t at = call.path.find('{'); at != std::string_view::npos;
         at = call.path.find('{', at + 1)) {
      const std::string_view name = call.path.substr(at + 1, call.path.find('}', at) - at - 1);
      json_.begin_object().field("name", name).field("in", "path").field("required", true);
      json_.key("schema").begin_object().field("type", "string").end_object().end_object();
    }
    for (const FieldDoc& field : call.query) {
      json_.begin_object().field("name", field.name).field("in", "query");
      json_.field("description", field.meaning);
      if (field.required) json_.field("required", true);
      json_.key("schema");
      value(field, field.type, false);
      json_.end_object();
    }
    if (call.takes_key) {
      json_.begin_object().field("name", "Idempotency-Key").field("in", "header");
      json_.field("description", "Makes the call safe to repeat for 24 hours.");
      json_.key("schema").begin_object().field("type", "string").field("pattern", kKeyPattern).end_object();
      json_.end_object();
    }
    json_.end_array();
  }

  void value(const FieldDoc& field, std::string_view type, bool described) {
    const bool nullable = type.ends_with('?');
    if (nullable) type.remove_suffix(1);
    const std::string meaning = described ? without_links(field.meaning) : std::string();
    if (is_reference(type)) return reference(type, nullable, meaning);
    json_.begin_object();
    if (type != "any") {
      types(type, nullable);
      limits(field, type, nullable);
    }
    if (!meaning.empty()) json_.field("description", std::string_view(meaning));
    json_.end_object();
  }

  void types(std::string_view type, bool nullable) {
    const bool either = type == "integer-or-text";
    const std::string_view name = either ? "integer" : json_type(type);
    if (!either && !nullable) {
      json_.field("type", name);
      return;
    }
    json_.key("type").begin_array().value(name);
    if (either) json_.value("string");
    if (nullable) json_.value("null");
    json_.end_array();
  }

  void limits(const FieldDoc& field, std::string_view type, bool nullable) {
    if (type == "time") json_.field("format", "date-time");
    if (type == "text" && !field.words.empty()) {
      json_.key("enum").begin_array();
      each_word(field.words, [&](std::string_view word) { json_.value(word); });
      if (nullable) json_.null();
      json_.end_array();
    } else if (type == "text") {
      json_.field("pattern", field.pattern.empty() ? kText : field.pattern);
      if (field.most > 0) write_number(json_, "maxLength", field.most);
    }
    if (type == "integer-or-text") json_.field("pattern", field.pattern);
    if ((type.starts_with("integer") || type == "number") && field.least != field.most) {
      write_number(json_, "minimum", field.least);
      write_number(json_, "maximum", field.most);
    }
    const bool is_list = type.starts_with('[');
    if (!is_list && !type.starts_with('{')) return;
    if (field.items_max > 0) json_.field(is_list ? "maxItems" : "maxProperties", field.items_max);
    const FieldDoc one{
        .name = {}, .type = {}, .pattern = field.pattern, .least = field.least, .most = field.most};
    if (is_list || field.words.empty()) {
      json_.key(is_list ? "items" : "additionalProperties");
      return value(one, inside(type), false);
    }
    json_.field("additionalProperties", false).key("properties").begin_object();
    each_word(field.words, [&](std::string_view word) {
      json_.key(word);
      value(one, inside(type), false);
    });
    json_.end_object();
  }

  void reference(std::string_view type, bool nullable, std::string_view meaning) {
    const std::string to = "#/components/schemas/" + std::string(type);
    json_.begin_object();
    if (nullable) {
      json_.key("anyOf").begin_array().begin_object().field("$ref", to).end_object();
      json_.begin_object().field("type", "null").end_object().end_array();
    } else {
      json_.field("$ref", to);
    }
    if (!meaning.empty()) json_.field("description", meaning);
    json_.end_object();
  }

  static std::string_view json_type(std::string_view type) {
    if (type.starts_with('[')) return "array";
    if (type.starts_with('{')) return "object";
    return type == "text" || type == "time" ? "string" : type;
  }
  static bool is_reference(std::string_view type) {
    const char first = type.front();
    return type.find('.') != std::string_view::npos ? first != '[' && first != '{'
                                                    : first >= 'A' && first <= 'Z';
  }

  JsonWriter& json_;
};

}  // namespace

std::string method_key(HttpMethod method) {
  std::string out(to_string(method));
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string without_links(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('[');
    const std::size_t middle = text.find("](", open);
    const std::size_t close = text.find(')', middle);
    if (open == std::string_view::npos || middle == std::string_view::npos || close == std::string_view::npos)
      break;
    out.append(text.substr(0, open)).append(text.substr(open + 1, middle - open - 1));
    text.remove_prefix(close + 1);
  }
  return out.append(text);
}

void write_refusals(JsonWriter& json, std::string_view name) {
  const std::string to = "#/components/responses/" + std::string(name);
  for (const int status : kRefusals) {
    json.key(std::to_string(status)).begin_object().field("$ref", to).end_object();
  }
  json.key("default").begin_object().field("$ref", to).end_object();
}

void write_door_paths(JsonWriter& json, std::span<const DoorDoc> doors) {
  std::vector<std::string_view> written;
  for (const DoorDoc& door : doors) {
    for (const CallDoc& call : door.calls) {
      if (std::ranges::find(written, call.path) != written.end()) continue;
      written.push_back(call.path);
      DoorWriter(json).path(doors, call.path);
    }
  }
}

void write_door_schemas(JsonWriter& json, std::span<const DoorDoc> doors) {
  for (const DoorDoc& door : doors) {
    for (const SchemaDoc& schema : door.schemas) DoorWriter(json).schema(schema);
  }
}

}  // namespace gpusched::api
