// Commands that change jobs and nodes, and completion, against a server that answers as the scheduler does.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

TEST(JobControl, AsksTheNativeApi) {
  std::vector<Request> seen;
  const TestServer::Handler ok = [](const Request&) { return Reply{.body = R"({"job_id":"job-3"})"}; };
  EXPECT_EQ(run_against(ok, {"hold", "job-3", "job-4"}, &seen).out, "job-3 held\njob-4 held\n");
  EXPECT_EQ(seen.at(1).target, "/v1/jobs/job-4/hold");
  EXPECT_EQ(run_against(ok, {"release", "job-3"}).out, "job-3 released\n");
  EXPECT_EQ(run_against(ok, {"requeue", "job-3"}).out, "job-3 requeued\n");
  run_against(ok, {"update", "job-3", "--priority", "-4", "--time", "2h", "--name", "n"}, &seen);
  EXPECT_EQ(seen.at(0).method, "PATCH");
  EXPECT_EQ(seen.at(0).body, R"({"priority":-4,"max_runtime_ms":7200000,"name":"n"})");
  run_against(ok, {"update", "job-3", "--time", "none"}, &seen);
  EXPECT_EQ(seen.at(0).body, R"({"max_runtime_ms":0})");
  EXPECT_EQ(run({"update", "job-3"}).err,
            "gpu-cli: no change was given; use --priority, --time, --name or another option of gpu-cli "
            "update --help "
            "(usage)\n");
  run_against(ok, {"update", "job-3", "--begin", "none", "--deadline", "+1m", "--gpus", "2", "--mem", "8G"},
              &seen);
  EXPECT_EQ(seen.at(0).body,
            R"({"begin_after_ms":0,"deadline_after_ms":60000,"gpu_count":2,"memory_mb":8192})");
}

TEST(JobControl, ElementsAreNamedByTheirRanges) {
  std::vector<Request> seen;
  const TestServer::Handler ok = [](const Request&) { return Reply{.body = R"({"job_id":"job-3"})"}; };
  EXPECT_EQ(run_against(ok, {"requeue", "job-3[1-2,7]", "job-4"}, &seen).out,
            "job-3[1] requeued\njob-3[2] requeued\njob-3[7] requeued\njob-4 requeued\n");
  EXPECT_EQ(seen.at(2).target, "/v1/jobs/job-3%5B7%5D/requeue");
  EXPECT_EQ(
      refusal({"--api-url", "http://127.0.0.1:1", "hold", "job-3[x]"}),
      "gpu-cli: job-3[x]: \"x\" is not a list of element indexes; write it as 3, 10-20, 0-20:5 or 1,5-7 "
      "(usage)\n");
}

TEST(JobControl, RunsAgainWithOneRequestForTheElementsOfAnArray) {
  std::vector<Request> seen;
  const TestServer::Handler made = [](const Request&) {
    return Reply{.status = 201, .body = R"({"job_ids":["job-9"]})"};
  };
  EXPECT_EQ(run_against(made, {"rerun", "job-3[5,1-2,7]", "job-4", "job-3[6]"}, &seen).out, "job-9\njob-9\n");
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen.at(0).target, "/v1/jobs/job-3/rerun?failed=false&indexes=1-2%2C5-7");
  EXPECT_EQ(seen.at(0).method, "POST");
  EXPECT_EQ(seen.at(1).target, "/v1/jobs/job-4/rerun?failed=false");
  run_against(made, {"rerun", "--failed", "job-3"}, &seen);
  EXPECT_EQ(seen.at(0).target, "/v1/jobs/job-3/rerun?failed=true");
  const TestServer::Handler refused = [](const Request&) {
    return Reply{.status = 409, .body = R"({"error":"no element of job-3 failed","code":"conflict"})"};
  };
  const Ran none = run_against(refused, {"rerun", "--failed", "job-3"});
  EXPECT_EQ(none.exit_code, kExitRefused);
  EXPECT_EQ(none.err, "gpu-cli: no element of job-3 failed (conflict)\n");
}

