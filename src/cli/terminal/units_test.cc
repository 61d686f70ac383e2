#include "cli/terminal/units.h"

#include <gtest/gtest.h>

#include "base/text/civil_time.h"

namespace gpusched::cli {
namespace {

TEST(DurationParsing, AddsUnits) {
  EXPECT_EQ(*parse_duration_seconds("90s"), 90);
  EXPECT_EQ(*parse_duration_seconds("45m"), 2'700);
  EXPECT_EQ(*parse_duration_seconds("2h"), 7'200);
  EXPECT_EQ(*parse_duration_seconds("1d2h3m4s"), 93'784);
}

TEST(DurationParsing, RefusesWhatIsUnclear) {
  for (const char* text : {"", "90", "1h30", "h", "-1h", "1.5h", "1x", "30m1h", "1m1m", "0s",
                           "9223372036854775807d", "1h 30m"}) {
    EXPECT_FALSE(parse_duration_seconds(text).ok()) << text;
  }
}

TEST(DurationParsing, ReadsClocksAndSlurm) {
  EXPECT_EQ(*parse_duration_seconds("2:00:00"), 7'200);
  EXPECT_EQ(*parse_duration_seconds("00:00:30"), 30);
  EXPECT_EQ(*parse_duration_seconds("100:00:00"), 360'000);
  EXPECT_EQ(*parse_duration_seconds("1-00:00:00"), 86'400);
  EXPECT_EQ(*parse_duration_seconds("1-12"), 129'600);
  EXPECT_EQ(*parse_duration_seconds("1-12:30"), 131'400);
  EXPECT_NE(parse_duration_seconds("2:00").error().message.find("write 2:00:00"), std::string::npos);
  for (const char* text :
       {"1:60:00", "1:00:60", "1-", "-1", "1-1-1", ":00", "1:2:3:4", "0:00:00", "1::2", "99999999999-00"}) {
    EXPECT_FALSE(parse_duration_seconds(text).ok()) << text;
  }
}

TEST(LocalTimes, AreReadAsPeopleWriteThem) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const Time now{1'738'314'100'000'000'000};  // 2025-01-31T09:01:40Z
  const auto read = [&](const char* text, TimeOfDay alone = TimeOfDay::kNext) {
    const Time time = parse_local_time(text, now, alone);
    return time.valid() ? utc_text(time) : std::string();
  };
  EXPECT_EQ(read("tomorrow 10:00"), "2025-02-01T10:00:00Z");
  EXPECT_EQ(read("today"), "2025-01-31T00:00:00Z");
  EXPECT_EQ(read("yesterday 18:30:15"), "2025-01-30T18:30:15Z");
  EXPECT_EQ(read("tomorrow noon"), "2025-02-01T12:00:00Z");
  EXPECT_EQ(read("9:00"), "2025-02-01T09:00:00Z");
  EXPECT_EQ(read("9:00", TimeOfDay::kLast), "2025-01-31T09:00:00Z");
  EXPECT_EQ(read("10:00"), "2025-01-31T10:00:00Z");
  EXPECT_EQ(read("10:00", TimeOfDay::kLast), "2025-01-30T10:00:00Z");
  EXPECT_EQ(read("midnight"), "2025-02-01T00:00:00Z");
  EXPECT_EQ(read("2025-03-01"), "2025-03-01T00:00:00Z");
  EXPECT_EQ(read("2025-03-01 7:05"), "2025-03-01T07:05:00Z");
  EXPECT_EQ(read("2025-03-01T07:05:09"), "2025-03-01T07:05:09Z");
  EXPECT_EQ(read("2025-03-01T07:05:09+01:00"), "2025-03-01T06:05:09Z");
  EXPECT_EQ(read("now"), "2025-01-31T09:01:40Z");
  EXPECT_EQ(read("now+2hours"), "2025-01-31T11:01:40Z");
  EXPECT_EQ(read("now+1h30m"), "2025-01-31T10:31:40Z");
  EXPECT_EQ(read("now+60"), "2025-01-31T09:02:40Z");
  for (const char* text :
       {"", "soon", "25:00", "10:60", "tomorrow 10", "2025-13-01", "now-1h", "now+1fortnight",
        "10:00 tomorrow", "100:00", "10:00:", "2027-02-30", "2025-02-29 10:00", "2025-04-31T10:00:00"}) {
    EXPECT_EQ(read(text), "") << text;
  }
}

TEST(SizeParsing, GivesMegabytesRoundedUp) {
  EXPECT_EQ(*parse_size_mb("8192"), 8'192);
  EXPECT_EQ(*parse_size_mb("8G"), 8'192);
  EXPECT_EQ(*parse_size_mb("8GiB"), 8'192);
  EXPECT_EQ(*parse_size_mb("8Gi"), 8'192);
  EXPECT_EQ(*parse_size_mb("512MB"), 512);
  EXPECT_EQ(*parse_size_mb("1.5g"), 1'536);
  EXPECT_EQ(*parse_size_mb("1T"), 1'048'576);
  EXPECT_EQ(*parse_size_mb("1K"), 1);
  EXPECT_EQ(*parse_size_mb("0"), 0);
}

TEST(SizeParsing, RefusesWhatIsNoSize) {
  for (const char* text : {"", "G", "-1G", "8Q", "8GG", "nan", "inf", "1e300", "8 G"}) {
    EXPECT_FALSE(parse_size_mb(text).ok()) << text;
  }
}

TEST(DurationFormatting, ShowsTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(-5), "0s");
  EXPECT_EQ(format_duration(59), "59s");
  EXPECT_EQ(format_duration(303), "5m03s");
  EXPECT_EQ(format_duration(7'500), "2h05m");
  EXPECT_EQ(format_duration(86'400 * 3 + 4 * 3'600), "3d04h");
}

TEST(SizeFormatting, UsesTheLargestUnit) {
  EXPECT_EQ(format_size_mb(0), "0M");
  EXPECT_EQ(format_size_mb(512), "512M");
  EXPECT_EQ(format_size_mb(81'920), "80G");
  EXPECT_EQ(format_size_mb(1'536), "1.5G");
  EXPECT_EQ(format_size_mb(3 * 1'048'576), "3T");
}

TEST(CoreFormatting, LeavesOutWhatIsZero) {
  EXPECT_EQ(format_cores(64), "64");
  EXPECT_EQ(format_cores(100), "100");
  EXPECT_EQ(format_cores(0.5), "0.5");
  EXPECT_EQ(format_cores(1.25), "1.25");
}

TEST(TimeParsing, ReadsRfc3339) {
  EXPECT_EQ(parse_rfc3339("2025-01-31T09:00:00.123Z").ns, 1'738'314'000'123'000'000);
  EXPECT_EQ(parse_rfc3339("2025-01-31T09:00:00Z").ns, 1'738'314'000'000'000'000);
  EXPECT_EQ(parse_rfc3339("2025-01-31T10:30:00+01:30").ns, 1'738'314'000'000'000'000);
}

TEST(TimeParsing, GivesNothingForAnythingElse) {
  for (const char* text : {"", "yesterday", "2025-01-31", "2025-01-31T09:00:00", "2025-0x-31T09:00:00Z",
                           "2025-01-31T09:00:00.1+1", "9999-12-31T23:59:59Z", "2027-02-30T09:00:00Z",
                           "2025-04-31T09:00:00Z", "2025-01-31T24:00:00Z", "2025-01-31T09:60:00Z"}) {
    EXPECT_FALSE(parse_rfc3339(text).valid()) << text;
  }
}

TEST(LocalTime, IsThatOfTheProcess) {
  const Time time{1'738'314'000'123'000'000};
  ::setenv("TZ", "CET-1", 1);
  ::tzset();
  EXPECT_EQ(format_local(time), "2025-01-31T10:00:00+01:00");
  EXPECT_EQ(with_local_times("from 2025-01-31T09:00:00.123Z on, Zoe, and 2025-01-31T23:30:00Z"),
            "from 2025-01-31T10:00:00+01:00 on, Zoe, and 2025-02-01T00:30:00+01:00");
  EXPECT_EQ(with_local_times("no time: 12Z, Z"), "no time: 12Z, Z");
  ::setenv("TZ", "NST+3:30", 1);
  ::tzset();
  EXPECT_EQ(format_local(time), "2025-01-31T05:30:00-03:30");
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(format_local(time), "2025-01-31T09:00:00Z");
}

TEST(RelativeTime, LooksBothWays) {
  const Time now{1'000'000'000'000};
  EXPECT_EQ(format_relative(now, now), "now");
  EXPECT_EQ(format_relative(now - seconds(12), now), "12s ago");
  EXPECT_EQ(format_relative(now + seconds(180), now), "in 3m00s");
}

}  // namespace
}  // namespace gpusched::cli
