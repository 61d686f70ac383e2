// Answers to a caller hold nothing of tenants that it may not know of: whatever is theirs has a word in it
// that stands nowhere else, and everything that is said is searched for it.
#include "api/views/tenant_visibility.h"

#include <gtest/gtest.h>

#include <regex>

#include "api/metrics/metrics_text.h"
#include "api/testing/tenant_visibility_test.h"
#include "api/views/place_in_line.h"
#include "engine/testing/test_engine.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

using access::Action;

INSTANTIATE_TEST_SUITE_P(Roles, TenantVisibilities,
                         ::testing::Values(Role::kViewer, Role::kUser, Role::kTenantAdmin),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST_P(TenantVisibilities, WhatIsSaidOfTheOwnHoldsNothingOfOthers) {
  const Subjects own{.job = job_name(own_), .tenant = "lab", .submit_to = "lab"};
  std::size_t told = 0;
  for (const Call& call : all_calls()) {
    const Reply reply = answer_to(call, own);
    const std::string what = std::string(to_string(call.method)) + " " + std::string(call.path);
    EXPECT_NE(reply.status, 0) << what;
    told += reply.status == 200 ? 1 : 0;
    if (call.path.ends_with("openapi.json") || call.path == "docs") continue;  // Their examples have numbers.
    expect_nothing(reply.head + reply.body, what);
  }
  EXPECT_GE(told, 20U);
  for (const GrpcMethodRow& method : grpc_methods()) {
    if (method.action == Action::kSpeakForNode || method.name == "WatchJob" || method.name == "Watch" ||
        method.name == "TaskEvents")
      continue;  // Streams without an end.
    const GrpcReply reply = call_method(channel_, method, *message_of(method, own));
    expect_nothing(reply.bytes + reply.status.error_message(), std::string(method.name));
  }
  const Reply metrics = http("GET", "/metrics", "", "", server_->metrics_port());
  EXPECT_EQ(metrics.status, 403) << metrics.body;
  expect_nothing(metrics.body, "metrics");
}

TEST_P(TenantVisibilities, AWatchOverGrpcTellsOfTheOwnAlone) {
  const auto stub = v1::Scheduler::NewStub(channel_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::WatchRequest request;
  request.set_nodes(true);
  const auto reader = stub->Watch(&context, request);
  v1::WatchEvent event;
  ASSERT_TRUE(reader->Read(&event));
  answer<Unit>([&](auto done) { backend_.cancel(bob_, waiting_, "", "zqxv-bob", std::move(done)); });
  answer<Unit>([&](auto done) { backend_.cancel(eve_, own_, "", "eve", std::move(done)); });
  bool told = false;
  while (!told && reader->Read(&event)) {
    expect_nothing(event.SerializeAsString() + event.ShortDebugString(), "a watch");
    told = event.job().state() == v1::JOB_STATE_CANCELLED;
  }
  EXPECT_EQ(event.job().job_id(), job_name(own_));
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
  // A tenant that is hidden is as one that is not there.
  std::vector<grpc::Status> refusals;
  for (const char* const tenant : {kHiddenTenant, kAbsentTenant}) {
    grpc::ClientContext asking;
    request.set_tenant_id(tenant);
    const auto refused = stub->Watch(&asking, request);
    EXPECT_FALSE(refused->Read(&event));
    refusals.push_back(refused->Finish());
    EXPECT_EQ(refusals.back().error_code(), grpc::StatusCode::NOT_FOUND);
  }
  EXPECT_EQ(refusals[0].error_message(), replaced(refusals[1].error_message(), kAbsentTenant, kHiddenTenant));
}

/// An answer without estimates, which a forecast may have changed between two looks.
std::string without_waits(const std::string& body) {
  static const std::regex wait(R"re("estimated_wait":"[^"]*",?)re");
  return std::regex_replace(body, wait, "");
}

TEST_P(TenantVisibilities, WhatIsHiddenIsAnsweredAsIfItWereNotThere) {
  const std::string job = job_name(running_);
  const std::string absent_job = "job-" + std::string(job.size() - 4, '9');
  const std::string key = key_name(key_);
  const std::string absent_key = "key-" + std::string(key.size() - 4, '9');
  const Subjects hidden{.job = job, .tenant = kHiddenTenant, .submit_to = kHiddenTenant, .key = key};
  const Subjects absent{
      .job = absent_job, .tenant = kAbsentTenant, .submit_to = kAbsentTenant, .key = absent_key};
  const auto as_hidden = [&](const std::string& said) {
    return replaced(replaced(replaced(said, absent_job, job), absent_key, key), kAbsentTenant, kHiddenTenant);
  };
  for (const Call& call : all_calls()) {
    if (!has_walls(row_of(call.action).subject)) continue;
    const Reply is_hidden = answer_to(call, hidden);
    const Reply is_absent = answer_to(call, absent);
    const std::string what = std::string(to_string(call.method)) + " " + std::string(call.path);
    EXPECT_EQ(is_hidden.status, is_absent.status) << what;
    EXPECT_EQ(without_waits(is_hidden.body), without_waits(as_hidden(is_absent.body))) << what;
  }
  for (const Subjects& about :
       {hidden, Subjects{.tenant = hidden.tenant, .submit_to = hidden.tenant, .key = key}}) {
    Subjects none = absent;
    if (about.job.empty()) none.job.clear();
    for (const GrpcMethodRow& method : grpc_methods()) {
      const bool is_endless = method.name == "TaskEvents" || method.name == "Watch";
      if (!has_walls(row_of(method.action).subject) || is_endless) continue;
      const GrpcReply is_hidden = call_method(channel_, method, *message_of(method, about));
      const GrpcReply is_absent = call_method(channel_, method, *message_of(method, none));
      EXPECT_EQ(is_hidden.status.error_code(), is_absent.status.error_code()) << method.name;
      EXPECT_EQ(is_hidden.status.error_message(), as_hidden(is_absent.status.error_message())) << method.name;
      EXPECT_EQ(is_hidden.status.error_details(), as_hidden(is_absent.status.error_details())) << method.name;
      EXPECT_EQ(is_hidden.trailing, as_hidden(is_absent.trailing)) << method.name;
      EXPECT_EQ(is_hidden.bytes, as_hidden(is_absent.bytes)) << method.name;
    }
  }
}

TEST_P(TenantVisibilities, AHiddenTenantIsNoneAmongThoseOfAName) {
  TenantRequest second;
  second.name = "lab";
  second.name_may_repeat = true;
  second.email = "zqxv@example.org";
  make_tenant(second);
  expect_nothing(http("GET", "/v1/tenants/lab").body, "a name");
  EXPECT_EQ(field(http("GET", "/v1/tenants/lab").body, "tenant_id"), tenant_name(lab_));
  EXPECT_EQ(http("GET", "/v1/jobs/" + job_name(running_) + "?tenant_id=lab").status, 404);
}

TEST_P(TenantVisibilities, ListsCountWhatTheyShow) {
  for (const char* const list :
       {"/v1/jobs", "/v1/jobs?page_size=1", "/api/v1/jobs", "/v1/tenants", "/api/v1/tenants"}) {
    const std::string body = http("GET", list).body;
    EXPECT_TRUE(std::regex_search(body, std::regex(R"re("total":"?1"?[,}])re"))) << list << body;
  }
  EXPECT_NE(http("GET", "/v1/jobs?page_size=1").body.find(job_name(own_)), std::string::npos);
  const std::string cluster = http("GET", "/api/v1/cluster/status").body;
  EXPECT_NE(cluster.find(R"("total_jobs":1,"running_jobs":0,"pending_jobs":1)"), std::string::npos)
      << cluster;
  const auto all = answer<ClusterView>([&](auto done) { backend_.get_cluster(admin(), std::move(done)); });
  EXPECT_EQ(all.total_jobs, 5);
}

TEST_P(TenantVisibilities, PlacesInLineCountOwnJobsAlone) {
  const auto place_in = [](const std::string& body) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(body, found, std::regex(R"re("queue_position":"?([0-9]+))re"))) << body;
    return found.empty() ? std::string() : found[1].str();
  };
  const std::string own = job_name(own_);  // Behind a hidden one of a higher priority.
  for (const std::string& path : {"/v1/jobs/" + own, "/api/v1/jobs/" + own, "/v1/jobs/" + own + "/explain",
                                  std::string("/v1/jobs"), std::string("/api/v1/jobs")})
    EXPECT_EQ(place_in(http("GET", path).body), "1") << path;
  const auto by_admin =
      answer<JobView>([&](auto done) { backend_.get_job(admin(), own_, "", std::move(done)); });
  EXPECT_EQ(by_admin.queue_position, 2);
  const Answer<Submitted> next = try_submit(eve_, R"({"tenant_id":"lab","script":"true","gpu_count":8})");
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->queue_position, 2);
  const auto explained = answer<ExplainView>(
      [&](auto done) { backend_.explain_job(eve_, next->first_job, "", std::move(done)); });
  EXPECT_EQ(explained.queue_position, 2);
  if (explained.estimate) {
    EXPECT_EQ(explained.estimate->place, 0);
  }
  if (GetParam() == Role::kViewer) return;
  const Reply made = http("POST", "/api/v1/jobs", R"({"tenant_id":"lab","script":"true","gpu_count":8})");
  EXPECT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(place_in(made.body), "3");
}

TEST_P(TenantVisibilities, HowManyWaitIsNotSaidToWhoIsThrottled) {
  EngineConfig config;
  config.feature_level = kFeatureLevel;
  config.admission = {.soft_queue = 1, .throttled_milli = 1};
  propose(Configure{.config = config});
  const std::string job = R"({"tenant_id":"lab","script":"true","gpu_count":8})";
  ASSERT_TRUE(try_submit(eve_, job).ok());
  const Answer<Submitted> refused = try_submit(eve_, job);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.error().message.starts_with("too many jobs are waiting; try again in "))
      << refused.error().message;
  ASSERT_TRUE(try_submit(admin(), job).ok());
  const Answer<Submitted> of_admin = try_submit(admin(), job);
  ASSERT_FALSE(of_admin.ok());
  EXPECT_NE(of_admin.error().message.find("; above 1,"), std::string::npos) << of_admin.error().message;
}

TEST_P(TenantVisibilities, ANameThatIsTakenIsNotTold) {
  const auto refused = [&](const std::string& method, const std::string& path, const std::string& name) {
    const Reply reply =
        http(method, path, R"({"name":")" + name + "\"}", "Content-Type: application/json\r\n");
    EXPECT_EQ(reply.status, 403) << reply.body;
    return reply.body;
  };
  EXPECT_EQ(refused("POST", "/v1/tenants", kHiddenTenant), refused("POST", "/v1/tenants", kAbsentTenant));
  EXPECT_EQ(refused("PATCH", "/v1/tenants/lab", kHiddenTenant),
            refused("PATCH", "/v1/tenants/lab", kAbsentTenant));
}

