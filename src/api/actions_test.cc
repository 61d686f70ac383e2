// Every call of every door says what the caller does by it, the backend asks for just that, and the audit is
// told of it.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor_database.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <map>
#include <set>

#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/doors/agent_tasks/agent_tasks_rest.h"
#include "api/doors/allocation/allocation_rest.h"
#include "api/doors/jobs/jobs_rest.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/session/session_rest.h"
#include "api/doors/sign_in/sign_in_rest.h"
#include "api/doors/tasks/tasks_rest.h"
#include "api/grpc/grpc_methods.h"
#include "api/testing/doors_test.h"
#include "api/testing/every_call.h"
#include "api/testing/sign_in_place.h"

namespace gpusched::api {
namespace {

using access::Action;

constexpr std::string_view kSecret = "zxqv-unseen";

/// "submit_jobs" for "SubmitJobs".
std::string operation_of(std::string_view method) {
  std::string out;
  for (const char c : method) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !out.empty()) out += '_';
    out += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

TEST(Actions, EveryGrpcMethodHasOneAndNoOther) {
  std::set<std::pair<std::string, std::string>> there, told;
  // All services of all files that are linked in: one that nobody wrote down here is found, too.
  std::vector<std::string> files;
  ASSERT_TRUE(google::protobuf::DescriptorPool::internal_generated_database()->FindAllFileNames(&files));
  const google::protobuf::DescriptorPool& pool = *google::protobuf::DescriptorPool::generated_pool();
  for (const std::string& name : files) {
    const google::protobuf::FileDescriptor* const file = pool.FindFileByName(name);
    ASSERT_NE(file, nullptr) << name;
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor& service = *file->service(s);
      for (int m = 0; m < service.method_count(); ++m)
        there.emplace(service.full_name(), service.method(m)->name());
    }
  }
  EXPECT_GE(there.size(), 50U);
  for (const GrpcMethodRow& method : grpc_methods())
    EXPECT_TRUE(told.emplace(method.service, method.name).second) << method.name << " stands twice";
  EXPECT_EQ(told, there);
}

TEST(Actions, ACallIsTheSameActionOverRestAndGrpc) {
  std::map<std::string, Action, std::less<>> native;
  for (const NativeRoute& route : NativeRest::routes()) native.emplace(route.operation, route.action);
  std::size_t compared = 0;
  for (const GrpcMethodRow& method : grpc_methods()) {
    const auto same = native.find(operation_of(method.name));
    if (!method.service.starts_with("gpusched.v1.") || same == native.end()) continue;
    EXPECT_EQ(to_string(same->second), to_string(method.action)) << method.name;
    compared += 1;
  }
  EXPECT_GE(compared, 30U);
}

TEST(Actions, EachIsDoneBySomeCallOrHasNoneYet) {
  std::set<Action> done;
  for (const JobsRest::RouteRow& row : JobsRest::routes()) done.insert(row.action);
  for (const TasksRest::RouteRow& row : TasksRest::routes()) done.insert(row.action);
  for (const AllocationRest::RouteRow& row : AllocationRest::routes()) done.insert(row.action);
  for (const AgentTasksRest::RouteRow& row : AgentTasksRest::own_routes()) done.insert(row.action);
  for (const NativeRoute& route : NativeRest::routes()) done.insert(route.action);
  for (const SessionRest::Path& path : SessionRest::paths()) done.insert(path.action);
  for (const SignInRest::RouteRow& row : SignInRest::routes()) done.insert(row.action);
  for (const GrpcMethodRow& method : grpc_methods()) done.insert(method.action);
  const std::set<Action> without_a_call = {Action::kReadJobScript};  // A part of what shows a job.
  for (const access::ActionRow& row : access::action_rows())
    EXPECT_NE(done.contains(row.action), without_a_call.contains(row.action)) << row.name;
}

/// An audit that outlives the doors.
class AuditFile {
 protected:
  AuditFile() {
    char pattern[] = "/tmp/gpusched-actions-XXXXXX";
    audit_folder_ = mkdtemp(pattern);
    auto log = audit::AuditLog::open({.path = audit_folder_ + "/audit.log"});
    EXPECT_TRUE(log.ok());
    audit_ = std::move(*log);
  }
  ~AuditFile() { std::filesystem::remove_all(audit_folder_); }

