#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli {
namespace {

using namespace testing;

std::string refusal(const std::vector<std::string>& words, const World& world = {}) {
  const Ran ran = run(words, world);
  EXPECT_EQ(ran.exit_code, kExitUsage);
  return ran.err;
}

TEST(CaFile, IsForHttpsAlone) {
  EXPECT_EQ(refusal({"--api-url", "http://a", "--ca-file", "a.pem", "list"}),
            "gpu-cli: --ca-file needs a URL that begins with https://, and not http://a (usage)\n");
  // Set for all schedulers of a machine it does not keep from those without TLS.
  const World world{.environment = {{"GPU_SCHEDULER_CA_FILE", "/nowhere.pem"}}};
  EXPECT_EQ(run_against([](const Request&) { return Reply{.body = R"({"jobs":[],"total":0})"}; }, {"list"},
                        nullptr, world)
                .exit_code,
            kExitOk);
}

TEST(CaFile, IsReadBeforeAnythingIsAsked) {
  const std::string why =
      "gpu-cli: cannot read a certificate from /nowhere.pem: No such file or directory (usage)\n";
  EXPECT_EQ(refusal({"--api-url", "https://127.0.0.1:1", "--ca-file", "/nowhere.pem", "list"}), why);
  const World world{.environment = {{"GPU_SCHEDULER_URL", "https://127.0.0.1:1"},
                                    {"GPU_SCHEDULER_CA_FILE", "/nowhere.pem"}}};
  EXPECT_EQ(refusal({"list"}, world), why);
}

}  // namespace
}  // namespace gpusched::cli
