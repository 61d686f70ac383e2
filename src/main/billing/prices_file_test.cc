#include "main/billing/prices_file.h"

#include <gtest/gtest.h>

#include "main/billing/time_zone.h"

namespace gpusched {
namespace {

std::string refusal(const std::string& text) {
  const Result<history::PriceList> prices = parse_prices_file("p.yaml", text);
  return prices.ok() ? "" : prices.error().message;
}

TEST(PricesFile, HasRulesInTheirOrder) {
  const Result<history::PriceList> prices = parse_prices_file("p.yaml", R"(currency: EUR
time_zone: Europe/Berlin
prices:
  - {model: "*H100*", class: mig, hours: "22:00-06:00", gpu_hour: 1.05}
  - {gpu_hour: 2}
)");
  ASSERT_TRUE(prices.ok()) << prices.error().message;
  ASSERT_EQ(prices->rules.size(), 2u);
  const history::PriceRule& night = prices->rules[0];
  EXPECT_EQ(night.model, "*H100*");
  EXPECT_TRUE(!night.any_part && night.part == history::GpuPart::kMig);
  EXPECT_EQ(night.from_minute, 22 * 60);
  EXPECT_EQ(night.until_minute, 6 * 60);
  EXPECT_EQ(night.micros_per_hour, 1'050'000);
  EXPECT_EQ(prices->rules[1].micros_per_hour, 2'000'000);
  EXPECT_TRUE(prices->rules[1].any_part && prices->rules[1].holds_at(0));
}

TEST(PricesFile, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(
      refusal("currency: EUR\ntime_zone: UTC\nprices:\n  - {gpu_hour: cheap, class: half, hours: 6-22}\n"
              "  - {gpu_hour: -1, colour: red}\n"),
      "p.yaml:4: `class:` is none of whole, share, mig\n"
      "p.yaml:4: `hours:` is no time of the day such as 22:00-06:00\n"
      "p.yaml:4: `gpu_hour:` is no amount from 0 to 1000000 with at most six decimals, such as 1.75\n"
      "p.yaml:5: a price has no key colour; the known ones are model, class, hours, gpu_hour\n"
      "p.yaml:5: `gpu_hour:` is no amount from 0 to 1000000 with at most six decimals, such as 1.75");
  EXPECT_EQ(refusal("prices: []\n"),
            "p.yaml:1: it needs a `currency:`\np.yaml:1: it needs a `time_zone:`\n"
            "p.yaml:1: `prices:` is no list of 1 to 1000 prices");
}

TEST(PricesFile, AmountsAreExact) {
  int64_t micros = 0;
  EXPECT_TRUE(parse_amount("0.1", micros));
  EXPECT_EQ(micros, 100'000);
  EXPECT_TRUE(parse_amount("1000000", micros));
  for (const char* const wrong : {"", ".", "1.", ".5", "1e3", "1,5", "0.1234567", "1000000.1", "-1"})
    EXPECT_FALSE(parse_amount(wrong, micros)) << wrong;
  EXPECT_EQ(amount_text(1'050'000), "1.05");
  EXPECT_EQ(amount_text(2'000'000), "2.00");
  EXPECT_EQ(amount_text(1'234'567), "1.234567");
}

TEST(TimeZone, AMonthHasTheHoursThatItsClocksHave) {
  const Result<std::vector<history::OffsetSpan>> october =
      offsets_in("Europe/Berlin", {.year = 2026, .month = 10});
  ASSERT_TRUE(october.ok()) << october.error().message;
  ASSERT_EQ(october->size(), 2u);
  EXPECT_EQ(october->front().offset_s, 7'200);
  EXPECT_EQ(october->front().until_ms, int64_t{1'792'890'000} * 1'000);  // 2026-10-25T01:00:00Z
  EXPECT_EQ(october->back().offset_s, 3'600);
  EXPECT_EQ(october->back().until_ms - october->front().from_ms, int64_t{31 * 24 + 1} * 3'600'000);
  const Result<std::vector<history::OffsetSpan>> utc = offsets_in("UTC", {.year = 2026, .month = 12});
  ASSERT_TRUE(utc.ok());
  EXPECT_EQ(utc->size(), 1u);
  EXPECT_EQ(offsets_in("../../etc/passwd", {.year = 2026, .month = 1}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(offsets_in("Europe/Nowhere", {.year = 2026, .month = 1}).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(TimeZone, MonthsAreReadAndCountedBack) {
  EXPECT_EQ(to_string(*parse_month("2026-03")), "2026-03");
  for (const char* const wrong : {"2026-13", "2026-00", "2026-3", "26-03", "2026/03", ""})
    EXPECT_FALSE(parse_month(wrong).ok()) << wrong;
  EXPECT_EQ(to_string(month_before(1'767'225'600)), "2025-12");  // 2026-01-01T00:00:00Z
}

}  // namespace
}  // namespace gpusched
