// The tasks door over gRPC, by a client of its contract: what is refused is an answer.
#include "api/doors/agent_tasks/agent_tasks_grpc.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "algogpu/algogpu.grpc.pb.h"
#include "api/testing/doors_test.h"

namespace gpusched::api {
namespace {

constexpr const char* kAdmin = "Authorization: Bearer the-right-token\r\n";

ServerOptions with_workers() {
  ServerOptions options{.token = "the-right-token"};
  options.tasks.limits.queue_size = 3;
  options.tasks.limits.tokens_per_second = 1e-6;
  options.tasks.limits.tokens_burst = 20;
  options.tasks.workers.commands.fill("cat");
  options.tasks.workers.commands[static_cast<std::size_t>(TaskKind::kDiffusion)] = "";
  return options;
}

/// A client with an API key that has a role in `lab`; the shared token is an admin's.
class AgentTasks : public DoorsTest {
 protected:
  AgentTasks() : DoorsTest(with_workers()) {
    use_newest_rules();
    for (const char* const name : {"lab", "other"})
      EXPECT_EQ(http("POST", "/v1/tenants", R"({"name":")" + std::string(name) + "\"}", kAdmin).status, 201);
    be_in(R"("tenant_id":"lab")", "user");
    stub_ = algogpu::GPUScheduler::NewStub(channel_);
  }
  /// From now on the client sends a key of that home with that role.
  void be_in(const std::string& home, const std::string& role) {
    const std::string name = "agent-" + std::to_string(++keys_);
    const std::string body = R"({"name":")" + name + "\"," + home + R"(,"roles":[{"role":")" + role + "\"}]}";
    const Reply made = http("POST", "/v1/keys", body, kAdmin);
    ASSERT_EQ(made.status, 201) << made.body;
    const std::string begin = R"("secret":")";
    const std::size_t at = made.body.find(begin) + begin.size();
    secret_ = made.body.substr(at, made.body.find('"', at) - at);
  }
  void identify(grpc::ClientContext& context) const {
    context.AddMetadata("authorization", "Bearer " + secret_);
  }

  struct Told {
    grpc::Status rpc;
    bool accepted = false;
    std::string message;
    int status = 0;
  };
  Told submit_task(const std::string& id, algogpu::TaskType type = algogpu::TASK_TYPE_OTHER,
                   const std::string& user = "agent-1") {
    algogpu::TaskRequest request;
    request.set_task_id(id);
    request.set_user_id(user);
    request.set_task_type(type);
    request.set_payload("hello");
    algogpu::TaskResponse response;
    grpc::ClientContext context;
    identify(context);
    Told told{.rpc = stub_->SubmitTask(&context, request, &response)};
    told.accepted = response.accepted(), told.message = response.message(), told.status = response.status();
    return told;
  }
  algogpu::TaskStatusResponse status_of(const std::string& id) {
    algogpu::TaskStatusRequest request;
    request.set_task_id(id);
    algogpu::TaskStatusResponse response;
    grpc::ClientContext context;
    identify(context);
    EXPECT_TRUE(stub_->GetTaskStatus(&context, request, &response).ok());
    EXPECT_EQ(response.task_id(), id);
    return response;
  }
  algogpu::CancelTaskResponse cancel_task(const std::string& id) {
    algogpu::CancelTaskRequest request;
    request.set_task_id(id);
    algogpu::CancelTaskResponse response;
    grpc::ClientContext context;
    identify(context);
    EXPECT_TRUE(stub_->CancelTask(&context, request, &response).ok());
    return response;
  }
  void expect_rejected(const Told& told, const std::string& message) {
    EXPECT_TRUE(told.rpc.ok()) << told.rpc.error_message();
    EXPECT_FALSE(told.accepted);
    EXPECT_EQ(told.status, algogpu::TASK_STATUS_REJECTED);
    EXPECT_EQ(told.message, message);
  }

  int keys_ = 0;
  std::string secret_;
  std::unique_ptr<algogpu::GPUScheduler::Stub> stub_;
};

