#include "engine/policy/backfill/backfill.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/prng.h"
#include "engine/policy/backfill/overrun.h"
#include "engine/testing/pool_amounts.h"

namespace gpusched::policy {
namespace {

using testing::amounts;

struct BackfillTest : ::testing::Test {
  // Ten in all; 6 are held until 100, 2 until 50.
  BackfillTest() {
    running.add({.end = Time{100}, .id = 1, .amounts = amounts(6)});
    running.add({.end = Time{50}, .id = 2, .amounts = amounts(2)});
  }
  BackfillPass pass(uint32_t reservations_max, std::span<const Reservation> promises = {}) {
    return BackfillPass({.capacity = amounts(10),
                         .running = &running,
                         .now = Time{0},
                         .reservations_max = reservations_max,
                         .promises = promises});
  }
  ReleaseTimeline running;
};

TEST_F(BackfillTest, TheHeadIsReservedWhenItWillFitAndShortWorkPasses) {
  BackfillPass easy = pass(1);
  const Offer head = easy.offer({.id = 10, .amounts = amounts(8), .estimate = Duration{30}});
  EXPECT_EQ(head.verdict, Verdict::kReserved);
  EXPECT_EQ(head.start, Time{100});
  EXPECT_EQ(easy.offer({.id = 11, .amounts = amounts(2), .estimate = Duration{100}}).verdict,
            Verdict::kStart);
  EXPECT_EQ(easy.free(), amounts(0));
  EXPECT_EQ(running.size(), 3u);
}

TEST_F(BackfillTest, LongWorkPassesOnlyBesideTheHead) {
  BackfillPass easy = pass(1);
  EXPECT_EQ(easy.offer({.id = 10, .amounts = amounts(9), .estimate = Duration{30}}).start, Time{100});
  // One is left over beside the head: the first that needs it for long takes it.
  EXPECT_EQ(easy.offer({.id = 11, .amounts = amounts(2), .estimate = Duration{101}}).verdict,
            Verdict::kBlocked);
  EXPECT_EQ(easy.offer({.id = 12, .amounts = amounts(1), .estimate = Duration{101}}).verdict,
            Verdict::kStart);
  EXPECT_EQ(easy.offer({.id = 13, .amounts = amounts(1), .estimate = Duration{101}}).verdict,
            Verdict::kBlocked);
  EXPECT_EQ(easy.offer({.id = 14, .amounts = amounts(1), .estimate = Duration{100}}).verdict,
            Verdict::kStart);
}

TEST_F(BackfillTest, WithoutReservationsWhateverFitsStarts) {
  BackfillPass none = pass(0);
  EXPECT_EQ(none.offer({.id = 10, .amounts = amounts(9), .estimate = Duration{30}}).verdict,
            Verdict::kBlocked);
  EXPECT_EQ(none.offer({.id = 11, .amounts = amounts(2), .estimate = hours(9)}).verdict, Verdict::kStart);
}

TEST_F(BackfillTest, MoreThanThePoolHasReservesNothing) {
  BackfillPass easy = pass(1);
  EXPECT_EQ(easy.offer({.id = 10, .amounts = amounts(11), .estimate = Duration{1}}).verdict,
            Verdict::kTooLarge);
  EXPECT_FALSE(easy.blocked());
  EXPECT_TRUE(easy.reservations().empty());
}

TEST_F(BackfillTest, ConservativeReservesForEveryone) {
  BackfillPass all = pass(UINT32_MAX);
  EXPECT_EQ(all.offer({.id = 10, .amounts = amounts(9), .estimate = Duration{30}}).start, Time{100});
  EXPECT_EQ(all.offer({.id = 11, .amounts = amounts(4), .estimate = Duration{50}}).start, Time{50});
  // Two are free now, but from 50 on the work above needs them: only what is gone by then passes.
  EXPECT_EQ(all.offer({.id = 12, .amounts = amounts(2), .estimate = Duration{51}}).start, Time{130});
  EXPECT_EQ(all.offer({.id = 13, .amounts = amounts(2), .estimate = Duration{50}}).verdict, Verdict::kStart);
  EXPECT_EQ(all.reservations().size(), 3u);
}

TEST_F(BackfillTest, OnlyTheFirstKAreReserved) {
  BackfillPass two = pass(2);
  EXPECT_EQ(two.offer({.id = 10, .amounts = amounts(9), .estimate = Duration{30}}).verdict,
            Verdict::kReserved);
  EXPECT_EQ(two.offer({.id = 11, .amounts = amounts(4), .estimate = Duration{50}}).verdict,
            Verdict::kReserved);
  EXPECT_EQ(two.offer({.id = 12, .amounts = amounts(2), .estimate = Duration{51}}).verdict,
            Verdict::kBlocked);
  EXPECT_FALSE(two.reserving());
}

TEST_F(BackfillTest, APromiseIsKeptAgainstOlderWorkThatMovesUp) {
  const std::vector<Reservation> promises = {
      {.id = 11, .start = Time{0}, .amounts = amounts(2), .estimate = Duration{60}}};
  BackfillPass all = pass(UINT32_MAX, promises);
  // It fits now, but two were promised to the other one.
  EXPECT_EQ(all.offer({.id = 10, .amounts = amounts(1), .estimate = Duration{5}}).start, Time{50});
  EXPECT_EQ(all.offer({.id = 11, .amounts = amounts(2), .estimate = Duration{60}}).verdict, Verdict::kStart);
}

TEST(ShortestFirst, EqualEstimatesStayAsTheyStand) {
  const std::vector<Duration> estimates = {Duration{3}, Duration{1}, Duration{3}, Duration{1}};
  EXPECT_EQ(shortest_first(estimates), (std::vector<uint32_t>{1, 3, 0, 2}));
}

// A pool, first come first served with backfilling, driven to the end of some random work.
class RandomPool {
 public:
  struct Work {
    Time submitted;
    PoolAmounts size;
    Duration estimate;
    Duration run;
    Time started = kNever;
    Time promised = kNever;  ///< The earliest start that any pass promised.
    uint32_t corrections = 0;
    Time estimated_end;
  };