/// A scheduler whose newest job of ana is an element of job-7.
Reply with_newest_job(const Request& request) {
  if (!request.target.starts_with("/v1/jobs?")) return {.body = R"({"job_id":"job-7"})"};
  const bool anas = request.target.find("&user=ana") != std::string::npos;
  return {.body = anas ? R"({"jobs":[{"job_id":"job-7[2]","array_id":"job-7"}]})" : R"({"jobs":[]})"};
}

TEST(JobControl, LastIsTheCallersNewestJob) {
  std::vector<Request> seen;
  const World ana{.find_token = [] { return std::optional<std::string>("t"); }, .login = "ana"};
  EXPECT_EQ(run_against(with_newest_job, {"hold", "last"}, &seen, ana).out, "job-7 held\n");
  EXPECT_EQ(seen.back().target, "/v1/jobs/job-7/hold");
  World ben = ana;
  ben.login = "ben";
  const Ran none = run_against(with_newest_job, {"hold", "last"}, &seen, ben);
  EXPECT_EQ(none.exit_code, kExitUsage);
  EXPECT_EQ(none.err,
            "gpu-cli: last: ben has no job here; gpu-cli list shows the jobs of all users (usage)\n");
  const Ran unknown = run_against(with_newest_job, {"hold", "last"});
  EXPECT_EQ(unknown.exit_code, kExitUsage);
  EXPECT_NE(unknown.err.find("cannot tell which jobs are yours without a token"), std::string::npos)
      << unknown.err;
}

/// A node that drains, reboots and comes back as its commands say, a step for each look at it.
class FakeNode {
 public:
  Reply answer(const Request& request) {
    const std::lock_guard lock(mutex_);
    if (request.method == "GET") {
      advance();
      return record();
    }
    const std::string what = request.target.substr(request.target.rfind('/') + 1);
    calls.push_back(what);
    if (what == "drain") {
      state = "draining";
      const Result<Json> body = Json::parse(request.body);
      reason = (*body)["reason"].text();
      attempts = 2;
    } else if (what == "reboot") {
      if (refuses_reboot) {
        return {.status = 409, .body = R"({"error":"no reboot command is configured","code":"conflict"})"};
      }
      away = 2;
    } else if (what == "resume") {
      state = "ready";
      reason = "";
    }
    return record();
  }

  std::vector<std::string> calls;
  std::string state = "ready";
  std::string reason;
  int boot = 1;
  bool refuses_reboot = false;

 private:
  void advance() {
    if (state == "draining" && --attempts <= 0) state = "drained";
    if (away > 0 && --away == 0) ++boot;
  }
  Reply record() const {
    return {.body = R"({"name":"n1","state":")" + state + R"(","state_reason":")" + reason +
                    R"(","contact":")" + (away > 0 ? "unreachable" : "connected") + R"(","attempts":)" +
                    std::to_string(attempts) + R"(,"boot_id":"b)" + std::to_string(boot) + R"("})"};
  }
  std::mutex mutex_;
  int attempts = 0;
  int away = 0;
};

TEST(RollingReboot, DrainsRebootsWaitsAndResumes) {
  FakeNode node;
  const Ran ran = run_against([&](const Request& request) { return node.answer(request); },
                              {"node", "reboot", "--rolling", "n1"});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_EQ(node.calls, (std::vector<std::string>{"drain", "reboot", "resume"}));
  EXPECT_EQ(ran.out,
            "[1/1] n1 drain\n[1/1] n1 waits for its jobs to end\n[1/1] n1 reboot\n[1/1] n1 reboots\n[1/1] n1 "
            "resume\n"
            "[1/1] n1 is ready\n");
  EXPECT_EQ(node.boot, 2);
}

TEST(RollingReboot, GoesOnWhereAnotherOneEnded) {
  FakeNode node;
  node.state = "drained";
  node.reason = "rolling reboot from boot b0";  // It came back while nobody looked.
  const Ran ran = run_against([&](const Request& request) { return node.answer(request); },
                              {"node", "reboot", "--rolling", "n1"});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_EQ(node.calls, (std::vector<std::string>{"resume"}));
}

