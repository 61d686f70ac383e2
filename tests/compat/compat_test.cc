// Every journal and snapshot format that was ever released must still replay to its recorded digests.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "journal/file_journal.h"

namespace gpusched {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(COMPAT_FOLDER) / "golden";

struct Recorded {
  uint64_t sequence = 0;
  uint64_t running = 0;
  uint64_t canonical = 0;
};

std::map<uint64_t, Recorded> recorded_of(const fs::path& folder) {
  std::ifstream file(folder / "digests.txt");
  std::map<uint64_t, Recorded> recorded;
  uint64_t position = 0;
  Recorded each;
  while (file >> position >> each.sequence >> each.running >> each.canonical) recorded[position] = each;
  return recorded;
}

std::vector<fs::path> formats() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kGolden)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

class Golden : public ::testing::TestWithParam<fs::path> {
 protected:
  /// Opening a journal writes to it: the test has a copy.
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "gpusched_compat_XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    copy_ = path;
    fs::copy(GetParam(), copy_, fs::copy_options::recursive);
  }
  void TearDown() override { fs::remove_all(copy_); }
  fs::path copy_;
};

TEST_P(Golden, JournalReplaysToItsRecordedDigests) {
  const std::map<uint64_t, Recorded> recorded = recorded_of(GetParam());
  ASSERT_FALSE(recorded.empty());
  const Result<std::unique_ptr<FileJournal>> journal =
      FileJournal::open((copy_ / "journal").string(), {.background = false});
  ASSERT_TRUE(journal.ok()) << journal.error().message;
  State state;
  std::size_t compared = 0;
  const Result<Unit> read = (*journal)->read_from(1, [&](const JournalRecord& record) -> Result<Unit> {
    EXPECT_EQ(record.first_sequence, state.last.sequence + 1);
    const Result<CommandGroup> group = decode_group(record.payload);
    if (!group) return group.error();
    for (const Command& command : group->commands) {
      Events events;
      apply(state, command, {.sequence = state.last.sequence + 1, .at = group->at}, events);
    }
    const auto expected = recorded.find(record.position);
    if (expected == recorded.end()) return Unit{};
    ++compared;
    EXPECT_EQ(state.last.sequence, expected->second.sequence) << "record " << record.position;
    EXPECT_EQ(state.digest.value(), expected->second.running) << "record " << record.position;
    EXPECT_EQ(snapshot_digest(state).value(), expected->second.canonical) << "record " << record.position;
    return Unit{};
  });
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(compared, recorded.size());
}

TEST_P(Golden, SnapshotIsReadAndWrittenTheSame) {
  const std::map<uint64_t, Recorded> recorded = recorded_of(GetParam());
  ASSERT_FALSE(recorded.empty());
  std::ifstream file(GetParam() / "snapshot.bin", std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  const Result<State> state = decode_snapshot(bytes.str());
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_GT(state->jobs.size(), 0u);
  EXPECT_EQ(state->digest.value(), recorded.rbegin()->second.running);
  EXPECT_EQ(snapshot_digest(*state).value(), recorded.rbegin()->second.canonical);
}

INSTANTIATE_TEST_SUITE_P(Formats, Golden, ::testing::ValuesIn(formats()),
                         [](const ::testing::TestParamInfo<fs::path>& format) {
                           return format.param.filename().string();
                         });

}  // namespace
}  // namespace gpusched
