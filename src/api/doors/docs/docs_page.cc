#include "api/doors/docs/docs_page.h"

#include <algorithm>
#include <boost/json.hpp>
#include <vector>

#include "api/doors/html.h"
#include "base/check.h"

namespace gpusched::api {
namespace {

namespace json = boost::json;

constexpr std::string_view kSchemas = "#/components/schemas/";
constexpr std::string_view kNull = "null";

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>gpu-scheduler: API</title><style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code, .method { font-family: ui-monospace, monospace; font-size: .93em; }
h2 { border-bottom: 1px solid #8886; margin-top: 2.5rem; padding-bottom: .2rem; }
details { border: 1px solid #8884; border-radius: .3rem; margin: .4rem 0; padding: .35rem .7rem; }
summary { cursor: pointer; }
summary .what { opacity: .8; }
.method { display: inline-block; font-weight: 700; min-width: 4.2rem; }
table { border-collapse: collapse; margin: .5rem 0 1rem; width: 100%; }
th, td { border-bottom: 1px solid #8883; padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; } td:last-child { width: 55%; }
h4 { margin: .8rem 0 0; }
</style></head><body>
)";

const json::value* member(const json::value& of, std::string_view name) {
  const json::object* const object = of.if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}

std::string_view text_of(const json::value& of, std::string_view name) {
  const json::value* const found = member(of, name);
  const json::string* const text = found == nullptr ? nullptr : found->if_string();
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

std::string link_to(std::string_view reference) {
  if (!reference.starts_with(kSchemas)) return escaped(reference);
  const std::string name = escaped(reference.substr(kSchemas.size()));
  return "<a href=\"#" + name + "\">" + name + "</a>";
}

/// "integer", "integer or string"; that it may also be null is not said.
std::string plain_type(const json::value& schema) {
  const json::value* const type = member(schema, "type");
  if (type == nullptr || !type->is_array()) return std::string(text_of(schema, "type"));
  std::string out;
  for (const json::value& one : type->as_array()) {
    if (one.is_string() && one.as_string() != kNull) {
      out += out.empty() ? "" : " or ";
      out += one.as_string();
    }
  }
  return out;
}

/// "text", "list of Job", "one of a, b", as HTML.
std::string type_of(const json::value& schema) {
  if (const std::string_view reference = text_of(schema, "$ref"); !reference.empty())
    return link_to(reference);
  if (const json::value* const any = member(schema, "anyOf"); any != nullptr && any->is_array()) {
    std::string out;
    for (const json::value& one : any->as_array()) {
      if (text_of(one, "type") != kNull) out += (out.empty() ? "" : " or ") + type_of(one);
    }
    return out;
  }
  if (const json::value* const words = member(schema, "enum"); words != nullptr && words->is_array()) {
    std::string out;
    for (const json::value& word : words->as_array()) {
      if (word.is_string())
        out += (out.empty() ? "<code>" : ", <code>") + escaped(word.as_string()) + "</code>";
    }
    return out;
  }
  const std::string type = plain_type(schema);
  if (const json::value* const items = member(schema, "items")) return "list of " + type_of(*items);
  if (const json::value* const values = member(schema, "additionalProperties");
      values != nullptr && values->is_object())
    return "map to " + type_of(*values);
  if (text_of(schema, "format") == "date-time") return "time";
  return escaped(type);
}

class Page {
 public:
  explicit Page(const json::value& document) : document_(document) {}

  std::string write() {
    out_ = kHead;
    out_ += "<h1>gpu-scheduler: API</h1>\n" + std::string(kDocsBanner) + "<p>";
    if (const json::value* const info = member(document_, "info"))
      add_escaped(out_, text_of(*info, "description"));
    out_ += " The same for programs: <a href=\"openapi.json\"><code>/openapi.json</code></a>.</p>\n";
    if (const json::value* const paths = member(document_, "paths"); paths != nullptr && paths->is_object())
      calls(paths->as_object());
    schemas();
    return std::move(out_) + "</body></html>\n";
  }

 private:
  /// Calls whose paths begin alike stand together.
  void calls(const json::object& paths) {
    std::string last;
    for (const auto& [path, operations] : paths) {
      if (!operations.is_object()) continue;
      const std::string subject = subject_of(path);
      if (subject != last) out_ += "<h2>" + escaped(subject) + "</h2>\n";
      last = subject;
      for (const auto& [method, operation] : operations.as_object()) call(path, method, operation);
    }
  }
  /// "/v1/jobs" of "/v1/jobs/{job_id}/hold" and of "/v1/jobs:cancel".
  static std::string subject_of(std::string_view path) {
    const std::size_t version = path.find('/', 1);
    const std::size_t end =
        version == std::string_view::npos ? version : path.find_first_of("/:", version + 1);
    return std::string(path.substr(0, end));
  }

  void call(std::string_view path, std::string_view method, const json::value& operation) {
    std::string upper(method);
    std::ranges::transform(upper, upper.begin(),
                           [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
    out_ += "<details id=\"" + escaped(text_of(operation, "operationId")) +
            "\"><summary><span class=\"method\">" + escaped(upper) + "</span> <code>" + escaped(path) +
            "</code> <span class=\"what\">" + escaped(text_of(operation, "summary")) + "</span></summary>\n";
    parameters(operation);
    if (const json::value* const body = member(operation, "requestBody")) content("Body", *body);
    if (const json::value* const responses = member(operation, "responses");
        responses != nullptr && responses->is_object()) {
      for (const auto& [status, response] : responses->as_object()) {
        if (status.starts_with('2')) content("Answer " + std::string(status), response);
      }
    }
    out_ += "</details>\n";
  }

  void parameters(const json::value& operation) {
    const json::value* const given = member(operation, "parameters");
    if (given == nullptr || !given->is_array() || given->as_array().empty()) return;
    out_ += "<table><tr><th>Parameter</th><th>Type</th><th>Meaning</th></tr>\n";
    for (const json::value& parameter : given->as_array()) {
      const json::value* const schema = member(parameter, "schema");
      row(text_of(parameter, "name"),
          std::string(text_of(parameter, "in")) + ", " + (schema == nullptr ? "" : type_of(*schema)),
          text_of(parameter, "description"));
    }
    out_ += "</table>\n";
  }

  void content(const std::string& title, const json::value& of) {
    const json::value* const types = member(of, "content");
    if (types == nullptr || !types->is_object()) return;
    for (const auto& [type, inner] : types->as_object()) {
      const json::value* const schema = member(inner, "schema");
      out_ += "<p><b>" + escaped(title) + "</b> <code>" + escaped(type) +
              "</code>: " + (schema == nullptr ? "" : type_of(*schema)) + "</p>\n";
    }
  }

  void schemas() {
    const json::value* const components = member(document_, "components");
    const json::value* const all = components == nullptr ? nullptr : member(*components, "schemas");
    if (all == nullptr || !all->is_object()) return;
    out_ += "<h2>Messages</h2>\n";
    for (const auto& [name, schema] : all->as_object()) {
      out_ += "<h3 id=\"" + escaped(name) + "\">" + escaped(name) + "</h3>\n";
      const json::value* const properties = member(schema, "properties");
      if (properties == nullptr || !properties->is_object()) continue;
      out_ += "<table><tr><th>Field</th><th>Type</th><th>Meaning</th></tr>\n";
      for (const auto& [field, inner] : properties->as_object())
        row(field, type_of(inner), text_of(inner, "description"));
      out_ += "</table>\n";
    }
  }

  /// `type` is HTML already.
  void row(std::string_view name, const std::string& type, std::string_view meaning) {
    out_ += "<tr><td><code>" + escaped(name) + "</code></td><td>" + type + "</td><td>";
    // Names in the meanings stand between backticks.
    bool code = false;
    for (std::size_t at = 0; at <= meaning.size();) {
      const std::size_t end = std::min(meaning.find('`', at), meaning.size());
      add_escaped(out_, meaning.substr(at, end - at));
      if (end == meaning.size()) break;
      out_ += code ? "</code>" : "<code>";
      code = !code;
      at = end + 1;
    }
    out_ += code ? "</code></td></tr>\n" : "</td></tr>\n";
  }

  const json::value& document_;
  std::string out_;
};

}  // namespace

std::string docs_page(std::string_view document) {
  boost::system::error_code failed;
  const json::value parsed = json::parse(document, failed);
  CHECK(!failed);
  return Page(parsed).write();
}

}  // namespace gpusched::api
