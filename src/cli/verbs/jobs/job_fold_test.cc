#include "cli/verbs/jobs/job_fold.h"

#include <gtest/gtest.h>

#include "cli/testing/now.h"
#include "cli/verbs/jobs/job_columns.h"

namespace gpusched::cli {
namespace {

std::string folded(const std::string& jobs) {
  const Result<Json> list = Json::parse(jobs);
  return job_table(fold_arrays(list->items()), {"id", "name", "state", "gpus", "ran", "where"}, kNow)
      .render(100);
}

constexpr const char* kElements = R"(
  {"job_id":"job-16","state":"pending","array_id":"job-12","array_index":2,"spec":{"name":"sweep-2"},"resources":{"gpu_count":1}},
  {"job_id":"job-15","state":"running","array_id":"job-12","array_index":1,"spec":{"name":"sweep-1"},
   "resources":{"gpu_count":1},"started_at":"2025-01-31T09:01:00Z","node_name":"n1"})";

TEST(FoldingArrays, PutsElementsIntoTheLineOfTheirArray) {
  EXPECT_EQ(
      folded(std::string(R"([{"job_id":"job-20","state":"running","node_name":"n2","spec":{"name":"x"}},)") +
             kElements +
             R"(,{"job_id":"job-12","state":"pending","spec":{"name":"sweep"},"resources":{"gpu_count":1},
                   "array":{"indexes":"0-99%2","count":100,"waiting":96,"running":1,"completed":2,"failed":1}}])"),
      "ID            NAME   STATE    GPUS  RAN  NODE/REASON\n"
      "job-20        x      running             n2\n"
      "job-12[0-99]  sweep  running     1  40s  1 run, 96 wait, 2 completed, 1 failed\n");
}

TEST(FoldingArrays, NamesTheElementsWhenTheirArrayIsNotInTheList) {
  EXPECT_EQ(folded(std::string("[") + kElements + "]"),
            "ID           NAME   STATE    GPUS  RAN  NODE/REASON\n"
            "job-12[1-2]  sweep  running     1  40s  1 run, 1 wait\n");
}

TEST(FoldingArrays, ShowsNoElementsUsageForAll) {
  const Result<Json> list = Json::parse(R"([
    {"job_id":"job-16","state":"completed","array_id":"job-12","array_index":2,"usage":{"cpu_ms":5000}},
    {"job_id":"job-15","state":"completed","array_id":"job-12","array_index":1,"usage":{"cpu_ms":9000}}])");
  EXPECT_EQ(job_table(fold_arrays(list->items()), {"id", "cpu_time"}, kNow).render(80),
            "ID           CPU-TIME\njob-12[1-2]\n");
}

TEST(FoldingArrays, LeavesAnElementThatIsAlone) {
  EXPECT_EQ(
      folded(
          R"([{"job_id":"job-15","state":"failed","message":"exit code 3","array_id":"job-12","array_index":1,
                        "spec":{"name":"sweep-1"}}])"),
      "ID         NAME     STATE   GPUS  RAN  NODE/REASON\n"
      "job-12[1]  sweep-1  failed             exit code 3\n");
}

TEST(Ranges, JoinNeighbours) {
  EXPECT_EQ(ranges_of({7, 0, 1, 2, 9, 10}), "0-2,7,9-10");
  EXPECT_EQ(ranges_of({}), "");
}

}  // namespace
}  // namespace gpusched::cli
