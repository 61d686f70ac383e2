#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "api/doors/agent_tasks/agent_tasks_rest.h"
#include "api/doors/jobs/jobs_rest.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/sign_in/sign_in_rest.h"
#include "api/doors/tasks/tasks_rest.h"
#include "api/testing/every_call.h"
#include "api/testing/sign_in_place.h"
#include "api/testing/tenants_test.h"
#include "engine/testing/test_engine.h"

/// A cluster in which whatever a caller may not know of has a word in it that stands nowhere else, so that
/// all that is said can be searched for it.
namespace gpusched::api {

inline constexpr const char* kWord = "zqxv";
inline constexpr const char* kHiddenTenant = "zqxv-other";
inline constexpr const char* kAbsentTenant = "zqxv-nbody";  // As long.

/// Ana has a role in `lab`, which is below `zqxv-above`, as `zqxv-sibling` is. Bob has jobs in `zqxv-other`
/// and `zqxv-sibling`: running, waiting and ended.
class TenantVisibilities : public TenantsTest, public ::testing::WithParamInterface<Role> {
 protected:
  TenantVisibilities() : TenantsTest(person("ana"), with_sign_in()) {
    above_ = make("zqxv-above", "");
    lab_ = make("lab", "zqxv-above");
    sibling_ = make("zqxv-sibling", "zqxv-above");
    other_ = make("zqxv-other", "");
    ana_->bindings = {{.tenant = lab_, .role = GetParam()}};
    bob_->bindings = {{.tenant = other_, .role = Role::kUser}, {.tenant = sibling_, .role = Role::kUser}};
    bob_->unix_users = {"zqxv-user"};
    eve_->bindings = {{.tenant = lab_, .role = Role::kUser}};
    for (const char* const name : {"n1", "n2"}) propose(testing::registration_of(name, {.gpus = 8}));
    running_ = submit_as(bob_, job_of("zqxv-other", R"("gpu_count":6,"priority":200)"));
    shared_ = submit_as(bob_, job_of("zqxv-other", R"("gpu_count":1,"gpu_milli":500,"gpu_memory_mb":1000)"));
    for (const JobId job : {running_, shared_}) wait_for(job, JobState::kScheduled);
    ReservationRequest night{.name = "zqxv-night",
                             .tenant = "zqxv-other",
                             .users = {"zqxv-user"},
                             .nodes = {"n2"},
                             .length = hours(1),
                             .reason = "zqxv-reason"};
    reservation_ = answer<ReservationView>(
        [&](auto done) { backend_.make_reservation(admin(), night, std::move(done)); });
    ended_ = submit_as(bob_, job_of("zqxv-sibling", R"("gpu_count":8)"));
    answer<Unit>([&](auto done) { backend_.cancel(bob_, ended_, "", "zqxv-bob", std::move(done)); });
    waiting_ = submit_as(bob_, job_of("zqxv-other", R"("gpu_count":8,"priority":300)"));
    KeyRequest key{.name = "zqxv-key", .tenant = "zqxv-other"};
    key_ = answer<KeyView>([&](auto done) { backend_.create_key(admin(), key, std::move(done)); }).id;
    own_ = submit_as(eve_, R"({"tenant_id":"lab","name":"mine","script":"true","gpu_count":8})");
  }

  TenantId make(const std::string& name, const std::string& parent) {
    TenantRequest tenant;
    tenant.name = name;
    tenant.email = name + "@example.org";
    tenant.organization = name;
    if (!parent.empty()) tenant.parent = parent;
    return make_tenant(std::move(tenant));
  }
  static std::string job_of(const std::string& tenant, const std::string& more) {
    return R"({"tenant_id":")" + tenant +
           R"(","name":"zqxv-run","script":"echo zqxv","labels":{"zqxv":"zqxv"},)"
           R"("environment":{"ZQXV":"zqxv"},"user_id":"zqxv-label",)" +
           more + "}";
  }

  /// Fails when the text has the word, or the number of what is not ana's.
  void expect_nothing(const std::string& said, const std::string& what) const {
    EXPECT_EQ(said.find(kWord), std::string::npos) << what << ": " << said;
    for (const JobId job : {running_, shared_, ended_, waiting_}) expect_not(said, job_name(job), what);
    for (const TenantId tenant : {above_, sibling_, other_}) expect_not(said, tenant_name(tenant), what);
    expect_not(said, key_name(key_), what);
  }
  static void expect_not(const std::string& said, const std::string& name, const std::string& what) {
    EXPECT_FALSE(std::regex_search(said, std::regex(name + "([^0-9]|$)"))) << what << ": " << said;
  }

  struct Call {
    HttpMethod method;
    access::Action action;
    std::string_view path;
    bool is_native;
  };
  static std::vector<Call> all_calls() {
    std::vector<Call> calls;
    for (const JobsRest::RouteRow& row : JobsRest::routes())
      calls.push_back({row.method, row.action, row.pattern, false});
    for (const TasksRest::RouteRow& row : TasksRest::routes())
      calls.push_back({row.method, row.action, row.pattern, false});
    for (const AgentTasksRest::RouteRow& row : AgentTasksRest::routes())
      calls.push_back({row.method, row.action, row.pattern, false});
    for (const NativeRoute& route : NativeRest::routes())
      calls.push_back({route.method, route.action, route.path, true});
    for (const SignInRest::RouteRow& row : SignInRest::routes())
      calls.push_back({row.method, row.action, row.pattern, false});
    return calls;
  }
  Reply answer_to(const Call& call, const Subjects& about) {
    const bool watches = call.path.ends_with("watch");  // Its answer has no end, but a head.
    return http(watches ? "HEAD" : std::string(to_string(call.method)), target_of(call.path, about),
                body_of(call.action, call.is_native, call.path, about), "Content-Type: application/json\r\n");
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    return text;
  }

  std::shared_ptr<access::Caller> bob_ = person("bob"), eve_ = person("eve");
  TenantId above_, lab_, sibling_, other_;
  JobId running_, shared_, ended_, waiting_, own_;
  ReservationView reservation_;
  KeyId key_;
};

}  // namespace gpusched::api