TEST(RollingReboot, StopsAtTheFirstFailureAndSaysHowToGoOn) {
  FakeNode node;
  node.refuses_reboot = true;
  const Ran ran = run_against([&](const Request& request) { return node.answer(request); },
                              {"node", "reboot", "--rolling", "n1", "n2"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_EQ(ran.err,
            "gpu-cli: n1: no reboot command is configured (conflict)\nTo continue: gpu-cli node reboot "
            "--rolling n1 n2\n");
}

TEST(Draining, WaitsUntilNothingRuns) {
  FakeNode node;
  const Ran ran = run_against([&](const Request& request) { return node.answer(request); },
                              {"node", "drain", "n1", "--reason", "fans", "--wait"});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "n1 drained\n");
  EXPECT_EQ(node.reason, "fans");
}

TEST(Labelling, SetsAndRemoves) {
  std::vector<Request> seen;
  const Ran ran = run_against([](const Request&) { return Reply{.body = R"({"labels":{"zone":"a"}})"}; },
                              {"node", "label", "n1", "zone=a", "rack-"}, &seen);
  EXPECT_EQ(ran.out, "n1: zone=a\n");
  EXPECT_EQ(seen.at(0).body, R"({"set":{"zone":"a"},"remove":["rack"]})");
  EXPECT_EQ(run({"node", "label", "n1", "zone"}).err,
            "gpu-cli: \"zone\" is neither KEY=VALUE nor KEY- (usage)\n");
}

std::string completed(std::vector<std::string> words) {
  TestServer server([](const Request& request) {
    if (request.target.starts_with("/v1/nodes"))
      return Reply{.body = R"({"nodes":[{"name":"n1","state":"ready"}]})"};
    if (request.target.find("/tenants") != std::string::npos)
      return Reply{.body = R"({"tenants":[{"name":"vision","id":"tenant-4"}]})"};
    return Reply{
        .body =
            R"({"jobs":[{"id":"job-12","name":"train","state":"running"},{"id":"job-9","state":"failed"}]})"};
  });
  words.insert(words.begin(), "__complete");
  return run(words, {.environment = {{"GPU_SCHEDULER_URL", server.url()}}}).out;
}

TEST(Completion, KnowsCommandsOptionsAndValues) {
  EXPECT_EQ(completed({"li"}), "list\tList jobs, newest first\n:\n");
  EXPECT_EQ(completed({"node", "dr"}).substr(0, 6), "drain\t");
  EXPECT_EQ(completed({"submit", "--gpu-mo"}).substr(0, 12), "--gpu-model\t");
  EXPECT_EQ(completed({"list", "--state", "running,f"}), "running,failed\nrunning,finished\n:\n");
  EXPECT_EQ(completed({"list", "--sort=pr"}), "--sort=priority\n:\n");
  EXPECT_EQ(completed({"completion", ""}), "bash\nzsh\nfish\n:\n");
  EXPECT_EQ(completed({"submit", "--chdir", ""}), ":folders\n");
  EXPECT_EQ(completed({"submit", "--", "py"}), ":files\n");
  EXPECT_EQ(completed({"nonsense", ""}), ":\n");
}

TEST(Completion, AsksForIdsAndNames) {
  EXPECT_EQ(completed({"get", "job-1"}), "job-12\trunning train\n:\n");
  EXPECT_EQ(completed({"cancel", "job-12", ""}), "job-12\trunning train\njob-9\tfailed \n:\n");
  EXPECT_EQ(completed({"node", "drain", ""}), "n1\tready\n:\n");
  EXPECT_EQ(completed({"--tenant", "v"}), "vision\ttenant-4\n:\n");
}

TEST(Completion, IsSilentWithoutAScheduler) {
  EXPECT_EQ(run({"__complete", "--api-url", "http://127.0.0.1:1", "get", ""}).out, ":\n");
}

}  // namespace
}  // namespace gpusched::cli::testing