TEST_F(AgentTasks, ATaskIsTakenOnceAndReadBackAndCancelled) {
  const Told first = submit_task("t-1");
  EXPECT_TRUE(first.rpc.ok() && first.accepted) << first.message;
  EXPECT_EQ(first.status, algogpu::TASK_STATUS_PENDING);
  EXPECT_TRUE(first.message.ends_with(": Task accepted")) << first.message;
  const Told again = submit_task("t-1");
  EXPECT_TRUE(again.rpc.ok() && again.accepted);
  EXPECT_EQ(again.message, first.message + " before");
  EXPECT_EQ(status_of("t-1").status(), algogpu::TASK_STATUS_PENDING);
  EXPECT_GT(status_of("t-1").created_at(), 0);
  const algogpu::CancelTaskResponse cancelled = cancel_task("t-1");
  EXPECT_TRUE(cancelled.success()) << cancelled.message();
  EXPECT_EQ(status_of("t-1").status(), algogpu::TASK_STATUS_CANCELLED);
  EXPECT_EQ(submit_task("t-1").status, algogpu::TASK_STATUS_CANCELLED);  // It was this task.
  EXPECT_FALSE(cancel_task("t-1").success());
}

TEST_F(AgentTasks, OtherContentIsRefusedAndTheTaskStaysAsItWas) {
  const std::string job = submit_task("t-1").message;
  const std::string why = "task already exists with other content";
  expect_rejected(submit_task("t-1", algogpu::TASK_TYPE_OTHER, "agent-2"), why);
  expect_rejected(submit_task("t-1", algogpu::TASK_TYPE_LLM), why);
  expect_rejected(submit_task("t-1", algogpu::TASK_TYPE_DIFFUSION), why);  // Which has no worker.
  EXPECT_EQ(submit_task("t-1").message, job + " before");
  EXPECT_EQ(status_of("t-1").status(), algogpu::TASK_STATUS_PENDING);
}

TEST_F(AgentTasks, WhatIsNotThereIsAnAnswer) {
  EXPECT_EQ(status_of("t-9").status(), algogpu::TASK_STATUS_FAILED);
  EXPECT_EQ(status_of("t-9").message(), "Task not found");
  EXPECT_FALSE(cancel_task("t-9").success());
  EXPECT_EQ(cancel_task("t-9").message(), "task not found");
}

TEST_F(AgentTasks, ARefusalIsAnAnswerThatReadsBack) {
  expect_rejected(submit_task(""), "task_id is missing; choose one for each task");
  const std::string no_worker =
      "no worker is configured for tasks of type diffusion; set tasks.diffusion_command or "
      "tasks.diffusion_endpoint in the scheduler's configuration";
  expect_rejected(submit_task("d", algogpu::TASK_TYPE_DIFFUSION), no_worker);
  EXPECT_EQ(status_of("d").status(), algogpu::TASK_STATUS_REJECTED);
  EXPECT_EQ(status_of("d").message(), no_worker);
  EXPECT_FALSE(cancel_task("d").success());
  for (const char* const id : {"l1", "l2", "l3"}) {
    EXPECT_TRUE(submit_task(id, algogpu::TASK_TYPE_LLM).accepted);
    cancel_task(id);
    EXPECT_EQ(status_of(id).status(), algogpu::TASK_STATUS_CANCELLED);  // From then on it is not pending.
  }
  for (const char* const id : {"a", "b", "c"}) EXPECT_TRUE(submit_task(id).accepted);
  expect_rejected(submit_task("e"), "queue is full");
  EXPECT_EQ(status_of("e").message(), "queue is full");
  cancel_task("a");
  EXPECT_EQ(status_of("a").status(), algogpu::TASK_STATUS_CANCELLED);
  expect_rejected(submit_task("e", algogpu::TASK_TYPE_LLM), "insufficient token");
  EXPECT_EQ(status_of("e").message(), "insufficient token");
  EXPECT_TRUE(submit_task("e", algogpu::TASK_TYPE_LLM, "agent-2").accepted);
  EXPECT_EQ(status_of("e").status(), algogpu::TASK_STATUS_PENDING);
}

