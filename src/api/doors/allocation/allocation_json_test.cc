#include "api/doors/allocation/allocation_json.h"

#include <gtest/gtest.h>

#include <set>

#include "api/doors/allocation/allocation_errors.h"
#include "api/doors/allocation/allocation_ids.h"
#include "api/doors/allocation/repeated_calls.h"
#include "base/job_labels.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

constexpr const char* kCluster = "0123456789abcdef";

TEST(AllocationIds, AreVersion8AndLeadBack) {
  std::set<std::string> all;
  for (const uint64_t number : {uint64_t{1}, uint64_t{2}, uint64_t{1'000'000'007}, (uint64_t{1} << 62) - 1}) {
    const std::string id = allocation_id(kCluster, AllocationIdKind::kGpu, number);
    EXPECT_EQ(id.size(), 36U);
    EXPECT_EQ(id[14], '8') << id;
    EXPECT_NE(std::string("89ab").find(id[19]), std::string::npos) << id;
    EXPECT_EQ(number_of_allocation_id(kCluster, AllocationIdKind::kGpu, id), number);
    all.insert(id);
  }
  EXPECT_EQ(all.size(), 4U);
}

TEST(AllocationIds, AreForEver) {  // Clients keep them: another way to make them is another id.
  EXPECT_EQ(allocation_id(kCluster, AllocationIdKind::kGpu, 12), "02b70bd3-d2c8-85ce-8000-00000000000c");
  EXPECT_EQ(allocation_id(kCluster, AllocationIdKind::kOrganization, 12),
            "7b64a4d2-c344-8c40-8000-00000000000c");
}

TEST(AllocationIds, OfAnotherClusterOrKindAreNone) {
  const std::string id = allocation_id(kCluster, AllocationIdKind::kGpu, 12);
  EXPECT_FALSE(number_of_allocation_id("fedcba9876543210", AllocationIdKind::kGpu, id));
  EXPECT_FALSE(number_of_allocation_id(kCluster, AllocationIdKind::kKey, id));
  std::string upper = id;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(number_of_allocation_id(kCluster, AllocationIdKind::kGpu, upper), 12U);
  std::string dashed = id;
  dashed[8] = 'a';
  for (const std::string& text : {std::string(), id + "0", id.substr(1), dashed, std::string(36, '0'),
                                  std::string(36, '\xff'), id.substr(0, 35) + "g", id.substr(0, 35) + "-"})
    EXPECT_FALSE(number_of_allocation_id(kCluster, AllocationIdKind::kGpu, text)) << text;
}

TEST(AllocationIds, OfUsersDifferByName) {
  EXPECT_EQ(allocation_user_id(kCluster, "person ana"), allocation_user_id(kCluster, "person ana"));
  EXPECT_NE(allocation_user_id(kCluster, "person ana"), allocation_user_id(kCluster, "person bob"));
}

v1::JobSpec spec_of(const SubmitRequest& request) {
  v1::JobSpec spec;
  EXPECT_TRUE(spec.ParseFromString(request.jobs.at(0).spec));
  return spec;
}

TEST(Allocation, IsAJobThatHoldsAndDoesNothing) {
  const Answer<SubmitRequest> parsed = parse_allocation("{}", "");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const JobRequest& job = parsed->jobs.at(0);
  EXPECT_EQ(job.gpu_count, 1);
  EXPECT_EQ(job.max_runtime, minutes(60));
  EXPECT_EQ(job.preemption_mode, PreemptionMode::kCancel);
  EXPECT_EQ(job.system_retries, -1);
  EXPECT_EQ(job.exit_code_retries, 0);
  EXPECT_EQ(job.gpu_memory_each_mb, 0);
  const v1::JobSpec spec = spec_of(*parsed);
  EXPECT_EQ(spec.command(0) + " " + spec.command(1), "sleep infinity");
  EXPECT_TRUE(spec.labels().contains(std::string(kLeaseLabel)));
  EXPECT_EQ(spec.labels().size(), 1U);
  EXPECT_EQ(parsed->request_key, "");
}

TEST(Allocation, TakesWhatClientsAskFor) {
  const Answer<SubmitRequest> parsed = parse_allocation(
      R"({"gpu_model":"H100","count":2,"min_memory_gb":80,"region":"eu-north","job_type":"training",)"
      R"("lease_minutes":5,"provider":"any"})",
      "a-key");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const JobRequest& job = parsed->jobs.at(0);
  EXPECT_EQ(job.gpu_count, 2);
  EXPECT_EQ(job.gpu_model, "H100");
  EXPECT_EQ(job.gpu_memory_each_mb, 76'294);  // 80 * 10^9 bytes: cards of "80 GB" have a little more.
  EXPECT_EQ(job.max_runtime, minutes(5));
  const v1::JobSpec spec = spec_of(*parsed);
  EXPECT_EQ(spec.labels().at("gpusched.region"), "eu-north");
  EXPECT_EQ(spec.labels().at("gpusched.job-type"), "training");
  EXPECT_EQ(spec.labels().at(std::string(kLeaseRequestLabel)), request_label("a-key"));
  EXPECT_EQ(parsed->request_key, "a-key");
  const Answer<SubmitRequest> required =
      parse_allocation(R"({"requirements":{"min_memory_gb":1.5,"other":[]},"user_region":"us"})", "");
  ASSERT_TRUE(required.ok()) << required.error().message;
  EXPECT_EQ(required->jobs.at(0).gpu_memory_each_mb, 1'431);
  EXPECT_EQ(spec_of(*required).labels().at("gpusched.region"), "us");
}

TEST(Allocation, OfNonsenseIsRefusedAndNamed) {
  const std::pair<const char*, const char*> kBad[] = {
      {R"({"count":0})", "count"},
      {R"({"count":65})", "count"},
      {R"({"count":"two"})", "count"},
      {R"({"lease_minutes":0})", "lease_minutes"},
      {R"({"lease_minutes":1.5})", "lease_minutes"},
      {R"({"lease_minutes":99999999999})", "lease_minutes"},
      {R"({"min_memory_gb":-1})", "min_memory_gb"},
      {R"({"min_memory_gb":1e300})", "min_memory_gb"},
      {R"({"requirements":3})", "requirements"},
      {R"({"requirements":{"min_memory_gb":"40"}})", "requirements"},
      {R"({"gpu_model":7})", "gpu_model"},
      {R"({"cpu_cores":0})", "cpu_cores"},
  };
  for (const auto& [body, field] : kBad) {
    const Answer<SubmitRequest> parsed = parse_allocation(body, "");
    ASSERT_FALSE(parsed.ok()) << body;
    EXPECT_EQ(parsed.error().field, field) << body;
  }
  EXPECT_EQ(parse_allocation("", "").error().kind, ErrorKind::kMalformedJson);
  EXPECT_EQ(parse_renewal(R"({"lease_minutes":-3})").error().field, "lease_minutes");
  EXPECT_EQ(*parse_renewal(""), minutes(60));
  EXPECT_EQ(*parse_renewal(R"({"lease_minutes":7})"), minutes(7));
  EXPECT_FALSE(check_heartbeat("").has_value());
  EXPECT_FALSE(check_heartbeat(R"({"utilization":0.5})").has_value());
  EXPECT_TRUE(check_heartbeat("[]").has_value());
  EXPECT_EQ(parse_organization(R"({"max_active_gpus":2})").error().field, "name");
  EXPECT_EQ(parse_organization(R"({"name":"a","max_active_gpus":-2})").error().field, "max_active_gpus");
  EXPECT_EQ(parse_organization(R"({"name":"a"})")->max_gpus, 5);
}

TEST(AllocationKeys, ExpireUnlessTheyAreToldNotTo) {
  EXPECT_EQ(parse_allocation_key("", "c")->expires_after, hours(24 * 30));
  EXPECT_EQ(parse_allocation_key(R"({"expires_in_days":7})", "c")->expires_after, hours(24 * 7));
  EXPECT_EQ(parse_allocation_key(R"({"expires_in_days":null})", "c")->expires_after, Duration{});
  EXPECT_FALSE(parse_allocation_key(R"({"expires_in_days":0})", "c").ok());
  EXPECT_NE(parse_allocation_key("", "c")->name, parse_allocation_key("", "c")->name);
  const std::string name = parse_allocation_key("", "c", "operator\na-key")->name;
  EXPECT_EQ(parse_allocation_key("", "c", "operator\na-key")->name, name);
  EXPECT_NE(parse_allocation_key("", "c", "operator\nb-key")->name, name);
  EXPECT_EQ(name.size(), std::string("allocation-").size() + 10);
}

JobView lease(JobState state, JobReason reason = JobReason::kNone) {
  JobView job{.id = JobId{12}, .tenant = TenantId{3}, .name = {}, .state = state, .reason = reason};
  job.gpus = {"n1-gpu-0", "n1-gpu-1"};
  job.node_name = "n1";
  job.max_runtime = minutes(60);
  return job;
}

DeviceTable table(std::string_view first = "HEALTHY", bool busy = false) {
  return {{"n1-gpu-0", {.uuid = "GPU-a", .health = first, .is_busy = busy}},
          {"n1-gpu-1", {.uuid = "GPU-b", .health = "HEALTHY"}}};
}

TEST(Leases, HaveTheStatusOfTheirJob) {
  using enum JobState;
  const std::pair<JobState, const char*> kStatuses[] = {{kPending, "PROVISIONING"},
                                                        {kScheduled, "PROVISIONING"},
                                                        {kRunning, "AVAILABLE"},
                                                        {kPreempted, "DEPROVISIONING"},
                                                        {kCompleted, "DEPROVISIONED"},
                                                        {kCancelled, "DEPROVISIONED"},
                                                        {kFailed, "ERROR"}};
  for (const auto& [state, status] : kStatuses) {
    EXPECT_EQ(lease_status(lease(state), table()), status);
    EXPECT_TRUE(is_lease_status(status));
  }
  EXPECT_EQ(lease_status(lease(kRunning), table("HEALTHY", true)), "BUSY");
  EXPECT_EQ(lease_status(lease(kFailed, JobReason::kTimeout), table()), "DEPROVISIONED");
  JobView leaving = lease(kRunning);
  leaving.is_being_cancelled = true;
  EXPECT_EQ(lease_status(leaving, table()), "DEPROVISIONING");
  EXPECT_FALSE(is_lease_status("running"));
}

TEST(Leases, AreAsHealthyAsTheirWorstDevice) {
  for (const char* const health : {"HEALTHY", "DEGRADED", "UNKNOWN", "UNHEALTHY"}) {
    EXPECT_EQ(lease_health(lease(JobState::kRunning), table(health)), health);
    EXPECT_TRUE(is_lease_health(health));
  }
  EXPECT_EQ(lease_health(lease(JobState::kRunning), {}), "UNKNOWN");
  EXPECT_EQ(lease_health(lease(JobState::kCancelled), table()), "UNKNOWN");
  NodeView node{.name = "n1"};
  node.devices = {{.index = 0, .uuid = "GPU-a", .model = {}, .condition = "ok"},
                  {.index = 1, .uuid = "GPU-b", .model = {}, .condition = "hot"},
                  {.index = 2, .uuid = "GPU-c", .model = {}, .condition = "faulty"}};
  DeviceTable devices = devices_of({node});
  EXPECT_EQ(devices.at("n1-gpu-0").health, "HEALTHY");
  EXPECT_EQ(devices.at("n1-gpu-1").health, "DEGRADED");
  EXPECT_EQ(devices.at("n1-gpu-2").health, "UNHEALTHY");
  node.contact = NodeState::kUnreachable;
  EXPECT_EQ(devices_of({node}).at("n1-gpu-0").health, "UNKNOWN");
}

TEST(Leases, TellTheirHolderHowToUseThem) {
  JobView job = lease(JobState::kRunning);
  job.submitted_at = Time{1'700'000'000'000'000'000};
  job.started_at = job.submitted_at + seconds(5);
  const DeviceTable devices = table();
  const std::string json = lease_json(job, {.cluster = kCluster, .devices = &devices});
  for (const char* const part :
       {R"("instance_id":"n1","instance_public_ip":null,"hostname":"n1","status":"AVAILABLE")",
        R"("health_state":"HEALTHY","cost_per_hour":0,"lease_expires_at":"2023-11-14T23:13:25Z")",
        R"("last_seen":null,"created_at":"2023-11-14T22:13:20Z","updated_at":"2023-11-14T22:13:25Z")",
        R"("gpu_uuids":["GPU-a","GPU-b"],"environment":{"CUDA_VISIBLE_DEVICES":"GPU-a,GPU-b"})",
        R"("how_to_use":["gpu-cli run --in-lease job-12 -- COMMAND","gpu-cli shell job-12"])"})
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
}

TEST(AllocationErrors, AreAsClientsReadThem) {
  const ErrorAnswer missing = allocation_error({ErrorKind::kJobNotFound, "no such job: job-12"});
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.body, R"({"detail":"GPU not found."})");
  const ErrorAnswer denied =
      allocation_error({ErrorKind::kPermissionDenied, "person ana may not cancel_job"});
  EXPECT_EQ(denied.status, 403);
  EXPECT_EQ(denied.body, R"({"detail":"You do not have permission to access this resource."})");
  const ErrorAnswer quota = allocation_error({ErrorKind::kQuotaExceeded, "quota exceeded for tenant 3"});
  EXPECT_EQ(quota.status, 429);
  EXPECT_EQ(
      quota.body,
      R"({"detail":"GPU quota reached. Please deallocate an existing GPU before requesting a new one."})");
  const ErrorAnswer wrong = allocation_error({ErrorKind::kInvalidArgument, "count must be 1", "count"});
  EXPECT_EQ(wrong.status, 422);
  EXPECT_EQ(wrong.body,
            R"({"detail":[{"loc":["body","count"],"msg":"count must be 1","type":"value_error"}]})");
  EXPECT_EQ(allocation_error({ErrorKind::kMalformedJson, "no JSON"}).body,
            R"({"detail":[{"loc":["body"],"msg":"no JSON","type":"json_invalid"}]})");
  EXPECT_EQ(allocation_error({ErrorKind::kInvalidArgument, "m", "skip"}).body,
            R"({"detail":[{"loc":["query","skip"],"msg":"m","type":"value_error"}]})");
}

constexpr Time kFirstCall{1'750'000'000'000'000'000};

std::shared_ptr<RepeatedCalls> make_calls() { return std::make_shared<RepeatedCalls>(); }

TEST(RepeatedCalls, ARepetitionGetsTheFirstAnswerForADay) {
  const auto calls = make_calls();
  RepeatedCalls::begin(calls, {"a", "k", "POST"}, kFirstCall)->turn->keep(201, "first");
  const auto again = RepeatedCalls::begin(calls, {"a", "k", "POST"}, kFirstCall + hours(23));
  ASSERT_TRUE(again.ok() && again->known);
  EXPECT_EQ(again->known->status, 201);
  EXPECT_EQ(again->known->body, "first");
  EXPECT_NE(RepeatedCalls::begin(calls, {"a", "k", "POST"}, kFirstCall + hours(24))->turn, nullptr);
}

TEST(RepeatedCalls, AKeyIsItsCallersAlone) {
  const auto calls = make_calls();
  RepeatedCalls::begin(calls, {"a", "k", "POST"}, kFirstCall)->turn->keep(201, "of a");
  EXPECT_FALSE(RepeatedCalls::begin(calls, {"b", "k", "POST"}, kFirstCall)->known);
}

TEST(RepeatedCalls, AnotherRequestUnderTheKeyIsRefused) {
  const auto calls = make_calls();
  RepeatedCalls::begin(calls, {"a", "k", "POST /x 1"}, kFirstCall)->turn->keep(201, "");
  EXPECT_EQ(RepeatedCalls::begin(calls, {"a", "k", "POST /x 2"}, kFirstCall).error().kind,
            ErrorKind::kKeyConflict);
}

TEST(RepeatedCalls, WhatHasNoAnswerYetIsNotDoneTwiceAndWhatFailedMayBeTriedAgain) {
  const auto calls = make_calls();
  auto first = RepeatedCalls::begin(calls, {"a", "k", "POST"}, kFirstCall);
  EXPECT_EQ(RepeatedCalls::begin(calls, {"a", "k", "POST"}, kFirstCall).error().kind, ErrorKind::kConflict);
  first->turn.reset();
  EXPECT_NE(RepeatedCalls::begin(calls, {"a", "k", "POST"}, kFirstCall)->turn, nullptr);
}

TEST(RepeatedCalls, OneCallerPushesOutItsOwnAnswersOnly) {
  const auto calls = make_calls();
  RepeatedCalls::begin(calls, {"quiet", "k", ""}, kFirstCall)->turn->keep(200, "kept");
  for (std::size_t i = 0; i < 2 * RepeatedCalls::kAnswersOfOneCallerMax; ++i)
    RepeatedCalls::begin(calls, {"loud", std::to_string(i), ""}, kFirstCall)->turn->keep(200, "");
  EXPECT_TRUE(RepeatedCalls::begin(calls, {"quiet", "k", ""}, kFirstCall)->known);
  EXPECT_FALSE(RepeatedCalls::begin(calls, {"loud", "0", ""}, kFirstCall)->known);
}

}  // namespace
}  // namespace gpusched::api
