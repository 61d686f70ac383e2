#include "log/loop_step.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace gpusched {
namespace {

/// Time that passes when the test says so.
class HandClock final : public ThreadClock {
 public:
  Duration now() const override { return now_; }
  std::optional<Duration> waited_for_processor() const override { return waited_; }

  void pass(Duration time) { now_ = now_ + time; }
  void wait_for_processor(Duration time) {
    pass(time);
    waited_ = *waited_ + time;
  }
  void know_nothing() { waited_.reset(); }

 private:
  Duration now_ = hours(1);
  std::optional<Duration> waited_ = seconds(1);
};

TEST(LoopStep, MayTakeAsLongAsTheLimit) {
  HandClock clock;
  const LoopWatch watch("HTTP", milliseconds(5), clock);
  EXPECT_TRUE(watch.is_on());
  for (int i = 0; i < 3; ++i) {
    const LoopStep step(watch, "an answer");
    clock.pass(milliseconds(5));
  }
}

TEST(LoopStep, EndsTheProcessBeyondTheLimitAndSaysWhatRan) {
  HandClock clock;
  const LoopWatch watch("HTTP", milliseconds(5), clock);
  EXPECT_DEATH(
      {
        const LoopStep step(watch, "an answer");
        clock.pass(milliseconds(7));
      },
      "the HTTP loop was held up for 7 ms by: an answer; scheduler.debug_blocked_ms allows 5 ms");
}

TEST(LoopStep, IsNotChargedForTimeWithoutAProcessor) {
  HandClock clock;
  const LoopWatch watch("host", milliseconds(5), clock);
  {
    const LoopStep step(watch, "a turn");
    clock.wait_for_processor(seconds(3));
    clock.pass(milliseconds(5));
  }
  EXPECT_DEATH(
      {
        const LoopStep step(watch, "a turn");
        clock.wait_for_processor(seconds(3));
        clock.pass(milliseconds(6));
      },
      "held up for 6 ms");
}

TEST(LoopStep, CountsForItselfInsideAnother) {
  HandClock clock;
  const LoopWatch watch("gRPC", milliseconds(5), clock);
  EXPECT_DEATH(
      {
        const LoopStep outer(watch, "all");
        const LoopStep inner(watch, "a part");
        clock.pass(milliseconds(6));
      },
      "by: a part");
}

TEST(LoopStep, IsFreeWhenNobodyWatches) {
  HandClock clock;
  const LoopWatch watch("HTTP", Duration{}, clock);
  EXPECT_FALSE(watch.is_on());
  const LoopStep step(watch, "an answer");
  clock.pass(hours(1));
}

TEST(LoopStep, IsNotJudgedWhereTheKernelDoesNotTellWaitsApart) {
  HandClock clock;
  clock.know_nothing();
  const LoopWatch watch("HTTP", milliseconds(5), clock);
  EXPECT_FALSE(watch.is_on());
  const LoopStep step(watch, "an answer");
  clock.pass(hours(1));
}

TEST(LoopStep, CountsWaitsOfTheThreadByTheKernelsClock) {
  const LoopWatch watch("HTTP", milliseconds(1));
  if (!watch.is_on()) GTEST_SKIP() << "no /proc/thread-self/schedstat";
  EXPECT_DEATH(
      {
        const LoopStep step(watch, "a wait");
        std::mutex mutex;
        std::condition_variable never;
        std::unique_lock lock(mutex);
        never.wait_for(lock, std::chrono::milliseconds(50), [] { return false; });
      },
      "by: a wait");
}

}  // namespace
}  // namespace gpusched
