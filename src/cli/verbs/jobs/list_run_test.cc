#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"

/// gpu-cli list and cancel against a server that answers as told.
namespace gpusched::cli::testing {
namespace {

const char* const kJobPage = R"({"next_page_token":"job-9","jobs":[
  {"job_id":"job-12","tenant_id":"default","name":"訓練 of a very long name that does not fit on the screen at all","state":"running",
   "priority":600,"gpu_count":8,"user":"ada","node_name":"n1","members":[{},{}],"submitted_at":"2025-01-31T09:00:00Z","started_at":"2025-01-31T09:00:40Z"},
  {"id":"job-9","tenant_id":"default","name":"eval","state":"completed","priority":5,"gpu_count":0,
   "submitted_at":"2025-01-30T09:00:00Z","started_at":"2025-01-30T09:00:00Z","completed_at":"2025-01-30T10:00:00Z"}
  ],"total":9})";

TEST(Listing, FitsTheTerminal) {
  std::vector<Request> seen;
  const Ran ran =
      run_against([](const Request&) { return Reply{.body = kJobPage}; },
                  {"list", "--state", "running", "--limit", "2", "--elements", "--tenant-id", "a b"}, &seen);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "ID      NAME                         USER  STATE      GPUS    RAN  NODE/REASON\n"
            "job-12  訓練 of a very long name t…  ada   running       8  1m00s  n1 and 1 more\n"
            "job-9   eval                               completed     0  1h00m\n"
            "The newest 2 of 9; leave out --limit for all.\n");
  EXPECT_EQ(seen.at(0).target.substr(0, 34), "/v1/jobs?page_size=2&fields=job_id");
  EXPECT_TRUE(seen.at(0).target.ends_with("&state=running&tenant_id=a%20b")) << seen.at(0).target;
}

/// Answers each state's question with its own jobs.
Reply of_its_state(const Request& request) {
  const auto asks = [&](const std::string& state) {
    return request.target.find("&state=" + state) != std::string::npos;
  };
  const auto page = [](const std::string& jobs) {
    return Reply{.body = R"({"total":9,"jobs":[)" + jobs + "]}"};
  };
  if (asks("pending"))
    return page(R"({"job_id":"job-7","state":"pending","held":true,"message":"is held"},
                   {"job_id":"job-5","state":"pending","reason":"gpus_busy","message":"wants 8 GPUs"})");
  if (asks("running"))
    return page(
        R"({"job_id":"job-6","state":"running","node_name":"n1","message":"is being stopped on n1"})");
  if (asks("completed"))
    return page(R"({"job_id":"job-4","state":"completed","completed_at":"2025-01-31T07:00:00Z"},
                   {"job_id":"job-2","state":"completed","completed_at":"2025-01-31T09:00:00Z","node_name":"n1"})");
  if (asks("failed"))
    return page(
        R"({"job_id":"job-1","state":"failed","completed_at":"2025-01-31T09:01:00Z","message":"exit code 3"})");
  return page("");
}

TEST(Listing, HasWhatHasNotEndedAndThenWhatEndedInTheLastHour) {
  EXPECT_EQ(run_against(of_its_state, {"list", "--columns", "id,state,where"}).out,
            "ID     STATE      NODE/REASON\n"
            "job-7  held       is held\n"
            "job-6  stopping   n1\n"
            "job-5  pending    gpus_busy: wants 8 GPUs\n"
            "job-1  failed     exit code 3\n"
            "job-2  completed  n1\n");
}

TEST(Listing, FindsTheStatesThatPeopleSee) {
  EXPECT_EQ(run_against(of_its_state, {"list", "--state", "held", "-o", "name"}).out, "job-7\n");
  EXPECT_EQ(run_against(of_its_state, {"list", "--state", "stopping,held", "-o", "name"}).out,
            "job-7\njob-6\n");
}

TEST(Listing, EndsWithTheScreen) {
  const World screen{.out_is_terminal = true, .height = 7};
  EXPECT_EQ(
      run_against(of_its_state, {"list", "--columns", "id", "--color", "never"}, nullptr, screen).out,
      "ID\njob-7\njob-6\njob-5\n2 further lines do not fit on the screen; gpu-cli list | less shows all\n");
  EXPECT_EQ(run_against(of_its_state, {"list", "-o", "name", "--state", "pending"}, nullptr, screen).out,
            "job-7\njob-5\n");
}

