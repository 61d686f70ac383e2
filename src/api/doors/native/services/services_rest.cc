// NativeRest: services.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/doors/jobs/jobs_json.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/native/native_rest_bodies.h"
#include "api/doors/native/services/service_messages.h"
#include "api/fields/checks.h"

namespace gpusched::api {
namespace {

std::string tenant_in_query(const NativeCall& call) { return call.query.text("tenant_id").value_or(""); }

/// Gives a body the service of the path and the tenant of the query, which it may repeat: no others.
template <typename Message>
std::optional<ApiError> name_service(const NativeCall& call, Message& message) {
  if (auto problem = check_same("service", message.service(), call.path[2])) return problem;
  const std::string tenant = tenant_in_query(call);
  if (!tenant.empty() && !message.tenant_id().empty() && message.tenant_id() != tenant)
    return invalid("tenant_id", "tenant_id differs from the one in the query; remove it");
  message.set_service(call.path[2]);
  if (!tenant.empty()) message.set_tenant_id(tenant);
  return std::nullopt;
}

/// The header Idempotency-Key makes the submission of a record safe to repeat.
std::optional<ApiError> take_request_key(const NativeCall& call, SubmitRequest& record) {
  const std::string& key = call.request.idempotency_key;
  if (key.empty()) return std::nullopt;
  if (auto problem = check_request_key(key, "Idempotency-Key")) return problem;
  record.request_key = key;
  return std::nullopt;
}

}  // namespace

void NativeRest::create_service(NativeCall& call) {
  v1::CreateServiceRequest message;
  google::protobuf::Message* const roots[] = {&message};
  NativeBody body;
  if (!read_body(call, roots, body)) return;
  call.call->note().line.resource = message.name();
  Answer<SubmitRequest> record = read_creation(message, backend_.containers_possible());
  if (!record) return call.call->fail(record.error());
  if (auto problem = take_request_key(call, *record)) return call.call->fail(*problem);
  record->by = requester_of(call);
  call.call->note().name_user(*record);
  submit_record(backend_, call.call->caller(), std::move(*record),
                answer_with<ServiceView>(call, write_service));
}

void NativeRest::roll_out_service(NativeCall& call) {
  v1::RollOutServiceRequest message;
  google::protobuf::Message* const roots[] = {&message};
  NativeBody body;
  if (!read_body(call, roots, body)) return;
  if (auto problem = name_service(call, message)) return call.call->fail(*problem);
  Answer<SubmitRequest> record = read_rollout(message, backend_.containers_possible());
  if (!record) return call.call->fail(record.error());
  if (auto problem = take_request_key(call, *record)) return call.call->fail(*problem);
  record->by = requester_of(call);
  call.call->note().name_user(*record);
  submit_record(backend_, call.call->caller(), std::move(*record),
                answer_with<ServiceView>(call, write_service));
}

void NativeRest::scale_service(NativeCall& call) {
  v1::ScaleServiceRequest message;
  google::protobuf::Message* const roots[] = {&message};
  NativeBody body;
  if (!read_body(call, roots, body)) return;
  if (auto problem = name_service(call, message)) return call.call->fail(*problem);
  apply_scale(backend_, call.call->caller(), message, requester_of(call),
              answer_with<ServiceView>(call, write_service));
}

void NativeRest::delete_service(NativeCall& call) {
  backend_.delete_service(call.call->caller(), call.path[2], tenant_in_query(call), requester_of(call),
                          answer_with<ServiceView>(call, write_service));
}

void NativeRest::get_service(NativeCall& call) {
  backend_.get_service(call.call->caller(), call.path[2], tenant_in_query(call),
                       answer_with<ServiceView>(call, write_service));
}

void NativeRest::list_services(NativeCall& call) {
  backend_.list_services(
      call.call->caller(), tenant_in_query(call),
      answer_with<std::vector<ServiceView>, v1::ListServicesResponse>(call, write_services));
}

}  // namespace gpusched::api
