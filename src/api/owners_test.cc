// Owners of jobs, and what others may do with these, through the doors.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>

#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/testing/doors_test.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

using access::CallerKind;

std::shared_ptr<access::Caller> caller(CallerKind kind, std::string name) {
  return std::make_shared<access::Caller>(access::Caller{.kind = kind, .name = std::move(name)});
}

/// All who come through the doors are the person ana, a user of the tenant `lab`. Beside them the program
/// `ana` and the person bob have jobs there, and bob has one in another tenant.
class Owners : public DoorsTest {
 protected:
  explicit Owners(std::shared_ptr<access::Caller> ana = caller(CallerKind::kPerson, "ana"))
      : DoorsTest({.everybody = ana}), ana_(ana) {
    use_newest_rules();
    lab_ = make_tenant("lab");
    other_ = make_tenant("other");
    // Nothing was asked yet: the doors know this caller, but nobody reads it.
    ana->bindings = {{.tenant = lab_, .role = Role::kUser}};
    bob_->bindings = {{.tenant = lab_, .role = Role::kUser}, {.tenant = other_, .role = Role::kUser}};
    program_->bindings = {{.tenant = lab_, .role = Role::kUser}};
  }

  TenantId make_tenant(const std::string& name) {
    TenantRequest tenant;
    tenant.name = name;
    return answer<TenantView>(
               [&](auto done) { backend_.create_tenant(shared_token_caller(), tenant, std::move(done)); })
        .id;
  }
  template <typename T>
  T answer(const std::function<void(Done<T>)>& ask) {
    std::promise<Answer<T>> made;
    ask([&made](Answer<T> answer) { made.set_value(std::move(answer)); });
    Answer<T> got = made.get_future().get();
    EXPECT_TRUE(got.ok()) << (got.ok() ? "" : got.error().message);
    return got.ok() ? std::move(*got) : T{};
  }
  JobId submit_as(const CallerPtr& who, const std::string& tenant, const std::string& key = "") {
    SubmitRequest request{.tenant = tenant, .request_key = key};
    request.jobs.emplace_back();
    const JobId job =
        answer<Submitted>([&](auto done) { backend_.submit(who, request, std::move(done)); }).first_job;
    job_as(shared_token_caller(), job);  // The doors' reads wait for what the doors submitted alone.
    return job;
  }
  JobView job_as(const CallerPtr& who, JobId job) {
    return answer<JobView>([&](auto done) { backend_.get_job(who, job, "", std::move(done)); });
  }
  /// The code and the sentence that it is answered; both are empty when it is cancelled.
  std::pair<std::string, std::string> cancel_over_grpc(JobId job) {
    const auto stub = v1::Scheduler::NewStub(channel_);
    grpc::ClientContext context;
    v1::CancelJobsRequest request;
    request.add_job_ids(job_name(job));
    v1::CancelJobsResponse response;
    const grpc::Status status = stub->CancelJobs(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.results_size(), 1);
    return {response.results(0).code(), response.results(0).message()};
  }
  std::string mine() { return submit(R"({"script":"true","tenant_id":"lab"})"); }

  HostBackend backend_{*host_, {}};
  std::shared_ptr<access::Caller> ana_, bob_ = caller(CallerKind::kPerson, "bob"),
                                        program_ = caller(CallerKind::kService, "ana");
  TenantId lab_, other_;
};

TEST_F(Owners, OwnJobsAreCancelledThroughEveryDoor) {
  const std::string first = mine();
  EXPECT_EQ(http("DELETE", "/api/v1/jobs/" + first).status, 200);
  const std::string second = mine();
  EXPECT_EQ(http("POST", "/v1/jobs/" + second + "/cancel", "{}").status, 200);
  const JobId third = submit_as(ana_, "lab");
  EXPECT_EQ(cancel_over_grpc(third).first, "");
  EXPECT_EQ(field(http("GET", "/v1/jobs/" + job_name(third)).body, "state"), "cancelled");
}

