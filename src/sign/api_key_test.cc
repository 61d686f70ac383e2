#include "sign/api_key.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gpusched::sign {
namespace {

TEST(ApiKey, IsReadAsItWasMade) {
  const NewApiKey made = make_api_key();
  EXPECT_EQ(made.text.size(), kApiKeyBytes);
  const auto parts = parse_api_key(made.text);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->prefix, made.prefix);
  EXPECT_EQ(made.text, "gsk_" + made.prefix + "." + std::string(parts->secret));
  EXPECT_TRUE(is_api_secret(parts->secret, made.hash));
  EXPECT_EQ(made.hash.find(parts->secret.substr(0, 8)), std::string::npos);
}

TEST(ApiKey, IsNeverMadeTwice) {
  std::set<std::string> texts, prefixes, hashes;
  for (int i = 0; i < 1'000; ++i) {
    const NewApiKey made = make_api_key();
    texts.insert(made.text);
    prefixes.insert(made.prefix);
    hashes.insert(made.hash);
  }
  EXPECT_EQ(texts.size(), 1'000U);
  EXPECT_EQ(prefixes.size(), 1'000U);
  EXPECT_EQ(hashes.size(), 1'000U);
}

TEST(ApiKey, EveryChangedByteOfTheSecretIsAnother) {
  const NewApiKey made = make_api_key();
  const std::string secret(parse_api_key(made.text)->secret);
  for (std::size_t i = 0; i < secret.size(); ++i) {
    std::string other = secret;
    other[i] = other[i] == '0' ? '1' : '0';
    EXPECT_FALSE(is_api_secret(other, made.hash)) << i;
  }
  EXPECT_FALSE(is_api_secret("", made.hash));
  EXPECT_FALSE(is_api_secret(secret, ""));
  EXPECT_FALSE(is_api_secret(secret, made.hash.substr(1)));
  EXPECT_FALSE(is_api_secret(secret, secret));
}

TEST(ApiKey, TheHashIsBlake2bOf256Bits) {
  // BLAKE2b-256 of "abc", as RFC 7693's reference code makes it.
  const std::string hash = hash_api_secret("abc");
  std::string hex;
  for (const char c : hash) {
    const auto byte = static_cast<unsigned char>(c);
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  EXPECT_EQ(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(ApiKey, AnotherFormIsNone) {
  const std::string text = make_api_key().text;
  const auto with = [&](std::size_t at, char c) {
    std::string other = text;
    other[at] = c;
    return other;
  };
  for (const std::string& other :
       {std::string(), std::string("gsk_"), text.substr(1), text + "0", text.substr(0, text.size() - 1),
        " " + text.substr(1), with(0, 'G'), with(4, 'A'), with(4, '/'), with(4, '\0'), with(16, '0'),
        with(20, 'g'), with(20, 'A'), with(20, '.'), with(20, '\n'), with(20, '\xc3'),
        std::string(1 << 20, 'a'), "gsk_" + std::string(1 << 20, '.')}) {
    EXPECT_FALSE(parse_api_key(other).has_value()) << other.substr(0, 100);
  }
}

}  // namespace
}  // namespace gpusched::sign