TEST(Listing, AllGoesThroughThePages) {
  std::vector<Request> seen;
  const Ran ran = run_against(
      [](const Request& request) {
        const bool first = request.target.find("offset=0") != std::string::npos;
        return Reply{.body = first ? R"({"jobs":[{"id":"job-2"},{"id":"job-1"}],"total":3})"
                                   : R"({"jobs":[{"id":"job-0"}],"total":3})"};
      },
      {"list", "--all", "--json"}, &seen);
  EXPECT_EQ(ran.out, "{\"jobs\":[{\"id\":\"job-2\"},{\"id\":\"job-1\"},{\"id\":\"job-0\"}],\"total\":3}\n");
  EXPECT_EQ(seen.at(1).target, "/api/v1/jobs?limit=1000&offset=2");
}

TEST(Listing, LeavesFilteringToTheScheduler) {
  std::vector<Request> seen;
  const Ran ran =
      run_against([](const Request&) { return Reply{.body = R"({"jobs":[{"job_id":"job-5"}]})"}; },
                  {"list", "-o", "name", "--name", "sweep-*", "--user", "ada", "-l", "team", "-l", "tier=1",
                   "--since", "1h"},
                  &seen);
  EXPECT_EQ(ran.out, "job-5\n");
  EXPECT_EQ(
      seen.at(0).target,
      "/v1/"
      "jobs?page_size=10000&fields=job_id,state&user=ada&name=sweep-%2A&label=team&label=tier%3D1&since="
      "2025-01-31T08%3A01%"
      "3A40Z");
}

TEST(Listing, GoesOnWithThePagesToken) {
  std::vector<Request> seen;
  const Ran ran = run_against(
      [](const Request& request) {
        return Reply{
            .body =
                request.target.find("page_token=job-8") == std::string::npos
                    ? R"({"jobs":[{"job_id":"job-9"},{"job_id":"job-8"}],"total":3,"next_page_token":"job-8"})"
                    : R"({"jobs":[{"job_id":"job-7"}],"total":3})"};
      },
      {"list", "--all", "-o", "name", "--sort", "-id"}, &seen);
  EXPECT_EQ(ran.out, "job-7\njob-8\njob-9\n");
  EXPECT_NE(seen.at(0).target.find("page_size=10000&"), std::string::npos);
}

TEST(Listing, FiltersTheJobsDoorsRecordsItself) {
  const TestServer::Handler three = [](const Request&) {
    return Reply{.body = R"({"jobs":[
      {"id":"job-5","name":"sweep-2","user":"ada","labels":{"team":"x","tier":"1"},"submitted_at":"2025-01-31T09:00:00Z"},
      {"id":"job-4","name":"sweep-1","user":"bob","labels":{"team":"y"},"submitted_at":"2025-01-31T08:00:00Z"},
      {"id":"job-3","name":"eval","submitted_at":"2025-01-29T09:00:00Z"}],"total":3})"};
  };
  const auto ids = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"list", "--json"});
    const Result<Json> json = Json::parse(run_against(three, more).out);
    std::string out;
    for (const Json& job : json ? (*json)["jobs"].items() : std::vector<Json>{})
      out += job["id"].text() + " ";
    return out;
  };
  EXPECT_EQ(ids({"--name", "sweep-*"}), "job-5 job-4 ");
  EXPECT_EQ(ids({"--user", "bob"}), "job-4 ");
  EXPECT_EQ(ids({"-l", "team", "-l", "tier=1"}), "job-5 ");
  EXPECT_EQ(ids({"--since", "1d"}), "job-5 job-4 ");
  EXPECT_EQ(ids({"--sort", "-id", "--limit", "2"}), "job-3 job-4 ");
}

TEST(Listing, AsksForEachOfSeveralStates) {
  std::vector<Request> seen;
  const Ran ran = run_against(
      [](const Request& request) {
        const bool failed = request.target.find("state=failed") != std::string::npos;
        return Reply{.body = failed ? R"({"jobs":[{"id":"job-2"}],"total":1})"
                                    : R"({"jobs":[{"id":"job-9"}],"total":1})"};
      },
      {"list", "--state", "failed,running", "-o", "name"}, &seen);
  EXPECT_EQ(ran.out, "job-9\njob-2\n");
  EXPECT_EQ(seen.size(), 2u);
}

