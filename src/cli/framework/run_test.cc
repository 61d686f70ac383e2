#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "base/net/base64.h"
#include "cli/framework/run_test_support.h"
#include "cli/framework/verb.h"
#include "cli/terminal/pages.h"
#include "client/json.h"

namespace gpusched::cli::testing {
namespace {

Reply submitted(const Request&) {
  return {.status = 201,
          .body = R"({"job_id":"job-7","status":"submitted","message":"Job submitted successfully"})"};
}

/// The body of the one POST that `arguments` make.
Json submitted_body(const std::vector<std::string>& arguments, const World& world = {}) {
  std::vector<Request> seen;
  const Ran ran = run_against(submitted, arguments, &seen, world);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(posts(seen).size(), 1u);
  if (seen.empty()) return {};
  const Result<Json> json = Json::parse(seen[0].body);
  EXPECT_TRUE(json.ok()) << seen[0].body;
  return json.ok() ? *json : Json();
}

/// A scheduler that accepts a job and then says that it ended as `record` says.
TestServer::Handler ends_as(std::string record) {
  return [record = std::move(record)](const Request& request) {
    return request.method == "POST" ? submitted(request) : Reply{.body = record};
  };
}

Ran run_waiting(const std::string& record, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"submit", "--wait"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.insert(arguments.end(), {"--", "true"});
  return run_against(ends_as(record), arguments);
}

TEST(Submitting, PrintsTheJobsId) {
  const Ran ran = run_against(submitted, {"submit", "--", "true"});
  EXPECT_EQ(ran.exit_code, kExitOk);
  EXPECT_EQ(ran.out, "job-7\n");
  EXPECT_EQ(ran.err, "");
}

TEST(Submitting, PrintsTheAnswerAsJson) {
  const Ran ran = run_against(submitted, {"submit", "--json", "--", "true"});
  EXPECT_EQ(ran.out, std::string(submitted({}).body) + "\n");
}

TEST(Submitting, SendsNothingThatWasNotSaid) {
  const Json body = submitted_body({"submit", "--", "/usr/bin/python3", "train.py"});
  EXPECT_EQ(body.serialize(), R"({"name":"python3","command":["/usr/bin/python3","train.py"]})");
}

TEST(Submitting, SendsEveryOption) {
  const World world{.environment = {{"TOKEN", "t"}}};
  const Json body = submitted_body(
      {"submit", "--tenant-id",  "tenant-3", "--name",  "n",     "--gpus",    "2",     "--gpu-model",
       "A100",   "--gpu-memory", "80G",      "--cpus",  "0.5",   "--mem",     "8G",    "--priority",
       "-5",     "--time",       "2h",       "--env",   "A=b=c", "--env",     "TOKEN", "--label",
       "team=x", "--retries",    "3",        "--image", "img",   "--workdir", "/data", "--require-feasible",
       "--",     "run",          "--gpus",   "8"},
      world);
  EXPECT_EQ(body["tenant_id"].text(), "tenant-3");
  EXPECT_EQ(body["name"].text(), "n");
  EXPECT_EQ(body["gpu_count"].integer(), 2);
  EXPECT_EQ(body["gpu_model"].text(), "A100");
  EXPECT_EQ(body["gpu_memory_mb"].integer(), 81'920);
  EXPECT_EQ(body["cpu_cores"].number(), 0.5);
  EXPECT_EQ(body["memory_mb"].integer(), 8'192);
  EXPECT_EQ(body["priority"].integer(), -5);
  EXPECT_EQ(body["max_runtime_seconds"].integer(), 7'200);
  EXPECT_EQ(body["environment"].serialize(), R"({"A":"b=c","TOKEN":"t"})");
  EXPECT_EQ(body["labels"].serialize(), R"({"team":"x"})");
  EXPECT_EQ(body["retries"].integer(), 3);
  EXPECT_EQ(body["image"].text(), "img");
  EXPECT_EQ(body["working_directory"].text(), "/data");
  EXPECT_TRUE(body["require_feasible"].boolean());
  EXPECT_EQ(body["command"].serialize(), R"(["run","--gpus","8"])");
}

TEST(Submitting, SendsWhereItIsCalledUnlessToldOrInAContainer) {
  const World world{.working_directory = "/home/ada"};
  EXPECT_EQ(
      submitted_body({"submit", "--", "run"}, world).serialize(),
      R"({"name":"run","command":["run"],"working_directory":"/home/ada","working_directory_optional":true})");
  const Json told = submitted_body({"submit", "--chdir", "x", "--", "run"}, world);
  EXPECT_EQ(told["working_directory"].text(), "/home/ada/x");
  EXPECT_TRUE(told["working_directory_optional"].is_null());
  EXPECT_TRUE(submitted_body({"submit", "--chdir", "-", "--", "run"}, world)["working_directory"].is_null());
  EXPECT_TRUE(submitted_body({"submit", "--image", "i", "--", "run"}, world)["working_directory"].is_null());
}

TEST(Submitting, TakesACommandThatIsNamedLikeAVerb) {
  EXPECT_EQ(submitted_body({"submit", "--", "list", "--json", "--"})["command"].serialize(),
            R"(["list","--json","--"])");
}

TEST(Submitting, ReadsTheScriptFromStandardInput) {
  EXPECT_EQ(submitted_body({"submit", "--script", "-"}, {.standard_input = "echo hi\n"})["script"].text(),
            "echo hi\n");
}

TEST(Submitting, TakesTheScriptItself) {
  const Json body = submitted_body({"submit", "--script", "echo a; exit 3"});
  EXPECT_EQ(body["script"].text(), "echo a; exit 3");
  EXPECT_TRUE(body["name"].is_null());
}

TEST(Submitting, ReadsTheScriptFromAFile) {
  std::string path = ::testing::TempDir() + "gpusched_script_XXXXXX";
  const int fd = ::mkstemp(path.data());
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "nvidia-smi\n", 11), 11);
  ::close(fd);
  const Json body = submitted_body({"submit", "--script", path});
  ::unlink(path.c_str());
  EXPECT_EQ(body["script"].text(), "nvidia-smi\n");
  EXPECT_EQ(body["name"].text(), path.substr(path.rfind('/') + 1));
}

/// A file in the temporary folder with a name of its own, gone at the end.
struct TemporaryFile {
  std::string path = ::testing::TempDir() + "gpusched_file_XXXXXX";
  explicit TemporaryFile(std::string_view text) {
    const int fd = ::mkstemp(path.data());
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fd);
  }
  ~TemporaryFile() { ::unlink(path.c_str()); }
};

TEST(Submitting, TheCommandLineWinsOverTheScriptsLines) {
  const TemporaryFile script("#!/bin/bash\n#GPU --gpus 2 --time 1h --label a=1 --label b=1\necho $1\n");
  const Json body = submitted_body({"submit", "--gpus", "4", "--label", "b=2", script.path, "--epochs", "3"});
  EXPECT_EQ(body["gpu_count"].integer(), 4);
  EXPECT_EQ(body["max_runtime_seconds"].integer(), 3'600);
  EXPECT_EQ(body["labels"].serialize(), R"({"a":"1","b":"2"})");
  EXPECT_TRUE(body["script"].text().ends_with("echo $1\n"));
  EXPECT_TRUE(body["command"].is_null());
  EXPECT_EQ(body["args"].serialize(), R"(["--epochs","3"])");
}

TEST(Submitting, SendsScriptsWithTheirFolderWhateverTheirInterpreter) {
  for (const std::string text : {"#!/usr/bin/env -S python3 -u\nprint(1)\n", "#!/usr/bin/Rscript\n1\n"}) {
    const TemporaryFile script(text);
    const Json body = submitted_body({"submit", script.path});
    EXPECT_EQ(body["script"].text(), text);
    EXPECT_EQ(body["environment"]["GPU_SCHEDULER_SCRIPT_DIR"].text(),
              script.path.substr(0, script.path.rfind('/')));
  }
  EXPECT_TRUE(submitted_body({"submit", "--script", "nvidia-smi"})["environment"].is_null());
  const TemporaryFile large("#!/bin/sh\n" + std::string(200'000, '#') + "\ntrue\n");
  EXPECT_EQ(submitted_body({"submit", large.path})["script"].text().size(), 200'016u);
}

TEST(Submitting, RefusesAFirstLineThatNoKernelCouldFollow) {
  const TemporaryFile words("#!/usr/bin/env python3 -u\nprint(1)\n");
  EXPECT_NE(run({"submit", words.path}).err.find("write #!/usr/bin/env -S python3 -u"), std::string::npos);
  const TemporaryFile nobody("#! \ntrue\n");
  EXPECT_NE(run({"submit", nobody.path}).err.find(":1: the line names no interpreter"), std::string::npos);
  const TemporaryFile large(std::string(200'000, '#') + "\ntrue\n");
  EXPECT_NE(run({"submit", large.path}).err.find("larger than 128 KiB; begin it with a line"),
            std::string::npos);
  const TemporaryFile program(
      std::string_view("\x7f"
                       "ELF\0\0",
                       6));
  EXPECT_NE(run({"submit", program.path}).err.find("is not a script; run a program with: gpu-cli submit"),
            std::string::npos);
}

TEST(Submitting, SendsWhatTheBoxIsAskedFor) {
  const World world{.environment = {{"A", "1"}, {"B", "2"}, {"SHLVL", "3"}, {"PWD", "/x"}},
                    .working_directory = "/data"};
  const Json body = submitted_body({"submit",
                                    "--user",
                                    "ada",
                                    "-o",
                                    "out/%j.txt",
                                    "-e",
                                    "/e",
                                    "--input",
                                    "in",
                                    "--umask",
                                    "0027",
                                    "--limit",
                                    "nofile=65536",
                                    "--limit",
                                    "memlock=unlimited",
                                    "--chdir",
                                    ".",
                                    "--export",
                                    "ALL,C=4",
                                    "--env",
                                    "B=5",
                                    "--image",
                                    "img",
                                    "--mount",
                                    "./d:/d:ro",
                                    "--mount",
                                    "/e:/e",
                                    "--pull",
                                    "never",
                                    "--credential",
                                    "lab",
                                    "--container-arg",
                                    "--shm-size=1g",
                                    "--image-digest",
                                    "sha256:00"},
                                   world);
  EXPECT_EQ(
      body.serialize(),
      R"({"name":"img","image":"img","image_digest":"sha256:00","pull":"never","registry_credential":"lab",)"
      R"("container_arguments":["--shm-size=1g"],"mounts":["/data/d:/d:ro","/e:/e"],"working_directory":"/data",)"
      R"("stdout_path":"/data/out/%j.txt","stderr_path":"/e","stdin_path":"/data/in",)"
      R"("environment":{"A":"1","B":"5","C":"4"},"user":"ada","umask":23,"limits":{"nofile":65536,"memlock":-1}})");
}

TEST(Submitting, MakesAnArrayInOneRequest) {
  std::vector<Request> seen;
  const Ran ran = run_against(
      [](const Request&) { return Reply{.status = 201, .body = R"({"job_id":"job-7"})"}; },
      {"submit", "--array", "3,5-9%2", "--name", "sweep", "-o", "/out/%a.txt", "--", "./run"}, &seen);
  EXPECT_EQ(ran.out, "job-7\n");
  ASSERT_EQ(posts(seen).size(), 1u);
  const Json body = *Json::parse(seen[0].body);
  EXPECT_EQ(body["array"].text(), "3,5-9%2");
  EXPECT_EQ(body["stdout_path"].text(), "/out/%a.txt");
}

TEST(Submitting, SaysWhenAndAfterWhat) {
  std::vector<Request> seen;
  run_against([](const Request&) { return Reply{.status = 201, .body = R"({"job_id":"job-7"})"}; },
              {"submit", "--begin", "+1h30m", "--deadline", "2025-01-31T09:00:00Z", "--after", "job-1",
               "--after", "any:job-2,job-3[4]", "--after", "start:job-5", "--on-parent-failure", "wait",
               "--retries", "2", "--retry-on", "exit_code:75,signal", "--", "./run"},
              &seen);
  ASSERT_EQ(posts(seen).size(), 1u);
  const Json body = *Json::parse(seen[0].body);
  EXPECT_EQ(body["begin_after_seconds"].integer(), 5'400);
  EXPECT_EQ(body["deadline"].text(), "2025-01-31T09:00:00Z");
  EXPECT_EQ(body["dependencies"].serialize(),
            R"(["after_ok:job-1","after_any:job-2","after_any:job-3[4]","after_start:job-5"])");
  EXPECT_EQ(body["on_parent_failure"].text(), "wait");
  EXPECT_EQ(body["retry_on"].serialize(), R"(["exit_code:75","signal"])");
}

TEST(Submitting, DependsOnElementsOfArrays) {
  const Json body = submitted_body({"submit", "--after", "any:5[1-2,4],job-6_3", "--", "x"});
  EXPECT_EQ(body["dependencies"].serialize(),
            R"(["after_any:job-5[1]","after_any:job-5[2]","after_any:job-5[4]","after_any:job-6[3]"])");
  const TemporaryFile script("#!/bin/sh\n#SBATCH -d afterok:5_[1,3]:7\ntrue\n");
  EXPECT_EQ(submitted_body({"submit", script.path})["dependencies"].serialize(),
            R"(["after_ok:job-5[1]","after_ok:job-5[3]","after_ok:job-7"])");
  EXPECT_TRUE(run({"submit", "--after", "ok:5[0-99]", "--", "x"}).err.find("more than 64 jobs are named") !=
              std::string::npos);
  EXPECT_TRUE(
      run({"submit", "--after", "ok:5[3-1]", "--", "x"}).err.find("is not a list of element indexes") !=
      std::string::npos);
}

TEST(Submitting, RefusesEmptyValues) {
  EXPECT_EQ(run({"submit", "--name", "", "--", "x"}).err,
            "gpu-cli: --name: its value is empty; give one, or leave the option out (usage)\n");
  const TemporaryFile script("#!/bin/sh\n#GPU --name=''\n#SBATCH --account=\ntrue\n");
  const Ran ran = run({"submit", script.path});
  EXPECT_NE(ran.err.find(":2: --name: its value is empty"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find(":3: #SBATCH --account: its value is empty"), std::string::npos) << ran.err;
}

TEST(Submitting, RefusesMomentsThatAreNone) {
  EXPECT_TRUE(run({"submit", "--begin", "someday", "--", "x"}).err.starts_with("gpu-cli: --begin: "));
  EXPECT_TRUE(run({"submit", "--after", "done:job-1", "--", "x"}).err.starts_with("gpu-cli: --after: "));
  EXPECT_TRUE(run({"submit", "--retry-on", "signal", "--", "x"}).err.starts_with("gpu-cli: --retry-on: "));
}

TEST(Submitting, ConvertsAScriptOfAnotherSystemWithANote) {
  const TemporaryFile script("\xEF\xBB\xBF#!/bin/sh\r\ntrue\r\n");
  std::vector<Request> seen;
  const Ran ran = run_against(submitted, {"submit", script.path}, &seen);
  EXPECT_NE(ran.err.find(": its byte order mark was left out\n"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find(": 2 lines that ended with a carriage return were sent with a line feed\n"),
            std::string::npos);
  EXPECT_EQ(Json::parse(posts(seen).at(0).body)->operator[]("script").text(), "#!/bin/sh\ntrue\n");
}

TEST(Submitting, RefusesWordsThatAreNotUtf8WithTheirOption) {
  EXPECT_EQ(run({"submit", "--comment", "caf\xE9", "--", "x"}).err,
            "gpu-cli: --comment: byte 4 is 0xE9, which is not UTF-8 (usage)\n");
  EXPECT_EQ(run({"submit", "--label", "a=b", "--label", "\xFF=b", "--", "x"}).err,
            "gpu-cli: --label: byte 1 is 0xFF, which is not UTF-8 (usage)\n");
  EXPECT_EQ(run({"submit", "--", "x", "\xE9"}).err,
            "gpu-cli: COMMAND (word 2): byte 1 is 0xE9, which is not UTF-8 (usage)\n");
}

TEST(Submitting, ExportsOnlyWhatIsNamed) {
  const World world{.environment = {{"A", "1"}, {"B", "2"}}};
  EXPECT_TRUE(submitted_body({"submit", "--hold", "--", "x"}, world)["held"].boolean());
  EXPECT_TRUE(submitted_body({"submit", "--export", "NONE", "--", "x"}, world)["environment"].is_null());
  EXPECT_EQ(submitted_body({"submit", "--export", "B,C=3", "--", "x"}, world)["environment"].serialize(),
            R"({"B":"2","C":"3"})");
}

TEST(Submitting, CarriesAFreshKeyThatMakesARepetitionSafe) {
  std::atomic<int> count = 0;
  std::vector<Request> seen;
  const Ran ran = run_against(
      [&](const Request& request) { return ++count == 1 ? Reply{.hang_up = true} : submitted(request); },
      {"submit", "--", "true"}, &seen);
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  ASSERT_EQ(posts(seen).size(), 2u);
  EXPECT_EQ(seen[0].headers.at("idempotency-key").size(), 32u);
  EXPECT_EQ(seen[0].headers.at("idempotency-key"), seen[1].headers.at("idempotency-key"));
  std::vector<Request> other;
  run_against(submitted, {"submit", "--", "true"}, &other);
  EXPECT_NE(other.at(0).headers.at("idempotency-key"), seen[0].headers.at("idempotency-key"));
}

TEST(Waiting, EndsForAHeldJobWithASentenceAndACodeOfItsOwn) {
  const std::string held =
      R"({"job_id":"job-7","state":"pending","held":true,"message":"is held; to release it: gpu-cli release job-7"})";
  const std::string sentence = "gpu-cli: job-7 is held; to release it: gpu-cli release job-7 (held)\n";
  const Ran submit = run_waiting(held);
  EXPECT_EQ(submit.exit_code, kExitHeld);
  EXPECT_EQ(submit.err, sentence);
  EXPECT_EQ(run_waiting(held, {"--timeout", "10s"}).exit_code, kExitHeld);
  const Ran wait = run_against(ends_as(held), {"wait", "job-7"});
  EXPECT_EQ(wait.exit_code, kExitHeld);
  EXPECT_EQ(wait.out, "job-7 held\n");
  EXPECT_EQ(wait.err, sentence);
  const Ran attach = run_against(ends_as(held), {"attach", "job-7"});
  EXPECT_EQ(attach.exit_code, kExitHeld);
  EXPECT_EQ(attach.err, sentence);
}

TEST(Waiting, LeavesNothingOfItsProgressBeforeASentence) {
  int looks = 0;
  const auto serve = [&](const Request& request) {
    const bool over = request.target.find("job-8") != std::string::npos && ++looks > 3;
    return Reply{.body = over ? R"({"state":"failed","final":true,"reason":"exit_code","exit_code":3})"
                              : R"({"state":"running"})"};
  };
  const Ran ran = run_against(serve, {"wait", "--any", "job-7", "job-8"}, nullptr,
                              {.clock_step = seconds(1), .err_is_terminal = true});
  EXPECT_NE(ran.err.find("0 of 2 jobs ended"), std::string::npos) << ran.err;
  EXPECT_TRUE(ran.err.ends_with("\r\x1b[Kgpu-cli: job-8 failed: exit code 3\n")) << ran.err;
}

TEST(Waiting, TakesElementsOfAnArray) {
  std::vector<Request> seen;
  const Ran ran =
      run_against(ends_as(R"({"state":"completed","final":true})"), {"wait", "job-7[1,3-4]"}, &seen);
  EXPECT_EQ(ran.out, "job-7[1] completed\njob-7[3] completed\njob-7[4] completed\n");
}

TEST(Waiting, EndsWithTheJobsExitCode) {
  const Ran good = run_waiting(R"({"job_id":"job-7","state":"completed","final":true,"exit_code":0})");
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_EQ(good.out, "job-7\n");
  EXPECT_EQ(good.err, "");
  const Ran bad = run_waiting(R"({"state":"failed","final":true,"reason":"exit_code","exit_code":3})");
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_EQ(bad.err, "gpu-cli: job-7 failed: exit code 3\n");
}

TEST(Waiting, EndsWithTheSignalsCode) {
  const Ran ran = run_waiting(R"({"state":"failed","final":true,"reason":"signal","signal":9})");
  EXPECT_EQ(ran.exit_code, 137);
  EXPECT_EQ(ran.err, "gpu-cli: job-7 failed: ended by signal 9\n");
}

TEST(Waiting, EndsWith124AtTheTimeLimit) {
  EXPECT_EQ(run_waiting(R"({"state":"failed","final":true,"reason":"timeout","signal":15})").exit_code,
            kExitTimeLimit);
}

TEST(Waiting, EndsWith1WithoutAnExitCode) {
  const Ran ran = run_waiting(R"({"state":"cancelled","final":true,"message":"cancelled by its owner"})");
  EXPECT_EQ(ran.exit_code, kExitJobFailed);
  EXPECT_EQ(ran.err, "gpu-cli: job-7 cancelled: cancelled by its owner\n");
}

TEST(Waiting, PrintsTheFinalRecordAsJson) {
  const Ran ran = run_waiting(R"({"state":"completed","final":true})", {"--json"});
  EXPECT_EQ(ran.out, "{\"state\":\"completed\",\"final\":true}\n");
  EXPECT_EQ(ran.err, "job-7\n");
}

TEST(Waiting, AsksUntilTheJobIsFinalOnOneConnection) {
  std::atomic<int> polls = 0;
  std::vector<Request> seen;
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.method == "POST") return submitted(request);
        return ++polls < 3 ? Reply{.body = R"({"state":"running","final":false})"}
                           : Reply{.body = R"({"state":"completed","final":true})"};
      },
      {"submit", "--wait", "--", "true"}, &seen);
  EXPECT_EQ(ran.exit_code, 0);
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[3].target, "/api/v1/jobs/job-7?wait=30s");
  EXPECT_EQ(seen.back().connection, 1);
}

TEST(Now, EndsWith4WhenTheJobCannotStartAtOnce) {
  std::atomic<int> polls = 0;
  std::vector<Request> seen;
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.method == "POST") return submitted(request);
        return ++polls < 3 ? Reply{.body = R"({"state":"pending","final":false})"}
                           : Reply{.body = R"({"state":"failed","final":true,"reason":"not_at_once",)"
                                           R"("message":"nothing was free"})"};
      },
      {"submit", "--now", "--time", "10m", "--", "true"}, &seen);
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "gpu-cli: job-7 failed: nothing was free\n");
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_NE(seen[0].body.find(R"("interactive":true)"), std::string::npos);
}

TEST(Now, PrintsTheIdOfAJobThatStarts) {
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.method == "POST") return submitted(request);
        return Reply{.body = R"({"state":"scheduled","final":false})"};
      },
      {"submit", "--now", "--time", "10m", "--", "true"});
  EXPECT_EQ(ran.exit_code, kExitOk);
  EXPECT_EQ(ran.out, "job-7\n");
}

