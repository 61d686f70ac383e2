#include "anticipate/redact.h"

#include <gtest/gtest.h>

#include <utility>

namespace gpusched::anticipate {
namespace {

TEST(Redacted, HasNoneOfTheseSecrets) {
  // (text, secret in it)
  const std::pair<const char*, const char*> kTexts[] = {
      {"export PASSWORD=hunter2secret", "hunter2secret"},
      {"mysql --password correct-horse db", "correct-horse"},
      {"{\"api_key\": \"my-own-key\"}", "my-own-key"},
      {"db_passwd='two words' x", "two words"},
      {"HF_TOKEN=abcdefg python train.py", "abcdefg"},
      {"curl -H 'Authorization: Bearer abc.def' http://x", "abc.def"},
      {"curl -H \"authorization: Basic dXNlcjpwdw==\"", "dXNlcjpwdw"},
      {"git clone https://ana:tok3n@git.example.org/x.git", "tok3n"},
      {"postgres://app:s3cr3t@db:5432/x?sslmode=off", "s3cr3t"},
      {"key sk-proj-aB3dE5gH7jK9 used", "sk-proj-aB3dE5gH7jK9"},
      {"ghp_0123456789abcdefghij", "ghp_0123456789abcdefghij"},
      {"AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"},
      {"jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJhbGciOiJIUzI1NiJ9"},
      {"x wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY y", "K7MDENG"},
      {"a\n-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\nb", "MIIEvQ"},
      {"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz", "b3BlbnNz"},
      {"client_secret: zzz", "zzz"},
      {"--auth-token=qqq", "qqq"},
  };
  for (const auto& [text, secret] : kTexts) {
    const std::string shown = redacted(text);
    EXPECT_EQ(shown.find(secret), std::string::npos) << shown;
    EXPECT_NE(shown.find(kRedacted), std::string::npos) << shown;
    EXPECT_EQ(redacted(shown), shown) << "a second time";
  }
}

TEST(Redacted, LeavesOrdinaryTextAlone) {
  for (const char* const text :
       {"python /home/me/project-2024/scripts/train_lora.py --lr 1e-4 --epochs 3",
        "torchrun --nproc_per_node=4 train.py --config configs/llama-7b.yaml",
        "tokenizer loaded, 32000 tokens", "max_tokens=512 pad_token=0", "step 1200 loss=0.7312 lr=1.0e-05",
        "see http://example.org/a/b?c=d#e", "Tokenizing train split: 100%|####| 12000/12000",
        "PWD=/home/me/work", "checkpoint-000123-of-000200.safetensors", "the author authors it", ""})
    EXPECT_EQ(redacted(text), text);
}

TEST(Redacted, HidesOfAPathOnlyTheNamesThatChanceMade) {
  EXPECT_EQ(redacted("python3 /tmp/a1b2c3d4e5f6g7h8i9j0/train_tiny.py"),
            "python3 /tmp/[secret]/train_tiny.py");
  EXPECT_EQ(redacted("cat ~/keys/a1b2c3d4e5f6g7h8i9j0"), "cat ~/keys/[secret]");
}

}  // namespace
}  // namespace gpusched::anticipate
