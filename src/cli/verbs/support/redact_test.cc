#include "cli/verbs/support/redact.h"

#include <gtest/gtest.h>

#include "cli/verbs/jobs/archive.h"

namespace gpusched::cli {
namespace {

std::string json(const std::string& text, std::string_view known = {}) {
  const Result<Json> parsed = Json::parse(text);
  EXPECT_TRUE(parsed.ok());
  return parsed.ok() ? redacted_json(*parsed, known) : "";
}

TEST(RedactedText, HidesWhatFollowsASecretsName) {
  EXPECT_EQ(redacted_text("token=abc next", ""), "token=(redacted) next");
  EXPECT_EQ(redacted_text("run --api-key s3cr3t --epochs 3", ""), "run --api-key (redacted) --epochs 3");
  EXPECT_EQ(redacted_text("db_password: \"a b\", user: me", ""), "db_password: (redacted), user: me");
  EXPECT_EQ(redacted_text("Authorization: Bearer abc.def\nHost: x", ""),
            "Authorization: Bearer (redacted)\nHost: x");
  EXPECT_EQ(redacted_text("{\"HF_TOKEN\":\"hf_x\"}", ""), "{\"HF_TOKEN\":(redacted)}");
  EXPECT_EQ(redacted_text("curl gsk_abcdefgh2345.0123abcd, next", ""), "curl gsk_(redacted), next");
  EXPECT_EQ(redacted_text("seen 0123456789abcdef there", "0123456789abcdef"), "seen (redacted) there");
}

TEST(RedactedText, LeavesTheRestAlone) {
  for (const char* const text : {"loss: 0.3, tokens_per_second=1200", "the token is wrong",
                                 "--token-file /etc/x", "", "a secret", "password\n"}) {
    EXPECT_EQ(redacted_text(text, ""), text);
  }
}

TEST(RedactedJson, KeepsHarmlessVariablesAndHidesTheOthers) {
  const std::string shown = json(
      R"({"environment":{"CUDA_HOME":"/usr/cuda","WANDB_API_KEY":"k1","MY_OWN":"k2","NCCL_DEBUG":"INFO"},"name":"a"})");
  EXPECT_NE(shown.find("\"CUDA_HOME\": \"/usr/cuda\""), std::string::npos) << shown;
  EXPECT_NE(shown.find("\"NCCL_DEBUG\": \"INFO\""), std::string::npos);
  EXPECT_EQ(shown.find("k1"), std::string::npos);
  EXPECT_EQ(shown.find("k2"), std::string::npos);
  EXPECT_NE(shown.find("\"name\": \"a\""), std::string::npos);
}

TEST(RedactedJson, HidesSecretsInCommandsAndKeys) {
  const std::string shown = json(
      R"({"command":["curl","--token","k1","-H","Authorization: Bearer k2"],"password":"k3","n":1,"x":null})");
  for (const char* const secret : {"k1", "k2", "k3"})
    EXPECT_EQ(shown.find(secret), std::string::npos) << shown;
  EXPECT_NE(shown.find("\"curl\""), std::string::npos);
  EXPECT_NE(shown.find("\"n\": 1"), std::string::npos);
  EXPECT_TRUE(Json::parse(shown).ok());
}

TEST(RedactedConfig, HidesPasswords) {
  EXPECT_EQ(redacted_config("redis:\n  password: hunter2 # x\n  db: 3\ntoken_file: /etc/t\n", ""),
            "redis:\n  password: (redacted)\n  db: 3\ntoken_file: /etc/t\n");
}

TEST(Archive, HasTheChecksumOfItsContent) {
  EXPECT_EQ(crc32_of("123456789"), 0xCBF43926u);  // The check value of CRC-32/ISO-HDLC.
  const std::string archive = make_archive("folder", {{"a.txt", "text"}}, Time{1'700'000'000'000'000'000});
  EXPECT_EQ(archive.substr(0, 3), "\x1f\x8b\x08");
  EXPECT_NE(archive.find("folder/a.txt"), std::string::npos);
  EXPECT_NE(archive.find("ustar"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::cli