TEST(Waiting, SurvivesASchedulersRestart) {
  std::atomic<int> polls = 0;
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.method == "POST") return submitted(request);
        const int poll = ++polls;
        if (poll <= 4) return Reply{.hang_up = true};
        if (poll == 5)
          return Reply{.status = 503, .body = R"({"error":"shutting down","code":"shutting_down"})"};
        return Reply{.body = R"({"state":"completed","final":true})"};
      },
      {"submit", "--wait", "--", "true"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

TEST(Waiting, GivesUpOnASchedulerThatStaysAway) {
  const Ran ran = run_against(
      [](const Request& request) {
        return request.method == "POST" ? submitted(request)
                                        : Reply{.status = 503, .body = R"({"error":"no leader",
               "code":"no_leader"})"};
      },
      {"submit", "--wait", "--", "true"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_EQ(ran.err, "gpu-cli: no leader (no_leader)\n");
}

/// A piece of output as the scheduler streams it.
std::string piece(const std::string& text, int64_t next_offset) {
  JsonObjectWriter line;
  line.add("next_offset", next_offset);
  line.add("text", text);
  return line.text() + "\n";
}

TEST(Waiting, ShowsBothOutputsWithLogs) {
  const Ran ran = run_against(
      [](const Request& request) {
        if (request.method == "POST") return submitted(request);
        if (request.target.find("stream=stdout") != std::string::npos)
          return Reply{.chunks = {piece("out 1\n", 6), piece("out 2\n", 12)}};
        if (request.target.find("stream=stderr") != std::string::npos)
          return Reply{.chunks = {piece("error\n", 6)}};
        return Reply{.body = R"({"state":"completed","final":true,"attempts":1})"};
      },
      {"submit", "--wait", "--logs", "--", "true"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out, "out 1\nout 2\n");
  EXPECT_EQ(ran.err, "job-7\nerror\n");
}

TEST(Submission, WithoutACommandRunsNvidiaSmiAndSaysSo) {
  std::string body;
  const auto serve = [&body](const Request& request) {
    if (!request.body.empty()) body = request.body;
    return submitted(request);
  };
  const Ran ran = run_against(serve, {"submit", "--name", "x", "--gpus", "2", "--priority", "500"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "gpu-cli: no command is given, so the job runs nvidia-smi\n");
  EXPECT_NE(body.find(R"("command":["nvidia-smi"])"), std::string::npos) << body;
  run_against(serve, {"submit", "--image", "cuda:12"});
  EXPECT_EQ(body.find("nvidia-smi"), std::string::npos) << "an image has its own command: " << body;
}

TEST(CommandLine, RefusesWhatMakesNoSense) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "a command is missing; gpu-cli --help lists the commands"},
      {{"submit", "--script", "a b", "--", "true"}, "--script: cannot be combined with a command after --"},
      {{"submit", "--script", "missing.sh"},
       "--script: there is no file missing.sh (a command goes after --)"},
      {{"submit", "--script", "-"}, "--script: it is empty"},
      {{"submit", "missing.sh"}, "there is no file missing.sh (a command goes after --)"},
      {{"submit", "--umask", "9", "--", "true"},
       "--umask: \"9\" is not a mask; write it in octal, such as 0027"},
      {{"submit", "--limit", "nofile", "--", "true"},
       "--limit: \"nofile\" is not NAME=NUMBER, such as nofile=65536"},
      {{"submit", "--image", "i", "--mount", "/a"},
       "--mount: \"/a\" is not SOURCE:TARGET[:ro], with an absolute target"},
      {{"submit", "--logs", "--", "true"}, "--logs: only with --wait"},
      {{"submit", "--mem", "lots", "--", "true"},
       "--mem: \"lots\" is not an amount of memory; write it as 512M, 8G or 1.5T"},
      {{"submit", "--time", "90", "--", "true"},
       "--time: \"90\" is not a duration; write it as 90s, 45m, 2h, 1d, 1h30m or 2:00:00"},
      {{"submit", "--cpus", "-1", "--", "true"}, "--cpus: expected a number of at least 0"},
      {{"submit", "--label", "x", "--", "true"}, "--label: \"x\" is not KEY=VALUE"},
      {{"submit", "--env", "=x", "--", "true"}, "--env: \"=x\" is not KEY=VALUE"},
      {{"list", "--", "true"}, "this command takes no arguments after --"},
      {{"tenant", "update", "t"}, "no change was given; gpu-cli tenant update --help lists the options"},
      {{"tenant", "create", "--name", "a", "--max-gpus", "many"},
       "--max-gpus: \"many\" is neither a whole number nor none (for no limit)"},
      {{"tenant", "create", "--name", "a", "--priority", "huge"},
       "--priority: \"huge\" is neither low, medium, high, critical nor a number"},
      {{"--api-url", "ftp://a", "list"},
       R"("ftp://a" is not the URL of a scheduler: expected http://host:port, https://host:port or unix:///path)"},
  };
  for (const auto& [arguments, sentence] : cases) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, kExitUsage) << sentence;
    EXPECT_EQ(ran.err, "gpu-cli: " + sentence + " (usage)\n");
    EXPECT_EQ(ran.out, "");
  }
}

