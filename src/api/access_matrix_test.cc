// Each role does through each door what the table of actions says, to what is its own and to what is another
// tenant's. Expectations are made of the table, and calls of the tables of the doors.
#include <gtest/gtest.h>

#include <regex>

#include "api/contract/token.h"
#include "api/doors/agent_tasks/agent_tasks_rest.h"
#include "api/doors/allocation/allocation_ids.h"
#include "api/doors/allocation/allocation_json.h"
#include "api/doors/allocation/allocation_rest.h"
#include "api/doors/jobs/jobs_rest.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/session/session_rest.h"
#include "api/doors/tasks/tasks_rest.h"
#include "api/testing/every_call.h"
#include "api/testing/sign_in_place.h"
#include "api/testing/tenants_test.h"
#include "base/net/websocket.h"

namespace gpusched::api {
namespace {

using access::Action;
using access::Verdict;

struct Bound {
  const char* name;
  std::optional<Role> role;
  bool in_tenant = false;
  bool is_unix = false;       ///< A user whom the kernel names, of a `lab` that everybody may use.
  bool is_anonymous = false;  ///< Nobody known, of the same `lab`.
  bool is_shared = false;     ///< The holder of the shared token.
};
void PrintTo(const Bound& bound, std::ostream* out) { *out << bound.name; }

/// Ana has one role, in `lab` or in the cluster. Hers is a job of `lab`; bob has one there and one in
/// `other`.
class Matrix : public TenantsTest, public ::testing::WithParamInterface<Bound> {
 protected:
  Matrix() : TenantsTest(person("ana"), with_sign_in()) {
    TenantRequest tenant;
    tenant.name = "lab";
    tenant.anonymous = has_open_lab();
    lab_ = make_tenant(tenant);
    tenant.name = "other";
    tenant.anonymous = false;
    other_ = make_tenant(tenant);
    bob_->bindings = {{.tenant = lab_, .role = Role::kUser}, {.tenant = other_, .role = Role::kUser}};
    // Only to submit, before anybody calls.
    ana_->bindings = {{.tenant = lab_, .role = Role::kUser}};
    if (GetParam().is_anonymous) *ana_ = access::anonymous_caller();
    if (GetParam().is_shared) *ana_ = access::shared_token_caller();
    add_target("own job", ana_, "lab", lab_);
    add_target("another's job", bob_, "lab", lab_);
    add_target("other tenant's job", bob_, "other", other_);
    ana_->bindings.clear();
    if (GetParam().role)
      ana_->bindings = {{.tenant = GetParam().in_tenant ? lab_ : TenantId{}, .role = *GetParam().role}};
    if (GetParam().is_unix) *ana_ = access::unix_person("ana", false);
    for (Target& target : targets_) {
      target.about.submit_to = target.about.tenant;
      target.about.key = key_of(target.about.tenant);
    }
  }

  static bool has_open_lab() { return GetParam().is_unix || GetParam().is_anonymous; }

  struct Target {
    std::string what;
    Subjects about;
    TenantId tenant;
    access::CallerKind owner_kind;
    std::string owner;
  };
  void add_target(const std::string& what, const CallerPtr& owner, const std::string& tenant, TenantId id) {
    targets_.push_back({what, {.job = job(owner, tenant), .tenant = tenant}, id, owner->kind, owner->name});
    targets_.back().about.lease = lease(owner, tenant);
  }

  std::string job(const CallerPtr& who, const std::string& tenant) {
    return job_name(submit_as(who, R"({"script":"true","tenant_id":")" + tenant + "\"}"));
  }

  /// As the allocation door names it.
  std::string lease(const CallerPtr& who, const std::string& tenant) {
    Answer<SubmitRequest> request = parse_allocation("{}", "");
    EXPECT_TRUE(request.ok());
    request->tenant = tenant;
    const JobId job =
        answer<Submitted>([&](auto done) { backend_.submit(who, *request, std::move(done)); }).first_job;
    return allocation_id(cluster(), AllocationIdKind::kGpu, job.value);
  }
  std::string cluster() {
    return answer<ClusterView>([&](auto done) { backend_.get_cluster(admin(), std::move(done)); }).name;
  }
  /// Another key of the tenant.
  std::string key_of(const std::string& tenant) {
    KeyRequest request{.name = "key-" + std::to_string(++keys_made_), .tenant = tenant};
    return key_name(answer<KeyView>([&](auto done) {
                      backend_.create_key(shared_token_caller(), request, std::move(done));
                    }).id);
  }

  Verdict expected(Action action, const Target& target) const {
    const std::array<TenantId, 1> path{target.tenant};
    if (action == Action::kSeeHealth) return Verdict::kAllowed;  // Asked without a credential, too.
    return decide_access(*ana_, action,
                         {.tenant_path = path,
                          .owner = {.kind = target.owner_kind, .name = target.owner},
                          .is_open = has_open_lab() && target.tenant == lab_});
  }

