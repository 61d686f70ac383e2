#include "sign/keys/sealed_secret.h"

#include <gtest/gtest.h>

namespace gpusched::sign {
namespace {

TEST(SealedSecret, IsOpenedByItsPassphraseAlone) {
  const std::optional<std::string> sealed = sealed_secret("sk-invented-key", "correct horse");
  ASSERT_TRUE(sealed.has_value());
  EXPECT_TRUE(is_sealed_secret(*sealed));
  EXPECT_FALSE(is_sealed_secret("sk-invented-key"));
  EXPECT_EQ(sealed->find("invented"), std::string::npos);
  EXPECT_EQ(sealed->find('\n'), std::string::npos);
  const Result<std::string> opened = open_sealed_secret(*sealed, "correct horse");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(*opened, "sk-invented-key");
  EXPECT_EQ(open_sealed_secret(*sealed, "correct horsf").error().code, ErrorCode::kUnauthenticated);
  std::string changed = *sealed;
  changed[changed.size() / 2] = changed[changed.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_EQ(open_sealed_secret(changed, "correct horse").error().code, ErrorCode::kUnauthenticated);
}

TEST(SealedSecret, TextsThatAreNoneAreCorrupt) {
  for (const char* const text : {"", "gpusched-sealed-1", "gpusched-sealed-1 ", "gpusched-sealed-1 AAAA",
                                 "gpusched-sealed-1 !!!!", "gpusched-sealed-1AAAA", "gpusched-sealed-2 AAAA"})
    EXPECT_EQ(open_sealed_secret(text, "x").error().code, ErrorCode::kCorrupt) << text;
}

}  // namespace
}  // namespace gpusched::sign