TEST(CommandLine, RefusesUnknownOptionsAndVerbsInOneLine) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"submit", "--gpu", "1", "--", "true"},
        {"fly"},
        {"get"},
        {"list", "--limit", "0"},
        {"submit", "--gpus", "two", "--", "true"},
        {"node"},
        {"submit", "true"}}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, kExitUsage);
    EXPECT_TRUE(ran.err.starts_with("gpu-cli: ") && ran.err.ends_with(" (usage)\n")) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

TEST(CommandLine, HelpsOnStandardOutput) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"submit", "--help"},
                                                    {"tenant", "create", "-h"},
                                                    {"--version"}}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, kExitOk);
    EXPECT_TRUE(ran.out.ends_with('\n') && !ran.out.ends_with("\n\n"));
    EXPECT_EQ(ran.err, "");
  }
}

TEST(Failing, SaysHowToStartASchedulerWhenNoneAnswers) {
  int port = 0;
  {
    port = TestServer([](const Request&) { return Reply{}; }).port();
  }
  const std::string url = "http://127.0.0.1:" + std::to_string(port);
  const Ran ran = run({"cluster"}, {.environment = {{"GPU_SCHEDULER_URL", url}}});
  EXPECT_EQ(ran.exit_code, kExitUnreachable);
  EXPECT_EQ(ran.err, "gpu-cli: no scheduler answers at " + url +
                         ": connection refused; is it running (systemctl "
                         "status gpu-scheduler), and is this its URL (--api-url)? To try one out: "
                         "gpu-scheduler dev (unreachable)\n");
}

