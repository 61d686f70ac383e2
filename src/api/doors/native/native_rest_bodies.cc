#include "api/doors/native/native_rest_bodies.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "api/contract/names.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_views.h"
#include "api/fields/checks.h"
#include "base/limits.h"
#include "gpusched/v1/edits.pb.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

namespace pb = google::protobuf;

constexpr std::size_t kDetailBytesMax = 1'024;

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The key to use; an error when header and body name different ones.
Answer<std::string> one_key(const std::string& header_key, const std::string& body_key) {
  if (auto problem = check_request_key(header_key, "Idempotency-Key")) return std::move(*problem);
  if (auto problem = check_request_key(body_key, "request_key")) return std::move(*problem);
  if (!header_key.empty() && !body_key.empty() && header_key != body_key) {
    return invalid("request_key", "request_key and the header Idempotency-Key differ; send only one of them");
  }
  return header_key.empty() ? body_key : header_key;
}

}  // namespace

void place_job_field(ApiError& error) {
  const std::string name = error.field.substr(0, error.field.find_first_of(".["));
  std::string_view before;
  if (v1::JobSpec::descriptor()->FindFieldByName(name) != nullptr) before = "spec.";
  if (v1::Resources::descriptor()->FindFieldByName(name) != nullptr) before = "resources.";
  if (before.empty()) return;
  if (error.message.starts_with(name)) error.message.insert(0, before);
  error.field.insert(0, before);
}

Answer<SubmitRequest> read_native_submit(std::string_view body, const std::string& header_key,
                                         bool containers_possible) {
  std::array<char, 4'096> first_block;
  pb::ArenaOptions options;
  options.initial_block = first_block.data();
  options.initial_block_size = first_block.size();
  pb::Arena arena(options);
  auto* const batch = pb::Arena::CreateMessage<v1::SubmitJobsRequest>(&arena);
  auto* const single = pb::Arena::CreateMessage<v1::JobRequest>(&arena);
  pb::Message* const roots[] = {batch, single};
  NativeBody given;
  if (auto problem = read_native_json(body, roots, given)) return std::move(*problem);
  Answer<std::string> key = one_key(header_key, batch->request_key());
  if (!key) return key.error();
  const auto of_single = std::find_if(given.given.begin(), given.given.end(), [](const std::string& name) {
    return v1::JobRequest::descriptor()->FindFieldByName(name) != nullptr;
  });
  if (of_single == given.given.end()) {
    batch->set_request_key(*key);
    Answer<SubmitRequest> request = read_submit(*batch, containers_possible);
    if (request) return request;
    ApiError error = request.error();
    // "jobs[3].command" is "jobs[3].spec.command".
    const std::size_t dot = error.field.find("].");
    if (error.field.starts_with("jobs[") && dot != std::string::npos) {
      const std::string place = error.field.substr(0, dot + 1);
      ApiError inner{error.kind, error.message.substr(place.size() + 2), error.field.substr(dot + 2)};
      place_job_field(inner);
      error.message = place + ": " + inner.message;
      error.field = place + "." + inner.field;
    }
    return error;
  }
  if (has(given.given, "jobs")) {
    return ApiError{ErrorKind::kUnprocessable,
                    "both jobs and " + *of_single + " are given; send either jobs or the fields of one job",
                    *of_single};
  }
  if (batch->tenant_id().size() > limits::kNameBytesMax) return invalid("tenant_id", "tenant_id is too long");
  Answer<JobRequest> job = read_job(*single, containers_possible);
  if (!job) {
    ApiError error = job.error();
    place_job_field(error);
    return error;
  }
  SubmitRequest request{.tenant = batch->tenant_id(), .request_key = std::move(*key)};
  request.jobs.push_back(std::move(*job));
  return request;
}

std::string native_submitted_json(const Submitted& submitted) {
  std::string out;
  out.reserve(16 + std::size_t{submitted.job_count} * 16);
  JsonWriter json(out);
  json.begin_object().key("job_ids").begin_array();
  for (const JobId job : submitted.jobs()) {
    json.value(std::string_view(job_name(job)));
  }
  json.end_array().end_object();
  return out;
}

Answer<TenantRequest> read_native_tenant(std::string_view body, const std::string& header_key,
                                         TenantUse use) {
  v1::Tenant message;
  pb::Message* const roots[] = {&message};
  NativeBody given;
  if (auto problem = read_native_json(body, roots, given)) return std::move(*problem);
  Answer<std::string> key = one_key(header_key, message.request_key());
  if (!key) return key.error();
  message.set_request_key(*key);
  // A given value may also be nothing, or zero, or false.
  Answer<TenantRequest> request = read_tenant(message, use == TenantUse::kCreate, given.given);
  if (!request || use == TenantUse::kCreate) return request;
  for (const TenantRow& row : tenant_rows()) {
    if (row.is_limit && has(given.nulls, row.name)) request->unlimited.emplace_back(row.name);
  }
  return request;
}

std::optional<ApiError> check_same(std::string_view field, std::string_view in_body,
                                   std::string_view in_path) {
  if (in_body.empty() || in_body == in_path) return std::nullopt;
  return invalid(field, std::string(field) + " differs from the one in the path; remove it");
}

