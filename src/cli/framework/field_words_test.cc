#include "cli/framework/field_words.h"

#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"
#include "cli/framework/verb.h"

namespace gpusched::cli::testing {
namespace {

TEST(FieldWords, AreOptions) {
  EXPECT_EQ(in_option_words("gpu_count must be from 0 to 8; it is 9", "gpu_count"),
            "--gpus must be from 0 to 8; it is 9");
  EXPECT_EQ(in_option_words("memory_mb must be at most 10", "memory_mb"), "--mem (in MB) must be at most 10");
  EXPECT_EQ(in_option_words("leave gpu_count out, or gpu_milli.", "gpu_milli"),
            "leave --gpus out, or --gpu-share.");
  EXPECT_EQ(in_option_words("resources.gpu_count must not be negative", "resources.gpu_count"),
            "--gpus must not be negative");
  EXPECT_EQ(in_option_words("name is longer than 253 bytes; choose another name", "name"),
            "--name is longer than 253 bytes; choose another name");
}

TEST(FieldWords, AreLeftWhereTheyMeanSomethingElse) {
  for (const char* const sentence :
       {"a tenant of this name exists; choose another name", "set scheduler.preempt_webhook_hosts",
        "my_gpu_count", "gpu_counts", "", "user root may not"}) {
    EXPECT_EQ(in_option_words(sentence, ""), sentence);
  }
}

TEST(FieldWords, NameOptionsThatExist) {
  for (const FieldOption& row : field_options()) {
    bool found = row.option == "--tenant-id";
    for (const std::string_view path : {"submit", "tenant create"}) {
      Grammar grammar;
      const Action action = find_verb(path)->define(grammar);
      found = found || grammar.find(row.option) != nullptr;
    }
    EXPECT_TRUE(found) << row.option;
  }
}

TEST(Refusals, SpeakOfOptions) {
  const TestServer::Handler refuse = [](const Request&) {
    return testing::Reply{
        .status = 400,
        .body = R"({"error":"gpu_count must be at most 8","code":"invalid_argument","field":"gpu_count"})"};
  };
  EXPECT_EQ(run_against(refuse, {"submit", "--gpus", "9", "--", "true"}).err,
            "gpu-cli: --gpus must be at most 8 (invalid_argument)\n");
  EXPECT_EQ(run_against(refuse, {"update", "7", "--gpus", "9"}).err,
            "gpu-cli: job-7: --gpus must be at most 8 (invalid_argument)\n");
  // A request that was not written as options keeps its words.
  EXPECT_NE(run_against(refuse, {"get", "7"}).err.find("gpu_count"), std::string::npos);
}

TEST(SubmitHelp, HasTheCommonOptionsFirstAndTheRestInGroups) {
  const std::string help = run({"submit", "--help"}).out;
  const size_t common = help.find("\nCommon options\n");
  ASSERT_NE(common, std::string::npos) << help;
  const size_t next = help.find("\n\n", common);
  const std::string first = help.substr(common, next - common);
  for (const char* const option :
       {"--gpus N", "--cpus N", "--mem SIZE", "--time SPAN", "--name NAME", "--output FILE",
        "--array INDEXES", "--after KIND:JOB", "--wait", "--logs"})
    EXPECT_NE(first.find(option), std::string::npos) << option;
  EXPECT_EQ(first.find("--umask"), std::string::npos);
  for (const char* const heading :
       {"GPUs and nodes", "Placement", "Priority and retries", "Files, environment and user", "Containers",
        "Schedule", "Preemption and watchdogs", "Waiting"})
    EXPECT_NE(help.find("\n" + std::string(heading) + "\n"), std::string::npos) << heading;
  EXPECT_EQ(help.find("\nOptions\n"), std::string::npos);
  EXPECT_NE(run({"list", "--help"}).out.find("\nOptions\n"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::cli::testing
