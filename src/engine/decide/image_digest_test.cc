#include <gtest/gtest.h>

#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

Applied started(TestEngine& engine, JobId job, const std::string& digest) {
  return engine.apply(AttemptStarted{.job = job,
                                     .attempt = engine.job(job).attempt_count,
                                     .node = engine.job(job).node,
                                     .image_digest = digest});
}

TEST(ImageDigest, TheFirstOneThatIsSaidStaysTheJobs) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = 2}});
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit({.gpus = 1, .retry = {.exit_code_retries = 5}});
  engine.cycle();
  started(engine, job, "sha256:aa");
  EXPECT_EQ(engine.job(job).extras->image_digest.view(), "sha256:aa");
  started(engine, job, "sha256:bb");  // Said again.
  EXPECT_EQ(engine.job(job).extras->image_digest.view(), "sha256:aa");
  engine.ended(job, exited(1));
  engine.release_all();
  engine.advance(engine.job(job).not_before - engine.now());
  engine.cycle();
  ASSERT_EQ(engine.job(job).attempt_count, 2u);
  started(engine, job, "sha256:bb");
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  EXPECT_EQ(engine.job(job).extras->image_digest.view(), "sha256:aa");
}

// Journals from before must replay to the digests that they were recorded with.
TEST(ImageDigest, NoneIsKeptBelowTheFeatureLevel) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = 1}});
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit({.gpus = 1});
  engine.cycle();
  started(engine, job, "sha256:aa");
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  EXPECT_TRUE(engine.job(job).extras->image_digest.empty());
}

}  // namespace
}  // namespace gpusched
