#include "api/server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <boost/json.hpp>

#include "api/contract/token.h"
#include "api/testing/doors_test.h"
#include "base/limits.h"
#include "codec/group.h"
#include "gpusched/v1/node.grpc.pb.h"
#include "gpusched/v1/scheduler.grpc.pb.h"
#include "scheduler/scheduler.grpc.pb.h"
#include "sign/keys/token_proof.h"

namespace gpusched::api {
namespace {

using RestDoor = DoorsTest;
using GrpcDoor = DoorsTest;
using NodeDoor = DoorsTest;

std::string code_of(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("gpusched-code");
  return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
}

TEST_F(RestDoor, ASubmittedJobIsSeenExplainedAndCancelledOnce) {
  const Reply reply = http("POST", "/api/v1/jobs", R"({"command":["sleep","5"],"name":"n","gpu_count":1})");
  ASSERT_EQ(reply.status, 201) << reply.body;
  EXPECT_EQ(field(reply.body, "status"), "submitted");
  EXPECT_EQ(field(reply.body, "message"), "Job submitted successfully");
  const std::string job = field(reply.body, "job_id");
  const Reply status = http("GET", "/api/v1/jobs/" + job);
  EXPECT_EQ(status.status, 200);
  EXPECT_EQ(field(status.body, "state"), "pending");
  EXPECT_EQ(field(status.body, "name"), "n");
  EXPECT_NE(status.body.find(R"("command":["sleep","5"])"), std::string::npos) << status.body;
  // Until the planner has looked at it, it waits for its turn.
  std::string reason = "queued";
  for (int i = 0; i < 1'000 && reason == "queued"; ++i) {
    reason = field(http("GET", "/api/v1/jobs/" + job + "/explain").body, "reason");
  }
  EXPECT_EQ(reason, "no_node");
  EXPECT_EQ(http("DELETE", "/api/v1/jobs/" + job).status, 200);
  const Reply again = http("DELETE", "/api/v1/jobs/" + job);
  EXPECT_EQ(again.status, 409);
  EXPECT_EQ(field(again.body, "code"), "job_finished");
}

TEST_F(RestDoor, ARepeatedKeyGetsTheSameJobAndAnotherBodyAConflict) {
  const std::string key = "Idempotency-Key: k1\r\n";
  const Reply first = http("POST", "/api/v1/jobs", R"({"script":"true"})", key);
  const Reply second = http("POST", "/api/v1/jobs", R"({"script":"true"})", key);
  EXPECT_EQ(second.status, 201);
  EXPECT_EQ(field(first.body, "job_id"), field(second.body, "job_id"));
  const Reply other = http("POST", "/api/v1/jobs", R"({"script":"false"})", key);
  EXPECT_EQ(other.status, 409);
  EXPECT_EQ(field(other.body, "code"), "request_key_conflict");
}

TEST_F(RestDoor, AServerWhosePortIsTakenNamesTheSettingAndLeavesNothingWithTheHost) {
  for (int round = 0; round < 50; ++round) {
    for (const std::string setting : {"api.http_port", "api.grpc_port", "tasks.grpc_port", "metrics.port"}) {
      ServerOptions options{.http_port = 0, .grpc_port = 0, .metrics_port = 0};
      if (setting == "api.http_port") options.http_port = server_->http_port();
      if (setting == "api.grpc_port") options.grpc_port = server_->grpc_port();
      if (setting == "tasks.grpc_port") options.tasks_grpc_port = server_->grpc_port();
      if (setting == "metrics.port") options.metrics_port = server_->metrics_port();
      const auto second = Server::start(options, *host_);
      ASSERT_FALSE(second.ok());
      EXPECT_EQ(second.error().code, ErrorCode::kLocked);
      EXPECT_EQ(second.error().field, setting);
      submit();  // Its group's end reaches whoever is still registered.
    }
  }
}

TEST_F(RestDoor, NobodyIsAnsweredBeforeThePortsAreTold) {
  ServerOptions options{.http_port = 0, .grpc_port = 0, .metrics_port = 0};
  ServerPorts told;
  int client = -1;
  options.on_bound = [&](const ServerPorts& bound) {
    told = bound;
    client = connect_to(bound.http);  // The port is bound: the request waits in line.
    const std::string_view head = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    EXPECT_EQ(::send(client, head.data(), head.size(), 0), static_cast<ssize_t>(head.size()));
    pollfd answer{.fd = client, .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&answer, 1, 200), 0);
  };
  const auto second = Server::start(options, *host_);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(told.http, (*second)->http_port());
  EXPECT_EQ(told.grpc, (*second)->grpc_port());
  EXPECT_EQ(told.metrics, (*second)->metrics_port());
  pollfd answer{.fd = client, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&answer, 1, -1), 1);
  ::close(client);
}

