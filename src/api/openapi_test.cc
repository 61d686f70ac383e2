#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>
#include <string>

#include "api/doors/agent_tasks/agent_tasks_rest.h"
#include "api/doors/allocation/allocation_rest.h"
#include "api/doors/docs/call_words.h"
#include "api/doors/docs/door_openapi.h"
#include "api/doors/jobs/jobs_rest.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/native/native_rest_openapi.h"
#include "api/doors/session/session_rest.h"
#include "api/doors/sign_in/sign_in_rest.h"
#include "api/doors/tasks/tasks_rest.h"

namespace gpusched::api {
namespace {

namespace json = boost::json;
using Calls = std::set<std::string>;

/// "get /api/v1/jobs/*" of a route's method and pattern, or of a documented path's.
std::string call_of(HttpMethod method, std::string_view path) {
  std::string out = method_key(method) + " ";
  if (!path.starts_with('/')) out += '/';
  while (!path.empty()) {
    const std::size_t open = std::min(path.find('{'), path.size());
    out += path.substr(0, open);
    path.remove_prefix(open);
    if (path.empty()) break;
    out += '*';
    path.remove_prefix(path.find('}') + 1);
  }
  return out;
}

template <typename Routes>
void add_routes(const Routes& routes, Calls& out) {
  for (const auto& route : routes) out.insert(call_of(route.method, route.pattern));
}

/// Those that the doors answer, by their own tables.
Calls routed_calls() {
  Calls out;
  for (const NativeRoute& route : NativeRest::routes()) out.insert(call_of(route.method, route.path));
  add_routes(JobsRest::routes(), out);
  add_routes(TasksRest::routes(), out);
  add_routes(AllocationRest::routes(), out);
  add_routes(AgentTasksRest::own_routes(), out);  // With /metrics, which the port of metrics has, too.
  for (const SessionRest::Path& path : SessionRest::paths()) {
    for (const char* const under : {"v1/jobs/*/", "api/v1/jobs/*/"})
      out.insert(call_of(HttpMethod::kGet, under + std::string(path.last)));
  }
  out.insert("get /api/v1/metrics");  // The server's own; /health of own ports is as that of the jobs door.
  return out;
}

Calls documented_calls(const json::value& document) {
  Calls out;
  for (const auto& [path, methods] : document.at("paths").as_object()) {
    for (const auto& [method, operation] : methods.as_object()) {
      const std::string call = call_of(HttpMethod::kGet, path);
      EXPECT_TRUE(out.insert(std::string(method) + call.substr(call.find(' '))).second) << call;
    }
  }
  return out;
}

json::value document() { return json::parse(openapi_json(NativeRest::routes(), "1")); }

TEST(OpenApi, HasEachRouteOfEachDoorAndNoOther) {
  Calls routed = routed_calls(), documented = documented_calls(document());
  add_routes(SignInRest::routes(), routed);
  for (const std::string& call : routed)
    EXPECT_TRUE(documented.contains(call)) << call << " is not documented";
  for (const std::string& call : documented) EXPECT_TRUE(routed.contains(call)) << call << " is nobody's";
  EXPECT_GT(routed.size(), 110U);
}

TEST(OpenApi, IsOfVersion31AndUsesNothingOfBefore) {
  const json::value whole = document();
  EXPECT_EQ(whole.at("openapi"), "3.1.0");
  EXPECT_EQ(json::serialize(whole).find("\"nullable\""), std::string::npos);
}

TEST(OpenApi, NamesEachCallOnceAndSaysWhoseItIs) {
  std::set<std::string> operations, tags;
  const json::value whole = document();
  for (const json::value& tag : whole.at("tags").as_array()) tags.insert(tag.at("name").as_string().c_str());
  for (const auto& [path, methods] : whole.at("paths").as_object()) {
    for (const auto& [method, operation] : methods.as_object()) {
      EXPECT_TRUE(operations.insert(operation.at("operationId").as_string().c_str()).second) << path;
      EXPECT_TRUE(tags.contains(operation.at("tags").at(0).as_string().c_str())) << path;
      EXPECT_TRUE(std::string_view(operation.at("summary").as_string()).ends_with('.')) << path;
      EXPECT_TRUE(operation.at("responses").as_object().contains("default")) << path;
    }
  }
}

/// Every "$ref" in it.
void collect_references(const json::value& value, std::set<std::string>& out) {
  if (const auto* object = value.if_object()) {
    for (const auto& [key, inner] : *object) {
      if (key == "$ref") out.insert(std::string(inner.as_string()));
      collect_references(inner, out);
    }
  } else if (const auto* array = value.if_array()) {
    for (const json::value& inner : *array) collect_references(inner, out);
  }
}

TEST(OpenApi, HasEachSchemaThatItNamesAndUsesThoseOfTheDoors) {
  const json::value whole = document();
  std::set<std::string> references;
  collect_references(whole, references);
  for (const std::string& reference : references) {
    json::error_code error;
    EXPECT_NE(whole.find_pointer(reference.substr(1), error), nullptr) << reference;
  }
  for (const DoorDoc& door : door_docs()) {
    for (const SchemaDoc& schema : door.schemas) {
      EXPECT_TRUE(references.contains("#/components/schemas/" + schema.name))
          << schema.name << " is of no use";
      std::set<std::string_view> names;
      for (const FieldDoc& field : schema.fields)
        EXPECT_TRUE(names.insert(field.name).second)
            << schema.name << "." << field.name << " stands there twice";
    }
  }
}

}  // namespace
}  // namespace gpusched::api
