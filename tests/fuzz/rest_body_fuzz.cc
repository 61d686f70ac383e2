// rooms: model log base
// libs: gpusched_proto utf8proc
// source: api/contract/json_writer.cc
// source: api/contract/parse.cc
// source: api/contract/spec_peek.cc
// source: api/doors/jobs/jobs_json.cc
// source: api/doors/json_fields.cc
// source: api/doors/rfc3339.cc
// source: api/fields/check_box.cc
// source: api/fields/flow_fields.cc
// source: api/fields/job_rows.cc
// source: api/fields/job_rules.cc
// source: api/fields/job_rules_gpus.cc
// source: api/fields/pack_spec.cc
// source: api/fields/place_words.cc
// source: api/fields/tenants/tenant_name.cc
// source: api/fields/tenants/tenant_rows.cc
// source: api/http/http_message.cc
//
// Bodies and queries of the jobs door. The parsers are compiled for it alone: the room `api` itself needs
// gRPC, which the fuzzers' build leaves out.
#include <boost/json/src.hpp>
#include <cstdint>
#include <string_view>

#include "api/doors/jobs/jobs_json.h"
#include "api/http/http_message.h"
#include "base/check.h"
#include "base/limits.h"

namespace api = gpusched::api;

namespace {

void try_submit(std::string_view body) {
  const auto parsed = api::parse_submit(body, (body.size() & 1) != 0);
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
    return;
  }
  CHECK(parsed->jobs.size() == 1);
  const api::JobRequest& job = parsed->jobs.front();
  CHECK(job.spec.size() <= gpusched::limits::kSpecBytesMax);
  CHECK(job.gpu_count >= 0);
  CHECK(job.gpu_memory_mb >= 0);
  CHECK(job.cpu_milli >= 0);
  CHECK(job.memory_mb >= 0);
  CHECK(job.max_runtime.ns >= 0);
  CHECK(job.max_runtime <= gpusched::limits::kRuntimeMax);
  CHECK(parsed->tenant.size() <= gpusched::limits::kNameBytesMax);
  CHECK(job.name.find('\0') == std::string::npos);
  const auto again = api::parse_submit(body, (body.size() & 1) != 0);
  CHECK(again.ok());
  CHECK(again->jobs.front().spec == job.spec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
      static_cast<void>(api::parse_tenant(body, true));
      break;
    case 1:
      static_cast<void>(api::parse_tenant(body, false));
      break;
    case 2:
      static_cast<void>(api::parse_condition(body, "127.0.0.1"));
      break;
    case 3: {
      const auto parameters = api::parse_query(body);
      if (parameters) CHECK(parameters->size() <= 64);
      break;
    }
    case 4:
      static_cast<void>(api::parse_job_id(body));
      static_cast<void>(api::parse_duration(body));
      static_cast<void>(api::check_request_key(body, "key"));
      break;
    default:
      try_submit(body);
      break;
  }
  return 0;
}
