// The words for jobs that wait, run and end: their output, why they wait, how they ended.
#include <gtest/gtest.h>

#include <atomic>

#include "cli/framework/run_test_support.h"
#include "cli/verbs/jobs/job_output.h"
#include "cli/verbs/jobs/wait_notice.h"

namespace gpusched::cli::testing {
namespace {

std::string piece(const std::string& text) {
  JsonObjectWriter line;
  line.add("next_offset", static_cast<int64_t>(text.size()));
  line.add("text", text);
  return line.text() + "\n";
}

Json parsed(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json ? *json : Json();
}

bool asks_for(const Request& request, const std::string& text) {
  return request.target.find(text) != std::string::npos;
}

/// A scheduler with one job, whose streams say their names.
TestServer::Handler job_that(const std::string& record) {
  return [record](const Request& request) {
    if (!asks_for(request, "/logs?")) return Reply{.body = record};
    return Reply{.chunks = {piece(asks_for(request, "stream=stderr") ? "errors\n" : "output\n")}};
  };
}

const char* const kCompleted = R"({"state":"completed","final":true,"attempts":1})";

TEST(Logs, ShowBothStreamsWhereTheyBelong) {
  for (const char* more : {"--both", "-f"}) {
    const Ran ran = run_against(job_that(kCompleted), {"logs", "job-3", more});
    EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
    EXPECT_EQ(ran.out, "output\n");
    EXPECT_EQ(ran.err, "errors\n");
  }
}

TEST(Logs, OneStreamCanBeChosenAndStaysInItsPlace) {
  const Ran out = run_against(job_that(kCompleted), {"logs", "job-3", "--stdout"});
  EXPECT_EQ(out.out + "|" + out.err, "output\n|");
  const Ran err = run_against(job_that(kCompleted), {"logs", "job-3", "--stderr"});
  EXPECT_EQ(err.out + "|" + err.err, "|errors\n");
  const Ran both = run_against(job_that(kCompleted), {"logs", "job-3", "--stderr", "--stdout"});
  EXPECT_EQ(both.out + "|" + both.err, "output\n|errors\n");
}

/// A scheduler with an array of three, whose element 2 has not started.
Reply array_of_three(const Request& request) {
  const bool is_element = asks_for(request, "job-3%5B");
  if (!asks_for(request, "/logs?")) {
    if (!is_element) return {.body = R"({"state":"completed","final":true,"array":{"indexes":"0-2%2"}})"};
    return {.body = asks_for(request, "%5B2%5D") ? R"({"state":"cancelled","final":true,"attempts":0})"
                                                 : kCompleted};
  }
  if (asks_for(request, "%5B2%5D") || !is_element)
    return {.status = 404, .body = R"({"error":"it has no output","code":"log_not_found"})"};
  return {.chunks = {piece(asks_for(request, "%5B0%5D") ? "zero\nmore\n" : "one\n")}};
}

TEST(Logs, OfAnArrayAreThoseOfItsElements) {
  const Ran ran = run_against(array_of_three, {"logs", "job-3", "--stdout"});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "[0] zero\n[0] more\n[1] one\n");
  const Ran followed = run_against(array_of_three, {"logs", "-f", "job-3", "--stdout"});
  EXPECT_EQ(followed.exit_code, kExitOk) << followed.err;
  EXPECT_NE(followed.out.find("[0] zero\n"), std::string::npos) << followed.out;
  EXPECT_NE(followed.out.find("[1] one\n"), std::string::npos) << followed.out;
}

Ran logs_of_silent(const std::string& record, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"logs", "job-3"});
  return run_against(
      [&](const Request& request) {
        return asks_for(request, "/logs?") ? Reply{.chunks = {piece("")}} : Reply{.body = record};
      },
      more);
}

TEST(Logs, OfAJobThatCouldNotStartSayWhy) {
  const std::string failed =
      R"({"state":"failed","final":true,"cause":"start_failed","message":"its command could not be started: )"
      R"(no such user: bob"})";
  const Ran ran = logs_of_silent(failed);
  EXPECT_EQ(ran.exit_code, kExitOk);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "gpu-cli: job-3 failed: its command could not be started: no such user: bob\n");
  EXPECT_EQ(
      logs_of_silent(R"({"state":"pending","message":"requests 2 GPUs on one node; none is free"})").err,
      "gpu-cli: job-3 waits: it requests 2 GPUs on one node; none is free\n");
  // An attempt that ran and wrote nothing, or whose output was filtered away, is no failed start.
  EXPECT_EQ(logs_of_silent(R"({"state":"failed","final":true,"cause":"exited","message":"m"})").err, "");
  EXPECT_EQ(logs_of_silent(failed, {"--grep", "x"}).err, "");
}