TEST_P(TenantVisibilities, MetricsNameNoTenantToWhoHasNoCredential) {
  const auto text_for = [&](const CallerPtr& caller) {
    return metrics_text(
        answer<MetricsView>([&](auto done) { backend_.get_metrics(caller, std::move(done)); }), "gpu");
  };
  const std::string anonymous = text_for(anonymous_caller());
  EXPECT_NE(anonymous.find("gpu_jobs"), std::string::npos);
  expect_nothing(anonymous, "metrics");
  EXPECT_NE(text_for(admin()).find("zqxv-other"), std::string::npos);
}

TEST_P(TenantVisibilities, NodesSayThatTheyAreHeldAndNotByWhom) {
  const std::string nodes = http("GET", "/v1/nodes/n1").body;
  EXPECT_NE(nodes.find(R"("state":"held")"), std::string::npos) << nodes;
  expect_nothing(nodes, "a node");
  const auto seen_by_bob =
      answer<NodeView>([&](auto done) { backend_.get_node(bob_, "n1", std::move(done)); });
  EXPECT_TRUE(std::ranges::any_of(seen_by_bob.devices,
                                  [&](const DeviceView& device) { return device.held_by == running_; }));
}

TEST_P(TenantVisibilities, ReservationsSayWhenAndNotForWhom) {
  const std::string seen = http("GET", "/v1/reservations").body;
  EXPECT_EQ(field(seen, "name"), reservation_.id) << seen;
  EXPECT_NE(seen.find(R"("n2")"), std::string::npos) << seen;
  const auto bobs = answer<std::vector<ReservationView>>(
      [&](auto done) { backend_.list_reservations(bob_, std::move(done)); });
  ASSERT_EQ(bobs.size(), 1U);
  EXPECT_EQ(bobs[0].name, "zqxv-night");
  EXPECT_EQ(bobs[0].users, std::vector<std::string>{"zqxv-user"});
}

