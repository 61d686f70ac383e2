#include <gtest/gtest.h>

#include "cli/terminal/output.h"
#include "cli/testing/now.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/jobs/job_query.h"

namespace gpusched::cli {
namespace {

std::vector<Json> sample() {
  const Result<Json> list = Json::parse(R"([
    {"id":"job-9","name":"b","state":"running","gpu_count":2,"priority":100,"submitted_at":"2025-01-31T09:00:00Z",
     "started_at":"2025-01-31T09:01:00Z"},
    {"id":"job-10","name":"a","state":"pending","held":true,"gpu_count":8,"priority":100,
     "submitted_at":"2025-01-31T09:01:00Z"},
    {"job_id":"job-2","spec":{"name":"c","labels":{"team":"x"}},"resources":{"gpu_count":2,"cpu_milli":1500},
     "state":"completed","priority":7,"submitted_at":"2025-01-30T09:00:00Z","started_at":"2025-01-30T09:00:00Z",
     "completed_at":"2025-01-30T10:00:00Z"}])");
  return list->items();
}

std::string ordered_by(const std::string& keys) {
  std::vector<Json> jobs = sample();
  sort_jobs(jobs, keys, kNow);
  std::string out;
  for (const Json& job : jobs) out += job_id_of(job) + " ";
  return out;
}

TEST(JobOrder, FollowsItsKeys) {
  EXPECT_EQ(ordered_by("name"), "job-10 job-9 job-2 ");
  EXPECT_EQ(ordered_by("-name"), "job-2 job-9 job-10 ");
  EXPECT_EQ(ordered_by("id"), "job-10 job-9 job-2 ");
  EXPECT_EQ(ordered_by("gpus,-id"), "job-10 job-2 job-9 ");
  EXPECT_EQ(ordered_by("-submitted"), "job-2 job-9 job-10 ");
  EXPECT_EQ(ordered_by("ran"), "job-2 job-9 job-10 ");
}

TEST(JobColumns, ReadBothDoorsRecords) {
  EXPECT_EQ(job_table(sample(), {"id", "name", "state", "gpus", "cpus", "labels", "ran"}, kNow).render(80),
            "ID      NAME  STATE      GPUS  CPUS  LABELS    RAN\n"
            "job-9   b     running       2                  40s\n"
            "job-10  a     held          8\n"
            "job-2   c     completed     2   1.5  team=x  1h00m\n");
}

TEST(JobColumns, ShowWhatWasMeasuredAndSortByIt) {
  std::vector<Json> jobs = Json::parse(R"([
    {"id":"job-1","state":"completed"},
    {"id":"job-2","state":"completed","usage":{"peak_memory_bytes":209715200,"cpu_ms":1250,"gpu_use_permille":0}},
    {"id":"job-3","state":"completed","usage":{"peak_memory_bytes":5368709120,"cpu_ms":192000,"gpu_use_permille":834}}])")
                               ->items();
  sort_jobs(jobs, "peak_memory", kNow);
  EXPECT_EQ(job_table(jobs, {"id", "peak_memory", "cpu_time", "gpu_use"}, kNow).render(80),
            "ID     PEAK-MEM  CPU-TIME  GPU-USE\n"
            "job-3        5G     3m12s     83 %\n"
            "job-2      200M     1.25s      0 %\n"
            "job-1\n");
  EXPECT_EQ(fields_of({"id", "cpu_time"}), "job_id,state,array_id,array_index,array,usage");
}

TEST(JobColumns, AreColouredByState) {
  const std::string text = job_table({sample()[0]}, {"id", "state"}, kNow).render(80, true);
  EXPECT_NE(text.find("\x1b[32mrunning\x1b[0m"), std::string::npos) << text;
}

TEST(Yaml, QuotesWhatCouldBeSomethingElse) {
  const Result<Json> json = Json::parse(
      R"({"a":"plain","b":"yes","c":"1","d":"two words","e":"","f":null,"g":[],"h":{"i":[{"j":1,"k":"-x"},"l"]},"m n":true})");
  EXPECT_EQ(yaml_text(*json),
            "a: plain\n"
            "b: \"yes\"\n"
            "c: \"1\"\n"
            "d: \"two words\"\n"
            "e: \"\"\n"
            "f: null\n"
            "g: []\n"
            "h:\n"
            "  i:\n"
            "  - j: 1\n"
            "    k: \"-x\"\n"
            "  - l\n"
            "\"m n\": true\n");
}

TEST(JobQueries, KnowGroupsOfStates) {
  EXPECT_EQ(*parse_states("active,failed,running"),
            (std::vector<std::string>{"failed", "pending", "preempted", "running", "scheduled"}));
  EXPECT_EQ(parse_states("runing").error().message,
            "--state: \"runing\" is not known; did you mean running?");
}

TEST(JobQueries, KnowTimes) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(parse_since("1h", kNow)->ns, kNow.ns - 3'600'000'000'000);
  EXPECT_EQ(parse_since("2025-01-31T09:01:40Z", kNow)->ns, kNow.ns);
  EXPECT_EQ(parse_since("2025-01-31", kNow)->ns, kNow.ns - (9 * 3'600 + 100) * int64_t{1'000'000'000});
  EXPECT_LT(parse_since("yesterday", kNow)->ns, kNow.ns);
  EXPECT_FALSE(parse_since("soon", kNow).ok());
}

TEST(JobQueries, MatchNames) {
  EXPECT_TRUE(glob_matches("train-*", "train-12"));
  EXPECT_TRUE(glob_matches("*a?c*", "xxabcxx"));
  EXPECT_TRUE(glob_matches("", ""));
  EXPECT_TRUE(glob_matches("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(glob_matches("train", "train-1"));
  EXPECT_FALSE(glob_matches("a?", "a"));
}

}  // namespace
}  // namespace gpusched::cli
