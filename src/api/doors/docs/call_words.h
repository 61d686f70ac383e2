#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/http/http_message.h"

/// Words of the OpenAPI document on the REST doors beside the native API: calls and schemas, a row each. A
/// test holds them against the tables by which the doors route (src/api/openapi_test.cc).
namespace gpusched::api {

/// A parameter of a query, or a field of an object in a body or an answer.
struct FieldDoc {
  std::string_view name;
  /// "text", "integer", "integer-or-text", "number", "boolean", "time", "any", or the name of a schema. "[T]"
  /// is a list of T, "{T}" an object whose values are T; with "?" behind it may be null, too.
  std::string_view type = {};
  std::string_view meaning = {};
  std::string_view pattern = {};  ///< For a text, or each of a list.
  std::string_view words =
      {};  ///< All values that a text may have, separated by blanks; for an object its keys.
  double least = 0,
         most = 0;  ///< Bounds of a number, where they differ; for a text the number of its characters.
  bool required = false;
  int64_t items_max = 0;  ///< For a list or an object; 0: not said.
};

struct SchemaDoc {
  std::string name;
  std::vector<FieldDoc> fields;
  bool open = false;  ///< It may have other fields, which are ignored.
};

struct CallDoc {
  HttpMethod method;
  std::string_view path;       ///< Such as "api/v1/jobs/{job_id}".
  std::string_view operation;  ///< Its name, for clients that are generated; unique.
  std::string_view summary;    ///< One sentence.
  std::vector<FieldDoc> query = {};
  std::string_view body = {};  ///< A type as in FieldDoc; empty: none.
  bool optional_body = false;
  int status = 200;
  std::string_view answer = {};  ///< A type as in FieldDoc, as JSON; empty: `media` alone.
  std::string_view media = {};   ///< Another type of content that it answers with, too.
  bool takes_key = false;        ///< Safe to repeat by Idempotency-Key.
};

/// A door's calls, and what they speak.
struct DoorDoc {
  std::string_view tag;
  std::string_view meaning;
  std::string_view error = "Error";  ///< The response of those that are refused.
  std::vector<CallDoc> calls = {};
  std::vector<SchemaDoc> schemas = {};
};

DoorDoc jobs_door_doc();
DoorDoc tasks_door_doc();
DoorDoc allocation_door_doc();
DoorDoc agent_tasks_doc();
DoorDoc sessions_doc();
DoorDoc sign_in_doc();
DoorDoc metrics_doc();

/// All of them.
std::span<const DoorDoc> door_docs();

}  // namespace gpusched::api