TEST_P(TenantVisibilities, AReservationOfOthersIsNoneToSubmitTo) {
  if (GetParam() == Role::kViewer) return;  // It submits nothing.
  const auto refused = [&](const std::string& reservation) {
    const Reply reply = http("POST", "/api/v1/jobs",
                             R"({"tenant_id":"lab","script":"true","reservation":")" + reservation + "\"}");
    return std::pair(reply.status, reply.body);
  };
  EXPECT_EQ(refused("zqxv-night"), refused("zqxv-nothing"));
  EXPECT_EQ(refused("zqxv-night").first, 404);
}

TEST_P(TenantVisibilities, ATenantAboveIsToldToHaveALimitAndNotWhich) {
  TenantRequest limits;
  limits.max_gpus = 4;
  answer<TenantView>(
      [&](auto done) { backend_.update_tenant(admin(), "zqxv-above", limits, std::move(done)); });
  const Answer<Submitted> refused = try_submit(eve_, R"({"tenant_id":"lab","script":"true","gpu_count":8})");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "quota exceeded for a tenant above yours: GPUs requested=8");
  // Its whole limit goes to another below it.
  answer<Unit>([&](auto done) { backend_.cancel(admin(), running_, "", "", std::move(done)); });
  const JobId taker = submit_as(admin(), job_of("zqxv-sibling", R"("gpu_count":1,"priority":900)"));
  wait_for(taker, JobState::kScheduled);
  const JobId waits = submit_as(eve_, R"({"tenant_id":"lab","script":"true","gpu_count":4,"priority":990})");
  const std::string path = "/v1/jobs/" + job_name(waits);
  const std::string limited = "a tenant above the job's has reached its limit of GPUs";
  std::string explained = http("GET", path + "/explain").body;
  while (explained.find("quota") == std::string::npos) explained = http("GET", path + "/explain").body;
  EXPECT_NE(explained.find(limited), std::string::npos) << explained;
  EXPECT_EQ(explained.find("quota_limit"), std::string::npos) << explained;
  expect_nothing(explained, "explain");
  EXPECT_NE(http("GET", path).body.find(limited), std::string::npos);
  EXPECT_EQ(http("GET", "/v1/tenants/lab").body.find("\"parent_id\":\"tenant"), std::string::npos);
  if (GetParam() == Role::kViewer) return;
  const Reply plan = http("POST", "/api/v1/jobs:plan", R"({"script":"true","gpu_count":4})");
  EXPECT_EQ(plan.status, 200) << plan.body;
  expect_nothing(plan.body, "plan");
}

