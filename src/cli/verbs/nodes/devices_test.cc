#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

/// One node, of which the second GPU is quarantined; what was sent but for looks comes back in `sent`.
TestServer::Handler one_node(std::vector<Request>* sent) {
  return [sent](const Request& request) {
    if (request.method != "GET") sent->push_back(request);
    return Reply{.body = R"({"name":"n1","devices":[
      {"id":"n1-gpu-0","uuid":"GPU-a","state":"held","condition":"ok","held_by":"job-12"},
      {"id":"n1-gpu-1","uuid":"GPU-b","state":"quarantined","condition":"unhealthy","quarantined_by":"ada"}]})"};
  };
}

TEST(Devices, AreQuarantinedByIndexIdOrUuid) {
  for (const char* gpu : {"0", "n1-gpu-0", "GPU-a"}) {
    std::vector<Request> sent;
    const Ran ran = run_against(one_node(&sent), {"device", "quarantine", "n1", gpu, "--reason", "smoke"});
    EXPECT_EQ(ran.out, "n1-gpu-0 is quarantined and gets no new jobs; job-12 continues\n");
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].target, "/v1/nodes/n1/devices/0/condition");
    EXPECT_TRUE(sent[0].body.starts_with(R"({"condition":"unhealthy","detail":"smoke")")) << sent[0].body;
  }
}

TEST(Devices, OnlyQuarantinedOnesAreReleased) {
  std::vector<Request> sent;
  EXPECT_EQ(run_against(one_node(&sent), {"device", "release", "n1", "1"}).exit_code, kExitOk);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].body.starts_with(R"({"condition":"ok")")) << sent[0].body;
  sent.clear();
  const Ran ran = run_against(one_node(&sent), {"device", "release", "n1", "0"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_NE(ran.err.find("n1-gpu-0 is not quarantined: it is held"), std::string::npos) << ran.err;
  EXPECT_TRUE(sent.empty());
}

TEST(Devices, ThatTheNodeDoesNotHaveAreRefusedWithThoseItHas) {
  std::vector<Request> sent;
  const Ran ran = run_against(one_node(&sent), {"device", "quarantine", "n1", "2", "--reason", "smoke"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_NE(ran.err.find("an index from 0 to 1"), std::string::npos) << ran.err;
  EXPECT_EQ(run_against(one_node(&sent), {"device", "quarantine", "n1", "0"}).exit_code, kExitUsage);
  EXPECT_TRUE(sent.empty());
}

}  // namespace
}  // namespace gpusched::cli::testing