TEST_F(RestDoor, AWaitEndsWithTheJob) {
  const std::string job = submit();
  std::thread canceller([&] { EXPECT_EQ(http("DELETE", "/api/v1/jobs/" + job).status, 200); });
  const Reply reply = http("GET", "/api/v1/jobs/" + job + "?wait=20s");
  canceller.join();
  EXPECT_EQ(field(reply.body, "state"), "cancelled");
}

TEST_F(RestDoor, AWaitEndsAfterItsTime) {
  const Reply reply = http("GET", "/api/v1/jobs/" + submit() + "?wait=50ms");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(field(reply.body, "state"), "pending");
}

TEST_F(RestDoor, AQuotaThatARequestAloneExceedsIs403) {
  const Reply tenant = http("POST", "/api/v1/tenants", R"({"name":"small","max_gpus":4})");
  ASSERT_EQ(tenant.status, 201) << tenant.body;
  const std::string id = field(tenant.body, "id");
  const Reply reply =
      http("POST", "/api/v1/jobs", R"({"script":"true","gpu_count":8,"tenant_id":")" + id + "\"}");
  EXPECT_EQ(reply.status, 403);
  EXPECT_EQ(field(reply.body, "error"),
            "quota exceeded for tenant " + id + ": GPUs requested=8, quota=4, current=0");
  EXPECT_EQ(field(reply.body, "code"), "quota_exceeded");
  EXPECT_EQ(field(reply.body, "field"), "gpu_count");
}

TEST_F(RestDoor, ATenantIsFoundByNameAndById) {
  const std::string id = field(http("POST", "/api/v1/tenants", R"({"name":"team a"})").body, "id");
  EXPECT_EQ(field(http("GET", "/api/v1/tenants/" + id).body, "name"), "team a");
  EXPECT_EQ(field(http("GET", "/api/v1/tenants/team%20a").body, "id"), id);
  submit(R"({"script":"true","tenant_id":"team a"})");
  EXPECT_NE(http("GET", "/api/v1/jobs?tenant_id=" + id).body.find("\"total\":1"), std::string::npos);
  const Reply update = http("PUT", "/api/v1/tenants/" + id, R"({"max_gpus":2,"name":"b"})");
  EXPECT_NE(update.body.find("\"max_gpus\":2"), std::string::npos) << update.body;
  EXPECT_EQ(http("DELETE", "/api/v1/tenants/" + id).status, 409);
  EXPECT_EQ(http("POST", "/api/v1/tenants?unique_name=true", R"({"name":"b"})").status, 409);
  EXPECT_EQ(http("POST", "/api/v1/tenants?unique_name=maybe", R"({"name":"b"})").status, 400);
  // The same name again is another tenant, and then the name alone says too little.
  const std::string second = field(http("POST", "/api/v1/tenants", R"({"name":"b"})").body, "id");
  const Reply ambiguous = http("GET", "/api/v1/tenants/b");
  EXPECT_EQ(ambiguous.status, 409);
  EXPECT_NE(ambiguous.body.find(id + ", " + second), std::string::npos) << ambiguous.body;
}

