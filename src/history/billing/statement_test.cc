#include "history/billing/statement.h"

#include <gtest/gtest.h>

#include <map>

#include "history/store/store.h"
#include "history/testing/place.h"
#include "history/testing/random_world.h"

namespace gpusched::history {
namespace {

using testing::Place;
using testing::RandomWorld;

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kDay = 24 * kHourMs;

PriceList list_of(std::vector<PriceRule> rules) {
  return {.currency = "EUR", .time_zone = "UTC", .rules = std::move(rules)};
}

/// A database with attempts, each placed and ended at a millisecond.
struct Written {
  Place place;
  std::unique_ptr<Store> store;
  uint64_t position = 0;

  Written() : store(std::move(*Store::open(place.file()))) {}
  void attempt(const std::string& tenant, uint64_t id, MemberPlace member, int64_t from_ms, int64_t until_ms,
               EndCause cause, int32_t exit_code = 0) {
    Batch batch{.position = ++position, .at = Time{until_ms * 1'000'000}, .events = {}};
    batch.events.emplace_back(Placed{.job = JobId{position},
                                     .attempt = 1,
                                     .at = Time{from_ms * 1'000'000},
                                     .tenant = TenantId{id},
                                     .tenant_name = tenant,
                                     .user = "u",
                                     .members = {std::move(member)}});
    if (until_ms > 0) {
      batch.events.emplace_back(Ended{.key = {.job = JobId{position}, .attempt = 1, .member = 0},
                                      .at = Time{until_ms * 1'000'000},
                                      .cause = cause,
                                      .exit_code = exit_code});
    }
    ASSERT_TRUE(store->write(std::span(&batch, 1)).ok());
  }
};

MemberPlace two_gpus() { return {.node = "n1", .model = "H100", .device_mask = 0b11}; }

TEST(Prices, TheFirstRuleThatFitsHolds) {
  const PriceRule night{
      .model = "*h100*", .from_minute = 22 * 60, .until_minute = 6 * 60, .micros_per_hour = 1};
  EXPECT_TRUE(night.holds_at(23 * 60) && night.holds_at(0) && night.holds_at(359));
  EXPECT_FALSE(night.holds_at(360) || night.holds_at(22 * 60 - 1));
  EXPECT_TRUE(night.is_for("NVIDIA H100 80GB", GpuPart::kMig));
  EXPECT_FALSE(night.is_for("A100", GpuPart::kWhole));
  const PriceRule slices{.any_part = false, .part = GpuPart::kMig};
  EXPECT_FALSE(slices.is_for("A100", GpuPart::kShare));
}

TEST(Prices, SlotsFollowTheLocalClockAlsoWhenItIsPutForward) {
  // An hour behind UTC, then at 3 h UTC with it; a rule from 1:00 to 2:30.
  const PriceList prices = list_of({{.from_minute = 60, .until_minute = 150}});
  const std::vector<PriceSlot> slots =
      slots_of(prices, {{.from_ms = kDay, .until_ms = kDay + 3 * kHourMs, .offset_s = -3'600},
                        {.from_ms = kDay + 3 * kHourMs, .until_ms = 2 * kDay, .offset_s = 0}});
  std::vector<std::pair<int64_t, int>> got;
  for (const PriceSlot& slot : slots) got.emplace_back((slot.from_ms - kDay) / 60'000, slot.minute);
  EXPECT_EQ(got, (std::vector<std::pair<int64_t, int>>{{0, 23 * 60}, {60, 0}, {120, 60}, {180, 180}}));
  EXPECT_EQ(slots.back().until_ms, 2 * kDay);
}

TEST(Prices, AmountsAreRoundedHalfToEven) {
  constexpr int64_t kHourUs = 3'600'000'000;
  EXPECT_EQ(amount_of(kHourUs, 1'750'000), 1'750'000);
  EXPECT_EQ(amount_of(kHourUs / 2, 10'000), 0);  // Half a hundredth.
  EXPECT_EQ(amount_of(kHourUs * 3 / 2, 10'000), 20'000);
  EXPECT_EQ(amount_of(kHourUs / 2 + 1, 10'000), 10'000);
  EXPECT_EQ(amount_of(int64_t{100'000} * 744 * kHourUs / 1, 25'000'000), int64_t{100'000} * 744 * 25'000'000);
}

TEST(Statement, BillsByHourOfTheDayAndByPart) {
  Written written;
  // 20:00 to 02:00: two GPUs.
  written.attempt("vision", 7, two_gpus(), kDay + 20 * kHourMs, 2 * kDay + 2 * kHourMs, EndCause::kExited);
  written.attempt("vision", 7,
                  {.node = "n1", .model = "H100", .device_mask = 1, .gpu_milli = 250, .is_slice = true}, kDay,
                  kDay + 4 * kHourMs, EndCause::kSignaled);
  written.attempt("audio", 8, {.node = "n1", .model = "", .device_mask = 0, .cpu_milli = 4'000}, kDay,
                  2 * kDay, EndCause::kExited);
  const PriceList prices =
      list_of({{.any_part = false, .part = GpuPart::kMig, .micros_per_hour = 4'000'000},
               {.model = "H*", .from_minute = 22 * 60, .until_minute = 6 * 60, .micros_per_hour = 1'000'000},
               {.micros_per_hour = 3'000'000}});
  const std::vector<PriceSlot> slots = slots_of(prices, {{.from_ms = kDay, .until_ms = 30 * kDay}});
  const auto made = make_statement(written.place.file(), prices, slots, 30 * kDay, std::nullopt);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->size(), 1u);
  const TenantStatement& vision = made->front();
  EXPECT_EQ(vision.name, "vision");
  ASSERT_EQ(vision.lines.size(), 3u);
  EXPECT_EQ(vision.lines[0].micros_per_hour, 1'000'000);  // Eight GPU hours from 22:00 on.
  EXPECT_EQ(vision.lines[0].amount_micros, 8'000'000);
  EXPECT_EQ(vision.lines[1].amount_micros, 12'000'000);  // Four before.
  EXPECT_EQ(vision.lines[2].part, GpuPart::kMig);
  EXPECT_EQ(vision.lines[2].amount_micros, 4'000'000);  // A quarter for four hours.
  EXPECT_EQ(vision.total_micros, 24'000'000);
  const auto unknown = make_statement(written.place.file(), prices, slots, 30 * kDay, "nobody");
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
}

TEST(Statement, WhatTheSystemBrokeIsNotBilledAndWhatFailedByItselfIs) {
  Written written;
  written.attempt("t", 7, two_gpus(), kDay, kDay + kHourMs, EndCause::kNodeLost);
  written.attempt("t", 7, two_gpus(), kDay, kDay + kHourMs, EndCause::kDeviceFault);
  written.attempt("t", 7, two_gpus(), kDay, kDay + kHourMs, EndCause::kExited, 3);
  const PriceList prices = list_of({{.micros_per_hour = 1'000'000}});
  const auto made =
      make_statement(written.place.file(), prices,
                     slots_of(prices, {{.from_ms = kDay, .until_ms = 2 * kDay}}), 2 * kDay, "t");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->front().total_micros, 2'000'000);
  EXPECT_EQ(made->front().not_billed_us, 4 * kHourMs * 1'000);
}

TEST(Statement, OnlyTheMonthCountsAndWhatRunsCountsUpToNow) {
  Written written;
  written.attempt("t", 7, two_gpus(), kDay - 5 * kHourMs, kDay + kHourMs, EndCause::kExited);
  written.attempt("t", 7, two_gpus(), 2 * kDay - 2 * kHourMs, 2 * kDay + 9 * kHourMs, EndCause::kExited);
  written.attempt("t", 7, two_gpus(), kDay + 3 * kHourMs, 0, EndCause::kNone);
  const PriceList prices = list_of({{.model = "H*", .micros_per_hour = 1'000'000}});
  const auto made =
      make_statement(written.place.file(), prices,
                     slots_of(prices, {{.from_ms = kDay, .until_ms = 2 * kDay}}), kDay + 7 * kHourMs, "t");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->front().total_micros, (2 + 4 + 8) * 1'000'000);
}

TEST(Statement, AnUnpricedModelIsShownWithoutAnAmount) {
  Written written;
  written.attempt("t", 7, two_gpus(), kDay, kDay + kHourMs, EndCause::kExited);
  const PriceList prices = list_of({{.model = "A100", .micros_per_hour = 1'000'000}});
  const auto made =
      make_statement(written.place.file(), prices,
                     slots_of(prices, {{.from_ms = kDay, .until_ms = 2 * kDay}}), 2 * kDay, "t");
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->front().lines.size(), 1u);
  EXPECT_FALSE(made->front().lines[0].micros_per_hour.has_value());
  EXPECT_EQ(made->front().lines[0].gpu_us, 2 * kHourMs * 1'000);
  EXPECT_EQ(made->front().total_micros, 0);
}

// The world counts what tenants hold in a way of its own.
TEST(Statement, BilledAndNotBilledTogetherAreWhatWasHeld) {
  RandomWorld world(31);
  world.run(1'500);
  Place place;
  Result<std::unique_ptr<Store>> store = Store::open(place.file());
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->write(world.batches()).ok());
  const PriceList prices = list_of({{.from_minute = 17, .until_minute = 18, .micros_per_hour = 5},
                                    {.any_part = false, .part = GpuPart::kShare, .micros_per_hour = 7}});
  const int64_t end = world.now().ms();
  const auto made = make_statement(place.file(), prices,
                                   slots_of(prices, {{.from_ms = 1'763'000'000'000, .until_ms = end + 1}}),
                                   end, std::nullopt);
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::map<TenantId, int64_t> held, told;
  for (const auto& [key, us] : world.expected().gpu_us) {
    if (us > 0) held[key.first] += us;
  }
  for (const TenantStatement& tenant : *made) {
    int64_t us = tenant.not_billed_us;
    for (const StatementLine& line : tenant.lines) us += line.gpu_us;
    if (us > 0) told[tenant.tenant] = us;
  }
  EXPECT_EQ(told, held);
}

}  // namespace
}  // namespace gpusched::history
