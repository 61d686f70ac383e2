#include "base/text/service_port.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(ServicePort, AProbeIsTcpOrAPath) {
  EXPECT_EQ(parse_ready_probe("tcp"), ReadyProbe{});
  EXPECT_EQ(parse_ready_probe("http:/health?deep=1"), ReadyProbe{.path = "/health?deep=1"});
  for (const std::string bad : {"", "tcp:", "http:", "http:health", "https:/x", "http:/a b", "http:/a\r\nb"})
    EXPECT_FALSE(parse_ready_probe(bad)) << bad;
  EXPECT_TRUE(parse_ready_probe("http:/" + std::string(199, 'x')));
  EXPECT_FALSE(parse_ready_probe("http:/" + std::string(200, 'x')));
}

TEST(ServicePort, ARangeIsOneOrTwoPorts) {
  EXPECT_EQ(parse_port_range("10000-19999"), PortRange{});
  EXPECT_EQ(parse_port_range("1024"), (PortRange{.first = 1'024, .last = 1'024}));
  for (const char* const bad :
       {"", "-", "80", "1023-2000", "2000-1999", "2000-65536", "2000-", "a", "2000-3000-4000"})
    EXPECT_FALSE(parse_port_range(bad)) << bad;
}

TEST(ServicePort, ALineReadsAsItWasWritten) {
  const ServicePort plain{.ports = {.first = 12'345, .last = 12'345}};
  EXPECT_EQ(to_line(plain), "12345 -");
  EXPECT_EQ(parse_service_port(to_line(plain)), plain);
  const ServicePort probed{
      .probe = ReadyProbe{.path = "/up", .period = seconds(5), .timeout = milliseconds(250), .failures = 7}};
  EXPECT_EQ(to_line(probed), "10000-19999 http:/up 5000 250 7");
  EXPECT_EQ(parse_service_port(to_line(probed)), probed);
  for (const char* const bad : {"", "12345", "12345 tcp", "12345 tcp 1 2", "12345 tcp 1 2 3 4", "12345 - 1",
                                "x -", "12345 tcp -1 2 3", "12345 tcp 1 2 3\n"})
    EXPECT_FALSE(parse_service_port(bad)) << bad;
}

}  // namespace
}  // namespace gpusched
