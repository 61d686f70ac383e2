// Services over gRPC, by a client of the contract: what each call does, and what it is refused for.
#include "api/doors/native/services/services_grpc.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "api/testing/doors_test.h"
#include "gpusched/v1/services.grpc.pb.h"

namespace gpusched::api {
namespace {

using Stub = v1::Services::Stub;

/// Two tenants, `lab` and `other`, each with a key of a user; the shared token is an admin's.
class ServicesOverGrpc : public DoorsTest {
 protected:
  static constexpr const char* kToken = "the-right-token";

  ServicesOverGrpc() : DoorsTest({.token = kToken}) {
    use_newest_rules();
    for (const char* const name : {"lab", "other"})
      EXPECT_EQ(as_admin("POST", "/v1/tenants", R"({"name":")" + std::string(name) + "\"}").status, 201);
    ana_ = key("ana", "lab", "user");
  }

  Reply as_admin(const std::string& method, const std::string& target, const std::string& body = "") {
    return http(method, target, body,
                "Authorization: Bearer " + std::string(kToken) + "\r\nContent-Type: application/json\r\n");
  }
  std::string key(const std::string& name, const std::string& tenant, const std::string& role) {
    const Reply made = as_admin(
        "POST", "/v1/keys",
        R"({"name":")" + name + R"(","tenant_id":")" + tenant + R"(","roles":[{"role":")" + role + "\"}]}");
    EXPECT_EQ(made.status, 201) << made.body;
    return field(made.body, "secret");
  }

  struct Told {
    grpc::Status status;
    std::string code, field, request_id;
    v1::Service service;
  };
  template <typename Request>
  Told call(const std::string& credential,
            grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, v1::Service*),
            const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.AddMetadata("authorization", "Bearer " + credential);
    Told told;
    told.status = ((*stub_).*method)(&context, request, &told.service);
    const auto text_of = [&](const char* name) {
      const auto& trailing = context.GetServerTrailingMetadata();
      const auto found = trailing.find(name);
      return found == trailing.end() ? std::string()
                                     : std::string(found->second.data(), found->second.size());
    };
    told.code = text_of("gpusched-code");
    told.field = text_of("gpusched-field");
    told.request_id = text_of("gpusched-request-id");
    return told;
  }
  static v1::CreateServiceRequest creation(const std::string& name, const std::string& tenant = "lab") {
    v1::CreateServiceRequest request;
    request.set_name(name);
    request.set_tenant_id(tenant);
    request.set_replicas(0);
    request.mutable_job()->mutable_spec()->set_script("sleep 1000");
    return request;
  }
  Told create(const std::string& credential, const v1::CreateServiceRequest& request) {
    return call(credential, &Stub::CreateService, request);
  }
  static v1::ServiceRequest named(const std::string& service, const std::string& tenant = "") {
    v1::ServiceRequest request;
    request.set_service(service);
    request.set_tenant_id(tenant);
    return request;
  }
  Told get(const std::string& credential, const std::string& service, const std::string& tenant = "") {
    return call(credential, &Stub::GetService, named(service, tenant));
  }
  Told scale(const std::string& credential, const std::string& service, int64_t replicas) {
    v1::ScaleServiceRequest request;
    request.set_service(service);
    request.set_replicas(replicas);
    return call(credential, &Stub::ScaleService, request);
  }
  Told roll_out(const std::string& credential, const std::string& service, const std::string& tenant = "") {
    v1::RollOutServiceRequest request;
    request.set_service(service);
    request.set_tenant_id(tenant);
    request.mutable_job()->mutable_spec()->set_script("sleep 2000");
    return call(credential, &Stub::RollOutService, request);
  }
  std::string names_in_list(const std::string& credential, const std::string& tenant = "") {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + credential);
    v1::ListServicesRequest request;
    request.set_tenant_id(tenant);
    v1::ListServicesResponse answer;
    const grpc::Status status = stub_->ListServices(&context, request, &answer);
    if (!status.ok()) return status.error_message();
    std::string names;
    for (const v1::Service& service : answer.services()) names += service.name() + " ";
    return names;
  }
  static void expect_refused(const Told& told, grpc::StatusCode status, const std::string& code,
                             const std::string& field = "") {
    EXPECT_EQ(told.status.error_code(), status) << told.status.error_message();
    EXPECT_EQ(told.code, code) << told.status.error_message();
    EXPECT_EQ(told.field, field) << told.status.error_message();
    EXPECT_NE(told.request_id, "");
  }

  const std::unique_ptr<Stub> stub_ = v1::Services::NewStub(channel_);
  std::string ana_;
};

