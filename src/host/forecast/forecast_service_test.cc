#include "host/forecast/forecast_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

#include "base/check.h"
#include "engine/testing/test_engine.h"
#include "host/core/system_clock.h"

namespace gpusched {
namespace {

using testing::TestEngine;

class Desk : public ::testing::Test {
 protected:
  Desk() { engine_.set_now(clock_.wall()); }

  /// Does it in the engine and tells the observer.
  template <typename Act>
  auto told(Act&& act) {
    auto result = act();
    tell();
    return result;
  }
  void tell() {
    observer_.publish({.events = engine_.events(),
                       .last = engine_.state().last,
                       .position = ++position_,
                       .payload_bytes = 0,
                       .reasons = {}});
  }
  /// The result of `question` for the table; nothing when there was none.
  template <typename Question>
  auto ask(Question question) {
    using Result = std::optional<decltype(question(std::declval<ForecastService::Table&>()))>;
    std::promise<Result> answer;
    service_.ask(
        engine_.state().last.sequence, {},
        [&](ForecastService::Table& table) {
          return [&answer, result = Result(question(table))] { answer.set_value(result); };
        },
        [&](const Error& error) {
          refusal_ = error;
          answer.set_value({});
        });
    return answer.get_future().get();
  }
  forecast::Estimate estimate_of(JobId job) {
    return ask([job](ForecastService::Table& table) {
             const forecast::Estimate* found = table.forecast(job).find(job);
             return found == nullptr ? forecast::Estimate{.place = -1} : *found;
           })
        .value();
  }

  SystemClock clock_;
  TestEngine engine_;
  Observer observer_{State(), 0};
  ForecastService service_{observer_, clock_, {}, {.pause_factor = 0}};
  uint64_t position_ = 0;
  std::vector<JobId> to_end_;
  Error refusal_;  ///< Error of the last question that was not answered.
};

TEST_F(Desk, AnswersFromAStateThatHasSeenTheSequence) {
  told([&] { return engine_.add_node("n1", {.gpus = 1}); });
  const JobId first = told([&] { return engine_.submit_gpus(1); });
  EXPECT_EQ(estimate_of(first).place, 1);
  EXPECT_NE(estimate_of(first).p50, kNever);
  const JobId second = told([&] { return engine_.submit_gpus(1); });
  EXPECT_EQ(estimate_of(second).place, 2);
}

TEST_F(Desk, WhatHasNotChangedIsForecastOnce) {
  told([&] { return engine_.add_node("n1", {.gpus = 1}); });
  const JobId job = told([&] { return engine_.submit_gpus(2); });
  EXPECT_TRUE(estimate_of(job).stuck);
  EXPECT_TRUE(estimate_of(job).stuck);
  EXPECT_EQ(service_.quality().forecasts, 1);
}

TEST_F(Desk, WhatWasSaidIsScoredWhenTheJobIsPlaced) {
  told([&] { return engine_.add_node("n1", {.gpus = 1}); });
  const JobId runs = told([&] { return engine_.submit_gpus(1); });
  engine_.cycle();
  tell();
  told([&] { return engine_.started(runs); });
  const JobId waits = told([&] { return engine_.submit_gpus(1); });
  EXPECT_GT(estimate_of(waits).p50, engine_.now());
  engine_.advance(minutes(1));
  told([&] { return engine_.ended(runs); });
  engine_.release_all();
  tell();
  engine_.cycle();
  ASSERT_EQ(engine_.state_of(waits), JobState::kScheduled);
  tell();
  EXPECT_TRUE(ask([](ForecastService::Table&) { return true; }).value());
  const ForecastService::Quality quality = service_.quality();
  EXPECT_EQ(quality.eta.p50.count(), 1);
  EXPECT_EQ(quality.eta_by_tenant.at(kDefaultTenant).p90.count(), 1);
}

TEST_F(Desk, ToldToItMovesByItselfAndNoMoreThanItMay) {
  HostTuning tuning;
  tuning.moves = {.mode = MoveTuning::Mode::kAct, .price_max = 1'000'000, .per_hour_max = 1, .rest = {}};
  tuning.victims.protection = {};
  const TenantId batch = told([&] {
    return TenantId{engine_.apply(CreateTenant{.name = "batch", .allow_preemption = true}).first_id};
  });
  // One job of one GPU on each of two nodes of two.
  for (const char* name : {"n1", "n2"}) {
    told([&] { return engine_.add_node(name, {.gpus = 2}); });
    const JobId filler = told([&] { return engine_.submit_gpus(1); });
    const JobId small = told([&] { return engine_.submit({.gpus = 1, .tenant = batch}); });
    engine_.cycle();
    tell();
    for (const JobId job : {filler, small}) told([&] { return engine_.started(job); });
  }
  engine_.set_now(clock_.wall());
  ForecastService service(observer_, clock_, tuning,
                          {.pause_factor = 0, .move_every = milliseconds(10), .move_patience = {}});
  std::promise<MoveJobs> moved;
  std::atomic<int> times = 0;
  service.on_moves([&](MoveJobs moves) {
    if (times.fetch_add(1) == 0) moved.set_value(std::move(moves));
  });
  engine_.state().jobs.for_each([&](const Job& job) {
    if (job.tenant == kDefaultTenant && job.state == JobState::kRunning) to_end_.push_back(job.id);
    return true;
  });
  for (const JobId job : to_end_) told([&] { return engine_.ended(job); });
  for (std::size_t slot = 0; slot < 2; ++slot) {
    for (uint32_t i = 0; i < 2; ++i) {
      if (engine_.state().nodes[slot].devices[i].state == DeviceState::kDraining)
        told([&] { return engine_.released(engine_.state().nodes[slot].id, i); });
    }
  }
  const JobId big = told([&] { return engine_.submit_gpus(2); });
  const MoveJobs moves = moved.get_future().get();
  EXPECT_EQ(moves.by, "scheduler");
  EXPECT_EQ(moves.groups.front().job, big);
  EXPECT_FALSE(told([&] { return engine_.apply(moves); }).rejection.has_value());
  service.stop();
  EXPECT_EQ(times, 1);
}

TEST_F(Desk, AfterItsEndNobodyGetsATable) {
  service_.stop();
  EXPECT_FALSE(ask([](ForecastService::Table&) { return true; }).has_value());
  EXPECT_EQ(refusal_.code, ErrorCode::kUnavailable);
}

TEST_F(Desk, ACheckThatFailsInAForecastIsAnAnswerAndEndsNothing) {
  told([&] { return engine_.add_node("n1", {.gpus = 1}); });
  const JobId job = told([&] { return engine_.submit_gpus(2); });
  const auto fails = [](ForecastService::Table& table) {
    CHECK(table.world().state().jobs.size() > 1'000);
    return true;
  };
  EXPECT_FALSE(ask(fails).has_value());
  EXPECT_EQ(refusal_.code, ErrorCode::kInternal);
  EXPECT_TRUE(estimate_of(job).stuck);  // From a copy of its own.
  EXPECT_EQ(service_.quality().failures, 1);
}

}  // namespace
}  // namespace gpusched