TEST(Failing, RepeatsTheSchedulersSentenceAndCode) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{.status = 404, .body = R"({"error":"there is no job job-9","code":"job_not_found"})"};
      },
      {"get", "job-9"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_EQ(ran.err, "gpu-cli: there is no job job-9 (job_not_found)\n");
  EXPECT_EQ(ran.out, "");
}

TEST(Failing, PointsToTheTokenWhenItIsMissing) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{.status = 401, .body = R"({"error":"no token","code":"unauthenticated"})"};
      },
      {"list"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_NE(ran.err.find("--token-file"), std::string::npos);
}

TEST(Failing, DoubtsTheUrlWhenAnotherServerAnswers) {
  const Ran page = run_against([](const Request&) { return Reply{.body = "<html>"}; }, {"list"});
  EXPECT_EQ(page.exit_code, kExitUnexpected);
  EXPECT_NE(page.err.find("check --api-url"), std::string::npos);
  const Ran missing =
      run_against([](const Request&) { return Reply{.status = 404, .body = "<html>"}; }, {"list"});
  EXPECT_EQ(missing.exit_code, kExitUnexpected);
  EXPECT_NE(missing.err.find("(http_404)"), std::string::npos);
}

TEST(Failing, NeverLetsTheServerDriveTheTerminal) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{.status = 404, .body = R"({"error":"\u001b[2Jgone\nnext","code":"x"})"};
      },
      {"get", "job-9"});
  EXPECT_EQ(ran.err, "gpu-cli: job-9: \uFFFD[2Jgone\uFFFDnext (x)\n");
}

