#include "api/fields/flow_fields.h"

#include <gtest/gtest.h>

#include "api/contract/names.h"
#include "api/doors/jobs/jobs_json.h"

namespace gpusched::api {
namespace {

std::string again(const std::string& text) {
  const Answer<ArraySpec> array = parse_array(text);
  return array ? ranges_text(array->ranges) + (array->at_once > 0 ? "%" + std::to_string(array->at_once) : "")
               : array.error().field;
}

TEST(Arrays, NameTheirIndexes) {
  EXPECT_EQ(again("3-5"), "3-5");
  EXPECT_EQ(again("0-20:10"), "0-20:10");
  EXPECT_EQ(again("0-25:10"), "0-20:10");
  EXPECT_EQ(again("7,1,3-4%2"), "1,3-4,7%2");
  EXPECT_EQ(again("0-999%50"), "0-999%50");
}

TEST(Arrays, RefuseWhatNamesNone) {
  for (const char* const text :
       {"a", "1-", "5-3", "1-3:0", "1,1", "-1", "1-3,2", "0-2000000", "1:2", "1-3:1:1", "1-9%", "1-9%0",
        "1%2%3", "0-9223372036854775807", "4000001", ","}) {
    EXPECT_EQ(again(text), "array") << text;
  }
}

TEST(Arrays, ShowWhatIsLeftOfThem) {
  const std::vector<IndexRange> ranges = {{.first = 0, .last = 8, .step = 2},
                                          {.first = 20, .last = 22, .step = 1}};
  EXPECT_EQ(ranges_text(ranges, 0), "0-8:2,20-22");
  EXPECT_EQ(ranges_text(ranges, 3), "6-8:2,20-22");
  EXPECT_EQ(ranges_text(ranges, 1, {2, 6}), "2,6-8:2,20,22");
  EXPECT_EQ(ranges_text(ranges, 8), "");
}

TEST(Elements, AreNamedByArrayAndIndex) {
  const auto name = parse_job_id("job-12[3]");
  ASSERT_TRUE(name.has_value());
  EXPECT_TRUE(is_element_name(*name));
  EXPECT_EQ(array_of_name(*name), JobId{12});
  EXPECT_EQ(index_of_name(*name), 3);
  EXPECT_EQ(job_name(*name), "job-12[3]");
  for (const char* const text : {"job-12[", "job-12[]", "job-12[03]", "job-12[-1]", "job-12[4000001]",
                                 "job-[3]", "job-12[3]x", "job-9223372036854775807[1]"}) {
    EXPECT_FALSE(parse_job_id(text).has_value()) << text;
  }
}

TEST(Flow, IsReadFromTheJobsDoor) {
  const auto request = parse_submit(
      R"({"command":["x"],"begin_after_seconds":60,"deadline":"2030-01-31T09:00:00Z","array":"0-9%2",)"
      R"("dependencies":["after_ok:job-12","after_start:#0"],"on_parent_failure":"wait","retries":2,)"
      R"("retry_on":["exit_code:75","exit_code:3","signal"]})",
      true);
  ASSERT_TRUE(request.ok());
  const JobRequest& job = request->jobs.front();
  ASSERT_EQ(job.flow.size(), 1u);
  const JobFlow& flow = job.flow.front();
  EXPECT_EQ(flow.begin_after, seconds(60));
  EXPECT_TRUE(flow.deadline.valid());
  EXPECT_EQ(flow.array_at_once, 2);
  ASSERT_EQ(flow.dependencies.size(), 2u);
  EXPECT_EQ(flow.dependencies[0].parent, JobId{12});
  EXPECT_EQ(flow.dependencies[1].index, 0u);
  EXPECT_EQ(flow.on_parent_failure, OnParentFailure::kWait);
  EXPECT_EQ(job.retry_causes, kRetryExit | kRetrySignal);
  EXPECT_EQ(job.retry_exit_codes, "\x03\x4b");
  EXPECT_EQ(retry_on_words(job.retry_causes, job.retry_exit_codes),
            (std::vector<std::string>{"exit_code:3", "exit_code:75", "signal"}));
}

TEST(Flow, IsRefusedByItsField) {
  const auto field = [](const std::string& fields) {
    const auto request = parse_submit("{\"command\":[\"x\"]," + fields + "}", true);
    return request.ok() ? std::string() : request.error().field;
  };
  EXPECT_EQ(field(R"("dependencies":["job-12"])"), "dependencies");
  EXPECT_EQ(field(R"("dependencies":["after_all:job-12"])"), "dependencies");
  EXPECT_EQ(field(R"("on_parent_failure":"panic")"), "on_parent_failure");
  EXPECT_EQ(field(R"("begin_at":"tomorrow")"), "begin_at");
  EXPECT_EQ(field(R"("begin_at":"2030-01-31T09:00:00Z","begin_after_seconds":5)"), "begin_at");
  EXPECT_EQ(field(R"("deadline_after_seconds":-1)"), "deadline_after_seconds");
  EXPECT_EQ(field(R"("array":"5-3")"), "array");
  EXPECT_EQ(field(R"("retry_on":["hunger"])"), "retry.on");
  EXPECT_EQ(field(R"("retry_on":["signal:9"])"), "retry.on");
  EXPECT_EQ(field(R"("dependencies":[])"), "");
}

}  // namespace
}  // namespace gpusched::api
