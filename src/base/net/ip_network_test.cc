#include "base/net/ip_network.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched {
namespace {

IpAddress address(const std::string& text) {
  const std::optional<IpAddress> found = parse_ip_address(text);
  EXPECT_TRUE(found.has_value()) << text;
  return found.value_or(IpAddress{});
}

IpNetwork network(const std::string& text) {
  const std::optional<IpNetwork> found = IpNetwork::parse(text);
  EXPECT_TRUE(found.has_value()) << text;
  return found.value_or(*IpNetwork::parse("::1"));
}

TEST(IpAddress, SpellingsOfOneAddressAreEqual) {
  EXPECT_EQ(address("10.1.2.3"), address("::ffff:10.1.2.3"));
  EXPECT_EQ(address("10.1.2.3"), address("::FFFF:0a01:0203"));
  EXPECT_EQ(address("[fe80::1]"), address("fe80:0:0:0:0:0:0:1%eth0"));
  EXPECT_EQ(address("::"), address("0:0:0:0:0:0:0:0"));
  EXPECT_EQ(address("2001:db8::"), address("2001:0db8:0000::0:0"));
  EXPECT_FALSE(address("::a01:203") == address("10.1.2.3"));
  EXPECT_TRUE(address("::1").is_loopback());
  EXPECT_TRUE(address("::ffff:127.3.2.1").is_loopback());
  EXPECT_FALSE(address("128.0.0.1").is_loopback());
}

TEST(IpAddress, OtherTextIsNone) {
  for (const char* text : {"",
                           "localhost",
                           "10.1.2",
                           "10.1.2.3.4",
                           "10.1.2.256",
                           "10.01.2.3",
                           "10.1.2.3 ",
                           " 10.1.2.3",
                           "10..2.3",
                           ".10.1.2.3",
                           "10.1.2.-3",
                           "10.1.2.3:80",
                           ":",
                           ":::",
                           "1:2:3:4:5:6:7",
                           "1:2:3:4:5:6:7:8:9",
                           "1::2::3",
                           "12345::",
                           "g::",
                           "1:2:3:4:5:6:7:8::",
                           "::1:2:3:4:5:6:7:8",
                           "1.2.3.4::",
                           "::1.2.3",
                           "1:2:3:4:5:6:7:1.2.3.4",
                           "unix:5",
                           "[::1",
                           "::1]",
                           "0x10.1.2.3",
                           "::ffff:10.1.2.3, 10.9.9.9"})
    EXPECT_FALSE(parse_ip_address(text).has_value()) << text;
}

TEST(IpNetwork, ContainsTheAddressesOfItsPrefix) {
  EXPECT_TRUE(network("10.1.0.0/16").contains(address("10.1.255.7")));
  EXPECT_TRUE(network("10.1.0.0/16").contains(address("::ffff:10.1.0.0")));
  EXPECT_FALSE(network("10.1.0.0/16").contains(address("10.2.0.0")));
  EXPECT_TRUE(network("10.1.2.0/23").contains(address("10.1.3.255")));
  EXPECT_FALSE(network("10.1.2.0/23").contains(address("10.1.4.0")));
  EXPECT_TRUE(network("10.1.2.3").contains(address("10.1.2.3")));
  EXPECT_FALSE(network("10.1.2.3").contains(address("10.1.2.2")));
  EXPECT_TRUE(network("0.0.0.0/0").contains(address("8.8.8.8")));
  EXPECT_FALSE(network("0.0.0.0/0").contains(address("2001::1")));
  EXPECT_TRUE(network("::/0").contains(address("10.1.2.3")));
  EXPECT_TRUE(network("fd00:1::/32").contains(address("fd00:1:ffff::2")));
  EXPECT_FALSE(network("fd00:1::/32").contains(address("fd00:2::")));
}

TEST(IpNetwork, HasNoBitsBeyondItsPrefix) {
  for (const char* text : {"10.1.2.3/16", "10.1.0.0/33", "10.1.0.0/", "10.1.0.0/-1", "10.1.0.0/16/8",
                           "10.1/16", "/16", "fd00::1/64", "fd00::/129", "[fd00::]/8", "fe80::%eth0/10",
                           "10.1.0.0/+8", "10.1.0.0/016x", "example.com/24", "*", "any", ""})
    EXPECT_FALSE(IpNetwork::parse(text).has_value()) << text;
}

TEST(IpNetwork, IsPublicUnlessItIsWhollyInsideABlockThatIsNot) {
  for (const char* text : {"10.0.0.0/8", "10.1.0.0/16", "172.16.0.0/12", "192.168.7.0/24", "100.64.0.0/10",
                           "169.254.0.0/16", "127.0.0.0/8", "198.51.100.0/24", "fd00::/8", "fc00::/7",
                           "fe80::/10", "::1", "2001:db8::/32", "::ffff:10.0.0.0/104", "10.1.2.3"})
    EXPECT_FALSE(network(text).has_public_address()) << text;
  for (const char* text : {"0.0.0.0/0", "::/0", "10.0.0.0/7", "8.8.8.8", "8.0.0.0/8", "172.0.0.0/8",
                           "192.168.0.0/15", "128.0.0.0/1", "100.0.0.0/8", "2000::/3", "fc00::/6",
                           "2001:db8::/31", "2a00::1", "::ffff:0:0/96", "::/64", "::/127"})
    EXPECT_TRUE(network(text).has_public_address()) << text;
}

}  // namespace
}  // namespace gpusched