TEST(Logs, OfAGangAreMarkedByMember) {
  const TestServer::Handler gang = [](const Request& request) {
    if (!asks_for(request, "/logs?"))
      return Reply{.body = R"({"state":"completed","final":true,"attempts":1,"members":[{"member":0},)"
                           R"({"member":1}]})"};
    const std::string member = asks_for(request, "member=1") ? "one" : "zero";
    if (asks_for(request, "stream=stderr")) return Reply{.chunks = {piece(member + " cries")}};
    return Reply{.chunks = {piece(member + " a\n" + member + " b\n")}};
  };
  const Ran ran = run_against(gang, {"logs", "job-3"});
  EXPECT_EQ(ran.out, "[0] zero a\n[0] zero b\n[1] one a\n[1] one b\n");
  EXPECT_EQ(ran.err, "[0] zero cries\n[1] one cries\n");
  const Ran followed = run_against(gang, {"logs", "-f", "job-3"});
  EXPECT_NE(followed.out.find("[1] one a\n"), std::string::npos) << followed.out;
  EXPECT_NE(followed.out.find("[0] zero b\n"), std::string::npos) << followed.out;
  // One member alone is as it is.
  EXPECT_EQ(run_against(gang, {"logs", "job-3", "--member", "1", "--stdout"}).out, "one a\none b\n");
}

TEST(LinePrefixer, MarksWholeLines) {
  LinePrefixer prefixer("[3] ");
  EXPECT_EQ(prefixer.take("a"), "");
  EXPECT_EQ(prefixer.take("b\n\nc"), "[3] ab\n[3] \n");
  EXPECT_EQ(prefixer.finish(), "[3] c\n");
  EXPECT_EQ(prefixer.finish(), "");
}

TEST(WaitSentence, HasTheJobAsItsSubject) {
  const auto of = [](const std::string& state, const std::string& message) {
    return wait_sentence("job-3", parsed(R"({"state":")" + state + R"(","message":")" + message + "\"}"));
  };
  EXPECT_EQ(of("pending", "requests 2 GPUs"), "job-3 waits: it requests 2 GPUs");
  EXPECT_EQ(of("pending", "no node is registered"), "job-3 waits: no node is registered");
  EXPECT_EQ(of("pending", "is held"), "job-3 is held");
  EXPECT_EQ(of("scheduled", "is being started on n1"), "job-3 is being started on n1");
  EXPECT_EQ(of("running", "runs on n1"), "");
}

TEST(WaitNotice, SpeaksAfterTwoSecondsAndWhenTheReasonChanges) {
  std::string said;
  Time now{1'000'000'000};
  CliIo io;
  io.err = [&](std::string_view text) { said += text; };
  io.wall_now = [&] { return now; };
  WaitNotice notice(io, "job-3");
  const auto look = [&](const std::string& reason, const std::string& message, Duration later) {
    now = now + later;
    said.clear();
    notice.look(parsed(R"({"state":"pending","reason":")" + reason + R"(","message":")" + message + "\"}"));
    return said;
  };
  EXPECT_EQ(look("gpus_busy", "requests 2 GPUs; 0 are free", seconds(0)), "");
  EXPECT_EQ(look("gpus_busy", "requests 2 GPUs; 0 are free", seconds(2)),
            "gpu-cli: job-3 waits: it requests 2 GPUs; 0 are free\n");
  EXPECT_EQ(look("gpus_busy", "requests 2 GPUs; 1 is free", seconds(2)), "");
  EXPECT_EQ(look("quota", "tenant t uses 4 of its 4 GPUs", seconds(2)),
            "gpu-cli: job-3 waits: tenant t uses 4 of its 4 GPUs\n");
  // New numbers of the same reason are told from time to time.
  EXPECT_EQ(look("quota", "tenant t uses 3 of its 4 GPUs", seconds(30)),
            "gpu-cli: job-3 waits: tenant t uses 3 of its 4 GPUs\n");
  EXPECT_EQ(notice.next_look(), seconds(2));
  said.clear();
  notice.look(parsed(R"({"state":"running","message":"runs on n1"})"));
  EXPECT_EQ(said, "gpu-cli: job-3 runs on n1\n");
  EXPECT_EQ(notice.next_look(), seconds(30));
}