TEST(Failing, LeavesTheOutcomeOpenWhenACancelIsCutOff) {
  const Ran ran = run_against([](const Request&) { return Reply{.hang_up = true}; }, {"cancel", "job-1"});
  EXPECT_EQ(ran.exit_code, kExitUnexpected);
  EXPECT_TRUE(ran.err.ends_with("(outcome_unknown)\n")) << ran.err;
}

TEST(Tokens, AreReadFromTheFileAndSent) {
  std::string path = ::testing::TempDir() + "gpusched_token_XXXXXX";
  const int fd = ::mkstemp(path.data());
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "abc123\n", 7), 7);
  ::close(fd);
  std::vector<Request> seen;
  run_against([](const Request&) { return Reply{.body = R"({"jobs":[],"total":0})"}; },
              {"--token-file", path, "list", "--all"}, &seen);
  ::unlink(path.c_str());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].headers.at("authorization"), "Bearer abc123");
}

TEST(Tokens, ThatCannotBeReadAreAUsageError) {
  const Ran ran = run({"--token-file", "/nowhere/token", "list"});
  EXPECT_EQ(ran.exit_code, kExitUsage);
  EXPECT_NE(ran.err.find("/nowhere/token"), std::string::npos);
  EXPECT_EQ(run({"--token-file", "/dev/null", "list"}).exit_code, kExitUsage);
}