TEST_P(TenantVisibilities, APauseIsToldWithoutTheOperatorsWords) {
  answer<ClusterView>(
      [&](auto done) { backend_.pause_starts(admin(), true, "zqxv-op", "zqxv-why", std::move(done)); });
  const std::string cluster = http("GET", "/v1/cluster").body;
  EXPECT_NE(cluster.find("paused_since"), std::string::npos) << cluster;
  expect_nothing(cluster, "cluster");
  expect_nothing(http("GET", "/v1/jobs/" + job_name(own_)).body, "a job");
}

TEST_P(TenantVisibilities, ThePageOfWhoSignedInShowsTheOwnJobsWhereTheyMayBeSeen) {
  const auto of_ana = [&](TenantId tenant, const std::string& body) {
    ana_->bindings = {{.tenant = tenant, .role = Role::kUser}};
    return job_name(submit_as(ana_, body));
  };
  const std::string lost = of_ana(other_, job_of("zqxv-other", R"("gpu_count":8)"));
  const std::string kept = of_ana(lab_, R"({"tenant_id":"lab","name":"kept","script":"true"})");
  ana_->bindings = {{.tenant = lab_, .role = GetParam()}};
  const Reply page = http("GET", "/me");
  EXPECT_EQ(page.status, 200) << page.body;
  EXPECT_NE(page.body.find("<td>lab</td>"), std::string::npos) << page.body;
  EXPECT_NE(page.body.find("<code>" + kept + "</code></td><td>kept"), std::string::npos) << page.body;
  expect_not(page.body, lost, "a job in a tenant that ana has left");
  expect_not(page.body, job_name(own_), "a job of eve's");
  expect_nothing(page.head + page.body, "the page");
}

TEST_P(TenantVisibilities, WhoNamesNoTenantMeansTheOwn) {
  EXPECT_EQ(http("GET", "/v1/quality").status, 200);
  if (GetParam() == Role::kViewer) return;
  const std::string job = submit(R"({"script":"true"})");
  EXPECT_EQ(field(http("GET", "/v1/jobs/" + job).body, "tenant_id"), tenant_name(lab_));
}

