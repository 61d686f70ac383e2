#pragma once

#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "access/actions.h"
#include "api/grpc/grpc_methods.h"
#include "gpusched/v1/types.pb.h"

/// Calls made of the tables of all doors, so that a new call is tested without being written down.
namespace gpusched::api {

/// Subjects of the calls.
struct Subjects {
  std::string job, tenant, node = "n1", reservation = "n1";
  std::string submit_to = {};  ///< Tenant of submissions; empty: none is named.
  std::string key = {};
  /// As the allocation door names a job, a key and a person.
  std::string lease = "none", lease_key = "none", user = "none";
};

/// A path of a route's pattern. It stays a pattern where it has a part that nothing stands for.
inline std::string target_of(std::string_view pattern, const Subjects& about) {
  std::string out;
  std::string above;
  for (std::size_t at = 0; at <= pattern.size();) {
    const std::size_t end = std::min(pattern.find('/', at), pattern.size());
    std::string segment(pattern.substr(at, end - at));
    const bool any = segment == "*" || segment.starts_with('{');
    if (any && (above == "jobs" || above == "tasks" || above == "services")) segment = about.job;
    if (any && above == "tenants") segment = about.tenant;
    if (any && above == "gpu") segment = about.lease;
    if (any && above == "api-keys") segment = about.lease_key;
    if (any && above == "users") segment = about.user;
    if (any && above == "keys") segment = about.key;
    if (any && (above == "nodes" || above == "node-identities")) segment = about.node;
    if (any && above == "reservations") segment = about.reservation;
    if (any && (above == "gpus" || above == "devices")) segment = "0";
    out += "/" + segment;
    above = any ? "" : segment;
    at = end + 1;
  }
  return out;
}

/// A body that the route accepts.
inline std::string body_of(access::Action action, bool is_native, std::string_view path,
                           const Subjects& about) {
  using access::Action;
  const std::string tenant =
      about.submit_to.empty() ? std::string() : R"("tenant_id":")" + about.submit_to + R"(",)";
  switch (action) {
    case Action::kSubmitJob:
    case Action::kPlanJob:
      if (path.ends_with("/allocate")) return "{}";
      if (path.ends_with("/services"))
        return "{" + tenant + R"("name":"mine","replicas":0,"job":{"spec":{"command":["true"]}}})";
      if (path.ends_with("/rollout")) return R"({"job":{"spec":{"command":["true"]}}})";
      if (path.ends_with("/tasks"))
        return "{" + tenant + R"("priority":"low","gpu_count":1,"command":"true"})";
      return is_native ? "{" + tenant + R"("jobs":[{"spec":{"command":["true"]}}]})"
                       : "{" + tenant + R"("script":"true"})";
    case Action::kCancelJob:
      return path.ends_with(":cancel") ? R"({"job_ids":[")" + about.job + R"("]})" : "";
    case Action::kUpdateJob:
      if (path.ends_with("/renew")) return "";
      return path.ends_with("/scale") ? R"({"replicas":1})" : R"({"priority":1})";
    case Action::kCreateTenant:
      return R"({"name":"mine"})";
    case Action::kUpdateTenant:
      return R"({"max_gpus":64})";
    case Action::kCreateKey:
      return "{" + tenant + R"("name":"mine"})";
    case Action::kCreateUser:
      return R"({"email":"mine@example.org"})";
    case Action::kUpdateUser:
      return "{}";
    case Action::kAdmitNode:
      return R"({"node_name":")" + about.node + R"("})";
    case Action::kBindRole:
      return R"({"role":"user"})";
    case Action::kEditCluster:
      return R"({"tenants":[{"name":"mine"}]})";
    case Action::kLabelNode:
      return R"({"remove":["a"]})";
    case Action::kSetDevice:
      return R"({"condition":"unhealthy"})";
    case Action::kMakeReservation:
      return R"({"name":"r","node_names":["n1"],"duration_ms":60000})";
    case Action::kSetPools:
      return R"({"online_percent":0.5})";
    case Action::kMoveJobs:
      return R"({"id":"move-1"})";
    default:
      return "";
  }
}

/// The message that a method takes, about the subjects.
inline std::unique_ptr<google::protobuf::Message> message_of(const GrpcMethodRow& method,
                                                             const Subjects& about) {
  using google::protobuf::FieldDescriptor;
  const auto* const found = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
      std::string(method.service) + "." + std::string(method.name));
  const google::protobuf::Descriptor& type = *found->input_type();
  std::unique_ptr<google::protobuf::Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  const bool is_submission =
      method.action == access::Action::kSubmitJob || method.action == access::Action::kPlanJob;
  const auto set = [&](const char* name, const std::string& text) {
    const FieldDescriptor* const field = type.FindFieldByName(name);
    if (field == nullptr || text.empty()) return;
    if (field->is_repeated()) {
      reflection.AddString(message.get(), field, text);
    } else {
      reflection.SetString(message.get(), field, text);
    }
  };
  const bool is_of_tenant = has_walls(row_of(method.action).subject) && about.job.empty();
  set("job_id", about.job);
  set("job_ids", about.job);
  set("service", about.job);
  const bool goes_there = is_submission || method.action == access::Action::kCreateKey;
  set("tenant_id", goes_there ? about.submit_to : is_of_tenant ? about.tenant : "");
  set("key_id", about.key);
  set("role", "user");
  set("node_name", about.node);
  set("reservation", about.reservation);
  set("script", "true");
  set("id", "move-1");
  set("name", "any");
  set("node_names", about.node);
  set("remove", "label");
  if (const FieldDescriptor* const field = type.FindFieldByName("priority"))
    reflection.SetInt32(message.get(), field, 1);
  if (const FieldDescriptor* const field = type.FindFieldByName("replicas"))
    reflection.SetInt64(message.get(), field, 0);
  if (const FieldDescriptor* const field = type.FindFieldByName("condition"))
    reflection.SetEnumValue(message.get(), field, v1::DEVICE_CONDITION_UNHEALTHY);
  if (const FieldDescriptor* const field = type.FindFieldByName("duration_ms"))
    reflection.SetInt64(message.get(), field, 60'000);
  if (const FieldDescriptor* const field = type.FindFieldByName("tenant")) {
    google::protobuf::Message& tenant = *reflection.MutableMessage(message.get(), field);
    tenant.GetReflection()->SetString(&tenant, tenant.GetDescriptor()->FindFieldByName("tenant_id"),
                                      about.tenant);
  }
  const FieldDescriptor* const jobs = type.FindFieldByName("jobs");
  const FieldDescriptor* const one = type.FindFieldByName("job");
  if (is_submission && (jobs != nullptr || one != nullptr)) {
    google::protobuf::Message& job = jobs != nullptr ? *reflection.AddMessage(message.get(), jobs)
                                                     : *reflection.MutableMessage(message.get(), one);
    google::protobuf::Message& spec =
        *job.GetReflection()->MutableMessage(&job, job.GetDescriptor()->FindFieldByName("spec"));
    spec.GetReflection()->SetString(&spec, spec.GetDescriptor()->FindFieldByName("script"), "true");
  }
  return message;
}

struct GrpcReply {
  grpc::Status status;
  std::string bytes;  ///< The answer, packed: what texts are in it is seen as it is.
  /// Metadata sent behind it, but for the number of the call.
  std::string trailing = {};
};
/// Calls the method and takes its first answer.
inline GrpcReply call_method(std::shared_ptr<grpc::Channel> channel, const GrpcMethodRow& method,
                             const google::protobuf::Message& message) {
  grpc::GenericStub stub(std::move(channel));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  const grpc::Slice packed(message.SerializeAsString());
  const grpc::ByteBuffer bytes(&packed, 1);
  grpc::ByteBuffer answer;
  GrpcReply reply;
  const auto rpc = stub.PrepareUnaryCall(
      &context, "/" + std::string(method.service) + "/" + std::string(method.name), bytes, &queue);
  rpc->StartCall();
  rpc->Finish(&answer, &reply.status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  for (const auto& [name, value] : context.GetServerTrailingMetadata()) {
    const std::string_view key(name.data(), name.size());
    if (key == "gpusched-request-id") continue;
    reply.trailing.append(key).append("=").append(value.data(), value.size()).append("\n");
  }
  std::vector<grpc::Slice> slices;
  if (answer.Valid() && answer.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices)
      reply.bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return reply;
}

}  // namespace gpusched::api
