#include "api/http/request_meter.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

using std::chrono::milliseconds;

TEST(RequestMeter, AnswersAreCountedByCodeAndTime) {
  RequestMeter meter("rest_read");
  const auto now = RequestMeter::Clock::now();
  meter.count(200, now);
  meter.count(200, now - milliseconds(300));
  meter.count(503, now - std::chrono::hours(1));
  EXPECT_EQ(meter.answers(200), 2u);
  EXPECT_EQ(meter.answers(503), 1u);
  EXPECT_EQ(meter.answers(404), 0u);
  EXPECT_EQ(meter.bucket(4), 1u);  // At most half a second.
  EXPECT_EQ(meter.bucket(RequestMeter::kBounds.size()), 1u);
  EXPECT_NEAR(meter.seconds(), 3'600.3, 10);
}

TEST(RequestMeter, ACodeThatIsNoneIsCountedAll) {
  RequestMeter meter("grpc");
  meter.count(-1, RequestMeter::Clock::now());
  meter.count(70'000, RequestMeter::Clock::now());
  EXPECT_EQ(meter.answers(0) + meter.answers(RequestMeter::kCodesMax - 1), 2u);
}

}  // namespace
}  // namespace gpusched::api
