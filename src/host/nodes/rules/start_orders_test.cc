#include "host/nodes/rules/start_orders.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/text/task_content.h"
#include "base/text/task_payload.h"
#include "base/text/task_worker.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// The owner as the order to start the job tells it.
std::string owner_told(TestEngine& engine, TenantId tenant, CallerKind kind, const std::string& owner) {
  SubmitJobs command{.tenant = tenant, .jobs = {request_of({.cpu_milli = 1'000})}};
  std::string spec;
  add_task_content(spec, {.high = 1, .low = 2});
  add_task_payload(spec, owner);
  add_worker(spec, {.command = "exec answer", .idle_ms = "1000"});
  command.jobs[0].spec = Blob(spec);
  command.owner_kind = kind;
  command.owner = owner;
  const JobId job{engine.apply(command).first_id};
  engine.cycle();
  const Attempt* const attempt = engine.state().find_attempt(job, 1);
  EXPECT_NE(attempt, nullptr);
  if (attempt == nullptr) return "";
  const v1::StartAttempt start = common_start(engine.state(), *attempt, seconds(1), seconds(1));
  const std::optional<WorkerRequest> worker = worker_of(start.spec());
  EXPECT_EQ(worker->command, "exec answer");
  // Else no two tasks would be alike to an agent, and each would get a worker of its own.
  EXPECT_FALSE(task_content_of(start.spec()).is_known());
  EXPECT_EQ(task_payload_of(start.spec()), "");
  return worker->owner;
}

TEST(StartOrders, TellOwnersOfJobsApart) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  engine.add_node("n1", {.gpus = 1});
  const TenantId lab = engine.add_tenant("lab");
  std::set<std::string> told;
  for (const TenantId tenant : {kDefaultTenant, lab}) {
    for (const CallerKind kind : {CallerKind::kPerson, CallerKind::kService}) {
      for (const char* const name : {"ana", "bob"}) told.insert(owner_told(engine, tenant, kind, name));
    }
    told.insert(owner_told(engine, tenant, CallerKind::kAnonymous, ""));
  }
  EXPECT_EQ(told.size(), 10U);
  EXPECT_EQ(told.count(""), 0U);
  EXPECT_EQ(owner_told(engine, lab, CallerKind::kPerson, "ana"),
            owner_told(engine, lab, CallerKind::kPerson, "ana"));
}

TEST(StartOrders, LeaveOtherJobsAsTheyAre) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  const Attempt* const attempt = engine.state().find_attempt(job, 1);
  EXPECT_EQ(common_start(engine.state(), *attempt, seconds(1), seconds(1)).spec(),
            std::string(engine.job(job).spec.view()));
}

}  // namespace
}  // namespace gpusched
