#include "base/text/civil_time.h"

#include <gtest/gtest.h>

#include <array>
#include <ctime>

namespace gpusched {
namespace {

/// The answer of the C library.
CivilTime expected(int64_t unix_second) {
  const std::time_t at = unix_second;
  std::tm parts{};
  EXPECT_NE(gmtime_r(&at, &parts), nullptr);
  return {.year = parts.tm_year + 1900,
          .month = parts.tm_mon + 1,
          .day = parts.tm_mday,
          .hour = parts.tm_hour,
          .minute = parts.tm_min,
          .second = parts.tm_sec};
}

TEST(CivilTime, EveryDayOfFourCenturiesIsTheOneOfTheCLibraryAndComesBack) {
  for (int64_t day = -80'000; day < 80'000; ++day) {
    const int64_t second = day * 86'400 + (day * 7'919 % 86'400 + 86'400) % 86'400;
    ASSERT_EQ(civil_time_of(second), expected(second)) << second;
    ASSERT_EQ(unix_second_of(civil_time_of(second)), second);
    ASSERT_EQ(parse_utc(utc_text(Time{} + seconds(second))), second);
  }
}

TEST(CivilTime, YearsFrom0To9999Fit) {
  const CivilTime last{.year = 9'999, .month = 12, .day = 31, .hour = 23, .minute = 59, .second = 59};
  EXPECT_EQ(unix_second_of(last), 253'402'300'799);
  EXPECT_EQ(civil_time_of(int64_t{253'402'300'799}), last);
  EXPECT_EQ(civil_time_of(int64_t{-62'167'219'200}), (CivilTime{.year = 0}));
}

TEST(CivilTime, TimeIsRoundedDownAlsoBefore1970) {
  EXPECT_EQ(utc_text(Time{1'999'999'999}), "1970-01-01T00:00:01Z");
  EXPECT_EQ(utc_text(Time{-1}), "1969-12-31T23:59:59Z");
  EXPECT_EQ(utc_text(kNever), "2262-04-11T23:47:16Z");
}

TEST(CivilTime, FieldsBeyondTheirRangeCountOnAsInTheCLibrary) {
  const std::array<CivilTime, 6> odd = {{{2023, 2, 30, 0, 0, 0},
                                         {2024, 1, 32, 0, 0, 0},
                                         {2024, 13, 1, 0, 0, 0},
                                         {1999, 99, 99, 99, 99, 99},
                                         {2016, 12, 31, 23, 59, 60},
                                         {1970, 1, 1, 0, 0, 0}}};
  for (const CivilTime& civil : odd) {
    std::tm parts{};
    parts.tm_year = civil.year - 1900;
    parts.tm_mon = civil.month - 1;
    parts.tm_mday = civil.day;
    parts.tm_hour = civil.hour;
    parts.tm_min = civil.minute;
    parts.tm_sec = civil.second;
    EXPECT_EQ(unix_second_of(civil), timegm(&parts)) << civil.year << '-' << civil.month << '-' << civil.day;
  }
}

TEST(CivilTime, CalendarHasNoFebruary30) {
  EXPECT_TRUE(is_date(2024, 2, 29));
  EXPECT_TRUE(is_date(2000, 2, 29));
  EXPECT_FALSE(is_date(2023, 2, 29));
  EXPECT_FALSE(is_date(1900, 2, 29));
  EXPECT_FALSE(is_date(2024, 2, 30));
  EXPECT_FALSE(is_date(2024, 0, 1));
  EXPECT_FALSE(is_date(2024, 13, 1));
  EXPECT_FALSE(is_date(2024, 1, 0));
  EXPECT_FALSE(is_date(2024, 1, -1));
}

TEST(CivilTime, OnlyTheOneFormIsRead) {
  EXPECT_EQ(parse_utc("2024-02-29T00:00:00Z"), 1'709'164'800);
  EXPECT_EQ(parse_utc("1970-01-01T00:00:00Z"), 0);
  for (const char* text :
       {"", "2024-02-30T00:00:00Z", "2024-02-29T24:00:00Z", "2024-02-29T00:60:00Z", "2024-02-29T00:00:60Z",
        "2024-02-29 00:00:00Z", "2024-02-29T00:00:00z", "2024-02-29T00:00:00", "2024-02-29T00:00:00.0Z",
        "2024-2-29T000:00:00Z", "+024-02-29T00:00:00Z", "2024-02-29T00:00:-1Z", " 2024-02-29T00:00:0Z"})
    EXPECT_EQ(parse_utc(text), std::nullopt) << text;
}

TEST(CivilTime, HttpDateIsTheOneOfTheCLibrary) {
  EXPECT_EQ(http_date(1'795'426'200), "Mon, 23 Nov 2026 09:30:00 GMT");
  for (int64_t day = 0; day < 800; ++day) {
    const std::time_t at = day * 86'400 + day;
    std::tm parts{};
    gmtime_r(&at, &parts);
    std::array<char, 40> text{};
    std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    ASSERT_EQ(http_date(at), text.data());
  }
}

}  // namespace
}  // namespace gpusched
