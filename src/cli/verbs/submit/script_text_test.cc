#include "cli/verbs/submit/script_text.h"

#include <gtest/gtest.h>

namespace gpusched::cli {
namespace {

std::string error_of(const std::string& text) {
  const Result<ScriptText> clean = clean_script_text(text, "a.sh");
  return clean ? "" : clean.error().message;
}

TEST(ScriptText, OfOtherSystemsIsConvertedWithANote) {
  const Result<ScriptText> clean = clean_script_text("\xEF\xBB\xBF#!/bin/sh\r\necho \xC3\xA9\r\n", "a.sh");
  ASSERT_TRUE(clean.ok());
  EXPECT_EQ(clean->text, "#!/bin/sh\necho \xC3\xA9\n");
  EXPECT_EQ(clean->notes, (std::vector<std::string>{
                              "a.sh: its byte order mark was left out",
                              "a.sh: 2 lines that ended with a carriage return were sent with a line feed"}));
  EXPECT_EQ(clean_script_text("#!/bin/sh\rtrue\r", "a.sh")->text, "#!/bin/sh\ntrue\n");
  EXPECT_EQ(clean_script_text("true\nfalse\r", "a.sh")->text, "true\nfalse\n");
}

TEST(ScriptText, WithoutAnythingToChangeIsLeftAsItIs) {
  const Result<ScriptText> clean = clean_script_text("\n# a comment\ntrue\n", "a.sh");
  ASSERT_TRUE(clean.ok());
  EXPECT_EQ(clean->text, "\n# a comment\ntrue\n");
  EXPECT_TRUE(clean->notes.empty());
}

TEST(ScriptText, ThatCannotBeMeantIsRefusedWithItsPlace) {
  EXPECT_TRUE(error_of("true\nab\rcd\n").starts_with("a.sh:2: byte 3 is a carriage return"));
  EXPECT_TRUE(error_of("true\necho '\xE9'\n").starts_with("a.sh:2: byte 7 is 0xE9, which is not UTF-8"));
  EXPECT_TRUE(error_of("\n\n#!/bin/bash\n").starts_with("a.sh:3: byte 1 is the beginning of a #! line"));
  EXPECT_TRUE(error_of("  #!/bin/bash\n").starts_with("a.sh:1: byte 3 is the beginning of a #! line"));
  EXPECT_TRUE(
      error_of("\xEF\xBB\xBF \t#!/bin/bash\n").starts_with("a.sh:1: byte 3 is the beginning of a #!"));
  EXPECT_TRUE(error_of("\xFF\xFEt").starts_with("a.sh:1: byte 1 is the beginning of UTF-16"));
}

TEST(NotUtf8, NamesTheFirstByteThatIsNone) {
  EXPECT_EQ(not_utf8("\xC3\xA9t\xC3\xA9"), "");
  EXPECT_EQ(not_utf8("caf\xE9"), "byte 4 is 0xE9, which is not UTF-8");
}

}  // namespace
}  // namespace gpusched::cli
