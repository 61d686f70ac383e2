#include <gtest/gtest.h>

#include <string>

#include "base/prng.h"
#include "engine/testing/test_engine.h"

// A change of a waiting job is allowed exactly where a new job that is so would be.
namespace gpusched {
namespace {

using testing::TestEngine;
using testing::Want;

Want some_job(Prng& prng, TenantId tenant) {
  Want want{.gpus = static_cast<int32_t>(prng.between(-1, 9)),
            .cpu_milli = static_cast<int32_t>(prng.between(-1, 12)) * 1'000,
            .memory_mb = prng.between(-1, 12) * 1'000,
            .model = prng.chance(200) ? "NVIDIA H100" : "",
            .gpu_memory_mb = prng.chance(200) ? prng.between(1, 100'000) : 0,
            .priority = static_cast<int32_t>(prng.between(0, 1'100)),
            .tenant = tenant,
            .max_runtime = minutes(prng.between(0, 90))};
  if (want.gpus == 1 && prng.chance(400)) want.gpu_milli = static_cast<int32_t>(prng.between(1, 10)) * 100;
  if (want.gpu_milli > 0) want.gpu_memory_mb = 0;
  if (prng.chance(200)) want.members = static_cast<int32_t>(prng.between(0, 4));
  if (prng.chance(100)) want.members_max = static_cast<int32_t>(prng.between(1, 6));
  if (prng.chance(100)) want.place = {{.labels = {{.name = "zone", .value = "eu"}}}};
  if (prng.chance(100)) want.place = {{.exclusive = true, .bandwidth_min = prng.between(0, 50)}};
  return want;
}

/// What it was answered: a word.
std::string answer(const Applied& applied) {
  if (!applied.rejection) return "accepted";
  return std::string(to_string(applied.rejection->code));
}

TEST(Update, IsAllowedWhereTheSameJobSubmittedAnewWouldBe) {
  int accepted = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 3'000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    TestEngine engine;
    EngineConfig config{.feature_level = kFeatureLevel};
    config.interactive_wait = seconds(5);
    config.interactive_gpus_max = 1;
    config.interactive_runtime_max = hours(1);
    if (prng.chance(300)) config.pools = {.online_milli = 500, .batch_milli = 500};
    engine.apply(Configure{.config = config});
    Limits limits;
    if (prng.chance(400)) limits.set(Resource::kGpus, prng.between(0, 8));
    if (prng.chance(300)) limits.set(Resource::kCpu, prng.between(0, 12) * 1'000);
    if (prng.chance(300)) limits.set(Resource::kGpuMemory, prng.between(0, 400'000));
    const TenantId lab = engine.add_tenant("lab", {}, limits);
    engine.add_node("n1", {.gpus = 4, .cpu_milli = 8'000, .memory_mb = 8'000});
    const bool feasible = prng.chance(400);
    const bool interactive = prng.chance(200);
    const Applied first = engine.try_submit(
        {.tenant = lab, .max_runtime = minutes(1), .require_feasible = feasible, .interactive = interactive});
    ASSERT_FALSE(first.rejection) << answer(first);
    Want wanted = some_job(prng, lab);
    wanted.require_feasible = feasible;
    wanted.interactive = interactive;
    const JobRequest request = testing::request_of(wanted);
    const Applied changed = engine.apply(UpdateJob{.job = JobId{first.first_id},
                                                   .given = kJobPriority | kJobMaxRuntime | kJobParts,
                                                   .priority = request.priority,
                                                   .max_runtime = request.max_runtime,
                                                   .parts = request.parts});
    EXPECT_EQ(answer(changed), answer(engine.try_submit(wanted)));
    (changed.rejection ? refused : accepted) += 1;
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace gpusched