TEST_F(ServicesOverGrpc, AServiceIsTheSameOneOverRest) {
  v1::CreateServiceRequest request = creation("web");
  request.set_restart("on_failure");
  request.set_ready_probe("http:/health");
  const Told made = create(ana_, request);
  ASSERT_TRUE(made.status.ok()) << made.status.error_message();
  EXPECT_EQ(made.service.restart(), "on_failure");
  EXPECT_EQ(made.service.ready_probe(), "http:/health");
  EXPECT_TRUE(made.service.port());
  EXPECT_EQ(made.service.generation(), 1);
  const Reply shown = as_admin("GET", "/v1/services/web?tenant_id=lab");
  EXPECT_EQ(shown.status, 200) << shown.body;
  EXPECT_EQ(field(shown.body, "record_id"), made.service.record_id());
  EXPECT_EQ(field(shown.body, "owner"), made.service.owner());

  const Told scaled = scale(ana_, made.service.record_id(), 3);
  ASSERT_TRUE(scaled.status.ok()) << scaled.status.error_message();
  EXPECT_EQ(scaled.service.replicas(), 3);
  const Told rolled = roll_out(ana_, "web", "lab");
  ASSERT_TRUE(rolled.status.ok()) << rolled.status.error_message();
  EXPECT_EQ(rolled.service.generation(), 2);
  EXPECT_EQ(rolled.service.replicas(), 3);
  EXPECT_EQ(rolled.service.ready_probe(), "http:/health");
  EXPECT_EQ(names_in_list(ana_), "web ");
  EXPECT_EQ(call(ana_, &Stub::DeleteService, named("web")).service.state(), "deleting");
}

