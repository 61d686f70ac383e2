#include "replay/trace/formats.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

namespace gpusched::replay {
namespace {

class FormatsTest : public ::testing::Test {
 protected:
  FormatsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "formats.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~FormatsTest() override { std::filesystem::remove_all(folder_); }

  Result<Trace> read(std::string_view format, const std::string& text) {
    const std::string path = (folder_ / "trace.csv").string();
    std::ofstream(path, std::ios::binary) << text;
    return read_trace(format, path);
  }
  Trace good(std::string_view format, const std::string& text) {
    const Result<Trace> trace = read(format, text);
    EXPECT_TRUE(trace.ok()) << trace.error().message;
    return trace.ok() ? *trace : Trace{};
  }
  void expect_broken(std::string_view format, const std::string& text, const std::string& what) {
    const Result<Trace> trace = read(format, text);
    ASSERT_FALSE(trace.ok());
    EXPECT_EQ(trace.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(trace.error().message.find(what), std::string::npos) << trace.error().message;
  }

  std::filesystem::path folder_;
};

constexpr const char* kItp = "job_id,submission_time,duration,num_gpu\n";

TEST_F(FormatsTest, MuriCountsInMilliseconds) {
  const Trace trace = good("muri",
                           "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\n"
                           "7,1,1500,58,dqn,128,2000\n"
                           "8,8,2500,87,bert,4,500\n"
                           "9,8,2500,87,dqn,128,0\n");
  ASSERT_EQ(trace.jobs.size(), 2u);
  EXPECT_EQ(trace.capacity, 64);
  EXPECT_EQ(trace.skipped, 1u);
  EXPECT_EQ(trace.jobs[0].id, 7u);
  EXPECT_EQ(trace.jobs[0].submitted, Duration{});
  EXPECT_EQ(trace.jobs[0].run, seconds(2));
  EXPECT_EQ(trace.jobs[1].submitted, seconds(1));
  EXPECT_EQ(trace.jobs[1].size, 8);
  EXPECT_NE(trace.jobs[0].executable, trace.jobs[1].executable);
}

TEST_F(FormatsTest, ItpComesInTheOrderOfSubmission) {
  const Trace trace = good("itp", std::string(kItp) + "b,20,5,2\na,10,3,4\n");
  ASSERT_EQ(trace.jobs.size(), 2u);
  EXPECT_EQ(trace.jobs[0].size, 4);
  EXPECT_EQ(trace.jobs[1].submitted, seconds(10));
  EXPECT_EQ(trace.capacity, 0);
}

TEST_F(FormatsTest, PhillyHasDatesAndVirtualClusters) {
  const Trace trace = good("philly",
                           "timestamp,duration,num_gpus,gpu_time,cluster\n"
                           "2016-03-01 00:00:00,66.5,1,66.5,11cb48\n"
                           "2016-02-28 23:59:59,3,2,6,6214e9\n"
                           "2016-03-01 00:00:01,3,2,6,11cb48\n");
  ASSERT_EQ(trace.jobs.size(), 3u);
  EXPECT_EQ(trace.jobs[1].submitted, hours(24) + seconds(1));  // A leap year.
  EXPECT_EQ(trace.jobs[1].run, milliseconds(66'500));
  ASSERT_EQ(trace.queue_names.size(), 3u);
  EXPECT_EQ(trace.queue_names[trace.jobs[0].queue], "6214e9");
  EXPECT_EQ(trace.queue_names[trace.jobs[2].queue], "11cb48");
}

TEST_F(FormatsTest, HeliosCountsSubmissionsInMicrosecondsAndPassesCommentsOver) {
  const Trace trace = good(
      "helios",
      "# a "
      "slice\njob_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,"
      "final_status\n"
      "5,uA,vcA,finetune,1000000,128,,16,24.0,24.0,CANCELED\n"
      "6,uB,vcA,finetune,3000000,8,,1,2.5,2.5,COMPLETED\n");
  ASSERT_EQ(trace.jobs.size(), 2u);
  EXPECT_EQ(trace.jobs[1].submitted, seconds(2));
  EXPECT_EQ(trace.jobs[1].run, milliseconds(2500));
  EXPECT_EQ(trace.jobs[0].requested, Duration{});  // The limit there is the duration.
  EXPECT_NE(trace.jobs[0].user, trace.jobs[1].user);
  EXPECT_EQ(trace.jobs[0].queue, trace.jobs[1].queue);
}

TEST_F(FormatsTest, OpenbRunsFromCreationToDeletion) {
  const Trace trace =
      good("openb",
           "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
           "scheduled_time\n"
           "pod-0,6000,12288,1,460,,LS,Running,100,160,100\n"
           "pod-1,6000,12288,0,0,,BE,Running,100,160,100\n");
  ASSERT_EQ(trace.jobs.size(), 1u);
  EXPECT_EQ(trace.jobs[0].run, seconds(60));
  EXPECT_EQ(trace.skipped, 1u);
}

TEST_F(FormatsTest, PaiHasFractions) {
  const Trace trace = good("pai", "job_id,arrival_s,service_sec,gpu_count\nx,1.25,2.5,8\n");
  ASSERT_EQ(trace.jobs.size(), 1u);
  EXPECT_EQ(trace.jobs[0].run, milliseconds(2500));
}

TEST_F(FormatsTest, ABrokenLineIsNamedWithItsNumber) {
  expect_broken("itp", std::string(kItp) + "a,10,3,4\nb,10,3\n", ":3: has 3 fields");
  expect_broken("itp", std::string(kItp) + "a,10,-3,4\n", ":2: column duration is not a time: '-3'");
  expect_broken("itp", std::string(kItp) + "a,ten,3,4\n", ":2: column submission_time");
  expect_broken("itp", std::string(kItp) + "a,10,3,4.5\n", ":2: column num_gpu");
  expect_broken("itp", std::string(kItp) + "a,99999999999999999999,3,4\n", ":2: column submission_time");
  expect_broken("itp", "job_id,submission_time,duration\na,1,2\n", "lacks the column 'num_gpu'");
  expect_broken("itp", "", "the header line with the names of columns is missing");
  expect_broken("philly", "timestamp,duration,num_gpus,cluster\n2016-13-01 00:00:00,1,1,a\n",
                ":2: column timestamp");
  expect_broken("openb", "name,num_gpu,qos,creation_time,deletion_time\np,1,LS,5,4\n", ":2: was deleted");
}

TEST_F(FormatsTest, GzipIsReadAsPlainTextIs) {
  const std::string path = (folder_ / "trace.csv.gz").string();
  const std::string text = std::string(kItp) + "a,10,3,4\n";
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  const Result<Trace> trace = read_trace("itp", path);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->jobs.size(), 1u);
}

TEST_F(FormatsTest, AnUnknownFormatSaysWhichThereAre) {
  const Result<Trace> trace = read_trace("csv", "x");
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(trace.error().message.find("swf, muri, itp, philly, helios, openb, pai"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::replay
