#include "base/net/public_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>

namespace gpusched {
namespace {

bool is_public(const std::string& text) {
  uint8_t bytes[16];
  const bool six = text.find(':') != std::string::npos;
  EXPECT_EQ(inet_pton(six ? AF_INET6 : AF_INET, text.c_str(), bytes), 1) << text;
  return is_public_address(std::span<const uint8_t>(bytes, six ? 16 : 4));
}

TEST(PublicAddress, IsOneOfTheInternetAtLarge) {
  for (const char* text :
       {"8.8.8.8", "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.1",
        "169.253.1.1", "172.15.1.1", "172.32.0.0", "192.167.1.1", "192.169.0.0", "198.17.1.1", "198.20.0.0",
        "223.255.255.255", "2606:4700::1111", "2001:4860:4860::8888", "::ffff:8.8.8.8", "2a00::1"})
    EXPECT_TRUE(is_public(text)) << text;
}

TEST(PublicAddress, IsNoneOfThisMachineItsNetworkOrNobodys) {
  for (const char* text : {"0.0.0.0",
                           "0.1.2.3",
                           "10.0.0.1",
                           "10.255.255.255",
                           "100.64.0.1",
                           "100.127.255.255",
                           "127.0.0.1",
                           "127.255.1.1",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.1",
                           "192.0.2.1",
                           "192.168.1.1",
                           "198.18.0.1",
                           "198.19.255.255",
                           "198.51.100.7",
                           "203.0.113.9",
                           "224.0.0.1",
                           "239.1.1.1",
                           "240.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.1.1.1",
                           "::127.0.0.1",
                           "64:ff9b::7f00:1",
                           "64:ff9b::808:808",
                           "fe80::1",
                           "fec0::1",
                           "fc00::1",
                           "fd12::1",
                           "ff02::1",
                           "2001:db8::1",
                           "2001::1",
                           "2002:7f00:1::",
                           "100::1",
                           "3fff::1",
                           "5f00::1"})
    EXPECT_FALSE(is_public(text)) << text;
  EXPECT_FALSE(is_public_address({}));
}

}  // namespace
}  // namespace gpusched
