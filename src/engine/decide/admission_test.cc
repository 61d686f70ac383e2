#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/prng.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

void allow(TestEngine& engine, const AdmissionPolicy& admission) {
  EngineConfig config = engine.state().config;
  config.admission = admission;
  engine.apply(Configure{.config = config});
}

TEST(Admission, WithoutLimitsNothingIsRemembered) {
  TestEngine engine;
  engine.try_submit({}, {}, "someone");
  EXPECT_TRUE(engine.state().submitters.empty());
}

// The bound of a token bucket: in no span does a user get in more than the burst and what its rate gave,
// beside one submission that was larger than the bucket.
TEST(Admission, NoSpanLetsInMoreThanBurstAndRate) {
  Prng prng(7);
  for (int round = 0; round < 20; ++round) {
    TestEngine engine;
    const AdmissionPolicy policy{.rate_milli = prng.between(100, 5'000), .burst = prng.between(1, 20)};
    allow(engine, policy);
    struct Entry {
      Time at;
      int64_t cost;
    };
    std::vector<Entry> in;
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      SubmitJobs command{.tenant = kDefaultTenant, .user = "u"};
      const auto count = static_cast<std::size_t>(prng.between(1, 4));
      for (std::size_t j = 0; j < count; ++j) command.jobs.push_back(request_of({}));
      const Applied applied = engine.apply(command);
      if (applied.rejection) {
        ++refused;
        ASSERT_EQ(applied.rejection->code, RejectionCode::kRateExceeded);
        const Duration wait = applied.rejection->retry_after;
        ASSERT_GT(wait.ns, 0);
        if (prng.chance(100)) {
          // The told delay holds: a moment earlier is refused, and then it is taken.
          engine.set_now(engine.now() + wait - Duration{1});
          ASSERT_TRUE(engine.apply(command).rejection.has_value());
          engine.set_now(engine.now() + Duration{1});
          ASSERT_FALSE(engine.apply(command).rejection.has_value());
          in.push_back({engine.now(), static_cast<int64_t>(count)});
        }
      } else {
        in.push_back({engine.now(), static_cast<int64_t>(count)});
      }
      engine.set_now(engine.now() + milliseconds(prng.between(0, 900)));
    }
    EXPECT_GT(refused, 0);
    for (std::size_t first = 0; first < in.size(); ++first) {
      int64_t cost = 0;
      for (std::size_t last = first; last < in.size(); ++last) {
        cost += in[last].cost;
        const double gained = static_cast<double>((in[last].at - in[first].at).ns) * 1e-12 *
                              static_cast<double>(policy.rate_milli);
        ASSERT_LE(static_cast<double>(cost),
                  std::max(static_cast<double>(policy.burst), 4.0) + gained + 0.001);
      }
    }
  }
}

TEST(Admission, ThoseWhoseSpendingMattersNoLongerAreForgotten) {
  TestEngine engine;
  allow(engine, {.rate_milli = 1'000, .burst = 10});
  for (int i = 0; i < 100; ++i) engine.try_submit({}, {}, "u" + std::to_string(i));
  EXPECT_EQ(engine.state().submitters.size(), 100u);
  engine.set_now(engine.now() + seconds(2));
  engine.try_submit({}, {}, "last");
  EXPECT_EQ(engine.state().submitters.size(), 1u);
}

TEST(Admission, NoMoreUsersThanTheBoundAreRemembered) {
  TestEngine engine;
  allow(engine, {.daily = 1'000'000});
  SubmitJobs command{.tenant = kDefaultTenant, .jobs = {request_of({.held = true})}};
  for (uint32_t i = 0; i < limits::kSubmittersMax + 10; ++i) {
    command.user = "u" + std::to_string(i);
    engine.apply(command);
  }
  EXPECT_EQ(engine.state().submitters.size(), limits::kSubmittersMax);
}

TEST(Admission, AJobThatIsLetInUnderAnyBucketFitsTheClock) {
  TestEngine engine;
  allow(engine, {.rate_milli = 1, .burst = 1, .costs = {{.type = "llm", .tokens = limits::kTaskCostMax}}});
  ASSERT_FALSE(engine.try_submit({.task_type = "llm"}, {}, "u").rejection.has_value());
  const Applied second = engine.try_submit({}, {}, "u");
  expect_rejected(second, RejectionCode::kRateExceeded);
  EXPECT_LE(second.rejection->retry_after, limits::kRuntimeMax);
}

}  // namespace
}  // namespace gpusched