TEST_P(TenantVisibilities, OnlyOwnersAndAdminsReadScripts) {
  const bool reads = GetParam() == Role::kTenantAdmin;
  const JobId secret =
      submit_as(eve_, R"({"tenant_id":"lab","script":"echo wqpj","environment":{"K":"wqpj"}})");
  for (const std::string& path :
       {std::string("/v1/jobs"), std::string("/api/v1/jobs"), "/v1/jobs/" + job_name(secret),
        "/api/v1/jobs/" + job_name(secret), "/v1/jobs/" + job_name(secret) + "/explain",
        "/v1/jobs/" + job_name(secret) + "/history"}) {
    const Reply reply = http("GET", path);
    EXPECT_EQ(reply.status, 200) << path;
    const bool is_sentence = path.ends_with("explain") || path.ends_with("history");
    EXPECT_EQ(reply.body.find("wqpj") != std::string::npos, reads && !is_sentence) << path << reply.body;
  }
}

class TenantVisibilityOfViews : public ::testing::Test {
 protected:
  testing::TestEngine engine_;
  TenantId lab_ = engine_.add_tenant("lab");
  JobId own_ = engine_.submit({.tenant = lab_}), others_ = engine_.submit({});
  access::Caller ana_{.kind = access::CallerKind::kPerson,
                      .name = "ana",
                      .bindings = {{.tenant = lab_, .role = Role::kUser}}};
};

TEST_F(TenantVisibilityOfViews, KeepsOthersJobsAndProcessesOutOfDevices) {
  NodeView node;
  DeviceView& device = node.devices.emplace_back();
  device.held_by = others_;
  device.shared_by = {own_, others_};
  device.slices = {{.job = others_}, {.job = own_}};
  device.fault_code = "xid-31";
  device.fault_detail = "pid=7, name=train";
  device.quarantine_reason = device.detail = "xid-31 (drain), pid=7, name=train";
  NodeView for_admin = node;
  TenantVisibility(engine_.state(), ana_).conceal(node);
  EXPECT_FALSE(device.held_by.valid());
  EXPECT_EQ(device.shared_by, std::vector<JobId>{own_});
  EXPECT_FALSE(device.slices[0].job.valid());
  EXPECT_EQ(device.slices[1].job, own_);
  EXPECT_EQ(device.fault_detail, "");
  EXPECT_EQ(device.detail, "xid-31 (drain)");
  EXPECT_EQ(device.quarantine_reason, "xid-31 (drain)");
  TenantVisibility(engine_.state(), *shared_token_caller()).conceal(for_admin);
  EXPECT_EQ(for_admin.devices[0].held_by, others_);
  EXPECT_EQ(for_admin.devices[0].fault_detail, "pid=7, name=train");
}

TEST_F(TenantVisibilityOfViews, PlacesAreAmongEqualJobsWhereTooManyWantDifferentThings) {
  constexpr int32_t kRequests = 4'200;
  for (int32_t i = 0; i < kRequests; ++i) engine_.submit({.cpu_milli = 1'000 + i});
  engine_.submit({.cpu_milli = 900, .tenant = lab_});
  const JobId last = engine_.submit({.tenant = lab_});
  const auto place_for = [&](const Viewer& viewer) {
    return place_in_line(engine_.state(), engine_.job(last), viewer);
  };
  EXPECT_EQ(place_for(Viewer::all()), kRequests + 4);
  EXPECT_EQ(place_for(Viewer::of(std::make_shared<access::Caller>(ana_))), 2);
}

TEST_F(TenantVisibilityOfViews, ATenantBelowMayKnowWhatItsJobsMayUse) {
  const TenantId child = engine_.add_tenant("child");
  (void)child;
  Booking booking{.id = BookingId{9}, .name = "night", .tenant = kDefaultTenant, .users = {"ana", "bob"}};
  ReservationView shown{.id = "reservation-9",
                        .name = "night",
                        .tenant = "default",
                        .users = {"ana", "bob"},
                        .nodes = {},
                        .begin = {},
                        .end = {},
                        .reason = "why"};
  const auto seen = [&](const Booking& one) {
    ReservationView view = shown;
    TenantVisibility(engine_.state(), ana_).conceal(one, view);
    return view;
  };
  EXPECT_EQ(seen(booking).name, "reservation-9");
  EXPECT_EQ(seen(booking).reason, "");
  booking.tenant = lab_;
  EXPECT_EQ(seen(booking).users, (std::vector<std::string>{"ana", "bob"}));
  booking.tenant = TenantId{};  // For maintenance.
  EXPECT_EQ(seen(booking).name, "night");
  EXPECT_EQ(seen(booking).users, std::vector<std::string>{"ana"});
}

}  // namespace
}  // namespace gpusched::api