Answer<JobUpdate> read_native_update(std::string_view body, std::string_view job) {
  v1::UpdateJobRequest message;
  pb::Message* const roots[] = {&message};
  NativeBody given;
  if (auto problem = read_native_json(body, roots, given)) return std::move(*problem);
  if (auto problem = check_same("job_id", message.job_id(), job)) return std::move(*problem);
  return read_update(message);
}

Answer<DrainWords> read_native_drain(std::string_view body, std::string_view node, std::string_view caller) {
  v1::DrainNodeRequest message;
  pb::Message* const roots[] = {&message};
  NativeBody given;
  if (!body.empty()) {
    if (auto problem = read_native_json(body, roots, given)) return std::move(*problem);
  }
  if (auto problem = check_same("node_name", message.node_name(), node)) return std::move(*problem);
  if (auto problem = check_drain(message)) return std::move(*problem);
  return DrainWords{
      .by = message.by().empty() ? std::string(caller.empty() ? "operator" : caller) : message.by(),
      .reason = message.reason()};
}

Answer<ReservationRequest> read_native_reservation(std::string_view body) {
  v1::Reservation message;
  pb::Message* const roots[] = {&message};
  NativeBody given;
  if (auto problem = read_native_json(body, roots, given)) return std::move(*problem);
  return read_reservation(message);
}

namespace {

/// The error of the i-th of a list.
ApiError in_list(ApiError error, std::string_view list, std::size_t i) {
  const std::string place = std::string(list) + "[" + std::to_string(i) + "]";
  error.field = error.field.empty() ? place : place + "." + error.field;
  error.message = place + ": " + error.message;
  return error;
}

}  // namespace

Answer<EditsRequest> read_native_edits(std::string_view body) {
  v1::EditClusterRequest message;
  pb::Message* const roots[] = {&message};
  NativeBody given;
  if (auto problem = read_native_json(body, roots, given)) return std::move(*problem);
  EditsRequest request{.dry_run = message.dry_run()};
  // A message cannot say which fields of a tenant are given, or null: each is read again as its own body.
  boost::system::error_code failed;
  const boost::json::value whole = boost::json::parse({body.data(), body.size()}, failed);
  const boost::json::value* const tenants =
      whole.is_object() ? whole.as_object().if_contains("tenants") : nullptr;
  if (failed || (message.tenants_size() > 0 && (tenants == nullptr || !tenants->is_array())))
    return ApiError{ErrorKind::kMalformedJson,
                    "the body is not plain JSON with tenants as an array; send one JSON object"};
  for (std::size_t i = 0; i < static_cast<std::size_t>(message.tenants_size()); ++i) {
    const std::string text = boost::json::serialize(tenants->as_array().at(i));
    Answer<TenantRequest> tenant = read_native_tenant(text, "", TenantUse::kUpdate);
    if (!tenant) return in_list(tenant.error(), "tenants", i);
    if (!tenant->name) return in_list(invalid("name", "name is missing; a tenant needs one"), "tenants", i);
    if (!tenant->request_key.empty())
      return in_list(invalid("request_key", "edits do not take a request_key; remove it"), "tenants", i);
    request.tenants.push_back(std::move(*tenant));
  }
  for (int i = 0; i < message.nodes_size(); ++i) {
    Answer<LabelChange> change = read_labels(message.nodes(i));
    if (!change) return in_list(change.error(), "nodes", static_cast<std::size_t>(i));
    request.nodes.push_back({.node = message.nodes(i).node_name(),
                             .set = std::move(change->set),
                             .remove = std::move(change->remove)});
  }
  return request;
}

Answer<LabelChange> read_native_labels(std::string_view body, std::string_view node) {
  v1::LabelNodeRequest message;
  pb::Message* const roots[] = {&message};
  NativeBody given;
  if (auto problem = read_native_json(body, roots, given)) return std::move(*problem);
  if (auto problem = check_same("node_name", message.node_name(), node)) return std::move(*problem);
  return read_labels(message);
}

Answer<ConditionRequest> read_native_condition(std::string_view body, std::string_view caller) {
  v1::SetDeviceConditionRequest message;
  pb::Message* const roots[] = {&message};
  NativeBody given;
  if (auto problem = read_native_json(body, roots, given)) return std::move(*problem);
  if (message.detail().size() > kDetailBytesMax) {
    return invalid("detail",
                   "detail is longer than " + std::to_string(kDetailBytesMax) + " bytes; shorten it");
  }
  if (message.by().size() > limits::kNameBytesMax) {
    return invalid("by", "by is longer than " + std::to_string(limits::kNameBytesMax) + " bytes; shorten it");
  }
  ConditionRequest request{
      .detail = message.detail(),
      .by = message.by().empty() ? std::string(caller.empty() ? "operator" : caller) : message.by()};
  switch (message.condition()) {
    case v1::DEVICE_CONDITION_OK:
      return request;
    case v1::DEVICE_CONDITION_UNHEALTHY:
      request.condition = DeviceCondition::kUnhealthy;
      return request;
    default:
      return invalid("condition", "condition must be ok or unhealthy");
  }
}

}  // namespace gpusched::api
