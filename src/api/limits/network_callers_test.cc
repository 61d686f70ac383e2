// Where callers without a credential are let in from.
#include "api/limits/network_callers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gpusched::api {
namespace {

class NetworkCallersTest : public ::testing::Test {
 protected:
  NetworkCallersTest() {
    char pattern[] = "/tmp/gpusched-nodes-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~NetworkCallersTest() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ + "/node-addresses"; }
  /// This machine's interfaces: loopback, 10.1.0.1 and fd00::1.
  static std::vector<IpAddress> own() {
    return {*parse_ip_address("127.0.0.1"), *parse_ip_address("10.1.0.1"), *parse_ip_address("fd00::1")};
  }
  /// "" when the address is let in, else the message.
  static std::string told(const NodeAddresses& nodes, const std::string& address, bool has_nodes = false) {
    const NetworkCallers callers(
        {.networks = {*IpNetwork::parse("10.1.0.0/16"), *IpNetwork::parse("fd00::/8")},
         .has_nodes = has_nodes,
         .nodes = &nodes});
    const Answer<CallerPtr> caller = callers.caller_at(address);
    if (caller) return (*caller)->kind == access::CallerKind::kAnonymous ? "" : "somebody";
    EXPECT_EQ(caller.error().kind, ErrorKind::kUnauthenticated);
    return caller.error().message;
  }

  std::string folder_;
};

TEST_F(NetworkCallersTest, OnlyNumericAddressesInTheNetworksAreLetIn) {
  const NodeAddresses nodes("", own);
  for (const char* text : {"10.1.0.1", "10.1.255.255", "::ffff:10.1.3.4", "fd12::1", "fd12::1%eth0"})
    EXPECT_EQ(told(nodes, text), "") << text;
  for (const char* text : {"10.2.0.1", "127.0.0.1", "::1", "8.8.8.8", "fe80::1", "", "unix:0", "localhost",
                           "10.1.0.1, 10.2.0.1", "10.1.0.1 ", "10.1.0.300"})
    EXPECT_NE(told(nodes, text).find("api.anonymous_networks"), std::string::npos) << text;
}

TEST_F(NetworkCallersTest, AddressesOfNodesAreLeftOutUnlessTheyAreWanted) {
  NodeAddresses nodes("", own);
  nodes.add("n1", "10.1.0.7");
  nodes.add("n1", "fd00::7");
  for (const char* text : {"10.1.0.7", "::ffff:10.1.0.7", "::ffff:a01:7", "fd00::7", "fd00:0::7"}) {
    EXPECT_NE(told(nodes, text).find("api.anonymous_nodes"), std::string::npos) << text;
    EXPECT_EQ(told(nodes, text, true), "") << text;
  }
  EXPECT_EQ(told(nodes, "10.1.0.8"), "");
  EXPECT_EQ(told(nodes, "10.1.0.1"), "") << "no agent is on the scheduler's machine";
}

TEST_F(NetworkCallersTest, AnAgentOnThisMachineMakesAllItsAddressesThoseOfANode) {
  for (const char* from : {"unix", "127.0.0.1", "::1", "::ffff:127.0.0.1"}) {
    NodeAddresses nodes("", own);
    EXPECT_FALSE(nodes.is_node(*parse_ip_address("127.0.0.1")));
    nodes.add("n1", from);
    for (const char* text : {"127.0.0.1", "127.9.9.9", "10.1.0.1", "fd00::1"})
      EXPECT_TRUE(nodes.is_node(*parse_ip_address(text))) << from << " " << text;
    EXPECT_FALSE(nodes.is_node(*parse_ip_address("10.1.0.2")));
    nodes.forget("n1");
    EXPECT_FALSE(nodes.is_node(*parse_ip_address("10.1.0.1")));
  }
}

TEST_F(NetworkCallersTest, NodesAddressesAreKnownBeforeTheirAgentsCallAgain) {
  {
    NodeAddresses nodes(file(), own);
    nodes.add("n1", "10.1.0.7");
    nodes.add("n2", "10.1.0.7");  // Two agents on one machine.
    nodes.add("n2", "10.1.0.8");
    nodes.add("n3", "unix");
    nodes.add("n2", "10.1.0.8");
    nodes.forget("n2");
  }
  struct stat facts{};
  ASSERT_EQ(stat(file().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  for (int start = 0; start < 3; ++start) {
    NodeAddresses nodes(file(), own);
    EXPECT_TRUE(nodes.is_node(*parse_ip_address("10.1.0.7"))) << "of n1";
    EXPECT_FALSE(nodes.is_node(*parse_ip_address("10.1.0.8"))) << "n2 was removed";
    EXPECT_TRUE(nodes.is_node(*parse_ip_address("10.1.0.1"))) << "n3 is here";
  }
  std::ifstream lines(file());
  const std::string text((std::istreambuf_iterator<char>(lines)), {});
  EXPECT_EQ(text, "10.1.0.7 n1\nlocal n3\n");
}

TEST_F(NetworkCallersTest, ABrokenFileCostsOnlyItsBrokenLines) {
  std::ofstream(file()) << "10.1.0.7\n\nnonsense n9\n10.1.0.9 n9\n- n8\n10.1.0.10 n1";
  NodeAddresses nodes(file(), own);
  EXPECT_TRUE(nodes.is_node(*parse_ip_address("10.1.0.9")));
  EXPECT_TRUE(nodes.is_node(*parse_ip_address("10.1.0.10")));
  EXPECT_FALSE(nodes.is_node(*parse_ip_address("10.1.0.7")));
}

TEST_F(NetworkCallersTest, ANodeKeepsItsNewestAddresses) {
  NodeAddresses nodes("", own);
  for (std::size_t i = 0; i <= NodeAddresses::kPerNode; ++i) nodes.add("n1", "10.1.1." + std::to_string(i));
  EXPECT_FALSE(nodes.is_node(*parse_ip_address("10.1.1.0")));
  EXPECT_TRUE(nodes.is_node(*parse_ip_address("10.1.1.1")));
}

}  // namespace
}  // namespace gpusched::api
