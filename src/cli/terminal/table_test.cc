#include "cli/terminal/table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cli/terminal/text.h"

namespace gpusched::cli {
namespace {

int widest_line(const std::string& text) {
  std::istringstream lines(text);
  int widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, display_width(line));
  return widest;
}

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("é"), 1);
  EXPECT_EQ(display_width("e\xCC\x81"), 1);  // A combining accent.
  EXPECT_EQ(display_width("訓練"), 4);
  EXPECT_EQ(display_width("🚀"), 2);
}

TEST(Fitting, EndsWithAnEllipsisWithinTheWidth) {
  EXPECT_EQ(fitted("abcdef", 6), "abcdef");
  EXPECT_EQ(fitted("abcdef", 5), "abcd…");
  EXPECT_EQ(fitted("訓練訓練", 4), "訓…");  // Half a character does not fit.
  EXPECT_EQ(fitted("abc", 1), "…");
}

TEST(PrintableText, CannotDriveTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\n"), "a\uFFFD[31mb\uFFFD");
  EXPECT_EQ(printable("\xff\xc0"), "\uFFFD\uFFFD");
  EXPECT_EQ(printable("a\u202Eb"), "a\uFFFDb");
  EXPECT_EQ(printable("\u009Bx"), "\uFFFDx");  // The eight-bit form of an escape sequence.
  EXPECT_EQ(printable("訓 é"), "訓 é");
}

TEST(TableLayout, AlignsNumbersRightAndTextLeft) {
  Table table({{.title = "NAME"}, {.title = "GPUS", .right = true}, {.title = "STATE"}});
  table.add({"a", "8", "running"});
  table.add({"longer", "128", "x"});
  EXPECT_EQ(table.render(80),
            "NAME    GPUS  STATE\n"
            "a          8  running\n"
            "longer   128  x\n");
}

TEST(TableLayout, AlignsWideCharacters) {
  Table table({{.title = "NAME"}, {.title = "X"}});
  table.add({"訓練", "1"});
  table.add({"abcd", "2"});
  EXPECT_EQ(table.render(80), "NAME  X\n訓練  1\nabcd  2\n");
}

TEST(TableLayout, CutsTheLongTextsOnANarrowTerminal) {
  Table table(
      {{.title = "ID"}, {.title = "NAME", .may_shrink = true}, {.title = "MODEL", .may_shrink = true}});
  table.add({"job-1000000", std::string(60, 'n'), std::string(30, 'm')});
  const std::string text = table.render(50);
  EXPECT_EQ(widest_line(text), 50);
  EXPECT_NE(text.find("job-1000000"), std::string::npos);
  EXPECT_NE(text.find("n…"), std::string::npos);
  EXPECT_NE(text.find("m…"), std::string::npos);
}

TEST(Text, IsWrappedAtBlanksWhereItHasSome) {
  EXPECT_EQ(wrapped("abc def", 7), std::vector<std::string>{"abc def"});
  EXPECT_EQ(wrapped("abc def", 6), (std::vector<std::string>{"abc", "def"}));
  EXPECT_EQ(wrapped("abc def", 3), (std::vector<std::string>{"abc", "def"}));
  EXPECT_EQ(wrapped("abcdefgh ij", 3), (std::vector<std::string>{"abc", "def", "gh", "ij"}));
  EXPECT_EQ(wrapped("", 3), std::vector<std::string>{""});
  EXPECT_EQ(wrapped("訓練訓練", 4), (std::vector<std::string>{"訓練", "訓練"}));
}

TEST(TableLayout, LeavesColumnsOutWhenCuttingIsNotEnough) {
  Table table({{.title = "ID"},
               {.title = "NAME", .may_shrink = true},
               {.title = "TENANT", .drop_order = 1},
               {.title = "PRIORITY", .right = true, .drop_order = 2}});
  table.add({"job-12", "training", "tenant-1", "100"});
  EXPECT_EQ(table.render(24), "ID      NAME    TENANT\njob-12  train…  tenant-1\nPRIORITY does not fit: …\n");
  EXPECT_EQ(table.render(18), "ID      NAME\njob-12  training\nTENANT, PRIORITY …\n");
  table.hide_dropped();
  EXPECT_EQ(table.render(18), "ID      NAME\njob-12  training\n");
}

TEST(TableLayout, GoesOnInFurtherLinesWhereNothingMayGo) {
  Table table({{.title = "ID"}, {.title = "GPUS", .right = true}, {.title = "NAME", .may_shrink = true}});
  table.add({"job-12", "4", "a long name"});
  table.add({"job-13", "8", ""});
  EXPECT_EQ(table.render(14),
            "ID      GPUS\n"
            "    NAME\n"
            "job-12     4\n"
            "    a long na…\n"
            "job-13     8\n");
}

TEST(RecordLayout, AlignsValuesAndOmitsEmptyOnes) {
  Record record;
  record.add("Job", "job-12");
  record.add("Exit code", "0");
  record.add("Image", "");
  EXPECT_EQ(record.render(80), "Job:        job-12\nExit code:  0\n");
}

TEST(RecordLayout, LongValuesGoOnBeneath) {
  Record record;
  record.add("Why", "wants 1 GPU on one node; all are in use");
  record.add("Node", "n1");
  EXPECT_EQ(record.render(30),
            "Why:   wants 1 GPU on one\n"
            "       node; all are in use\n"
            "Node:  n1\n");
}

TEST(TableLayout, AColumnThatWrapsGoesOnBeneath) {
  Table table({{.title = "AFTER", .right = true},
               {.title = "EVENT"},
               {.title = "WHAT HAPPENED", .may_shrink = true, .wraps = true}});
  table.add({"+4s", "ended", "its node was confirmed dead"});
  table.add({"", "requeued", "waits again"});
  EXPECT_EQ(table.render(32),
            "AFTER  EVENT     WHAT HAPPENED\n"
            "  +4s  ended     its node was\n"
            "                 confirmed dead\n"
            "       requeued  waits again\n");
}

}  // namespace
}  // namespace gpusched::cli