TEST_F(Owners, AnothersJobOfTheTenantIsSeenAndNotCancelled) {
  for (const CallerPtr& who : {CallerPtr(bob_), CallerPtr(program_), shared_token_caller()}) {
    const JobId job = submit_as(who, "lab");
    const std::string refused =
        job_name(job) + " belongs to " + who->name + ": only its owner or an administrator can cancel it";
    for (const auto& [method, path] :
         {std::pair<std::string, std::string>("DELETE", "/api/v1/jobs/" + job_name(job)),
          {"POST", "/v1/jobs/" + job_name(job) + "/cancel"}}) {
      const Reply reply = http(method, path, method == "POST" ? "{}" : "");
      EXPECT_EQ(reply.status, 403) << reply.body;
      EXPECT_EQ(field(reply.body, "code"), "permission_denied");
      EXPECT_EQ(field(reply.body, "error"), refused);
    }
    EXPECT_EQ(cancel_over_grpc(job), std::pair(std::string("permission_denied"), refused));
    EXPECT_EQ(field(http("GET", "/api/v1/jobs/" + job_name(job)).body, "state"), "pending");
    EXPECT_EQ(http("GET", "/api/v1/jobs/" + job_name(job)).body.find("\"script\":\"t"), std::string::npos);
  }
}

TEST_F(Owners, OnlyWhoMayChangeAJobRunsItAgain) {
  const std::string own = mine();
  EXPECT_EQ(http("POST", "/v1/jobs/" + own + "/rerun").status, 409) << "It has not ended.";
  EXPECT_EQ(http("POST", "/v1/jobs/" + own + "/cancel", "{}").status, 200);
  const Reply again = http("POST", "/v1/jobs/" + own + "/rerun");
  EXPECT_EQ(again.status, 201) << again.body;
  const JobId bobs = submit_as(bob_, "lab");
  EXPECT_EQ(http("POST", "/v1/jobs/" + job_name(bobs) + "/rerun").status, 403);
  EXPECT_EQ(http("POST", "/v1/jobs/" + job_name(submit_as(bob_, "other")) + "/rerun").status, 404);
}

TEST_F(Owners, AreFoundByTheirNames) {
  const std::string own = mine();
  submit_as(bob_, "lab");
  submit_as(program_, "lab");
  const std::string found = http("GET", "/v1/jobs?user=ana&fields=job_id").body;
  EXPECT_NE(found.find("\"" + own + "\""), std::string::npos) << found;
  EXPECT_EQ(found.find("},{"), std::string::npos) << "Only one of the three: " << found;
}

TEST_F(Owners, AJobOfAnotherTenantIsNotThere) {
  const JobId job = submit_as(bob_, "other");
  for (const std::string path : {"/api/v1/jobs/", "/v1/jobs/"}) {
    const Reply reply = http("GET", path + job_name(job));
    EXPECT_EQ(reply.status, 404) << reply.body;
    EXPECT_EQ(field(reply.body, "code"), "job_not_found");
  }
  const Reply reply = http("DELETE", "/api/v1/jobs/" + job_name(job));
  EXPECT_EQ(reply.status, 404) << reply.body;
  EXPECT_EQ(cancel_over_grpc(job).first, "job_not_found");
  EXPECT_EQ(job_as(bob_, job).state, JobState::kPending);
}

TEST_F(Owners, AnothersKeyIsNotAnswered) {
  const JobId bobs = submit_as(bob_, "lab", "key");
  const JobId own = submit_as(ana_, "lab", "key");
  EXPECT_NE(own, bobs);
  EXPECT_EQ(submit_as(ana_, "lab", "key"), own);
  EXPECT_EQ(submit_as(bob_, "lab", "key"), bobs);
}

TEST_F(Owners, AreToldToThoseWhoMayKnowOfTheJob) {
  const std::string own = mine();
  EXPECT_EQ(field(http("GET", "/api/v1/jobs/" + own).body, "owner"), "person ana");
  EXPECT_EQ(field(http("GET", "/v1/jobs/" + own).body, "owner"), "person ana");
  const JobId admins = submit_as(shared_token_caller(), "");
  const JobId anonymous = submit_as(anonymous_caller(), "");
  EXPECT_EQ(job_as(shared_token_caller(), admins).owner, "operator admin by shared token");
  EXPECT_EQ(job_as(anonymous_caller(), admins).owner, "");
  EXPECT_EQ(job_as(anonymous_caller(), anonymous).owner, "anonymous");
  EXPECT_EQ(job_as(shared_token_caller(), anonymous).owner, "anonymous");
}

TEST_F(Owners, ACallersOwnBucketPaysWhateverItSays) {
  EngineConfig config;
  config.feature_level = kFeatureLevel;
  config.admission.daily = 1;
  configure(config);
  const std::string body = R"({"script":"true","tenant_id":"lab","user_id":"nobody-)";
  EXPECT_EQ(http("POST", "/api/v1/jobs", body + "1\"}").status, 201);
  const Reply second = http("POST", "/api/v1/jobs", body + "2\"}");
  EXPECT_EQ(second.status, 429) << second.body;
}

}  // namespace
}  // namespace gpusched::api
