#include "node/link/trust.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

const std::string kToken = "0123456789abcdef0123456789abcdef";

TEST(Trust, TheTokenIsTheFilesTextWithoutWhiteSpace) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/token";
  std::ofstream(path) << "\n" << kToken << "\n";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(*read_token(path), kToken);
  std::ofstream(path) << "short";
  EXPECT_FALSE(read_token(path).ok());
  EXPECT_FALSE(read_token(folder.path() + "/none").ok());
}

TEST(Trust, AddressesAreReadAndOthersRefused) {
  EXPECT_EQ(parse_address("gpu1.lab:9090")->host, "gpu1.lab");
  EXPECT_EQ(parse_address("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_address("[::1]:80")->port, 80);
  for (const char* text :
       {"", "host", ":9090", "host:", "host:0", "host:65536", "host:x", "::1:80", "[]:1"}) {
    EXPECT_FALSE(parse_address(text).ok()) << text;
  }
}

TEST(Trust, WhoMayDoWithoutAToken) {
  const Address here{.host = "127.0.0.1", .port = 9090};
  const Address there{.host = "10.0.0.7", .port = 9090};
  EXPECT_TRUE(check_trust(there, true, 0, {}).ok());
  EXPECT_FALSE(check_trust(there, false, 1000, {}).ok());
  EXPECT_TRUE(check_trust(here, false, 1000, {1000}).ok());
  EXPECT_TRUE(check_trust(here, false, 1000, {0}).ok());
  EXPECT_TRUE(check_trust(here, true, 1000, {1001}).ok());
  EXPECT_FALSE(check_trust(here, false, 1000, {1001}).ok());
  EXPECT_TRUE(check_trust(here, false, 0, {0}).ok());
  EXPECT_TRUE(check_trust(here, false, 0, {}).ok());
  const Result<Unit> foreign = check_trust(here, false, 0, {0, 1001});
  ASSERT_FALSE(foreign.ok());
  EXPECT_NE(foreign.error().message.find("user 1001"), std::string::npos);
  EXPECT_NE(foreign.error().message.find("--token-file"), std::string::npos);
}

}  // namespace
}  // namespace gpusched