  /// The verdict that the answer's code tells; nothing for a body without one.
  static Verdict verdict_of(const std::string& code) {
    if (code == "permission_denied") return Verdict::kForbidden;
    if (code == "job_not_found" || code == "tenant_not_found" || code == "key_not_found")
      return Verdict::kHidden;
    return Verdict::kAllowed;
  }
  static std::string code_in(const std::string& body) {
    std::smatch found;
    return std::regex_search(body, found, std::regex(R"re("code":"([a-z_]+)")re")) ? found[1].str() : "";
  }
  /// Whether the call is about the target's job, its tenant or neither.
  static bool is_about(Action action, std::string_view path) {
    if (!has_walls(row_of(action).subject)) return true;
    return path.find('{') != std::string_view::npos || path.find('*') != std::string_view::npos ||
           path.find("jobs:cancel") != std::string_view::npos || action == Action::kSubmitJob ||
           action == Action::kPlanJob || action == Action::kSeeQuality || action == Action::kCreateKey;
  }
  void expect(Action action, const Target& target, const std::string& code, const std::string& call) const {
    EXPECT_EQ(static_cast<int>(verdict_of(code)), static_cast<int>(expected(action, target)))
        << GetParam().name << " does " << to_string(action) << " to " << target.what << " by " << call << ": "
        << code;
  }