TEST(Contexts, AreSetUsedListedAndDeleted) {
  std::string home = ::testing::TempDir() + "gpusched_home_XXXXXX";
  ASSERT_NE(::mkdtemp(home.data()), nullptr);
  TestServer server([](const Request&) { return Reply{.body = R"({"jobs":[],"total":0})"}; });
  const World world{.environment = {{"HOME", home}}, .working_directory = "/data"};
  EXPECT_EQ(run({"context", "list"}, world).out,
            "No contexts. Create one with: gpu-cli context set lab --api-url http://HOST:8080\n");
  EXPECT_EQ(run({"context", "set", "lab", "--api-url", server.url(), "--tenant", "vision"}, world).out,
            "lab is " + server.url() + ", in use\n");
  EXPECT_EQ(
      run({"context", "set", "home", "--api-url", "http://127.0.0.1:1", "--token-file", "t"}, world).out,
      "home is http://127.0.0.1:1; switch to it with: gpu-cli context use home\n");
  struct stat info{};
  ASSERT_EQ(::stat((home + "/.config/gpu-scheduler/contexts.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(run({"list"}, world).exit_code, kExitOk);
  const std::string asked = server.requests().at(0).target;
  EXPECT_TRUE(asked.starts_with("/v1/jobs?") && asked.ends_with("&tenant_id=vision")) << asked;
  EXPECT_NE(run({"list", "--context", "home"}, world).err.find("/data/t"), std::string::npos);
  EXPECT_EQ(run({"context", "use", "hom"}, world).err,
            "gpu-cli: there is no context hom; did you mean home? (usage)\n");
  EXPECT_EQ(run({"context", "use", "home"}, world).exit_code, kExitOk);
  const std::string listed = run({"context", "list"}, world).out;
  EXPECT_NE(listed.find("*  home  http://127.0.0.1:1"), std::string::npos) << listed;
  EXPECT_EQ(run({"context", "delete", "home"}, world).out, "home deleted\n");
  EXPECT_EQ(run({"list", "--context", "home"}, world).err,
            "gpu-cli: there is no context home; gpu-cli context list shows the contexts (usage)\n");
  std::filesystem::remove_all(home);
}

TEST(Contexts, ATokenIsNotSentToAnotherScheduler) {
  std::string home = ::testing::TempDir() + "gpusched_home_XXXXXX";
  ASSERT_NE(::mkdtemp(home.data()), nullptr);
  const World world{.environment = {{"HOME", home}}};
  run({"context", "set", "lab", "--api-url", "http://127.0.0.1:1", "--token-file", "/nowhere/token"}, world);
  const Ran ran = run_against([](const Request&) { return Reply{.body = R"({"jobs":[],"total":0})"}; },
                              {"list"}, nullptr, world);
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  std::filesystem::remove_all(home);
}

TEST(WaitingForJobs, EndsWithTheFirstFailure) {
  const TestServer::Handler records = [](const Request& request) {
    return Reply{.body = request.target.find("job-1?") != std::string::npos
                             ? R"({"state":"completed","final":true,"exit_code":0})"
                             : R"({"state":"failed","final":true,"reason":"exit_code","exit_code":7})"};
  };
  const Ran ran = run_against(records, {"wait", "job-1", "job-2", "job-3"});
  EXPECT_EQ(ran.exit_code, 7);
  EXPECT_EQ(ran.out, "job-1 completed\njob-2 failed\njob-3 failed\n");
  EXPECT_EQ(run_against(records, {"wait", "--any", "job-1", "job-2"}).exit_code, kExitOk);
}

TEST(WaitingForJobs, GivesUpAtItsTimeout) {
  const Ran ran =
      run_against([](const Request&) { return Reply{.body = R"({"state":"running"})"}; },
                  {"wait", "job-1", "job-2", "--timeout", "5s"}, nullptr, {.clock_step = seconds(1)});
  EXPECT_EQ(ran.exit_code, kExitWaitedInVain);
  EXPECT_EQ(ran.err, "gpu-cli: 2 of 2 jobs have not ended after 5s: job-1, ...; they continue (timeout)\n");
}

TEST(Getting, ShowsWhatIsKnown) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{.body =
                         R"({"job_id":"job-12","state":"failed","reason":"exit_code","message":"exit code 3",
          "name":"train","exit_code":3,"attempts":2,"gpu_count":2,"memory_mb":8192,"node_name":"n1",
          "allocated_gpus":["n1-gpu-0","n1-gpu-1"],"script":"exit 3\nmore\n","max_runtime_seconds":60,"queue_position":0,
          "estimated_wait":"0s","submitted_at":"2025-01-31T09:00:00Z","started_at":"2025-01-31T09:00:10Z",
          "completed_at":"2025-01-31T09:00:40Z"})"};
      },
      {"get", "job-12"});
  EXPECT_EQ(ran.out,
            "Job:         job-12\n"
            "Name:        train\n"
            "State:       failed (exit_code)\n"
            "Message:     exit code 3\n"
            "Exit code:   3\n"
            "GPUs:        2\n"
            "Memory:      8G\n"
            "Script:      exit 3 …\n"
            "Time limit:  1m00s\n"
            "Node:        n1\n"
            "On:          n1-gpu-0, n1-gpu-1\n"
            "Attempts:    2\n"
            "Submitted:   1m40s ago (2025-01-31T09:00:00Z)\n"
            "Started:     1m30s ago (2025-01-31T09:00:10Z)\n"
            "Ended:       1m00s ago (2025-01-31T09:00:40Z)\n"
            "Ran:         30s\n");
}