/// As many labels as may be, of such a length.
v1::SubmitJobsRequest jobs_with_labels(int count, std::size_t value_bytes) {
  v1::SubmitJobsRequest request;
  for (int i = 0; i < count; ++i) {
    v1::JobRequest& job = *request.add_jobs();
    job.mutable_spec()->set_script("true");
    for (int label = 0; label < static_cast<int>(limits::kLabelTermsMax); ++label) {
      job.mutable_resources()->add_node_labels(std::to_string(1'000'000 + 1'000 * i + label) +
                                               std::string(120, 'k') + "=" + std::string(value_bytes, 'v'));
    }
  }
  return request;
}

TEST_F(GrpcDoor, ABatchThatNoJournalRecordHoldsIsTooLargeAndEndsNothing) {
#ifdef GPUSCHED_THREAD_SANITIZER
  GTEST_SKIP() << "gRPC's 8 MiB give the thread sanitizer suppressed reports until the call times out";
#endif
  const auto stub = v1::Scheduler::NewStub(channel_);
  // The largest message that gRPC takes; a command has a little more around each label.
  std::size_t value_bytes = 1;
  constexpr std::size_t kMessageBytesMax = 8u << 20;
  while (value_bytes < 200 && jobs_with_labels(100, value_bytes + 1).ByteSizeLong() * 10 < kMessageBytesMax)
    ++value_bytes;
  const v1::SubmitJobsRequest request = jobs_with_labels(1'000, value_bytes);
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    v1::SubmitJobsResponse response;
    const grpc::Status status = stub->SubmitJobs(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_EQ(code_of(context), "too_large");
    EXPECT_NE(status.error_message().find(std::to_string(limits::kGroupBytesMax - kGroupHeaderBytes)),
              std::string::npos)
        << status.error_message();
  }
  submit();
  grpc::ClientContext context;
  v1::SubmitJobsResponse response;
  const grpc::Status status = stub->SubmitJobs(&context, jobs_with_labels(300, 100), &response);
  EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
  EXPECT_EQ(response.job_ids_size(), 300);
}

TEST_F(RestDoor, AFullQueueIs429WithATime) {
  v1::SubmitJobsRequest request;
  for (int i = 0; i < 1'000; ++i) request.add_jobs()->mutable_spec()->set_script("true");
  const auto stub = v1::Scheduler::NewStub(channel_);
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    v1::SubmitJobsResponse response;
    ASSERT_TRUE(stub->SubmitJobs(&context, request, &response).ok());
  }
  const Reply reply = http("POST", "/api/v1/jobs", R"({"script":"true"})");
  EXPECT_EQ(reply.status, 429);
  EXPECT_NE(reply.head.find("Retry-After: 5"), std::string::npos) << reply.head;
}

TEST_F(RestDoor, ListsPageAndFilter) {
  for (int i = 0; i < 5; ++i) submit();
  const std::string last = submit(R"({"script":"true","name":"last"})");
  http("DELETE", "/api/v1/jobs/" + last);
  const Reply page = http("GET", "/api/v1/jobs?state=pending&limit=2&offset=1");
  EXPECT_NE(page.body.find("\"total\":5"), std::string::npos) << page.body;
  const Reply cancelled = http("GET", "/api/v1/jobs?state=cancelled");
  EXPECT_NE(cancelled.body.find("\"id\":\"" + last + "\""), std::string::npos);
  EXPECT_EQ(http("GET", "/api/v1/jobs?state=nonsense").status, 400);
  EXPECT_EQ(http("GET", "/api/v1/jobs?limit=-1").status, 400);
}

// Each page begins where the one before ended, whatever is submitted, ends or changes meanwhile.
TEST_F(RestDoor, AWalkByPageTokensNamesEachJobOnce) {
  std::vector<std::string> before;
  for (int i = 0; i < 7; ++i) before.insert(before.begin(), submit());
  std::vector<std::string> seen;
  std::string token;
  for (int pages = 0; pages < 10; ++pages) {
    const Reply page = http("GET", "/api/v1/jobs?limit=2" + (token.empty() ? "" : "&page_token=" + token));
    ASSERT_EQ(page.status, 200) << page.body;
    const auto answer = boost::json::parse(page.body).as_object();
    EXPECT_EQ(answer.at("total").as_int64(), 7 + pages) << page.body;
    for (const auto& job : answer.at("jobs").as_array())
      seen.emplace_back(job.as_object().at("id").as_string());
    const auto* next = answer.if_contains("next_page_token");
    if (next == nullptr) break;
    token = std::string(next->as_string());
    submit();
    http("DELETE", "/api/v1/jobs/" + before[static_cast<std::size_t>(pages)]);
  }
  EXPECT_EQ(seen, before);
}

TEST_F(RestDoor, APageTokenKnowsItsPlaceAlone) {
  submit();
  EXPECT_EQ(http("GET", "/api/v1/jobs?page_token=job-1&offset=0").status, 200);
  const Reply both = http("GET", "/api/v1/jobs?page_token=job-1&offset=1");
  EXPECT_EQ(both.status, 400);
  EXPECT_NE(both.body.find("\"field\":\"offset\""), std::string::npos) << both.body;
  EXPECT_EQ(http("GET", "/api/v1/jobs?page_token=here").status, 400);
  EXPECT_EQ(http("GET", "/api/v1/jobs").body.find("next_page_token"), std::string::npos);
}

TEST_F(RestDoor, MetricsAreServedOnTheirOwnPort) {
  submit();
  const Reply reply = http("GET", "/metrics", "", "", server_->metrics_port());
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find("gpu_scheduler_jobs_total{state=\"pending\"} 1\n"), std::string::npos)
      << reply.body;
  EXPECT_NE(reply.body.find("gpu_scheduler_queue_size 1\n"), std::string::npos);
  EXPECT_EQ(http("GET", "/metrics").status, 404);
}

TEST_F(RestDoor, PagesOfOtherSitesAreRefused) {
  EXPECT_EQ(http("POST", "/api/v1/jobs", R"({"script":"true"})", "Origin: https://evil.example\r\n").status,
            403);
  EXPECT_EQ(http("POST", "/api/v1/jobs", R"({"script":"true"})", "Origin: http://localhost\r\n").status, 201);
}

TEST_F(GrpcDoor, ABatchIsAcceptedWhole) {
  const auto stub = v1::Scheduler::NewStub(channel_);
  v1::SubmitJobsRequest request;
  for (int i = 0; i < 3; ++i) {
    v1::JobRequest& job = *request.add_jobs();
    job.mutable_spec()->set_name("b" + std::to_string(i));
    job.mutable_spec()->add_command("true");
  }
  grpc::ClientContext context;
  v1::SubmitJobsResponse response;
  const grpc::Status status = stub->SubmitJobs(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.job_ids_size(), 3);
  EXPECT_EQ(field(http("GET", "/api/v1/jobs/" + response.job_ids(2)).body, "name"), "b2");

  request.mutable_jobs(1)->mutable_resources()->set_gpu_count(-1);
  grpc::ClientContext second;
  const grpc::Status refused = stub->SubmitJobs(&second, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code_of(second), "invalid_argument");
  EXPECT_NE(http("GET", "/api/v1/jobs").body.find("\"total\":3"), std::string::npos);
}

TEST_F(GrpcDoor, AWatchSendsEachStateAndEnds) {
  const std::string job = submit();
  const auto stub = v1::Scheduler::NewStub(channel_);
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_job_id(job);
  const auto reader = stub->WatchJob(&context, request);
  v1::Job seen;
  ASSERT_TRUE(reader->Read(&seen));
  EXPECT_EQ(seen.state(), v1::JOB_STATE_PENDING);
  http("DELETE", "/api/v1/jobs/" + job);
  ASSERT_TRUE(reader->Read(&seen));
  EXPECT_EQ(seen.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_FALSE(reader->Read(&seen));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(GrpcDoor, AWatchThatTheClientCancelsEnds) {
  const std::string job = submit();
  const auto stub = v1::Scheduler::NewStub(channel_);
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_job_id(job);
  const auto reader = stub->WatchJob(&context, request);
  v1::Job seen;
  ASSERT_TRUE(reader->Read(&seen));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(http("DELETE", "/api/v1/jobs/" + job).status, 200);  // Nobody is told, and nobody minds.
}

TEST_F(GrpcDoor, AnUnknownJobHasItsCode) {
  const auto stub = v1::Scheduler::NewStub(channel_);
  v1::GetJobRequest request;
  request.set_job_id("job-999999");
  v1::Job job;
  grpc::ClientContext context;
  EXPECT_EQ(stub->GetJob(&context, request, &job).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code_of(context), "job_not_found");
  grpc::ClientContext watching;
  const auto reader = stub->WatchJob(&watching, request);
  EXPECT_FALSE(reader->Read(&job));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcDoor, TheJobsDoorSpeaksItsOwnContract) {
  const auto stub = ::scheduler::SchedulerService::NewStub(channel_);
  ::scheduler::SubmitJobRequest request;
  request.set_name("door");
  request.add_command("true");
  ::scheduler::SubmitJobResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->SubmitJob(&context, request, &response).ok());
  EXPECT_EQ(response.status(), "submitted");

  ::scheduler::GetJobStatusRequest ask;
  ask.set_job_id(response.job_id());
  ::scheduler::GetJobStatusResponse status;
  grpc::ClientContext asking;
  ASSERT_TRUE(stub->GetJobStatus(&asking, ask, &status).ok());
  EXPECT_EQ(status.state(), "pending");
  EXPECT_GT(status.submitted_at().seconds(), 0);

  ::scheduler::CancelJobRequest cancel;
  cancel.set_job_id(response.job_id());
  ::scheduler::CancelJobResponse cancelled;
  grpc::ClientContext cancelling;
  ASSERT_TRUE(stub->CancelJob(&cancelling, cancel, &cancelled).ok());
  EXPECT_TRUE(cancelled.success());
  grpc::ClientContext again;
  EXPECT_EQ(stub->CancelJob(&again, cancel, &cancelled).error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  request.set_script("true");
  grpc::ClientContext both;
  EXPECT_EQ(stub->SubmitJob(&both, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  ::scheduler::GetClusterStatusResponse cluster;
  grpc::ClientContext looking;
  ASSERT_TRUE(stub->GetClusterStatus(&looking, {}, &cluster).ok());
  EXPECT_EQ(cluster.total_nodes(), 0);
}

v1::AgentMessage hello(const std::string& nonce) {
  v1::AgentMessage message;
  message.mutable_hello()->set_node_name("n1");
  message.mutable_hello()->set_nonce(nonce);
  return message;
}

v1::AgentMessage registration() {
  v1::AgentMessage message;
  v1::Register& body = *message.mutable_register_();
  body.set_node_name("n1");
  body.set_instance("i1");
  body.set_boot_id("b1");
  body.set_cpu_milli(8'000);
  body.set_memory_mb(1'000);
  v1::Device& device = *body.add_devices();
  device.set_uuid("GPU-1");
  device.set_model("A100");
  device.set_memory_mb(80'000);
  device.set_condition(v1::DEVICE_CONDITION_OK);
  return message;
}

TEST_F(NodeDoor, AnAgentRegistersRunsAJobAndIsSeen) {
  const auto stub = v1::NodeProtocol::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->Connect(&context);
  ASSERT_TRUE(stream->Write(hello(std::string(32, 'n'))));
  v1::SchedulerMessage message;
  ASSERT_TRUE(stream->Read(&message));
  ASSERT_TRUE(message.has_challenge());
  ASSERT_TRUE(stream->Write(registration()));
  ASSERT_TRUE(stream->Read(&message));
  ASSERT_TRUE(message.has_registered()) << message.ShortDebugString();
  EXPECT_EQ(message.term(), 0u) << "it has always been the only scheduler";

  const std::string job = submit(R"({"command":["true"],"gpu_count":1})");
  do {
    ASSERT_TRUE(stream->Read(&message));
  } while (!message.has_start());
  const v1::AttemptKey key = message.start().key();
  v1::AgentMessage started;
  started.mutable_report()->set_id(1);
  *started.mutable_report()->mutable_started()->mutable_key() = key;
  ASSERT_TRUE(stream->Write(started));
  v1::AgentMessage ended;
  ended.mutable_report()->set_id(2);
  *ended.mutable_report()->mutable_ended()->mutable_key() = key;
  ended.mutable_report()->mutable_ended()->mutable_outcome()->set_cause(v1::Outcome::EXITED);
  ended.mutable_report()->mutable_ended()->mutable_outcome()->set_exit_code(3);
  ASSERT_TRUE(stream->Write(ended));

  const Reply reply = http("GET", "/api/v1/jobs/" + job + "?wait=20s");
  EXPECT_EQ(field(reply.body, "state"), "failed") << reply.body;
  EXPECT_NE(reply.body.find("\"exit_code\":3"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find(R"("allocated_gpus":["n1-gpu-0"])"), std::string::npos) << reply.body;
  const Reply nodes = http("GET", "/api/v1/nodes");
  EXPECT_NE(nodes.body.find(R"("id":"n1-gpu-0")"), std::string::npos) << nodes.body;
  EXPECT_EQ(http("POST", "/api/v1/nodes/n1/confirm-dead").status, 409);
  const Reply bad =
      http("POST", "/api/v1/nodes/n1/gpus/0/condition", R"({"condition":"unhealthy","detail":"x"})");
  EXPECT_EQ(bad.status, 200) << bad.body;
  EXPECT_NE(bad.body.find(R"("condition":"unhealthy")"), std::string::npos) << bad.body;
  EXPECT_EQ(http("POST", "/api/v1/nodes/n1/gpus/7/condition", R"({"condition":"ok"})").status, 404);
  EXPECT_EQ(http("POST", "/api/v1/nodes/n9/confirm-dead").status, 404);

  // Its output is asked for on the same stream, and relayed as it comes.
  std::thread agent([&] {
    v1::SchedulerMessage asked;
    const std::vector<std::string> pieces = {"first ", "second", ""};
    std::size_t at = 0;
    while (at < pieces.size() && stream->Read(&asked)) {
      if (!asked.has_read_log()) continue;
      v1::AgentMessage answer;
      answer.mutable_log_chunk()->set_request(asked.read_log().request());
      answer.mutable_log_chunk()->set_offset(asked.read_log().offset());
      answer.mutable_log_chunk()->set_data(pieces[at]);
      answer.mutable_log_chunk()->set_at_end(++at == pieces.size());
      stream->Write(answer);
    }
  });
  const Reply log = http("GET", "/api/v1/jobs/" + job + "/logs?follow=true");
  agent.join();
  EXPECT_EQ(log.status, 200);
  EXPECT_EQ(log.body, "6\r\nfirst \r\n6\r\nsecond\r\n0\r\n\r\n");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

class LeadingNodeDoor : public DoorsTest {
 protected:
  LeadingNodeDoor() : DoorsTest({}, 7) {}
};

TEST_F(LeadingNodeDoor, OrdersTellTheTermOfOneOfSeveralSchedulers) {
  const auto stub = v1::NodeProtocol::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->Connect(&context);
  ASSERT_TRUE(stream->Write(hello(std::string(32, 'n'))));
  v1::SchedulerMessage message;
  ASSERT_TRUE(stream->Read(&message));
  ASSERT_TRUE(stream->Write(registration()));
  ASSERT_TRUE(stream->Read(&message));
  ASSERT_TRUE(message.has_registered()) << message.ShortDebugString();
  EXPECT_EQ(message.term(), 7u);
  const std::string job = submit(R"({"command":["true"],"gpu_count":1})");
  do {
    ASSERT_TRUE(stream->Read(&message));
  } while (!message.has_start());
  EXPECT_EQ(message.term(), 7u);
  EXPECT_EQ("job-" + std::to_string(message.start().key().job()), job);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(NodeDoor, AStreamThatBeginsWronglyIsRefused) {
  const auto stub = v1::NodeProtocol::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->Connect(&context);
  ASSERT_TRUE(stream->Write(registration()));
  v1::SchedulerMessage message;
  ASSERT_TRUE(stream->Read(&message));
  EXPECT_EQ(message.refused().code(), "invalid_argument");
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_TRUE(stream->Finish().ok());
}

class TokenDoor : public DoorsTest {
 protected:
  TokenDoor() : DoorsTest({.address = "0.0.0.0", .token = kTestToken}) {}
};

TEST_F(TokenDoor, RestAsksForTheToken) {
  const Reply refused = http("GET", "/api/v1/jobs");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(field(refused.body, "code"), "unauthenticated");
  EXPECT_EQ(http("GET", "/api/v1/jobs", "", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(
      http("GET", "/api/v1/jobs", "", std::string("Authorization: Bearer ") + kTestToken + "\r\n").status,
      200);
}

TEST_F(TokenDoor, GrpcAsksForTheToken) {
  const auto stub = v1::Scheduler::NewStub(channel_);
  v1::Cluster cluster;
  grpc::ClientContext without;
  EXPECT_EQ(stub->GetCluster(&without, {}, &cluster).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext with;
  with.AddMetadata("authorization", std::string("Bearer ") + kTestToken);
  EXPECT_TRUE(stub->GetCluster(&with, {}, &cluster).ok());
}

/// The scheduler's words to an agent that proves to know `token`, up to and with Proven or a refusal.
v1::SchedulerMessage prove_token(grpc::ClientReaderWriter<v1::AgentMessage, v1::SchedulerMessage>& stream,
                                 const std::string& token) {
  v1::AgentMessage out = hello(std::string(32, 'n'));
  out.mutable_hello()->set_handshake(2);
  EXPECT_TRUE(stream.Write(out));
  v1::SchedulerMessage in;
  EXPECT_TRUE(stream.Read(&in));
  EXPECT_EQ(in.challenge().proof(),
            "");  // Nobody is told anything that depends on the token before he proves it.
  const std::string both = std::string(32, 'n') + in.challenge().nonce();
  out.mutable_prove()->set_proof(sign::prove(token, sign::kAgentLabel, both));
  EXPECT_TRUE(stream.Write(out));
  EXPECT_TRUE(stream.Read(&in));
  if (in.has_proven()) {
    EXPECT_EQ(in.proven().proof(), sign::prove(token, sign::kSchedulerLabel, both));
  }
  return in;
}

TEST_F(TokenDoor, AgentsProveThatTheyKnowTheToken) {
  const auto stub = v1::NodeProtocol::NewStub(channel_);
  for (const bool knows : {false, true}) {
    grpc::ClientContext context;
    const auto stream = stub->Connect(&context);
    v1::SchedulerMessage message = prove_token(*stream, knows ? kTestToken : "0123456789abcdef");
    EXPECT_EQ(message.has_proven(), knows) << message.ShortDebugString();
    EXPECT_EQ(message.refused().code(), knows ? "" : "unauthenticated");
    if (knows) {
      ASSERT_TRUE(stream->Write(registration()));
      ASSERT_TRUE(stream->Read(&message));
      EXPECT_TRUE(message.has_registered()) << message.ShortDebugString();
    }
    stream->WritesDone();
    stream->Finish();
  }
}

TEST_F(TokenDoor, AnAgentThatDoesNotProveItIsRefused) {
  const auto stub = v1::NodeProtocol::NewStub(channel_);
  for (const uint32_t handshake : {0u, 2u}) {
    grpc::ClientContext context;
    const auto stream = stub->Connect(&context);
    v1::AgentMessage out = hello(std::string(32, 'n'));
    out.mutable_hello()->set_handshake(handshake);
    ASSERT_TRUE(stream->Write(out));
    v1::SchedulerMessage message;
    ASSERT_TRUE(stream->Read(&message));
    if (handshake == 2) {
      ASSERT_TRUE(stream->Write(registration()));
      ASSERT_TRUE(stream->Read(&message));
    }
    EXPECT_EQ(message.refused().code(), "unauthenticated") << message.ShortDebugString();
    stream->WritesDone();
    stream->Finish();
  }
}

class OldAgentDoor : public DoorsTest {
 protected:
  OldAgentDoor() : DoorsTest({.token = kTestToken, .old_agent_handshake = true}) {}
};

TEST_F(OldAgentDoor, AnOlderAgentProvesItInItsWayWhereThatIsAllowed) {
  const auto stub = v1::NodeProtocol::NewStub(channel_);
  const std::string nonce(32, 'n');
  for (const bool knows : {false, true}) {
    grpc::ClientContext context;
    const auto stream = stub->Connect(&context);
    ASSERT_TRUE(stream->Write(hello(nonce)));
    v1::SchedulerMessage message;
    ASSERT_TRUE(stream->Read(&message));
    EXPECT_EQ(message.challenge().proof(), sign::prove(kTestToken, sign::kOldSchedulerLabel, nonce));
    v1::AgentMessage body = registration();
    body.mutable_register_()->set_proof(sign::prove(knows ? kTestToken : "0123456789abcdef",
                                                    sign::kOldAgentLabel, message.challenge().nonce()));
    ASSERT_TRUE(stream->Write(body));
    ASSERT_TRUE(stream->Read(&message));
    EXPECT_EQ(message.has_registered(), knows) << message.ShortDebugString();
    stream->WritesDone();
    stream->Finish();
  }
}

TEST(ServerStart, AnOpenAddressWithoutATokenIsRefused) {
  char pattern[] = "/tmp/gpusched-doors-XXXXXX";
  const std::string folder = mkdtemp(pattern);
  auto host = Host::open({.data_dir = folder});
  ASSERT_TRUE(host.ok());
  const auto server =
      Server::start({.address = "0.0.0.0", .http_port = 0, .grpc_port = 0, .metrics_port = 0}, **host);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, ErrorCode::kInvalidArgument);
  (*host)->stop();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gpusched::api
