// The allocation door over a real host: who may do what by the table of actions, the quota of organizations,
// and answers to those without a credential.
#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "api/doors/allocation/allocation_errors.h"
#include "api/doors/allocation/allocation_rest.h"
#include "api/testing/tenants_test.h"

namespace gpusched::api {
namespace {

using access::Action;
using access::Verdict;

constexpr const char* kPrefix = "/api/gpuscheduler/v1";

class AllocationDoor : public TenantsTest, public ::testing::WithParamInterface<Role> {
 protected:
  AllocationDoor() {
    TenantRequest tenant;
    tenant.name = "lab";
    lab_ = make_tenant(tenant);
    tenant.name = "other";
    other_ = make_tenant(tenant);
    // Leases of ana's, of a colleague's and of another organization's.
    bind(lab_, Role::kUser);
    own_ = allocate();
    ana_->name = "eve";
    colleague_ = allocate();
    ana_->name = "bob";
    bind(other_, Role::kUser);
    others_ = allocate();
    ana_->name = "ana";
    ana_->bindings.clear();
  }

  void bind(TenantId tenant, Role role) { ana_->bindings = {{.tenant = tenant, .role = role}}; }
  Reply call(const std::string& method, const std::string& path, const std::string& body = "") {
    return http(method, kPrefix + path, body, "Content-Type: application/json\r\n");
  }
  std::string allocate() {
    const Reply reply = call("POST", "/allocate", "{}");
    EXPECT_EQ(reply.status, 202) << reply.body;
    return field(reply.body, "gpu_id");
  }
  Verdict expected(Action action, TenantId tenant, const std::string& owner) const {
    const std::array<TenantId, 1> path{tenant};
    return decide_access(*ana_, action,
                         {.tenant_path = path,
                          .owner = {.kind = access::CallerKind::kPerson, .name = owner},
                          .is_open = false});
  }