  RandomPool(uint64_t seed, uint32_t reservations, bool shortest_first, bool overruns)
      : reservations_(reservations), shortest_first_(shortest_first) {
    Prng prng(seed);
    Time at{1};
    for (int i = 0; i < 120; ++i) {
      at = at + seconds(prng.between(0, 60));
      const Duration run = seconds(prng.between(1, 400));
      Duration estimate = run + seconds(prng.chance(300) ? 0 : prng.between(0, 300));
      if (overruns && prng.chance(300)) estimate = seconds(prng.between(1, run.ns / seconds(1).ns));
      work_.push_back({.submitted = at,
                       .size = amounts(prng.between(0, 10), prng.between(1, 10)),
                       .estimate = estimate,
                       .run = run});
    }
  }

  void run() {
    std::set<Time> instants;
    for (const Work& work : work_) instants.insert(work.submitted);
    while (!instants.empty()) {
      const Time now = *instants.begin();
      instants.erase(instants.begin());
      turn(now, instants);
    }
  }
  const std::vector<Work>& work() const { return work_; }

 private:
  void turn(Time now, std::set<Time>& instants) {
    for (uint32_t i = 0; i < work_.size(); ++i) {
      Work& work = work_[i];
      if (work.submitted == now) queue_.push_back(i);
      if (work.started == kNever) continue;
      if (work.started + work.run == now) {
        running_.remove(work.estimated_end, i);
        in_use_ -= work.size;
      } else if (work.started + work.run > now && work.estimated_end <= now) {
        Overrun overrun{
            .first_estimate = work.estimate, .elapsed = now - work.started, .corrections = work.corrections};
        const Time end = work.started + corrected_estimate(Correction::kTsafrir, overrun);
        work.corrections = overrun.corrections;
        running_.move(work.estimated_end, i, end);
        work.estimated_end = end;
        instants.insert(end);
      }
    }
    pass(now, instants);
  }