  std::shared_ptr<access::Caller> bob_ = person("bob");
  TenantId lab_, other_;
  int keys_made_ = 0;
  std::vector<Target> targets_;
};

INSTANTIATE_TEST_SUITE_P(
    Roles, Matrix,
    ::testing::Values(Bound{"nothing", std::nullopt}, Bound{"viewer", Role::kViewer, true},
                      Bound{"user", Role::kUser, true}, Bound{"tenant_admin", Role::kTenantAdmin, true},
                      Bound{"all_viewer", Role::kViewer}, Bound{"operator", Role::kOperator},
                      Bound{"admin", Role::kAdmin}, Bound{"metrics", Role::kMetrics},
                      Bound{"unix_person", std::nullopt, false, true},
                      Bound{.name = "anonymous", .is_anonymous = true},
                      Bound{.name = "shared_token", .is_shared = true}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_P(Matrix, OverRest) {
  std::size_t called = 0;
  const auto call = [&](HttpMethod method, Action action, std::string_view path, bool is_native) {
    if (!is_about(action, path)) return;
    for (const Target& target : targets_) {
      const bool watches = path.ends_with("watch");
      const bool may_follow = watches && expected(action, target) == Verdict::kAllowed;
      std::string where = target_of(path, target.about);
      if (action == Action::kSeeQuality || path.ends_with("/rollout"))
        where += "?tenant_id=" + target.about.tenant;
      const Reply reply =
          http(may_follow ? "HEAD" : std::string(to_string(method)), where,
               body_of(action, is_native, path, target.about), "Content-Type: application/json\r\n");
      EXPECT_NE(reply.status, 0) << where;
      EXPECT_NE(reply.status, 401) << where;
      expect(action, target, code_in(reply.body), std::string(to_string(method)) + " " + where);
      called += 1;
    }
  };
  for (const JobsRest::RouteRow& row : JobsRest::routes()) call(row.method, row.action, row.pattern, false);
  for (const TasksRest::RouteRow& row : TasksRest::routes()) call(row.method, row.action, row.pattern, false);
  for (const AgentTasksRest::RouteRow& row : AgentTasksRest::routes())
    call(row.method, row.action, row.pattern, false);
  for (const NativeRoute& route : NativeRest::routes()) call(route.method, route.action, route.path, true);
  call(HttpMethod::kGet, Action::kReadJobFile, "v1/jobs/*/files?path=x", true);
  EXPECT_GE(called, 100U);
}

/// Its answers have no codes, but a status; and it has nothing for who comes without a credential.
TEST_P(Matrix, OverTheAllocationDoor) {
  std::size_t called = 0;
  const auto call = [&](const AllocationRest::RouteRow& row, const Target& target) {
    Subjects about = target.about;
    if (row.action == Action::kRevokeKey)
      about.lease_key = allocation_id(cluster(), AllocationIdKind::kKey,
                                      std::stoull(key_of(about.tenant).substr(std::string("key-").size())));
    const std::string where = target_of(row.pattern, about);
    const Reply reply =
        http(std::string(to_string(row.method)), where, body_of(row.action, true, row.pattern, about));
    const std::string what = std::string(to_string(row.method)) + " " + where;
    called += 1;
    if (GetParam().is_anonymous) {
      EXPECT_EQ(reply.status, 401) << what << reply.body;
      return;
    }
    // A lease of another organization is told to be one, and no more.
    const bool is_lease = row.pattern.find("gpu/*") != std::string_view::npos;
    if (is_lease && expected(row.action, target) == Verdict::kHidden) {
      EXPECT_EQ(reply.status, 403) << what << reply.body;
      return;
    }
    // An administrator of the cluster works with what it allocated itself.
    const bool works = row.action == Action::kUpdateJob || row.action == Action::kCancelJob;
    const bool is_admins_own =
        GetParam().role == Role::kAdmin && target.owner == ana_->name && target.owner_kind == ana_->kind;
    if (works && is_admins_own) {
      EXPECT_TRUE(reply.status < 400 || reply.status == 409) << what << reply.body;
      return;
    }
    const std::string code = reply.status == 403   ? "permission_denied"
                             : reply.status == 404 ? "job_not_found"
                                                   : std::to_string(reply.status);
    expect(row.action, target, code, what);
  };
  // Calls that end a lease come last: once it has ended, everybody who sees it is told that first.
  for (const bool ends : {false, true}) {
    for (const AllocationRest::RouteRow& row : AllocationRest::routes()) {
      if (row.pattern.find('*') == std::string_view::npos) continue;  // The caller's own tenant is meant.
      if (row.action == Action::kUpdateUser) continue;                // The cluster is meant.
      if ((row.action == Action::kCancelJob) != ends) continue;
      for (const Target& target : targets_) call(row, target);
    }
  }
  EXPECT_GE(called, 27U);
}

/// Shows the caller's own jobs, of those that it may see.
TEST_P(Matrix, OverThePageOfWhoSignedIn) {
  const Reply page = http("GET", "/me");
  EXPECT_EQ(page.status, GetParam().is_anonymous ? 401 : 200) << page.body;
  for (const Target& target : targets_) {
    const bool is_own = target.owner_kind == ana_->kind && target.owner == ana_->name;
    const bool may_see = expected(Action::kSeeJob, target) == Verdict::kAllowed;
    const bool is_shown = page.body.find("<code>" + target.about.job + "</code>") != std::string::npos;
    EXPECT_EQ(is_shown, is_own && may_see && !GetParam().is_anonymous)
        << GetParam().name << " is shown " << target.what << ": " << page.body;
  }
}

TEST_P(Matrix, OverGrpc) {
  std::size_t called = 0;
  for (const GrpcMethodRow& method : grpc_methods()) {
    if (method.action == Action::kSpeakForNode || method.name == "ListJobs" || method.name == "ListTenants" ||
        method.name == "ListKeys" || method.name == "ListServices" || method.name == "CreateTenant" ||
        method.name == "Watch" || method.service == "algogpu.GPUScheduler" || is_standard(method)) {
      // Agents prove the token in messages; lists are of what may be seen; tasks of the caller's own tenant.
      continue;
    }
    for (Target target : targets_) {
      if (method.name == "WatchJob" && expected(method.action, target) == Verdict::kAllowed) continue;
      const access::Subject subject = row_of(method.action).subject;
      if (subject == access::Subject::kTenant || subject == access::Subject::kKey) target.about.job.clear();
      const GrpcReply reply = call_method(channel_, method, *message_of(method, target.about));
      std::string code = reply.status.ok() ? reply.bytes : "";
      if (!reply.status.ok()) {
        const bool denied = reply.status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
        const std::string& why = reply.status.error_message();
        code = denied                              ? "permission_denied"
               : why.starts_with("no such job")    ? "job_not_found"
               : why.starts_with("no such tenant") ? "tenant_not_found"
               : why.starts_with("no such key")    ? "key_not_found"
                                                   : "other";
      } else {  // The answer of a batch or a stream.
        for (const char* const in_it :
             {"permission_denied", "job_not_found", "tenant_not_found", "key_not_found"}) {
          if (reply.bytes.find(in_it) != std::string::npos) code = in_it;
        }
      }
      expect(method.action, target, code, std::string(method.name));
      called += 1;
    }
  }
  EXPECT_GE(called, 90U);
}

/// The message with which the server answers the one that opens a session.
class OneSession {
 public:
  OneSession(uint16_t port, const std::string& job) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience{20, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const std::string request = "GET /v1/jobs/" + job +
                                "/session HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                                "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
                                "dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" +
                                websocket::encode_frame(websocket::Opcode::kText,
                                                        R"({"type":"open","command":["true"]})", 0x01020304U);
    EXPECT_EQ(send(socket, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    char buffer[4'096];
    for (ssize_t size = 0; (size = recv(socket, buffer, sizeof buffer, 0)) > 0;)
      said_.append(buffer, static_cast<std::size_t>(size));
    close(socket);
  }
  const std::string& said() const { return said_; }

 private:
  std::string said_;
};

TEST_P(Matrix, OverWebSocket) {
  for (const SessionRest::Path& path : SessionRest::paths()) {
    if (path.last != "session") continue;
    for (const Target& target : targets_) {
      const OneSession session(server_->http_port(), target.about.job);
      EXPECT_TRUE(session.said().starts_with("HTTP/1.1 101")) << session.said();
      EXPECT_NE(code_in(session.said()), "") << session.said();  // None of the jobs runs.
      expect(path.action, target, code_in(session.said()), "WebSocket");
    }
  }
}

}  // namespace
}  // namespace gpusched::api