  /// The lines that came since the call before.
  std::vector<std::string> new_lines() {
    audit_->flush();
    std::vector<std::string> lines;
    std::ifstream in(audit_folder_ + "/audit.log");
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    EXPECT_GE(lines.size(), seen_);
    lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(seen_));
    seen_ += lines.size();
    return lines;
  }

  std::string audit_folder_;
  std::unique_ptr<audit::AuditLog> audit_;
  std::size_t seen_ = 0;
};

/// Doors that are walked through, over a cluster with a job, a tenant and a key word in their names.
class Walk : protected AuditFile, public DoorsTest {
 protected:
  static ServerOptions with_audit(ServerOptions options, audit::AuditLog& log) {
    options.audit = &log;
    return options;
  }
  explicit Walk(ServerOptions options) : DoorsTest(with_audit(std::move(options), *audit_)) {
    use_newest_rules();
    TenantRequest tenant;
    tenant.name = std::string(kSecret);
    tenant_ = answer<TenantView>(
        [&](auto done) { owner_.create_tenant(shared_token_caller(), tenant, std::move(done)); });
    SubmitRequest jobs{.tenant = std::string(kSecret)};
    jobs.jobs.push_back({.name = std::string(kSecret)});
    submitted_ =
        answer<Submitted>([&](auto done) { owner_.submit(shared_token_caller(), jobs, std::move(done)); });
    job_ = job_name(submitted_.first_job);
    KeyRequest key{.name = std::string(kSecret), .tenant = std::string(kSecret)};
    key_ = key_name(answer<KeyView>([&](auto done) {
                      owner_.create_key(shared_token_caller(), key, std::move(done));
                    }).id);
  }

  template <typename T>
  T answer(const std::function<void(Done<T>)>& ask) {
    std::promise<Answer<T>> made;
    ask([&made](Answer<T> answer) { made.set_value(std::move(answer)); });
    Answer<T> got = made.get_future().get();
    EXPECT_TRUE(got.ok());
    return got.ok() ? std::move(*got) : T{};
  }

  /// A path of a route, about what is there.
  std::string target_of(std::string_view pattern) const {
    std::string target = api::target_of(pattern, about());
    EXPECT_EQ(target.find_first_of("{*"), std::string::npos) << pattern;
    return target;
  }
  std::string body_of(Action action, bool is_native, std::string_view path) const {
    return api::body_of(action, is_native, path, about());
  }
  Subjects about() const { return {.job = job_, .tenant = std::string(kSecret), .key = key_}; }

  /// Expects the audit's note of the call: one line of the action, by that caller, with one of the outcomes.
  void expect_told(Action action, const std::string& caller, const std::set<std::string>& outcomes,
                   const std::string& what) {
    const std::vector<std::string> lines = new_lines();
    ASSERT_EQ(lines.size(), 1U) << what;
    EXPECT_EQ(field(lines[0], "action"), to_string(action)) << what;
    EXPECT_EQ(field(lines[0], "caller"), caller) << what;
    EXPECT_EQ(field(lines[0], "peer"), "127.0.0.1") << what;
    EXPECT_TRUE(outcomes.contains(field(lines[0], "outcome"))) << what << ": " << lines[0];
  }

  HostBackend owner_{*host_, {}};
  TenantView tenant_;
  Submitted submitted_;
  std::string job_, key_;
};

/// Callers that have a name and no rights at all.
class Strangers : public Walk {
 protected:
  Strangers()
      : Walk({.everybody = std::make_shared<access::Caller>(
                  access::Caller{.kind = access::CallerKind::kPerson, .name = "nobody"})}) {}

