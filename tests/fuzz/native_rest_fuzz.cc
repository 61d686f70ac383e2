// rooms: model base
// libs: gpusched_proto utf8proc
// source: api/contract/json_writer.cc
// source: api/contract/parse.cc
// source: api/contract/spec_peek.cc
// source: api/doors/jobs/jobs_json.cc
// source: api/doors/json_fields.cc
// source: api/doors/native/native_requests.cc
// source: api/doors/native/native_rest_bodies.cc
// source: api/doors/native/native_rest_json.cc
// source: api/doors/native/native_rest_views.cc
// source: api/doors/native/native_views.cc
// source: api/doors/nearest_name.cc
// source: api/doors/rfc3339.cc
// source: api/fields/check_box.cc
// source: api/fields/flow_fields.cc
// source: api/fields/job_message.cc
// source: api/fields/job_rows.cc
// source: api/fields/job_rules.cc
// source: api/fields/job_rules_gpus.cc
// source: api/fields/node_rows.cc
// source: api/fields/pack_spec.cc
// source: api/fields/place_words.cc
// source: api/fields/reservation_rows.cc
// source: api/fields/tenants/tenant_name.cc
// source: api/fields/tenants/tenant_rows.cc
// source: log/line.cc
//
// Bodies, queries and lines of the native API over HTTP. The parsers are compiled for it alone: the room
// `api` itself needs gRPC, which the fuzzers' build leaves out. A message that was read must be written as
// JSON that reads as the same message again.
#include <boost/json/src.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/contract/spec_peek.h"
#include "api/doors/native/native_rest_bodies.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_rest_views.h"
#include "api/doors/rfc3339.h"
#include "base/check.h"
#include "base/limits.h"
#include "gpusched/v1/scheduler.pb.h"
#include "log/log.h"

namespace api = gpusched::api;

// Only the escaping of texts in log/line.cc is used here; its levels' names stand beside the logger itself.
std::string_view gpusched::to_string(LogLevel) { UNREACHABLE(); }

namespace {

template <typename Message>
void try_message(std::string_view body) {
  Message message;
  google::protobuf::Message* const roots[] = {&message};
  api::NativeBody given;
  if (const auto problem = api::read_native_json(body, roots, given)) {
    CHECK(!problem->message.empty());
    return;
  }
  const std::string json = api::native_json(message);
  Message again;
  google::protobuf::Message* const again_roots[] = {&again};
  api::NativeBody ignored;
  CHECK(!api::read_native_json(json, again_roots, ignored));
  CHECK(api::native_json(again) == json);
}

void try_submit(std::string_view body) {
  const bool containers = (body.size() & 1) != 0;
  const auto parsed = api::read_native_submit(body, "", containers);
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
    return;
  }
  CHECK(!parsed->jobs.empty());
  CHECK(parsed->jobs.size() <= gpusched::limits::kBatchJobsMax);
  for (const api::JobRequest& job : parsed->jobs) {
    CHECK(job.spec.size() <= gpusched::limits::kSpecBytesMax);
    CHECK(job.gpu_count >= 0);
    CHECK(job.cpu_milli >= 0);
    CHECK(job.memory_mb >= 0);
    CHECK(job.max_runtime.ns >= 0);
    CHECK(job.max_runtime <= gpusched::limits::kRuntimeMax);
    gpusched::v1::JobSpec spec;
    CHECK(spec.ParseFromString(job.spec));
    CHECK(api::peek_spec(job.spec).name == spec.name());
    CHECK(api::peek_spec(job.spec).user == spec.user());
    for (const auto& [name, value] : spec.labels()) CHECK(api::spec_has_label(job.spec, name, value));
    // Shown to a client it must be JSON again.
    const api::JobView view{
        .id = gpusched::JobId{1}, .tenant = gpusched::kDefaultTenant, .spec = gpusched::Blob(job.spec)};
    gpusched::v1::Job shown;
    google::protobuf::Message* const roots[] = {&shown};
    api::NativeBody ignored;
    const auto problem = api::read_native_json(api::native_job_json(view), roots, ignored);
    CHECK(!problem);
    CHECK(shown.spec().name() == spec.name());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 12) {
    case 0:
      static_cast<void>(api::read_native_tenant(body, "", api::TenantUse::kCreate));
      break;
    case 1:
      static_cast<void>(api::read_native_tenant(body, "key", api::TenantUse::kUpdate));
      break;
    case 2:
      static_cast<void>(api::read_native_condition(body, "127.0.0.1"));
      static_cast<void>(api::read_native_drain(body, "n1", "somebody"));
      break;
    case 3:
      static_cast<void>(api::read_native_labels(body, "n1"));
      static_cast<void>(api::read_native_update(body, "job-1"));
      break;
    case 4:
      static_cast<void>(api::parse_job_mask(body));
      static_cast<void>(api::parse_rfc3339(body));
      static_cast<void>(api::peek_spec(body));
      static_cast<void>(api::spec_has_label(body, "team", std::nullopt));
      static_cast<void>(api::glob_matches(body.substr(0, body.size() / 2), body.substr(body.size() / 2)));
      break;
    case 5:
      try_message<gpusched::v1::SubmitJobsRequest>(body);
      break;
    case 6:
      try_message<gpusched::v1::Job>(body);
      break;
    case 7:
      try_message<gpusched::v1::Node>(body);
      break;
    default:
      try_submit(body);
      break;
  }
  return 0;
}