TEST_F(AgentTasks, ATenantsTasksAreItsOwn) {
  EXPECT_TRUE(submit_task("t-1").accepted);
  expect_rejected(submit_task("d", algogpu::TASK_TYPE_DIFFUSION),
                  "no worker is configured for tasks of type diffusion; set tasks.diffusion_command or "
                  "tasks.diffusion_endpoint in the scheduler's configuration");
  be_in(R"("tenant_id":"other")", "user");
  EXPECT_EQ(status_of("t-1").message(), "Task not found");
  EXPECT_EQ(status_of("d").message(), "Task not found");
  EXPECT_EQ(cancel_task("t-1").message(), "task not found");
  const Told theirs = submit_task("t-1");
  EXPECT_TRUE(theirs.message.ends_with(": Task accepted")) << theirs.message;
}

TEST_F(AgentTasks, WhoMayNotSubmitIsToldByTheCallsStatus) {
  be_in(R"("tenant_id":"lab")", "viewer");
  EXPECT_EQ(submit_task("t-1").rpc.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(status_of("t-1").message(), "Task not found");
}

TEST_F(AgentTasks, WhoHasNoRightLearnsNothing) {
  be_in(R"("cluster":true)", "user");  // With that role its tasks are the default tenant's.
  EXPECT_TRUE(submit_task("t-1").accepted);
  EXPECT_EQ(submit_task("d", algogpu::TASK_TYPE_DIFFUSION).status, algogpu::TASK_STATUS_REJECTED);
  EXPECT_EQ(status_of("d").status(), algogpu::TASK_STATUS_REJECTED);
  be_in(R"("cluster":true)", "metrics");
  for (const char* const id : {"t-1", "d", "t-9"}) {
    EXPECT_EQ(submit_task(id).rpc.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(status_of(id).message(), "Task not found");
    EXPECT_EQ(cancel_task(id).message(), "task not found");
  }
}

TEST_F(AgentTasks, EventsAreInOrderUntilTheClientGoes) {
  grpc::ClientContext context;
  identify(context);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const std::unique_ptr<grpc::ClientReader<algogpu::TaskEvent>> events = stub_->TaskEvents(&context, {});
  // The stream has no first message: a task that it tells of shows that it is open.
  for (int i = 0; i < 3; ++i) {
    const std::string id = "t-" + std::to_string(i);
    EXPECT_TRUE(submit_task(id).accepted);
    cancel_task(id);
  }
  std::vector<std::pair<std::string, int>> told;
  algogpu::TaskEvent event;
  while ((told.empty() || told.back() != std::pair<std::string, int>("t-2", 4)) && events->Read(&event)) {
    EXPECT_GT(event.timestamp(), 0);
    EXPECT_TRUE(event.message().starts_with("job-")) << event.message();
    told.emplace_back(event.task_id(), event.status());
  }
  ASSERT_GE(told.size(), 2U);
  for (std::size_t i = 0; i < told.size(); ++i)
    EXPECT_EQ(told[i].second, (told.size() - i) % 2 == 0 ? 0 : 4) << told[i].first << i;
  context.TryCancel();
  EXPECT_EQ(events->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(AgentTasks, OfManyEventsAtOnceNoneIsLostAndEachTasksAreInOrder) {
  grpc::ClientContext context;
  identify(context);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const std::unique_ptr<grpc::ClientReader<algogpu::TaskEvent>> events = stub_->TaskEvents(&context, {});
  events->WaitForInitialMetadata();  // From here on every change is told.
  constexpr int kClients = 3, kTasks = 40;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([this, client] {
      for (int i = 0; i < kTasks; ++i) {
        const std::string id = "t-" + std::to_string(client) + "-" + std::to_string(i);
        const std::string user = "agent-" + std::to_string(client) + "-" + std::to_string(i / 10);
        EXPECT_TRUE(submit_task(id, algogpu::TASK_TYPE_OTHER, user).accepted);
        EXPECT_TRUE(cancel_task(id).success());
        EXPECT_EQ(status_of(id).status(), algogpu::TASK_STATUS_CANCELLED);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  std::map<std::string, std::vector<int>> told;
  algogpu::TaskEvent event;
  for (int i = 0; i < 2 * kClients * kTasks; ++i) {
    ASSERT_TRUE(events->Read(&event)) << i;
    told[event.task_id()].push_back(event.status());
  }
  EXPECT_EQ(told.size(), static_cast<std::size_t>(kClients * kTasks));
  for (const auto& [id, states] : told) EXPECT_EQ(states, (std::vector<int>{0, 4})) << id;
  context.TryCancel();
  EXPECT_EQ(events->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace gpusched::api
