#include "sign/keys/password.h"

#include <gtest/gtest.h>

#include "base/limits.h"

namespace gpusched::sign {
namespace {

TEST(Password, IsKeptAsArgon2idAlone) {
  const std::optional<std::string> hash = hash_password("correct horse");
  ASSERT_TRUE(hash.has_value());
  EXPECT_TRUE(hash->starts_with("$argon2id$")) << *hash;
  EXPECT_LE(hash->size(), limits::kPasswordHashBytesMax);
  EXPECT_EQ(hash->find("horse"), std::string::npos);
  EXPECT_TRUE(is_password("correct horse", *hash));
  EXPECT_FALSE(is_password("correct horsf", *hash));
  EXPECT_NE(hash_password("correct horse"), hash);  // Another salt.
}

}  // namespace
}  // namespace gpusched::sign