  /// The allocation door has sentences of its own.
  void expect_no_lease(const AllocationRest::RouteRow& row) {
    const Reply reply = http(std::string(to_string(row.method)), target_of(row.pattern),
                             body_of(row.action, true, row.pattern));
    const std::string what = std::string(row.pattern) + ": " + reply.body;
    EXPECT_EQ(reply.body.find(kSecret), std::string::npos) << what;
    if (row.action == Action::kSeeHealth || reply.body == "[]") {
      EXPECT_EQ(reply.status, 200) << what;
    } else {
      EXPECT_TRUE(reply.status == 403 || reply.status == 404 || reply.status == 422) << what;
    }
    new_lines();
  }
  void expect_refused(HttpMethod method, Action action, std::string_view path, bool is_native) {
    const std::string target = target_of(path);
    const bool watches = path == "v1/watch";  // Its answer has no end, but a head.
    const Reply reply = http(watches ? "HEAD" : std::string(to_string(method)), target,
                             body_of(action, is_native, path), "Content-Type: application/json\r\n");
    const std::string what = std::string(to_string(method)) + " " + target + ": " + reply.body;
    const bool names_one = target.find(job_) != std::string::npos || path.find('*') != std::string::npos ||
                           path.find('{') != std::string::npos;
    EXPECT_EQ(reply.body.find("\"name\":\"zxqv"), std::string::npos) << what;
    if (action == Action::kSeeHealth) {
      EXPECT_EQ(reply.status, 200) << what;
    } else if (path == "v1/history/jobs" || path == "v1/usage") {  // A host without a history knows nothing.
      EXPECT_EQ(reply.status, 503) << what;
    } else if (path.ends_with("/ws")) {  // See tests/e2e/test_jobs_door.py for what a watch tells strangers.
      EXPECT_EQ(reply.status, 400) << what;
    } else if (!has_walls(row_of(action).subject) || (action == Action::kCreateTenant && !names_one)) {
      EXPECT_EQ(reply.status, 403) << what;
      const std::string refused = "person nobody may not " + std::string(to_string(action));
      EXPECT_NE(reply.body.find(refused + "\""), std::string::npos) << what;
    } else if (names_one || action == Action::kSubmitJob || action == Action::kPlanJob ||
               action == Action::kSeeQuality || action == Action::kCancelJob ||
               action == Action::kCreateKey) {
      const bool in_batch = reply.status == 200 && (path.ends_with(":cancel") || path.ends_with(":stream"));
      EXPECT_TRUE(reply.status == 404 || in_batch) << what;
      EXPECT_NE(reply.body.find("_not_found"), std::string::npos) << what;
    } else {  // A list of what may be seen: of nothing.
      EXPECT_EQ(reply.status, 200) << what;
      EXPECT_EQ(reply.body.find(job_), std::string::npos) << what;
      EXPECT_EQ(reply.body.find(kSecret), std::string::npos) << what;
    }
    const bool hidden = action != Action::kSeeHealth && reply.body.find("_not_found") != std::string::npos;
    if (reply.status == 403 || hidden) {
      expect_told(action, "nobody", {reply.status == 403 ? "forbidden" : "hidden"}, what);
    } else {
      EXPECT_TRUE(new_lines().empty()) << what;
    }
  }
};

TEST_F(Strangers, HaveNoSignInWhereThereIsNone) {
  for (const SignInRest::RouteRow& row : SignInRest::routes()) {
    const Reply reply = http(std::string(to_string(row.method)), "/" + std::string(row.pattern));
    EXPECT_EQ(reply.status, 404) << row.pattern << reply.body;
    EXPECT_NE(reply.body.find("nobody signs in here"), std::string::npos) << reply.body;
  }
}

/// The same where people sign in.
class StrangersAtTheDesk : public Walk {
 protected:
  StrangersAtTheDesk()
      : Walk(with_sign_in({.everybody = std::make_shared<access::Caller>(
                               access::Caller{.kind = access::CallerKind::kPerson, .name = "nobody"})})) {}

  Reply page_of(const SignInRest::RouteRow& row) {
    Reply reply = http(std::string(to_string(row.method)), "/" + std::string(row.pattern));
    EXPECT_EQ((reply.head + reply.body).find(kSecret), std::string::npos) << reply.body;
    EXPECT_EQ(reply.body.find(job_), std::string::npos) << reply.body;
    return reply;
  }
};