TEST_F(ServicesOverGrpc, WhatIsWrongIsNamed) {
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  v1::CreateServiceRequest request = creation("web");
  request.clear_job();
  expect_refused(create(ana_, request), kInvalid, "invalid_argument", "job");
  request = creation("");
  expect_refused(create(ana_, request), kInvalid, "invalid_argument", "name");
  expect_refused(create(ana_, creation("job-12")), kInvalid, "unprocessable", "name");
  request = creation("web");
  request.set_restart("often");
  expect_refused(create(ana_, request), kInvalid, "invalid_argument", "restart");
  request = creation("web");
  request.set_port(false);
  request.set_ready_probe("tcp");
  expect_refused(create(ana_, request), kInvalid, "invalid_argument", "port");
  request = creation("web");
  request.mutable_job()->mutable_resources()->set_gpu_count(-1);
  expect_refused(create(ana_, request), kInvalid, "invalid_argument", "job.resources.gpu_count");
  request = creation("web");
  request.set_scale_queue("kind");
  request.set_scale_min(3);
  request.set_scale_max(1);
  const Told wrong = create(ana_, request);
  expect_refused(wrong, kInvalid, "unprocessable", "scale_max");
  EXPECT_EQ(wrong.status.error_message(), "scale_max must be at least scale_min, which is 3");
  EXPECT_EQ(names_in_list(ana_), "");
  ASSERT_TRUE(create(ana_, creation("web")).status.ok());
  expect_refused(get(ana_, ""), kInvalid, "invalid_argument", "service");
  expect_refused(roll_out(ana_, ""), kInvalid, "invalid_argument", "service");
  expect_refused(scale(ana_, "web", 1'001), kInvalid, "invalid_argument", "replicas");
  v1::ScaleServiceRequest forgotten;
  forgotten.set_service("web");
  expect_refused(call(ana_, &Stub::ScaleService, forgotten), kInvalid, "invalid_argument", "replicas");
  EXPECT_EQ(get(ana_, "web").service.replicas(), 0);
}

TEST_F(ServicesOverGrpc, ATakenNameAndAnAbsentOneAreTold) {
  ASSERT_TRUE(create(ana_, creation("web")).status.ok());
  expect_refused(create(ana_, creation("web")), grpc::StatusCode::ALREADY_EXISTS, "already_exists", "name");
  for (const Told& told : {get(ana_, "none"), scale(ana_, "none", 1), roll_out(ana_, "none"),
                           call(ana_, &Stub::DeleteService, named("none"))})
    expect_refused(told, grpc::StatusCode::NOT_FOUND, "not_found");
  // Two tenants have one of that name: who sees both says which.
  ASSERT_TRUE(create(kToken, creation("web", "other")).status.ok());
  expect_refused(get(kToken, "web"), grpc::StatusCode::FAILED_PRECONDITION, "conflict", "tenant_id");
  EXPECT_NE(get(kToken, "web", "lab").service.record_id(), get(kToken, "web", "other").service.record_id());
}

TEST_F(ServicesOverGrpc, WhatOthersHaveIsNotThere) {
  ASSERT_TRUE(create(kToken, creation("theirs", "other")).status.ok());
  const std::string record = get(kToken, "theirs").service.record_id();
  ASSERT_TRUE(create(ana_, creation("mine")).status.ok());
  EXPECT_EQ(names_in_list(ana_), "mine ");
  EXPECT_EQ(names_in_list(kToken), "mine theirs ");
  EXPECT_EQ(names_in_list(ana_, "other").substr(0, 14), "no such tenant");
  const auto expect_same = [](Told hidden, const Told& absent, const std::string& from,
                              const std::string& to) {
    std::string said = absent.status.error_message();
    if (const std::size_t at = said.find(from); at != std::string::npos) said.replace(at, from.size(), to);
    EXPECT_EQ(hidden.status.error_message(), said);
    expect_refused(hidden, grpc::StatusCode::NOT_FOUND, absent.code, absent.field);
  };
  expect_same(get(ana_, "theirs"), get(ana_, "absent"), "absent", "theirs");
  expect_same(get(ana_, record), get(ana_, "job-99999"), "job-99999", record);
  expect_same(scale(ana_, "theirs", 1), scale(ana_, "absent", 1), "absent", "theirs");
  expect_same(roll_out(ana_, "theirs", "other"), roll_out(ana_, "theirs", "nobody"), "nobody", "other");
  expect_same(call(ana_, &Stub::DeleteService, named("theirs")),
              call(ana_, &Stub::DeleteService, named("absent")), "absent", "theirs");
  expect_same(create(ana_, creation("new", "other")), create(ana_, creation("new", "nobody")), "nobody",
              "other");
  EXPECT_EQ(get(kToken, "theirs").service.replicas(), 0);
}

TEST_F(ServicesOverGrpc, RightsAreThoseOfJobs) {
  ASSERT_TRUE(create(ana_, creation("web")).status.ok());
  const std::string viewer = key("eve", "lab", "viewer"), boss = key("boss", "lab", "tenant_admin");
  constexpr auto kDenied = grpc::StatusCode::PERMISSION_DENIED;
  EXPECT_EQ(get(viewer, "web").service.name(), "web");
  expect_refused(create(viewer, creation("more")), kDenied, "permission_denied");
  expect_refused(scale(viewer, "web", 1), kDenied, "permission_denied");
  expect_refused(roll_out(viewer, "web"), kDenied, "permission_denied");
  expect_refused(call(viewer, &Stub::DeleteService, named("web")), kDenied, "permission_denied");
  // A service runs as its owner, so only its owner chooses what it runs.
  expect_refused(roll_out(boss, "web"), kDenied, "permission_denied");
  EXPECT_EQ(scale(boss, "web", 2).service.replicas(), 2);
  expect_refused(get("wrong", "web"), grpc::StatusCode::UNAUTHENTICATED, "unauthenticated");
}

TEST_F(ServicesOverGrpc, OverRestABodyMayRepeatWhatItsPathNames) {
  ASSERT_TRUE(create(ana_, creation("web")).status.ok());
  const auto scale_by = [&](const std::string& more, const std::string& query = "") {
    return as_admin("POST", "/v1/services/web/scale" + query, R"({"replicas":1)" + more + "}");
  };
  EXPECT_EQ(scale_by(R"(,"service":"web","tenant_id":"lab")").status, 200);
  EXPECT_EQ(scale_by(R"(,"tenant_id":"lab")", "?tenant_id=lab").status, 200);
  for (const auto& [body, query, at_fault] :
       {std::tuple(R"(,"service":"other")", "", "service"),
        std::tuple(R"(,"tenant_id":"other")", "?tenant_id=lab", "tenant_id")}) {
    const Reply refused = scale_by(body, query);
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(field(refused.body, "field"), at_fault) << refused.body;
  }
  EXPECT_EQ(scale_by(R"(,"tenant_id":"other")").status, 404);
  const Reply forgotten = as_admin("POST", "/v1/services/web/scale", "{}");
  EXPECT_EQ(forgotten.status, 400) << forgotten.body;
  EXPECT_EQ(field(forgotten.body, "field"), "replicas") << forgotten.body;
}

}  // namespace
}  // namespace gpusched::api
