#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

Reply moves(const Request&) {
  return {
      .body =
          R"({"mode":"propose","proposals":[],"gpus_free":3,"unusable_gpus":1.5,"message":"no move helps",)"
          R"("unmoved":[{"job_id":"job-1","message":"first"},{"job_id":"job-2","message":"it is a gang"}]})"};
}

TEST(Moves, EndWithTheEndOfALine) {
  const Ran ran = run_against(moves, {"moves"});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out,
            "no move helps; 3 GPUs free, 1.5 unusable for the jobs that arrive\n"
            "nothing for job-2: it is a gang\n");
}

TEST(Moves, ThatAreCarriedOutEndWithTheEndOfALine) {
  const auto applied = [](const Request&) {
    return Reply{.body = R"({"id":"move-1","job_id":"job-9","node_name":"n1","gpus":["n1-gpu-0"],"moves":)"
                         R"([{"job_id":"job-1","to_node":"n2","to_gpus":["n2-gpu-1"]}]})"};
  };
  const Ran ran = run_against(applied, {"move", "apply", "move-1"});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "job-1 continues on n2[1]; job-9 starts on n1[0] when these jobs have left\n");
}

}  // namespace
}  // namespace gpusched::cli::testing