TEST_F(StrangersAtTheDesk, LearnNothingByItsPages) {
  for (const SignInRest::RouteRow& row : SignInRest::routes()) {
    const Reply reply = page_of(row);
    const std::string what(row.pattern);
    if (row.pattern == "login") {
      EXPECT_EQ(reply.status, 303) << reply.body;
      EXPECT_TRUE(new_lines().empty()) << what;
    } else if (row.pattern == "me") {
      EXPECT_EQ(reply.status, 200) << reply.body;
      EXPECT_NE(reply.body.find("There are none."), std::string::npos) << reply.body;
      EXPECT_TRUE(new_lines().empty()) << what;
    } else {
      EXPECT_EQ(reply.status, 401) << what << reply.body;
      const bool is_out = row.action == Action::kSignOut;
      expect_told(row.action, is_out ? "nobody" : "", {"unauthenticated"}, what);
    }
  }
}

TEST_F(Strangers, AreRefusedWhatEachRouteSays) {
  for (const JobsRest::RouteRow& row : JobsRest::routes())
    expect_refused(row.method, row.action, row.pattern, false);
  for (const TasksRest::RouteRow& row : TasksRest::routes())
    expect_refused(row.method, row.action, row.pattern, false);
  for (const AgentTasksRest::RouteRow& row : AgentTasksRest::routes())
    expect_refused(row.method, row.action, row.pattern, false);
  for (const AllocationRest::RouteRow& row : AllocationRest::routes()) expect_no_lease(row);
  for (const NativeRoute& route : NativeRest::routes())
    expect_refused(route.method, route.action, route.path, true);
  const Reply file = http("GET", "/v1/jobs/" + job_ + "/files?path=x");
  EXPECT_EQ(file.status, 404) << file.body;
  EXPECT_EQ(field(file.body, "code"), "job_not_found");
  expect_told(Action::kReadJobFile, "nobody", {"hidden"}, "a file");
}

TEST_F(Strangers, OpenNoSession) {
  struct Peer final : SessionPeer {
    void on_number(uint64_t) override {}
    void on_opened() override {}
    void on_output(std::string, bool) override {}
    void on_credit(int64_t) override {}
    void on_end(End end) override { ended.set_value(end.error ? end.error->kind : ErrorKind::kInternal); }
    std::promise<ErrorKind> ended;
  };
  const auto stranger =
      std::make_shared<access::Caller>(access::Caller{.kind = access::CallerKind::kPerson, .name = "nobody"});
  for (const auto& [caller, kind] : {std::pair<CallerPtr, ErrorKind>(stranger, ErrorKind::kJobNotFound),
                                     {anonymous_caller(), ErrorKind::kJobNotFound},
                                     {shared_token_caller(), ErrorKind::kLogNotFound}}) {
    const auto peer = std::make_shared<Peer>();
    const auto session = owner_.open_session(caller, {.job = submitted_.first_job}, peer);
    EXPECT_EQ(peer->ended.get_future().get(), kind);
  }
}

/// Callers with the shared token, and others who think so.
class Admins : public Walk {
 protected:
  static constexpr const char* kRight = "Authorization: Bearer the-right-token\r\n";
  static constexpr const char* kWrong = "Authorization: Bearer zxqv-guessed\r\n";
  static constexpr const char* kName = "admin by shared token";

  Admins() : Walk({.limits = {.failed_rate = {}}, .token = "the-right-token"}) {}

  struct Call {
    HttpMethod method;
    Action action;
    std::string path;
    bool is_native;
  };
  /// Calls of all REST doors. Streams without an end are left out: the body of their answer is never there.
  static std::vector<Call> all_calls() {
    std::vector<Call> calls;
    for (const JobsRest::RouteRow& row : JobsRest::routes())
      calls.push_back({row.method, row.action, std::string(row.pattern), false});
    for (const TasksRest::RouteRow& row : TasksRest::routes())
      calls.push_back({row.method, row.action, std::string(row.pattern), false});
    for (const AllocationRest::RouteRow& row : AllocationRest::routes())
      calls.push_back({row.method, row.action, std::string(row.pattern), false});
    for (const AgentTasksRest::RouteRow& row : AgentTasksRest::routes())
      calls.push_back({row.method, row.action, std::string(row.pattern), false});
    for (const NativeRoute& route : NativeRest::routes())
      calls.push_back({route.method, route.action, std::string(route.path), true});
    for (const SessionRest::Path& path : SessionRest::paths())
      calls.push_back({HttpMethod::kGet, path.action, "v1/jobs/{job_id}/" + std::string(path.last), true});
    std::erase_if(
        calls, [](const Call& call) { return call.path.ends_with("watch") || call.path.ends_with("/ws"); });
    return calls;
  }
  Reply answer_to(const Call& call, const char* credential) {
    return http(std::string(to_string(call.method)), target_of(call.path),
                body_of(call.action, call.is_native, call.path),
                std::string("Content-Type: application/json\r\n") + credential);
  }
  /// An empty message to the method.
  void call(const GrpcMethodRow& method, const std::string& credential) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.AddMetadata("authorization", credential);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    grpc::CompletionQueue queue;
    const grpc::Slice no_bytes;
    const grpc::ByteBuffer nothing(&no_bytes, 1);
    grpc::ByteBuffer answer;
    grpc::Status status;
    const auto rpc = stub.PrepareUnaryCall(
        &context, "/" + std::string(method.service) + "/" + std::string(method.name), nothing, &queue);
    rpc->StartCall();
    rpc->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
  }
};

