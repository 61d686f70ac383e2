#include "main/commands/journal_command.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "journal/file_journal.h"

namespace gpusched {
namespace {

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

class JournalCommand : public ::testing::Test {
 protected:
  JournalCommand() {
    char path[] = "/tmp/gpusched_command_XXXXXX";
    CHECK(::mkdtemp(path) != nullptr);
    dir_ = path;
  }
  ~JournalCommand() override { std::filesystem::remove_all(dir_); }

  void write(int records, bool seal) {
    auto journal = FileJournal::open(dir_ + "/journal", {.segment_bytes = 16384, .reserve_bytes = 1});
    ASSERT_TRUE(journal.ok());
    for (int i = 0; i < records; ++i) {
      const uint64_t position = (*journal)->last_position() + 1;
      const std::string payload(1000, 'x');
      ASSERT_TRUE((*journal)
                      ->append({.position = position,
                                .term = 1,
                                .first_sequence = position * 2,
                                .command_count = 2,
                                .payload = payload})
                      .ok());
      ASSERT_TRUE((*journal)->sync().ok());
    }
    if (!seal) return;
    ASSERT_TRUE((*journal)->seal().ok());
  }
  void damage(uint64_t offset) {
    std::fstream file(dir_ + "/journal/0000000000000001.seg",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put('!');
  }
  static Outcome run(const std::vector<const char*>& words, const JournalDecoder& decode = {}) {
    std::ostringstream out;
    std::ostringstream err;
    const Program program{.name = "gpu-scheduler", .commands = journal_commands(out, err, decode)};
    std::vector<std::string> all = {"journal"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramIo io{.out = [&out](std::string_view text) { out << text; },
                       .err = [&err](std::string_view text) { err << text; },
                       .environment = [](const char*) { return std::string(); }};
    const int status = run_program(program, all, io);
    return {.status = status, .out = out.str(), .err = err.str()};
  }
  std::string dir_;
};

TEST_F(JournalCommand, VerifyAcceptsTheDataFolderAndTheJournalFolder) {
  write(20, true);
  const std::string inner = dir_ + "/journal";
  for (const std::string& dir : {dir_, inner}) {
    const Outcome outcome = run({"verify", dir.c_str()});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find("whole, 20 records, positions 1 to 20, last command 41"), std::string::npos)
        << outcome.out;
    EXPECT_NE(outcome.out.find(", sealed"), std::string::npos);
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_F(JournalCommand, VerifyOfDamageNamesSegmentAndOffsetAndExitsWithOne) {
  write(3, true);
  damage(4096 + 500);
  const Outcome outcome = run({"verify", dir_.c_str(), "--json"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out.rfind("{\"ok\":false,", 0), 0u) << outcome.out;
  EXPECT_NE(outcome.out.find("\"code\":\"corrupt\""), std::string::npos);
  EXPECT_NE(outcome.err.find("0000000000000001.seg, offset 4096: record 1 is damaged"), std::string::npos);
}

TEST_F(JournalCommand, ATornTailIsNoDamageButIsSaid) {
  write(3, false);
  damage(4096 + 3 * 1056 + 20);
  const Outcome outcome = run({"verify", dir_.c_str()});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.err.find("unfinished write"), std::string::npos) << outcome.err;
}

TEST_F(JournalCommand, DumpPrintsALineForEachRecordInTheRange) {
  write(20, false);
  const Outcome outcome =
      run({"dump", dir_.c_str(), "--json", "--from", "5", "--to", "7"},
          [](const JournalRecord& record) { return "p" + std::to_string(record.position); });
  EXPECT_EQ(outcome.status, 0);
  std::istringstream lines(outcome.out);
  std::string line;
  uint64_t position = 5;
  while (std::getline(lines, line)) {
    const std::string number = std::to_string(position);
    EXPECT_EQ(line.rfind("{\"position\":" + number + ",\"term\":1,\"first_sequence\":" +
                             std::to_string(position * 2) + ",\"command_count\":2,\"length\":1000,\"crc\":\"",
                         0),
              0u)
        << line;
    EXPECT_NE(line.find("\"payload\":\"p" + number + "\"}"), std::string::npos);
    position += 1;
  }
  EXPECT_EQ(position, 8u);
}

TEST_F(JournalCommand, DumpShowsTheRecordsBeforeTheDamage) {
  write(3, true);
  damage(4096 + 1056 + 100);
  const Outcome outcome = run({"dump", dir_.c_str()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("\n           1        1"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("\n           2        1"), std::string::npos);
}

TEST_F(JournalCommand, StatListsTheSegments) {
  write(20, false);
  const Outcome text = run({"stat", dir_.c_str()});
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("0000000000000002.seg"), std::string::npos);
  const Outcome json = run({"stat", dir_.c_str(), "--json"});
  EXPECT_NE(json.out.find("\"segment_list\":[{\"file\":\"0000000000000001.seg\",\"first_position\":1,"),
            std::string::npos)
      << json.out;
}

TEST_F(JournalCommand, AFolderWithoutAJournalIsAClearError) {
  const Outcome outcome = run({"verify", dir_.c_str()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("holds no journal"), std::string::npos);
}

TEST_F(JournalCommand, WrongArgumentsExitWithTwoAndHelpWithZero) {
  EXPECT_EQ(run({}).status, 2);
  EXPECT_EQ(run({"verify"}).status, 2);
  EXPECT_EQ(run({"repair", "x"}).status, 2);
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("verify"), std::string::npos);
  EXPECT_EQ(run({"dump", "--help"}).status, 0);
}

}  // namespace
}  // namespace gpusched
