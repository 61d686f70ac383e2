#include "sign/keys/token_proof.h"

#include <gtest/gtest.h>
#include <sodium.h>

#include <tuple>

namespace gpusched::sign {
namespace {

const std::string kToken = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

std::string counting(unsigned char from) {
  std::string bytes;
  for (unsigned char i = 0; i < kNonceBytes; ++i) bytes += static_cast<char>(from + i);
  return bytes;
}

std::string digits(const std::string& bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
  text.pop_back();
  return text;
}

// Computed by another implementation (hashlib.blake2b of Python): agents and schedulers that were released
// speak so.
TEST(TokenProofs, AreTheSameBytesForEver) {
  const std::string agents = counting(0), both = agents + counting(kNonceBytes);
  std::string long_token;
  for (int i = 0; i < 20; ++i) long_token += "long ";
  for (const auto& [token, label, nonce, expected] :
       {std::tuple{kToken, kSchedulerLabel, both,
                   "83c8135475c1a8a21549ecf01011674271bc2bdf87d8d10ccc029e66ca8cd5e8"},
        std::tuple{kToken, kAgentLabel, both,
                   "1cc30163adba6b3a7788e70f052883db7c95a27d9f0aa701226cdb3849eece14"},
        std::tuple{kToken, kOldSchedulerLabel, agents,
                   "adb6656fee33cc296522fbd33adc8ac991142293638d416a72028d42e33b80f3"},
        std::tuple{kToken, kOldAgentLabel, agents,
                   "465a4c211642117d108732f22cabac7dfd1ccd183e507d93e7abcced6f192d18"},
        std::tuple{long_token, kAgentLabel, both,
                   "17668b05057cf3a164dc97875988c44d983c2dc79b8c801f54c30adc82d91f95"},
        std::tuple{std::string("sixteen bytes ..."), kAgentLabel, both,
                   "eb9db25b65ed80db8364c91dacff751de47e3d4483576d5893d26e56e6a5ecf1"}}) {
    EXPECT_EQ(digits(prove(token, label, nonce)), expected) << label;
    EXPECT_TRUE(proves(prove(token, label, nonce), token, label, nonce));
  }
  EXPECT_EQ(kSchedulerLabel, "gpusched-scheduler-2");
  EXPECT_EQ(kAgentLabel, "gpusched-agent-2");
  EXPECT_EQ(kOldSchedulerLabel, "gpusched-scheduler");
  EXPECT_EQ(kOldAgentLabel, "gpusched-agent");
}

TEST(TokenProofs, AreOfTheirTokenLabelAndNonce) {
  const std::string nonce = make_nonce();
  EXPECT_EQ(nonce.size(), kNonceBytes);
  EXPECT_NE(nonce, make_nonce());
  const std::string proof = prove(kToken, kSchedulerLabel, nonce);
  EXPECT_TRUE(proves(proof, kToken, kSchedulerLabel, nonce));
  EXPECT_FALSE(proves(proof, kToken, kAgentLabel, nonce));
  EXPECT_FALSE(proves(proof, kToken, kSchedulerLabel, make_nonce()));
  EXPECT_FALSE(proves(proof, "another token, as long...", kSchedulerLabel, nonce));
  EXPECT_FALSE(proves(proof.substr(1), kToken, kSchedulerLabel, nonce));
  EXPECT_FALSE(proves("", kToken, kSchedulerLabel, nonce));
  EXPECT_NE(prove(std::string(100, 'a'), "p", nonce), prove(std::string(101, 'a'), "p", nonce));
}

TEST(TokenProofs, WithoutATokenNothingIsProved) {
  EXPECT_EQ(prove("", kAgentLabel, "nonce"), "");
  EXPECT_FALSE(proves("", "", kAgentLabel, "nonce"));
}

}  // namespace
}  // namespace gpusched::sign