TEST_F(Admins, LeaveALineForEachWriteAndEachReadThatCounts) {
  for (const Call& one : all_calls()) {
    const Reply reply = answer_to(one, kRight);
    const std::string what = target_of(one.path) + ": " + std::to_string(reply.status) + reply.body;
    EXPECT_NE(reply.head.find("X-Request-Id: "), std::string::npos) << what;
    if (row_of(one.action).audit == access::Audit::kRefusals) {
      EXPECT_TRUE(new_lines().empty()) << what;
    } else {
      const bool refused =
          reply.body.find("\"code\":") != std::string::npos || reply.body.starts_with("{\"detail\":");
      const bool read = row_of(one.action).audit == access::Audit::kReads;
      expect_told(one.action, kName, {refused ? "refused" : read ? "allowed" : "applied"}, what);
    }
  }
}

TEST_F(Admins, LeaveALineForEachWriteOverGrpc) {
  std::size_t told = 0;
  for (const GrpcMethodRow& method : grpc_methods()) {
    if (row_of(method.action).audit == access::Audit::kRefusals || method.name == "CancelJobs" ||
        method.name == "SubmitJobStream") {
      continue;  // An empty batch does nothing.
    }
    call(method, "Bearer the-right-token");
    expect_told(method.action, method.action == Action::kSpeakForNode ? "" : kName,
                {"applied", "allowed", "refused"}, std::string(method.name));
    told += 1;
  }
  EXPECT_GE(told, 20U);
}

TEST_F(Admins, WithAWrongTokenLeaveALineWithoutIt) {
  const auto expect_line = [&](Action action, const std::string& what) {
    const std::vector<std::string> lines = new_lines();
    ASSERT_EQ(lines.size(), 1U) << what;
    EXPECT_EQ(field(lines[0], "action"), to_string(action)) << what;
    EXPECT_EQ(field(lines[0], "caller_kind"), "unknown") << what;
    EXPECT_EQ(field(lines[0], "outcome"), "unauthenticated") << what;
    EXPECT_EQ(lines[0].find("guessed"), std::string::npos) << what;
  };
  for (const Call& one : all_calls()) {
    if (one.path == "v1/login" || one.path == "docs") continue;  // Nobody's credential is looked at.
    EXPECT_EQ(answer_to(one, kWrong).status, 401) << one.path;
    expect_line(one.action, one.path);
  }
  for (const GrpcMethodRow& method : grpc_methods()) {
    // Agents prove the token in messages; what everybody is told needs none.
    if (method.action == Action::kSpeakForNode || is_standard(method)) continue;
    call(method, "Bearer zxqv-guessed");
    expect_line(method.action, std::string(method.name));
  }
  EXPECT_EQ(http("GET", "/metrics", "", kWrong, server_->metrics_port()).status, 401);
  expect_line(Action::kSeeMetrics, "metrics");
}

TEST_F(Admins, ARefusedPageLeavesALine) {
  EXPECT_EQ(http("POST", "/api/v1/jobs", "{}", "Origin: http://evil.example\r\n").status, 403);
  expect_told(Action::kSubmitJob, "", {"forbidden"}, "a page");
}

}  // namespace
}  // namespace gpusched::api
