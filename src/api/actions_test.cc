// Every call of every door says what the caller does by it, and the backend asks for just that.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <set>

#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/doors/jobs/jobs_rest.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/session/session_rest.h"
#include "api/grpc/grpc_methods.h"
#include "api/testing/doors_test.h"
#include "gpusched/v1/node.pb.h"
#include "gpusched/v1/scheduler.pb.h"
#include "scheduler/scheduler.pb.h"

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
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::AgentMessage::descriptor()->file(),
        ::scheduler::SubmitJobRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor& service = *file->service(s);
      for (int m = 0; m < service.method_count(); ++m)
        there.emplace(service.full_name(), service.method(m)->name());
    }
  }
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
    if (method.service != "gpusched.v1.Scheduler" || same == native.end()) continue;
    EXPECT_EQ(to_string(same->second), to_string(method.action)) << method.name;
    compared += 1;
  }
  EXPECT_GE(compared, 30U);
}

TEST(Actions, EachIsDoneBySomeCallOrHasNoneYet) {
  std::set<Action> done;
  for (const JobsRest::RouteRow& row : JobsRest::routes()) done.insert(row.action);
  for (const NativeRoute& route : NativeRest::routes()) done.insert(route.action);
  for (const SessionRest::Path& path : SessionRest::paths()) done.insert(path.action);
  for (const GrpcMethodRow& method : grpc_methods()) done.insert(method.action);
  const std::set<Action> without_a_call = {Action::kReadJobScript,  // A part of what shows a job.
                                           Action::kSeeKey,        Action::kCreateKey, Action::kRevokeKey,
                                           Action::kBindRole,      Action::kAdmitNode, Action::kRevokeNode,
                                           Action::kReadAudit};
  for (const access::ActionRow& row : access::action_rows())
    EXPECT_NE(done.contains(row.action), without_a_call.contains(row.action)) << row.name;
}

/// A door whose callers have a name and no rights at all, over a cluster with a job, a tenant and a key word
/// in their names.
class Strangers : public DoorsTest {
 protected:
  Strangers()
      : DoorsTest({.everybody = std::make_shared<access::Caller>(
                       access::Caller{.kind = access::CallerKind::kPerson, .name = "nobody"})}) {
    TenantRequest tenant;
    tenant.name = std::string(kSecret);
    tenant_ = answer<TenantView>(
        [&](auto done) { owner_.create_tenant(shared_token_caller(), tenant, std::move(done)); });
    SubmitRequest jobs{.tenant = std::string(kSecret)};
    jobs.jobs.push_back({.name = std::string(kSecret)});
    submitted_ =
        answer<Submitted>([&](auto done) { owner_.submit(shared_token_caller(), jobs, std::move(done)); });
    job_ = job_name(submitted_.first_job);
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
    std::string out;
    std::string above;
    for (std::size_t at = 0; at <= pattern.size();) {
      const std::size_t end = std::min(pattern.find('/', at), pattern.size());
      std::string segment(pattern.substr(at, end - at));
      const bool any = segment == "*" || segment.starts_with('{');
      if (any && above == "jobs") segment = job_;
      if (any && above == "tenants") segment = kSecret;
      if (any && (above == "nodes" || above == "reservations")) segment = "n1";
      if (any && (above == "gpus" || above == "devices")) segment = "0";
      EXPECT_TRUE(!any || segment != pattern.substr(at, end - at)) << pattern;
      out += "/" + segment;
      above = segment;
      at = end + 1;
    }
    return out;
  }

  std::string body_of(Action action, bool is_native, std::string_view path) const {
    switch (action) {
      case Action::kSubmitJob:
      case Action::kPlanJob:
        return is_native ? R"({"spec":{"command":["true"]}})" : R"({"script":"true"})";
      case Action::kCancelJob:
        return path.ends_with(":cancel") ? R"({"job_ids":[")" + job_ + R"("]})" : "";
      case Action::kUpdateJob:
        return R"({"priority":1})";
      case Action::kCreateTenant:
        return R"({"name":"mine"})";
      case Action::kUpdateTenant:
        return R"({"max_gpus":1})";
      case Action::kEditCluster:
        return R"({"tenants":[{"name":"mine"}]})";
      case Action::kLabelNode:
        return R"({"remove":["a"]})";
      case Action::kSetDevice:
        return R"({"condition":"unhealthy"})";
      case Action::kMakeReservation:
        return R"({"name":"r","node_names":["n1"],"duration_ms":60000})";
      case Action::kMoveJobs:
        return R"({"id":"move-1"})";
      default:
        return "";
    }
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
    } else if (!has_walls(row_of(action).subject) || (action == Action::kCreateTenant && !names_one)) {
      EXPECT_EQ(reply.status, 403) << what;
      const std::string refused = "person nobody may not " + std::string(to_string(action));
      EXPECT_NE(reply.body.find(refused + "\""), std::string::npos) << what;
    } else if (names_one || action == Action::kSubmitJob || action == Action::kPlanJob ||
               action == Action::kSeeQuality || action == Action::kCancelJob) {
      const bool in_batch = reply.status == 200 && (path.ends_with(":cancel") || path.ends_with(":stream"));
      EXPECT_TRUE(reply.status == 404 || in_batch) << what;
      EXPECT_NE(reply.body.find("_not_found"), std::string::npos) << what;
    } else {  // A list of what may be seen: of nothing.
      EXPECT_EQ(reply.status, 200) << what;
      EXPECT_EQ(reply.body.find(job_), std::string::npos) << what;
      EXPECT_EQ(reply.body.find(kSecret), std::string::npos) << what;
    }
  }

  HostBackend owner_{*host_, {}};
  TenantView tenant_;
  Submitted submitted_;
  std::string job_;
};

TEST_F(Strangers, AreRefusedWhatEachRouteSays) {
  for (const JobsRest::RouteRow& row : JobsRest::routes())
    expect_refused(row.method, row.action, row.pattern, false);
  for (const NativeRoute& route : NativeRest::routes())
    expect_refused(route.method, route.action, route.path, true);
  const Reply file = http("GET", "/v1/jobs/" + job_ + "/files?path=x");
  EXPECT_EQ(file.status, 404) << file.body;
  EXPECT_EQ(field(file.body, "code"), "job_not_found");
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

}  // namespace
}  // namespace gpusched::api