TEST(Logs, AreCopiedByteForByte) {
  std::vector<Request> seen;
  const std::string bytes("\x00\xff\x1b[1m\n", 7);
  const std::string line = R"({"attempt":2,"stream":"stderr","offset":0,"next_offset":7,"base64":")" +
                           base64_encoded(bytes) + "\"}\n";
  // Cut anywhere: the connection knows nothing of lines.
  const Ran ran =
      run_against([&](const Request&) { return Reply{.chunks = {line.substr(0, 30), line.substr(30)}}; },
                  {"logs", "job-3", "--stderr", "--attempt", "2"}, &seen);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.err, bytes);
  EXPECT_EQ(seen.at(1).target, "/api/v1/jobs/job-3/logs?format=json&stream=stderr&attempt=2");
}

TEST(Logs, AreChosenOnTheNode) {
  std::vector<Request> seen;
  const Ran ran = run_against([&](const Request&) { return Reply{.chunks = {piece("loss 1\n", 90)}}; },
                              {"logs", "job-3", "--tail", "5", "--since", "10m", "--grep", "loss 1"}, &seen);
  EXPECT_EQ(ran.out, "loss 1\n");
  EXPECT_EQ(seen.at(1).target,
            "/api/v1/jobs/job-3/logs?format=json&stream=stdout&grep=loss%201&tail_lines=5&since=600s");
}

TEST(Logs, SayWhatIsNoLongerKept) {
  const Ran ran = run_against(
      [&](const Request&) {
        return Reply{.chunks = {R"({"offset":100,"next_offset":104,"skipped":100,"text":"end\n"})"
                                "\n"}};
      },
      {"logs", "--stdout", "job-3"});
  EXPECT_EQ(ran.out, "end\n");
  EXPECT_EQ(ran.err, "gpu-cli: 100 bytes of the output are no longer kept on the node\n");
}

TEST(Logs, BothGoWhereTheyBelong) {
  const Ran ran = run_against(
      [&](const Request& request) {
        const bool error = request.target.find("stream=stderr") != std::string::npos;
        return Reply{.chunks = {error ? piece("cried\n", 6) : piece("told\n", 5)}};
      },
      {"logs", "job-3"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "told\n");
  EXPECT_EQ(ran.err, "cried\n");
}

TEST(Logs, AnAnswerThatIsNoOutputIsRefused) {
  const Ran ran =
      run_against([&](const Request&) { return Reply{.chunks = {"<html>\n"}}; }, {"logs", "job-3"});
  EXPECT_EQ(ran.exit_code, kExitUnexpected);
  EXPECT_NE(ran.err.find("(bad_answer)"), std::string::npos) << ran.err;
}

TEST(Logs, FollowedGoOnWhereTheConnectionBroke) {
  std::vector<Request> seen;
  std::atomic<bool> broke = false;
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.target.find("/logs") == std::string::npos) {
          return Reply{.body = broke ? R"({"state":"completed","final":true,"attempts":1})"
                                     : R"({"state":"running","final":false,"attempts":1})"};
        }
        if (!broke.exchange(true)) return Reply{.chunks = {piece("12345", 5)}, .hang_up = true};
        return Reply{.chunks = {piece("678", 8)}};
      },
      {"logs", "-f", "--stdout", "job-3"}, &seen);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "12345678");
  int resumed = 0;
  for (const Request& request : seen)
    resumed += request.target.find("&offset=5&") != std::string::npos ? 1 : 0;
  EXPECT_EQ(resumed, 1);
}

TEST(Logs, FollowedGoOverAllAttempts) {
  std::atomic<int> polls = 0;
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.target.find("attempt=1") != std::string::npos)
          return Reply{.chunks = {piece("first ", 6)}};
        if (request.target.find("attempt=2") != std::string::npos)
          return Reply{.chunks = {piece("second", 6)}};
        return Reply{.body = ++polls < 4 ? R"({"state":"pending","final":false,"attempts":1})"
                                         : R"({"state":"completed","final":true,"attempts":2})"};
      },
      {"logs", "-f", "--stdout", "job-3"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "first second");
}

TEST(Logs, FollowedWaitForAJobThatHasNotStarted) {
  std::atomic<int> polls = 0;
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.target.find("/logs") != std::string::npos) {
          return polls < 5 ? Reply{.status = 404, .body = R"({"error":"not started","code":"log_not_found"})"}
                           : Reply{.chunks = {piece("late", 4)}};
        }
        return Reply{.body = ++polls < 5 ? R"({"state":"pending","final":false,"attempts":0})"
                                         : R"({"state":"completed","final":true,"attempts":1})"};
      },
      {"logs", "-f", "--stdout", "job-3"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "late");
}

TEST(Logs, OfAJobThatNeverStartedAreRefused) {
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.target.find("/logs") != std::string::npos) {
          return Reply{.status = 404, .body = R"({"error":"job-3 has no output","code":"log_not_found"})"};
        }
        return Reply{.body = R"({"state":"cancelled","final":true,"attempts":0})"};
      },
      {"logs", "-f", "job-3"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_EQ(ran.err, "gpu-cli: job-3 has no output (log_not_found)\ngpu-cli: job-3 cancelled\n");
}