  void pass(Time now, std::set<Time>& instants) {
    BackfillPass pass({.capacity = kCapacity,
                       .running = &running_,
                       .now = now,
                       .reservations_max = reservations_,
                       .promises = promises_});
    std::vector<uint32_t> order = queue_;
    for (std::size_t at = 0; at < order.size(); ++at) {
      if (shortest_first_ && pass.blocked() && !pass.reserving()) {
        std::stable_sort(order.begin() + static_cast<std::ptrdiff_t>(at), order.end(),
                         [&](uint32_t a, uint32_t b) { return work_[a].estimate < work_[b].estimate; });
      }
      Work& work = work_[order[at]];
      const Offer offer = pass.offer({.id = order[at], .amounts = work.size, .estimate = work.estimate});
      if (offer.verdict == Verdict::kReserved) work.promised = std::min(work.promised, offer.start);
      if (offer.verdict != Verdict::kStart) continue;
      work.started = now;
      work.estimated_end = now + work.estimate;
      in_use_ += work.size;
      ASSERT_TRUE(in_use_.fits(kCapacity)) << "over capacity at " << now.ns;
      instants.insert(now + work.run);
      instants.insert(work.estimated_end);
    }
    promises_ = pass.reservations();
    std::erase_if(queue_, [&](uint32_t i) { return work_[i].started != kNever; });
  }

  static constexpr PoolAmounts kCapacity = {.value = {10, 12}};
  uint32_t reservations_;
  bool shortest_first_;
  std::vector<Work> work_;
  std::vector<uint32_t> queue_;
  std::vector<Reservation> promises_;
  ReleaseTimeline running_;
  PoolAmounts in_use_;
};

TEST(BackfillProperty, ReservedWorkStartsNoLaterThanPromisedWhileEstimatesHold) {
  for (const uint32_t reservations : {1u, 2u, 5u, UINT32_MAX}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      RandomPool pool(seed, reservations, seed % 2 == 0, false);
      pool.run();
      for (const RandomPool::Work& work : pool.work()) {
        ASSERT_NE(work.started, kNever);
        ASSERT_LE(work.started, work.promised) << "seed " << seed << " reservations " << reservations;
      }
    }
  }
}

TEST(BackfillProperty, OverrunsPushPromisesButNeverOverfillThePool) {
  for (const uint32_t reservations : {0u, 1u, 3u, UINT32_MAX}) {
    int64_t pushed = 0;
    for (uint64_t seed = 0; seed < 12; ++seed) {
      RandomPool pool(seed, reservations, seed % 2 == 0, true);
      pool.run();
      for (const RandomPool::Work& work : pool.work()) {
        ASSERT_NE(work.started, kNever);
        if (work.started > work.promised) ++pushed;
      }
    }
    EXPECT_EQ(pushed > 0, reservations > 0);  // Else the overruns proved nothing.
  }
}

TEST(BackfillProperty, OneReservationIsTheProfileWithOneReservation) {
  Prng prng(5);
  for (int round = 0; round < 500; ++round) {
    ReleaseTimeline running;
    const PoolAmounts capacity = amounts(20, 30);
    PoolAmounts held;
    for (uint64_t id = 1; id < 12; ++id) {
      const PoolAmounts size = amounts(prng.between(0, 4), prng.between(0, 6));
      if (!(held + size).fits(capacity)) continue;
      held += size;
      running.add({.end = Time{prng.between(1, 40)}, .id = id, .amounts = size});
    }
    Availability profile(capacity, running, Time{0});
    BackfillPass pass({.capacity = capacity, .running = &running, .now = Time{0}});
    bool reserved = false;
    for (uint64_t id = 100; id < 120; ++id) {
      const Waiting work{.id = id,
                         .amounts = amounts(prng.between(0, 9), prng.between(0, 9)),
                         .estimate = Duration{prng.between(1, 50)}};
      const Offer offer = pass.offer(work);
      const Time fit = profile.earliest_fit(Time{0}, work.estimate, work.amounts);
      ASSERT_EQ(offer.verdict == Verdict::kStart, fit == Time{0});
      if (fit != Time{0} && !reserved) {
        reserved = true;
        ASSERT_EQ(offer.verdict, Verdict::kReserved);
        ASSERT_EQ(offer.start, fit);
        profile.take(fit, fit + work.estimate, work.amounts);
      }
      if (fit == Time{0}) profile.take(fit, fit + work.estimate, work.amounts);
    }
  }
}

}  // namespace
}  // namespace gpusched::policy