  TenantId lab_, other_;
  std::string own_, colleague_, others_;
};

INSTANTIATE_TEST_SUITE_P(Roles, AllocationDoor,
                         ::testing::Values(Role::kViewer, Role::kUser, Role::kTenantAdmin, Role::kOperator,
                                           Role::kAdmin),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST_P(AllocationDoor, DoesWhatTheTableOfActionsSays) {
  const bool of_cluster = GetParam() == Role::kOperator || GetParam() == Role::kAdmin;
  bind(of_cluster ? TenantId{} : lab_, GetParam());
  std::size_t called = 0;
  const auto expect = [&](Verdict verdict, const Reply& reply, const std::string& what) {
    called += 1;
    if (verdict == Verdict::kAllowed) {
      EXPECT_TRUE(reply.status < 400 || reply.status == 409) << what << reply.status << reply.body;
    } else if (verdict == Verdict::kHidden) {
      EXPECT_EQ(reply.status, 404) << what << reply.body;
    } else {
      EXPECT_EQ(reply.status, 403) << what << reply.body;
      EXPECT_EQ(reply.body, R"({"detail":"You do not have permission to access this resource."})") << what;
    }
  };
  struct Target {
    const std::string& id;
    TenantId tenant;
    std::string owner;
  };
  // A release is the last thing that is done to a lease.
  for (const bool releases : {false, true}) {
    for (const AllocationRest::RouteRow& row : AllocationRest::routes()) {
      if (row.pattern.find("gpu/*") == std::string_view::npos) continue;
      if ((row.action == Action::kCancelJob) != releases) continue;
      for (const Target& target :
           {Target{own_, lab_, "ana"}, Target{colleague_, lab_, "eve"}, Target{others_, other_, "bob"}}) {
        std::string path = "/" + std::string(row.pattern);
        path.replace(path.find('*'), 1, target.id);
        const Reply reply = http(std::string(to_string(row.method)), path,
                                 row.action == Action::kUpdateJob ? R"({"lease_minutes":90})" : "");
        // A lease of another organization is told to be one.
        Verdict verdict = expected(row.action, target.tenant, target.owner);
        // An administrator of the cluster works with what it allocated itself.
        const bool works = row.action == Action::kUpdateJob || row.action == Action::kCancelJob;
        if (works && GetParam() == Role::kAdmin && target.owner == "ana") verdict = Verdict::kAllowed;
        expect(verdict == Verdict::kHidden ? Verdict::kForbidden : verdict, reply,
               std::string(to_string(row.method)) + " " + path + " of " + target.owner + ": ");
        if (reply.status == 404) {
          EXPECT_EQ(reply.body, R"({"detail":"GPU not found."})");
        }
      }
    }
  }
  EXPECT_GE(called, 24U);
  const Verdict makes_keys = expected(Action::kCreateKey, of_cluster ? kDefaultTenant : lab_, "");
  expect(makes_keys, call("POST", "/api-keys/", "{}"), "a key: ");
  const Verdict makes_tenants =
      decide_access(*ana_, Action::kCreateTenant, {.tenant_path = {}, .owner = {}, .is_open = false});
  expect(makes_tenants, call("POST", "/organizations", R"({"name":"fresh"})"), "an organization: ");
}

TEST_P(AllocationDoor, ListsWhatMayBeSeen) {
  const bool of_cluster = GetParam() == Role::kOperator || GetParam() == Role::kAdmin;
  bind(of_cluster ? TenantId{} : lab_, GetParam());
  const std::string job = job_name(submit_as(admin(), R"({"script":"true","tenant_id":"lab"})"));
  for (const char* const path : {"/gpus", "/gpus/", "/gpus/gpus", "/gpus?skip=0&limit=10"}) {
    const std::string all = call("GET", path).body;
    EXPECT_TRUE(all.starts_with("[{\"id\":")) << all;
    EXPECT_NE(all.find(own_), std::string::npos) << path << all;
    EXPECT_NE(all.find(colleague_), std::string::npos) << path << all;
    EXPECT_EQ(all.find(others_) != std::string::npos, of_cluster) << path << all;
    EXPECT_EQ(all.find(job), std::string::npos) << "a job that is no lease" << all;
  }
  const std::string one = call("GET", "/gpus?skip=1&limit=1").body;
  EXPECT_EQ(one.find(own_) != std::string::npos, !of_cluster) << one;  // The newest come first.
  EXPECT_EQ(call("GET", "/gpus?limit=0").body, "[]");
  EXPECT_EQ(call("GET", "/gpus?status=BUSY").body, "[]");
  EXPECT_NE(call("GET", "/gpus?status=PROVISIONING&health=UNKNOWN").body, "[]");
  EXPECT_EQ(call("GET", "/gpus?status=sleeping").status, 422);
}

class Allocations : public TenantsTest {
 protected:
  Allocations() {
    TenantRequest tenant;
    tenant.name = "lab";
    tenant.max_gpus = 3;
    lab_ = make_tenant(tenant);
    ana_->bindings = {{.tenant = lab_, .role = Role::kUser}};
  }
  Reply call(const std::string& method, const std::string& path, const std::string& body = "",
             const std::string& headers = "") {
    return http(method, kPrefix + path, body, "Content-Type: application/json\r\n" + headers);
  }

  TenantId lab_;
};

TEST_F(Allocations, AreRefusedBeyondTheQuotaWhoeverAsksAtOnce) {
  std::vector<std::thread> clients;
  std::atomic<int> taken = 0, refused = 0;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      const Reply reply = call("POST", "/allocate", "{}");
      if (reply.status == 202) taken += 1;
      if (reply.status == 429) {
        EXPECT_EQ(reply.body, "{\"detail\":\"" + std::string(kGpuQuotaReached) + "\"}");
        refused += 1;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(refused, 9);
  EXPECT_EQ(call("POST", "/allocate", R"({"count":4})").status, 429);
}

class AllocationsBelow : public Allocations {
 protected:
  AllocationsBelow() {
    TenantRequest tenant;
    tenant.parent = "lab";
    tenant.name = "optics";
    optics_ = make_tenant(tenant);
    tenant.name = "robots";
    tenant.max_gpus = 2;
    robots_ = make_tenant(tenant);
    ana_->bindings.clear();
  }
  /// As somebody of that organization alone, who sees no other.
  Reply allocate(TenantId organization, int count = 1, const std::string& headers = "") {
    ana_->bindings = {{.tenant = organization, .role = Role::kUser}};
    return call("POST", "/allocate", "{\"count\":" + std::to_string(count) + "}", headers);
  }
  static std::string refusal(std::string_view sentence) {
    return "{\"detail\":\"" + std::string(sentence) + "\"}";
  }

  TenantId optics_, robots_;
  LeaseAdmission admission_{backend_};
};

TEST_F(AllocationsBelow, CountInTheQuotaAbove) {
  EXPECT_EQ(allocate(optics_, 2).status, 202);
  const Reply own = allocate(robots_, 3);
  EXPECT_EQ(own.status, 429);
  EXPECT_EQ(own.body, refusal(kGpuQuotaReached));
  const Reply above = allocate(robots_, 2);
  EXPECT_EQ(above.status, 429);
  EXPECT_EQ(above.body, refusal(kQuotaAboveReached));
  EXPECT_TRUE(kQuotaAboveReached.starts_with(kGpuQuotaReached));
  const std::string key = "Idempotency-Key: 6f1c2d3e-0000-4000-8000-000000000002\r\n";
  const Reply last = allocate(robots_, 1, key);
  EXPECT_EQ(last.status, 202);
  // The organization above has none left itself, and what was allocated before reads back.
  EXPECT_EQ(allocate(lab_).body, refusal(kGpuQuotaReached));
  EXPECT_EQ(allocate(optics_).body, refusal(kQuotaAboveReached));
  EXPECT_EQ(allocate(robots_, 1, key).body, last.body);
  EXPECT_EQ(call("DELETE", "/gpu/" + field(last.body, "gpu_id")).status, 200);
  EXPECT_EQ(allocate(optics_).status, 202);
}

TEST_F(AllocationsBelow, OfSeveralOrganizationsAtOnceAreDecidedOneAfterTheOther) {
  std::atomic<int> taken = 0;
  const auto ask = [&taken, this](TenantId tenant) {
    const auto caller = person("bob");
    caller->bindings = {{.tenant = tenant, .role = Role::kUser}};
    Answer<SubmitRequest> request = parse_allocation("{}", "");
    std::promise<bool> made;
    admission_.allocate(caller, *request,
                        [&made](const Answer<Submitted>& answer) { made.set_value(answer.ok()); });
    if (made.get_future().get()) taken += 1;
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) clients.emplace_back(ask, i % 2 == 0 ? optics_ : lab_);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(taken, 3);
}

TEST_F(Allocations, ReleasedGiveTheirPartOfTheQuotaBack) {
  const std::string id = field(call("POST", "/gpus/allocate/", R"({"count":3})").body, "gpu_id");
  EXPECT_EQ(call("POST", "/allocate", "{}").status, 429);
  const Reply gone = call("DELETE", "/gpu/" + id + "/");
  EXPECT_EQ(gone.status, 200);
  EXPECT_EQ(field(gone.body, "status"), "DEPROVISIONED");
  EXPECT_EQ(call("POST", "/allocate", R"({"count":3})").status, 202);
  EXPECT_EQ(call("DELETE", "/gpu/" + id).status, 200);  // Again: as before.
  EXPECT_EQ(call("POST", "/gpu/" + id + "/renew", R"({"lease_minutes":5})").status, 409);
}

TEST_F(Allocations, OfOneKeyAreOneEvenWhenTheQuotaIsReached) {
  const std::string key = "Idempotency-Key: 6f1c2d3e-0000-4000-8000-000000000001\r\n";
  const Reply first = call("POST", "/allocate", R"({"count":3})", key);
  const Reply again = call("POST", "/allocate", R"({"count":3})", key);
  EXPECT_EQ(first.status, 202) << first.body;
  EXPECT_EQ(again.status, 202) << again.body;
  EXPECT_EQ(first.body, again.body);
  EXPECT_EQ(call("POST", "/allocate", R"({"count":2})", key).status, 409);
  EXPECT_EQ(call("POST", "/allocate", "{}", "Idempotency-Key: another\r\n").status, 429);
}

TEST_F(Allocations, OfOtherJobsAreNone) {
  const std::string id = field(call("POST", "/allocate", "{}").body, "gpu_id");
  EXPECT_EQ(call("GET", "/gpu/" + id).status, 200);
  const JobId job = submit_as(ana_, R"({"script":"true"})");
  std::string other = id;  // The id that a lease of that number would have.
  char number[13];
  std::snprintf(number, sizeof number, "%012llx", static_cast<unsigned long long>(job.value));
  other.replace(24, 12, number);
  for (const char* const method : {"GET", "DELETE"}) {
    const Reply reply = call(method, "/gpu/" + other);
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(reply.body, R"({"detail":"GPU not found."})");
  }
  EXPECT_EQ(call("GET", "/gpu/job-12").status, 404);
  EXPECT_EQ(call("PATCH", "/gpu/" + id).status, 405);
  EXPECT_NE(call("PATCH", "/gpu/" + id).body.find("{\"detail\":"), std::string::npos);
  EXPECT_EQ(call("GET", "/nothing").status, 404);
}

TEST_F(Allocations, HaveOrganizationsAndKeys) {
  ana_->bindings = {{.tenant = {}, .role = Role::kAdmin}};
  const Reply made = call("POST", "/organizations/", R"({"name":"vision","max_active_gpus":7})");
  EXPECT_EQ(made.status, 201);
  EXPECT_TRUE(std::regex_match(made.body,
                               std::regex(R"re(\{"id":"[0-9a-f-]{36}","name":"vision","max_active_gpus":7,)re"
                                          R"re("created_at":"[^"]+","updated_at":[^,]+\})re")))
      << made.body;
  EXPECT_EQ(call("POST", "/organizations", R"({"name":"vision"})").status, 409);
  ana_->bindings = {{.tenant = lab_, .role = Role::kTenantAdmin}};
  const Reply key = call("POST", "/api-keys/", R"({"expires_in_days":null})");
  EXPECT_EQ(key.status, 201);
  EXPECT_TRUE(std::regex_match(field(key.body, "key"), std::regex("gsk_[a-z0-9]{12}\\.[0-9a-f]{64}")));
  EXPECT_EQ(field(key.body, "key_prefix"), field(key.body, "key").substr(0, 8));
  EXPECT_NE(key.body.find("\"expires_at\":null"), std::string::npos);
  const std::string listed = call("GET", "/api-keys/").body;
  EXPECT_NE(listed.find(field(key.body, "id")), std::string::npos);
  EXPECT_EQ(listed.find("\"key\":"), std::string::npos);
  EXPECT_EQ(call("DELETE", "/api-keys/" + field(key.body, "id")).status, 200);
  EXPECT_EQ(call("GET", "/api-keys").body, "[]");
  EXPECT_EQ(call("DELETE", "/api-keys/unknown").body, R"({"detail":"API key not found."})");
}

TEST_F(Allocations, HaveUsersWhoseKeysEndWithThem) {
  ana_->bindings = {{.tenant = {}, .role = Role::kAdmin}};
  const Reply made =
      call("POST", "/users/", R"({"email":"bo@x.org","password":"correct horse","organization_id":"lab"})");
  EXPECT_EQ(made.status, 201) << made.body;
  EXPECT_TRUE(std::regex_match(
      made.body, std::regex(R"re(\{"id":"[0-9a-f-]{36}","email":"bo@x\.org",)re"
                            R"re("organization_id":"[0-9a-f-]{36}","role":"user","is_active":true,)re"
                            R"re("created_at":"[^"]+","updated_at":"[^"]+"\})re")))
      << made.body;
  EXPECT_EQ(call("POST", "/users", R"({"email":"Bo@x.org"})").status, 409);
  for (const char* const wrong : {"{}", R"({"email":"bo"})", R"({"email":"b@x","role":"boss"})",
                                  R"({"email":"b@x","password":""})", R"({"email":"b@x","is_active":1})"})
    EXPECT_EQ(call("POST", "/users", wrong).status, 422) << wrong;
  const std::string id = field(made.body, "id");
  EXPECT_EQ(call("GET", "/users/").body, "[" + made.body + "]");
  EXPECT_EQ(call("GET", "/users?skip=1").body, "[]");
  const Reply key = call("POST", "/api-keys", R"({"user_id":")" + id + "\"}");
  EXPECT_EQ(key.status, 201) << key.body;
  EXPECT_EQ(field(key.body, "user_id"), id);
  EXPECT_EQ(field(key.body, "organization_id"), field(made.body, "organization_id"));
  EXPECT_EQ(call("POST", "/api-keys", R"({"user_id":")" + id + "\"}").status, 409);  // One at a time.
  const Reply gone = call("PUT", "/users/" + id + "/", R"({"is_active":false})");
  EXPECT_EQ(gone.status, 200) << gone.body;
  EXPECT_NE(gone.body.find("\"is_active\":false"), std::string::npos);
  EXPECT_EQ(call("GET", "/api-keys").body, "[]");
  EXPECT_EQ(call("POST", "/api-keys", R"({"user_id":")" + id + "\"}").body,
            R"({"detail":"User not found."})");
  EXPECT_EQ(call("PUT", "/users/unknown", "{}").body, R"({"detail":"User not found."})");
  ana_->bindings = {{.tenant = lab_, .role = Role::kTenantAdmin}};
  EXPECT_EQ(call("GET", "/users").status, 403);
  EXPECT_EQ(call("PUT", "/users/" + id, R"({"is_active":true})").status, 403);
  EXPECT_EQ(call("POST", "/users", R"({"email":"eve@x.org"})").status, 403);
}

/// Doors where callers are told apart, and a port for allocations.
class AllocationPort : public DoorsTest {
 protected:
  AllocationPort() : DoorsTest({.allocation_port = 0, .token = "the-right-token"}) { use_newest_rules(); }
  uint16_t port() const { return server_->allocation_port(); }
};

TEST_F(AllocationPort, TellsItsHealthToEverybodyAndNothingElse) {
  const Reply health = http("GET", "/health", "", "", port());
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, R"({"status":"ok"})");
  EXPECT_NE(http("GET", "/health").body, health.body);  // At the other port the jobs door's.
  for (const uint16_t at : {port(), server_->http_port()}) {
    for (const char* const path : {"/gpus", "/gpu/x", "/nothing"}) {
      const Reply refused = http("GET", kPrefix + std::string(path), "", "", at);
      EXPECT_EQ(refused.status, 401) << refused.body;
      EXPECT_TRUE(refused.body.starts_with(R"({"detail":")")) << refused.body;
      EXPECT_NE(refused.head.find("WWW-Authenticate: Bearer"), std::string::npos) << refused.head;
    }
    const Reply wrong = http("GET", kPrefix + std::string("/gpus"), "", "Authorization: Bearer x\r\n", at);
    EXPECT_EQ(wrong.status, 401);
    EXPECT_TRUE(wrong.body.starts_with(R"({"detail":")")) << wrong.body;
    EXPECT_EQ(
        http("GET", kPrefix + std::string("/gpus"), "", "Authorization: Bearer the-right-token\r\n", at).body,
        "[]");
  }
  EXPECT_EQ(http("GET", "/api/v1/jobs", "", "Authorization: Bearer the-right-token\r\n", port()).status, 404);
}

}  // namespace
}  // namespace gpusched::api