TEST(Listing, SaysWhenThereIsNothing) {
  EXPECT_EQ(
      run_against([](const Request&) { return Reply{.body = R"({"jobs":[],"total":0})"}; }, {"list"}).out,
      "No jobs wait, run or ended in the last hour; gpu-cli list --all shows older ones.\n");
}

TEST(Cancelling, GoesOnAfterARefusalAndNamesTheJob) {
  std::vector<Request> seen;
  const Ran ran = run_against(
      [](const Request& request) {
        if (request.target.find("/job-1/") != std::string::npos)
          return Reply{.status = 409, .body = R"({"error":"it has ended","code":"job_finished"})"};
        const bool waits = request.target.find("/job-2/") != std::string::npos;
        return Reply{.body = waits ? R"({"state":"cancelled"})" : R"({"state":"running"})"};
      },
      {"cancel", "job-1", "job-2", "job-3[4-5]"}, &seen);
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_EQ(ran.out, "job-2 cancelled\njob-3[4] is being stopped\njob-3[5] is being stopped\n");
  EXPECT_EQ(ran.err, "gpu-cli: job-1: it has ended (job_finished)\n");
  EXPECT_EQ(seen.at(1).target, "/v1/jobs/job-2/cancel");
  EXPECT_EQ(run_against([](const Request&) { return Reply{.body = R"({"message":"x"})"}; },
                        {"cancel", "job-2", "--json"}, &seen)
                .out,
            "{\"message\":\"x\"}\n");
  EXPECT_EQ(seen.at(0).method, "DELETE");
}

TEST(Cancelling, AsksBeforeItTakesWhatOptionsChoose) {
  const TestServer::Handler jobs = [](const Request& request) {
    if (request.method == "POST")
      return Reply{.body = R"({"results":[{"job_id":"job-7","code":"","message":""},
                                          {"job_id":"job-6","code":"x","message":"no"},
                                          {"job_id":"job-5","code":"job_finished","message":"gone"}]})"};
    return of_its_state(request);
  };
  std::vector<Request> seen;
  Ran ran = run_against(jobs, {"cancel", "--all"}, &seen);
  EXPECT_EQ(ran.exit_code, kExitUsage);
  EXPECT_EQ(ran.err,
            "gpu-cli: this would cancel 3 jobs (2 wait, 1 run); repeat it with --yes to do so (usage)\n");
  ran = run_against(jobs, {"cancel", "--all", "--yes"}, &seen);
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_EQ(ran.out, "job-7 cancelled\n");
  EXPECT_EQ(ran.err, "gpu-cli: job-6: no (x)\n");
  EXPECT_EQ(seen.back().body, R"({"job_ids":["job-7","job-6","job-5"]})");
  ran = run_against(jobs, {"cancel", "--all"}, &seen, {.err_is_terminal = true, .answer = "n"});
  EXPECT_EQ(ran.err, "Cancel 3 jobs (2 wait, 1 run)? [y/N] gpu-cli: nothing was cancelled\n");
  EXPECT_EQ(run_against(jobs, {"cancel", "--all"}, &seen, {.err_is_terminal = true, .answer = "y"}).out,
            "job-7 cancelled\n");
  EXPECT_EQ(run_against(jobs, {"cancel", "--all", "job-1"}).exit_code, kExitUsage);
  EXPECT_EQ(run_against(jobs, {"cancel"}).exit_code, kExitUsage);
  EXPECT_EQ(run_against(jobs, {"cancel", "job-1[x]"}).exit_code, kExitUsage);
}

TEST(Tenants, AreShownByName) {
  const TestServer::Handler one = [](const Request& request) {
    return Reply{.body = request.target.find("/tenants") != std::string::npos
                             ? R"({"tenants":[{"tenant_id":"tenant-3","name":"research"}]})"
                             : R"({"job_id":"job-4","tenant_id":"tenant-3","jobs":[
                                   {"job_id":"job-4","tenant_id":"tenant-3"}]})"};
  };
  EXPECT_NE(run_against(one, {"get", "job-4"}).out.find("Tenant:  research (tenant-3)\n"), std::string::npos);
  EXPECT_EQ(run_against(one, {"list", "--all", "--columns", "id,tenant"}).out,
            "ID     TENANT\njob-4  research\n");
}

}  // namespace
}  // namespace gpusched::cli::testing