const char* const kNodes =
    R"({"nodes":[{"id":"node-1","name":"n1","state":"ready","cpu_cores":64,"cpu_cores_free":60,
  "memory_mb":524288,"memory_mb_free":262144,"attempts":3,"gpus":[
  {"id":"n1-gpu-0","model":"NVIDIA A100-SXM4-80GB","memory_mb":81920,"state":"held","condition":"ok","held_by":"job-12",
   "utilization_percent":97,"memory_used_mb":40960,"temperature_celsius":61},
  {"id":"n1-gpu-1","model":"NVIDIA A100-SXM4-80GB","memory_mb":81920,"state":"quarantined","condition":"unhealthy",
   "detail":"Xid 79","utilization_percent":0,"memory_used_mb":0,"temperature_celsius":0},
  {"id":"n1-gpu-2","model":"NVIDIA A100-SXM4-80GB","memory_mb":81920,"state":"free","condition":"ok",
   "utilization_percent":0,"memory_used_mb":0,"temperature_celsius":30}]}],"total":1})";

TEST(Cluster, NodesShowWhatIsFree) {
  const Ran ran = run_against([](const Request&) { return Reply{.body = kNodes}; }, {"nodes"});
  EXPECT_EQ(ran.out,
            "NODE  STATE  FREE GPUS  FREE CPUS  FREE MEMORY  ATTEMPTS  SINCE  REASON\n"
            "n1    ready        1/3      60/64    256G/512G         3\n");
}

TEST(Cluster, GpusShowWhoHoldsThem) {
  const Ran ran =
      run_against([](const Request&) { return Reply{.body = kNodes}; }, {"gpus"}, nullptr, {.width = 120});
  EXPECT_EQ(
      ran.out,
      "GPU       MODEL                  MEMORY  STATE        JOB     USE  USED  TEMP  CONDITION\n"
      "n1-gpu-0  NVIDIA A100-SXM4-80GB     80G  held         job-12  97%   40G  61°C\n"
      "n1-gpu-1  NVIDIA A100-SXM4-80GB     80G  quarantined           0%    0M        unhealthy: Xid 79\n"
      "n1-gpu-2  NVIDIA A100-SXM4-80GB     80G  free                  0%    0M  30°C\n");
}

TEST(Cluster, IsCountedInThreeLines) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{
            .body = R"({"total_nodes":2,"online_nodes":1,"total_gpus":8,"available_gpus":3,"total_jobs":10,
                     "running_jobs":4,"pending_jobs":1})"};
      },
      {"cluster"});
  EXPECT_EQ(ran.out, "Nodes:  1 of 2 online\nGPUs:   3 of 8 free\nJobs:   4 running, 1 waiting, 10 in all\n");
}

TEST(Cluster, NodesAndGpusAreJudgedByTheOperator) {
  std::vector<Request> seen;
  const TestServer::Handler ok = [](const Request&) { return Reply{.body = "{}"}; };
  EXPECT_EQ(run_against(ok, {"node", "confirm-dead", "n 1"}, &seen).out, "node n 1 is declared dead\n");
  EXPECT_EQ(seen.at(0).target, "/v1/nodes/n%201/confirm-dead");
  run_against(ok, {"node", "condition", "n1", "2", "unhealthy", "--detail", "smoke"}, &seen);
  EXPECT_EQ(seen.at(0).target, "/api/v1/nodes/n1/gpus/2/condition");
  EXPECT_EQ(seen.at(0).body, R"({"condition":"unhealthy","detail":"smoke"})");
}

TEST(Explaining, GivesReasonAndWayOut) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{
            .body = R"({"job_id":"job-5","state":"pending","reason":"gpus_busy","message":"waits for 2 GPUs",
                     "lifted_by":["JobEnded","NodeAdded"],"queue_position":3})"};
      },
      {"explain", "job-5"});
  EXPECT_EQ(ran.out,
            "Job:             job-5\n"
            "State:           pending\n"
            "Reason:          gpus_busy\n"
            "Why:             waits for 2 GPUs\n"
            "Queue position:  3\n"
            "Would help:      a job ends, a node is added\n");
}

TEST(Explaining, SaysWhomItStartsByEnding) {
  const auto starts = [](const std::string& evidence) {
    const Ran ran = run_against(
        [&](const Request&) {
          return Reply{.body = R"({"job_id":"job-5","state":"pending","evidence":)" + evidence +
                               R"(,"estimate":{"made_at":"2025-01-31T09:00:00Z","p50":"2025-01-31T10:00:00Z",
                                  "at_latest":"2025-01-31T11:00:00Z"}})"};
        },
        {"explain", "job-5"});
    const std::size_t at = ran.out.find("at the latest");
    return at == std::string::npos ? ran.out : ran.out.substr(at);
  };
  EXPECT_EQ(starts("{}"), "at the latest\n");
  EXPECT_EQ(starts(R"({"ends_jobs":1,"ends_job":646})"), "at the latest, by ending job-646\n");
  EXPECT_EQ(starts(R"({"ends_jobs":3,"ends_job":646})"), "at the latest, by ending job-646 and 2 more\n");
  EXPECT_EQ(starts(R"({"ends_jobs":1})"), "at the latest, by ending a job of another tenant\n");
}

TEST(CliReference, IsWhatTheGrammarsSay) {
  if (std::getenv("GPUSCHED_WRITE_REFERENCE") != nullptr) {
    std::ofstream(GPUSCHED_CLI_REFERENCE_PATH, std::ios::binary) << reference_page();
  }
  std::ifstream file(GPUSCHED_CLI_REFERENCE_PATH, std::ios::binary);
  ASSERT_TRUE(file.good()) << GPUSCHED_CLI_REFERENCE_PATH;
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_TRUE(page.str() == reference_page())
      << "write the page again with GPUSCHED_WRITE_REFERENCE=1 and commit it";
}

TEST(CliReference, NamesEveryExitCode) {
  const std::string text = reference_page();
  for (const int code : {kExitOk, kExitJobFailed, kExitUsage, kExitUnreachable, kExitRefused, kExitUnexpected,
                         kExitWaitedInVain, kExitTimeLimit}) {
    EXPECT_NE(text.find("| " + std::to_string(code) + " |"), std::string::npos) << code;
  }
}

TEST(Manual, HasAPageForEachCommand) {
  const std::map<std::string, std::string> pages = manual_pages("9.9");
  EXPECT_EQ(pages.size(), all_verbs().size() + 1);
  EXPECT_NE(pages.at("gpu-cli-node-confirm-dead.1").find("\\fBgpu\\-cli node confirm\\-dead NODE\\fR"),
            std::string::npos)
      << pages.at("gpu-cli-node-confirm-dead.1");
  EXPECT_NE(pages.at("gpu-cli.1").find(".SH EXIT STATUS"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::cli::testing
