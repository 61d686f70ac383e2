#include "sign/keys/order_key.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sodium.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <tuple>

#include "base/check.h"

namespace gpusched::sign {
namespace {

std::string bytes(const std::string& digits) {
  std::string out(digits.size() / 2, '\0');
  CHECK(sodium_hex2bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), digits.data(), digits.size(),
                       nullptr, nullptr, nullptr) == 0);
  return out;
}

class OrderKeys : public testing::Test {
 protected:
  OrderKeys() {
    folder_ = (std::filesystem::temp_directory_path() / "gpusched_orders_XXXXXX").string();
    CHECK(::mkdtemp(folder_.data()) != nullptr);
  }
  ~OrderKeys() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/orders.key"; }

  std::string folder_;
};

// RFC 8032, section 7.1: tests 1, 2, 3 and SHA(abc).
TEST(OrderSignatures, AreThoseOfTheStandard) {
  for (const auto& [seed, key, message, signature] :
       {std::tuple{
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf"
            "9b46bd25bf5f0595bbe24655141438e7a100b"},
        std::tuple{
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f"
            "11d8c387b2eaeb4302aeeb00d291612bb0c00"},
        std::tuple{
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984"
            "dc6594a7c15e9716ed28dc027beceea1ec40a"},
        std::tuple{
            "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
            "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3f"
            "eebbd454d4423643ce80e2a9ac94fa54ca49f",
            "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c6643"
            "1e0303dca179c138ac17ad9bef1177331a704"}}) {
    const OrderKey signer = OrderKey::of_seed(bytes(seed));
    EXPECT_EQ(signer.public_key(), bytes(key));
    EXPECT_EQ(signer.sign(bytes(message)), bytes(signature));
    EXPECT_TRUE(is_signed_by(bytes(key), bytes(message), bytes(signature)));
  }
}

TEST(OrderSignatures, EveryFlippedBitIsSeen) {
  const OrderKey key = OrderKey::of_seed(std::string(32, 's'));
  const std::string text =
      order_text({.node = "n1", .nonce = std::string(32, 'x'), .sequence = 7}, {"order"});
  const std::string signature = key.sign(text);
  ASSERT_TRUE(is_signed_by(key.public_key(), text, signature));
  const auto flip = [](std::string of, std::size_t bit) {
    of[bit / 8] = static_cast<char>(of[bit / 8] ^ (1 << bit % 8));
    return of;
  };
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit)
    EXPECT_FALSE(is_signed_by(key.public_key(), flip(text, bit), signature)) << bit;
  for (std::size_t bit = 0; bit < signature.size() * 8; ++bit)
    EXPECT_FALSE(is_signed_by(key.public_key(), text, flip(signature, bit))) << bit;
  for (std::size_t bit = 0; bit < kOrderKeyBytes * 8; ++bit)
    EXPECT_FALSE(is_signed_by(flip(key.public_key(), bit), text, signature)) << bit;
  EXPECT_FALSE(is_signed_by(key.public_key(), text, ""));
  EXPECT_FALSE(is_signed_by(key.public_key(), text, signature + "x"));
  EXPECT_FALSE(is_signed_by("", text, signature));
  EXPECT_FALSE(is_signed_by(std::string(kOrderKeyBytes, '\0'), text, signature));
}

TEST(OrderTexts, AreOthersForOtherOrdersPlacesAndTimes) {
  const std::string nonce(32, 'x');
  const std::string text = order_text({.node = "n1", .nonce = nonce, .sequence = 7}, {"order"});
  // The parts in which an order is sent are no part of it.
  EXPECT_EQ(order_text({.node = "n1", .nonce = nonce, .sequence = 7}, {"or", "", "der"}), text);
  EXPECT_NE(order_text({.node = "n1", .nonce = nonce, .sequence = 7}, {"ordeR"}), text);
  EXPECT_NE(order_text({.node = "n2", .nonce = nonce, .sequence = 7}, {"order"}), text);
  EXPECT_NE(order_text({.node = "n1", .nonce = nonce, .sequence = 8}, {"order"}), text);
  EXPECT_NE(order_text({.node = "n1", .nonce = std::string(32, 'y'), .sequence = 7}, {"order"}), text);
  // Nothing of one part can pass for the next one's.
  EXPECT_NE(order_text({.node = "n1x", .nonce = nonce.substr(1), .sequence = 7}, {"order"}), text);
  // As every released agent checks it.
  EXPECT_EQ(text.substr(0, text.size() - 32), "gpusched-order-1" + std::string("\0\0\0\2n1\0\0\0\40", 10) +
                                                  nonce + std::string("\0\0\0\0\0\0\0\7", 8));
}

TEST_F(OrderKeys, OneIsMadeOnceAndKept) {
  const Result<OrderKey> made = OrderKey::open(path());
  ASSERT_TRUE(made.ok()) << made.error().message;
  struct stat facts{};
  ASSERT_EQ(::stat(path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  const Result<OrderKey> again = OrderKey::open(path());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->public_key(), made->public_key());
  EXPECT_TRUE(is_signed_by(made->public_key(), "x", again->sign("x")));
  EXPECT_NE(OrderKey::open(folder_ + "/other.key")->public_key(), made->public_key());
}

TEST_F(OrderKeys, OneThatIsOpenToOthersOrNoneIsNotTaken) {
  ASSERT_TRUE(OrderKey::open(path()).ok());
  ASSERT_EQ(::chmod(path().c_str(), 0640), 0);
  EXPECT_EQ(OrderKey::open(path()).error().code, ErrorCode::kPermissionDenied);
  ASSERT_EQ(::chmod(path().c_str(), 0600), 0);
  std::ofstream(path()) << "no key";
  EXPECT_EQ(OrderKey::open(path()).error().code, ErrorCode::kInvalidArgument);
  std::FILE* const file = std::fopen(path().c_str(), "we");
  EVP_PKEY* const other = EVP_EC_gen("P-256");
  PEM_write_PrivateKey(file, other, nullptr, nullptr, 0, nullptr, nullptr);
  EVP_PKEY_free(other);
  std::fclose(file);
  EXPECT_EQ(OrderKey::open(path()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(OrderKey::open(folder_ + "/none/orders.key").error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace gpusched::sign
