#include "api/fields/tenants/tenant_name.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched::api {
namespace {

/// The error for the name; empty: it may be one.
std::string said_of(const std::string& name) {
  TenantSettings settings;
  settings.name = name;
  const std::optional<ApiError> problem = check_tenant_name(settings);
  return problem ? problem->message : "";
}

TEST(TenantName, MayBeInAnyScript) {
  for (const char* name :
       {"lab", "Lab 7", "\u00c4pfel", "\u7814\u7a76\u5ba4", "\u041b\u0430\u0431", "defaults"})
    EXPECT_EQ(said_of(name), "") << name;
}

TEST(TenantName, HasNothingThatNobodySees) {
  for (const char* name :
       {" lab", "lab ", "la  b", "la\u00a0b", "la\u200bb", "la\u00adb", "a\u0308pfel", "\u3000lab"})
    EXPECT_NE(said_of(name).find("is not seen or joins another"), std::string::npos) << name;
}

TEST(TenantName, IsInItsUsualForm) {
  // Letters of full width, and a ligature.
  EXPECT_NE(said_of("\uff4c\uff41\uff42").find("write it as lab"), std::string::npos);
  EXPECT_NE(said_of("o\ufb03ce").find("write it as office"), std::string::npos);
}

TEST(TenantName, LooksLikeNoId) {
  for (const char* name : {"tenant-7", "Tenant-7", "default", "DEFAULT"})
    EXPECT_NE(said_of(name).find("must not look like a tenant's id"), std::string::npos) << name;
  EXPECT_EQ(said_of("tenant-seven"), "");
}

TEST(TenantName, HasOneKeyWhateverItsCase) {
  EXPECT_EQ(tenant_name_key("\u00c4PFEL"), "\u00e4pfel");
  // Small letters alone: the key is the name itself.
  EXPECT_EQ(tenant_name_key("\u00e4pfel"), "");
  EXPECT_EQ(tenant_name_key("\u00e4PFEL"), "");
  EXPECT_EQ(tenant_name_key("stra\u00dfe"), "strasse");
  EXPECT_EQ(tenant_name_key("\u041b\u0410\u0411"), "\u043b\u0430\u0431");
}

TEST(TenantName, HasNoKeyWhereLatinLettersAreAllThatDiffers) {
  for (const char* name : {"lab", "LAB", "Lab 7", "\u7814\u7a76\u5ba4"})
    EXPECT_EQ(tenant_name_key(name), "") << name;
}

TEST(TenantName, ThatIsNoTextIsLeftAsItIs) { EXPECT_EQ(tenant_name_key("\xff\xfe"), ""); }

}  // namespace
}  // namespace gpusched::api
