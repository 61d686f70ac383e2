// As whom callers' jobs run, and who may enter them.
#include "api/backend/unix_users.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <set>

#include "api/contract/spec_peek.h"
#include "api/testing/tenants_test.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

class UnixUsers : public TenantsTest {
 protected:
  UnixUsers() {
    TenantRequest tenant;
    tenant.name = "lab";
    lab_ = make_tenant(tenant);
    ana_->bindings = bob_->bindings = {{.tenant = lab_, .role = Role::kUser}};
    boss_->bindings = {{.tenant = lab_, .role = Role::kTenantAdmin}};
    ana_->unix_users = {"ana"};
    bob_->unix_users = {"bob", "batch"};
    boss_->unix_users = {"*"};
  }
  /// The specification that the engine has of a job that asks for the user; nothing when it is refused.
  std::optional<v1::JobSpec> spec_as(const CallerPtr& who, const std::string& user) {
    const std::string words = user.empty() ? "" : R"(,"user":")" + user + "\"";
    const Answer<Submitted> made = try_submit(who, R"({"script":"true","tenant_id":"lab")" + words + "}");
    if (!made) {
      EXPECT_EQ(made.error().kind, ErrorKind::kPermissionDenied) << made.error().message;
      EXPECT_EQ(made.error().field, "user");
      refused_ = made.error().message;
      return std::nullopt;
    }
    last_ = made->first_job;
    const auto job =
        answer<JobView>([&](auto done) { backend_.get_job(admin(), made->first_job, "", std::move(done)); });
    v1::JobSpec spec;
    EXPECT_TRUE(spec.ParseFromString(std::string(job.spec.view())));
    return spec;
  }
  /// How the attempt to enter the job ended.
  ApiError entered(const CallerPtr& who, JobId job) {
    struct Peer final : SessionPeer {
      void on_number(uint64_t) override {}
      void on_opened() override {}
      void on_output(std::string, bool) override {}
      void on_credit(int64_t) override {}
      void on_end(End end) override { ended.set_value(*end.error); }
      std::promise<ApiError> ended;
    };
    const auto peer = std::make_shared<Peer>();
    const auto session = backend_.open_session(who, {.job = job}, peer);
    return peer->ended.get_future().get();
  }
  ApiError read(const CallerPtr& who, JobId job) {
    return outcome<FilePiece>(
               [&](auto done) { backend_.read_file(who, {.job = job, .path = "x"}, std::move(done)); })
        .error();
  }

  std::shared_ptr<access::Caller> bob_ = person("bob"), boss_ = person("boss");
  TenantId lab_;
  JobId last_;
  std::string refused_;
};

TEST_F(UnixUsers, ACallersOnlyUserIsTheOneOfItsJobs) {
  const auto spec = spec_as(ana_, "");
  EXPECT_EQ(spec->user(), "ana");
  EXPECT_TRUE(spec->anonymous());
  EXPECT_EQ(spec_as(ana_, "ana")->user(), "ana");
}

TEST_F(UnixUsers, AnothersUserIsRefusedThroughTheDoorsToo) {
  for (const char* const user : {"bob", "root", "0"}) {
    EXPECT_FALSE(spec_as(ana_, user).has_value()) << user;
    const std::string body = R"({"script":"true","user":")" + std::string(user) + "\"}";
    for (const char* const path : {"/api/v1/jobs", "/api/v1/jobs:plan"}) {
      const Reply reply = http("POST", path, body);
      EXPECT_EQ(reply.status, 403) << reply.body;
      EXPECT_EQ(field(reply.body, "error"), refused_);
    }
  }
  EXPECT_EQ(refused_, "person ana may not run jobs as the Unix user 0; its Unix users: ana");
}

TEST_F(UnixUsers, WhoHasSeveralNamesOneOrIsNeverRoot) {
  EXPECT_EQ(spec_as(bob_, "batch")->user(), "batch");
  const auto nameless = spec_as(bob_, "");
  EXPECT_EQ(nameless->user(), "");
  EXPECT_TRUE(nameless->anonymous());
  // All names but root's own, some of which may be root's on a node.
  EXPECT_TRUE(spec_as(boss_, "toor")->anonymous());
  EXPECT_FALSE(spec_as(boss_, "root").has_value());
}

TEST_F(UnixUsers, WhoMayBeRootLeavesNoMark) {
  EXPECT_FALSE(spec_as(admin(), "")->anonymous());
  EXPECT_EQ(spec_as(admin(), "root")->user(), "root");
  boss_->unix_users = {"*", "root"};
  EXPECT_FALSE(spec_as(boss_, "")->anonymous());
}

TEST_F(UnixUsers, TheSameRequestIsTheSameWithItsKey) {
  SubmitRequest request = *parse_submit(
      R"({"script":"true","tenant_id":"lab","labels":{"a":"1","b":"2","c":"3"},"environment":{"X":"1","Y":"2"}})",
      false);
  request.request_key = "key";
  std::set<JobId> jobs;
  for (int i = 0; i < 8; ++i) {
    jobs.insert(
        answer<Submitted>([&](auto done) { backend_.submit(ana_, request, std::move(done)); }).first_job);
  }
  EXPECT_EQ(jobs.size(), 1U);
}

TEST_F(UnixUsers, ATenantsAdminEntersOnlyAsAUserOfItsOwn) {
  spec_as(ana_, "");
  const JobId anas = last_;
  spec_as(bob_, "");
  const JobId nameless = last_;
  spec_as(admin(), "");
  const JobId roots = last_;
  for (const JobId job : {anas, nameless}) {
    EXPECT_EQ(entered(boss_, job).kind, ErrorKind::kLogNotFound) << job.value;  // It has not started.
    EXPECT_EQ(read(boss_, job).kind, ErrorKind::kLogNotFound) << job.value;
  }
  // It may be root's.
  EXPECT_EQ(entered(boss_, roots).kind, ErrorKind::kPermissionDenied);
  EXPECT_EQ(read(boss_, roots).kind, ErrorKind::kPermissionDenied);
  EXPECT_EQ(entered(admin(), roots).kind, ErrorKind::kLogNotFound);
  boss_->unix_users = {"boss"};
  EXPECT_EQ(entered(boss_, anas).kind, ErrorKind::kPermissionDenied);
  EXPECT_EQ(read(boss_, anas).message,
            "person boss may not be the Unix user of " + job_name(anas) + ", ana; its Unix users: boss");
  EXPECT_EQ(entered(boss_, nameless).kind, ErrorKind::kLogNotFound);
}

}  // namespace
}  // namespace gpusched::api