TEST(Waiting, SaysWhyAJobWaitsAndThatItStarted) {
  std::atomic<int> polls = 0;
  const TestServer::Handler handler = [&](const Request& request) {
    if (request.method == "POST")
      return Reply{.status = 201, .body = R"({"job_id":"job-7","status":"submitted"})"};
    const int poll = ++polls;
    if (poll < 7)
      return Reply{.body = R"({"state":"pending","reason":"no_node","message":"no node is registered"})"};
    if (poll == 7) return Reply{.body = R"({"state":"running","message":"runs on n1"})"};
    return Reply{.body = R"({"state":"failed","final":true,"reason":"exit_code","exit_code":127,)"
                         R"("message":"its command exited with code 127: cannot start 'x'"})"};
  };
  const std::string said =
      "gpu-cli: job-7 waits: no node is registered\n"
      "gpu-cli: job-7 runs on n1\n"
      "gpu-cli: job-7 failed: its command exited with code 127: cannot start 'x'\n";
  const World world{.clock_step = milliseconds(700)};
  const Ran submitted = run_against(handler, {"submit", "--wait", "--", "x"}, nullptr, world);
  EXPECT_EQ(submitted.exit_code, 127);
  EXPECT_EQ(submitted.err, said);
  polls = 0;
  EXPECT_EQ(run_against(handler, {"wait", "job-7"}, nullptr, world).err, said);
}

TEST(Getting, ShowsLocalTimesAndUtcInJson) {
  const char* const record =
      R"({"job_id":"job-3","state":"pending","submitted_at":"2025-01-31T09:00:00.5Z","message":)"
      R"("has a reservation at 2025-01-31T23:30:00Z"})";
  const auto of = [&](std::vector<std::string> words) {
    return run_against([&](const Request&) { return Reply{.body = record}; }, std::move(words), nullptr,
                       World{.zone = "CET-1"})
        .out;
  };
  const std::string shown = of({"get", "job-3"});
  EXPECT_NE(shown.find("(2025-01-31T10:00:00+01:00)"), std::string::npos) << shown;
  EXPECT_NE(shown.find("reservation at 2025-02-01T00:30:00+01:00"), std::string::npos) << shown;
  EXPECT_EQ(of({"get", "job-3", "-o", "json"}), std::string(record) + "\n");
}

TEST(Getting, ShowsWhatTheJobUsed) {
  const auto shown = [](const std::string& usage, const std::string& more = "") {
    const std::string record =
        R"({"job_id":"job-3","state":"completed","memory_mb":4096,"cpu_cores":4,)"
        R"("started_at":"2025-01-31T09:00:00Z","completed_at":"2025-01-31T09:01:40Z",)" +
        more + "\"usage\":" + usage + "}";
    const std::string out =
        run_against([&](const Request&) { return Reply{.body = record}; }, {"get", "job-3"}).out;
    const std::size_t at = out.find("Ran:");
    return at == std::string::npos ? out : out.substr(out.find('\n', at) + 1);
  };
  EXPECT_EQ(shown(R"({"peak_memory_bytes":1288490189,"peak_memory_of":"all_processes","cpu_ms":192000,)"
                  R"("gpu_use_permille":834})"),
            "Peak memory:  1.2G of 4G requested\n"
            "CPU time:     3m12s (48 % of 4 CPUs for 1m40s)\n"
            "GPU use:      83 %\n");
  EXPECT_EQ(shown("{}"), "");
  EXPECT_EQ(
      shown(R"({"peak_memory_bytes":1,"peak_memory_of":"largest_process","cpu_ms":50,"members_unknown":2})",
            R"("members":[{"node_name":"n1"},{"node_name":"n2"}],)"),
      "Peak memory:   1M of 4G requested, by the largest process of a member\nCPU time:      0.05s\nNot "
      "measured:  2 members, whose nodes reported nothing\n");
}

TEST(EndSentence, IsTheJobsOwn) {
  EXPECT_EQ(end_sentence("job-3", parsed(R"({"state":"cancelled","message":"was cancelled"})")),
            "job-3 was cancelled");
  EXPECT_EQ(end_sentence("job-3", parsed(R"({"state":"completed","message":"completed"})")),
            "job-3 completed");
}

}  // namespace
}  // namespace gpusched::cli::testing
