#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

/// Two jobs on one GPU, one on another, and a free one.
Reply three_gpus(const Request&) {
  return {.body = R"({"nodes":[{"name":"n1","devices":[
    {"id":"n1-gpu-0","model":"A100","state":"held","utilization_percent":80,"held_by":"job-12","holders":[
      {"job_id":"job-12","tenant_id":"tenant-3","owner":"person ana","since":"2001-01-01T00:00:00Z"}]},
    {"id":"n1-gpu-1","model":"A100","state":"shared","shared_by":["job-4","job-7"],"holders":[
      {"job_id":"job-4","tenant_id":"default","owner":"anonymous","gpu_milli":250},
      {"job_id":"job-7","tenant_id":"tenant-3","owner":"person bo","gpu_milli":500}]},
    {"id":"n1-gpu-2","model":"A100","state":"free","holders":[]}]}]})"};
}

Ran list(std::vector<std::string> words) {
  words.insert(words.begin(), "gpu");
  return run_against(three_gpus, words);
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

TEST(Gpus, AreListedWithEachHolderAndForHowLong) {
  const Ran ran = list({});
  EXPECT_EQ(ran.exit_code, kExitOk);
  EXPECT_EQ(lines_of(ran.out), 5u) << ran.out;  // Titles, one, two, and the free one.
  EXPECT_NE(ran.out.find("person ana"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("0.25"), std::string::npos) << ran.out;
  EXPECT_TRUE(std::regex_search(ran.out, std::regex("job-12 .* [0-9]+d"))) << ran.out;
}

TEST(Gpus, AreChosenByWhoHoldsThem) {
  EXPECT_EQ(list({"--held", "-o", "name"}).out, "n1-gpu-0\nn1-gpu-1\n");
  EXPECT_EQ(list({"--free", "-o", "name"}).out, "n1-gpu-2\n");
  EXPECT_EQ(list({"--job", "job-7", "-o", "name"}).out, "n1-gpu-1\n");
  EXPECT_EQ(list({"--tenant", "tenant-3", "-o", "name"}).out, "n1-gpu-0\nn1-gpu-1\n");
  EXPECT_EQ(list({"--job", "7", "-o", "name"}).out, "n1-gpu-1\n");
  const Ran shared = list({"--tenant", "tenant-3"});
  EXPECT_EQ(shared.out.find("job-4"), std::string::npos) << "another tenant's share: " << shared.out;
  EXPECT_EQ(list({"--job", "job-99"}).out, "No GPUs match.\n");
}

TEST(Gpus, KeepTheirMembersInJson) {
  const Ran ran = list({"--free", "--json"});
  EXPECT_EQ(ran.out, R"({"gpus":[{"id":"n1-gpu-2","model":"A100","state":"free","holders":[]}],"total":1})"
                     "\n");
}

}  // namespace
}  // namespace gpusched::cli::testing
