#include "backup/backup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "backup/container.h"
#include "backup/manifest.h"
#include "backup/tar_header.h"
#include "journal/file_journal.h"

namespace gpusched::backup {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

class BackupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "backup_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    data_ = root_ / "data";
    put(data_ / "token", "secret\n");
    put(data_ / "ca/orders.key", "orders\n");
    put(data_ / "ports.json", "{}");
    put(data_ / "replica/log/segment", "votes");
    put(root_ / "history.copy", "finished jobs");
    journal_ = open_journal(data_);
    append(3);
  }
  void TearDown() override { fs::remove_all(root_); }

  static std::unique_ptr<FileJournal> open_journal(const fs::path& data) {
    auto journal = FileJournal::open(data / "journal",
                                     {.segment_bytes = 64u << 10, .reserve_bytes = 1, .background = false});
    EXPECT_TRUE(journal.ok()) << (journal.ok() ? "" : journal.error().message);
    return std::move(*journal);
  }
  void append(int count) {
    const std::string payload(20'000, 'p');
    for (int i = 0; i < count; ++i) {
      const uint64_t next = journal_->last_position() + 1;
      ASSERT_TRUE(journal_
                      ->append({.position = next,
                                .term = 1,
                                .first_sequence = next,
                                .command_count = 1,
                                .payload = payload})
                      .ok());
      ASSERT_TRUE(journal_->sync().ok());
    }
  }
  BackupOptions to(const std::string& name) const {
    return {.data_dir = data_,
            .destination = name == "-" ? name : (root_ / name).string(),
            .history = {{.path = "history/history.db", .file = root_ / "history.copy"}},
            .version = "1.2.3",
            .taken = "2026-01-02T03:04:05Z",
            .progress = {}};
  }
  Result<Summary> restore(const std::string& name) {
    return restore_backup(root_ / name, root_ / "restored", {});
  }
  /// The names beside the data folder.
  std::string names() const {
    std::map<std::string, int> all;
    for (const auto& entry : fs::directory_iterator(root_)) all[entry.path().filename()] = 1;
    std::string text;
    for (const auto& [name, one] : all) text += name + " ";
    return text;
  }

  fs::path root_, data_;
  std::unique_ptr<FileJournal> journal_;
};

mode_t mode_of(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

TEST_F(BackupTest, RestoresWhatAnOpenFolderHeldFromAFolderAndFromAnArchive) {
  append(6);  // Over several segments.
  for (const std::string name : {"copy", "copy.tar"}) {
    const Result<Summary> made = make_backup(to(name));
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->position, 9u);
    EXPECT_TRUE(made->has_history);
    EXPECT_EQ(mode_of(root_ / name), name == "copy" ? 0700u : 0600u);
    const Result<Summary> back = restore(name);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->version, "1.2.3");
    const fs::path restored = root_ / "restored";
    EXPECT_EQ(content(restored / "token"), "secret\n");
    EXPECT_EQ(content(restored / "ca/orders.key"), "orders\n");
    EXPECT_EQ(content(restored / "history/history.db"), "finished jobs");
    EXPECT_FALSE(fs::exists(restored / "ports.json"));
    EXPECT_FALSE(fs::exists(restored / "replica"));
    EXPECT_FALSE(fs::exists(restored / "MANIFEST"));
    EXPECT_EQ(mode_of(restored), 0700u);
    EXPECT_EQ(mode_of(restored / "ca"), 0700u);
    EXPECT_EQ(mode_of(restored / "token"), 0600u);
    const auto journal = open_journal(restored);
    EXPECT_EQ(journal->last_position(), 9u);
    EXPECT_EQ(journal->store_id(), journal_->store_id());
    fs::remove_all(restored);
  }
  EXPECT_EQ(names(), "copy copy.tar data history.copy ");
}

TEST_F(BackupTest, AStreamIsAnArchive) {
  BackupOptions options = to("-");
  options.stream = ::open((root_ / "stream").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_TRUE(make_backup(options).ok());
  ::close(options.stream);
  ASSERT_TRUE(restore("stream").ok());
  EXPECT_EQ(open_journal(root_ / "restored")->last_position(), 3u);
}

TEST_F(BackupTest, AFullDiskLeavesNothing) {
  BackupOptions options = to("-");
  options.stream = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  const Result<Summary> made = make_backup(options);
  ::close(options.stream);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kStorageFull);
}

TEST_F(BackupTest, AnErrorHalfWayLeavesNothing) {
  for (const std::string name : {"copy", "copy.tar"}) {
    BackupOptions options = to(name);
    options.history.push_back(
        {.path = "token", .file = root_ / "history.copy"});  // A second file of that name.
    options.history.push_back({.path = "x", .file = root_ / "missing"});
    ASSERT_FALSE(make_backup(options).ok());
    EXPECT_EQ(names(), "data history.copy ");
  }
}

TEST_F(BackupTest, EachAlteredMissingOrCutFileIsRefusedBeforeAnythingIsWritten) {
  ASSERT_TRUE(make_backup(to("copy")).ok());
  for (const auto& entry : fs::recursive_directory_iterator(root_ / "copy")) {
    if (!entry.is_regular_file()) continue;
    const std::string whole = content(entry.path());
    std::string altered = whole;
    altered[altered.size() / 2] ^= 1;
    for (const std::string& other : {altered, whole.substr(0, whole.size() - 1), whole + "x"}) {
      put(entry.path(), other);
      const Result<Summary> back = restore("copy");
      ASSERT_FALSE(back.ok()) << entry.path();
      EXPECT_EQ(back.error().code, ErrorCode::kCorrupt) << back.error().message;
      EXPECT_EQ(names(), "copy data history.copy ");
    }
    fs::remove(entry.path());
    EXPECT_FALSE(restore("copy").ok());
    put(entry.path(), whole);
  }
  EXPECT_TRUE(restore("copy").ok());
}

TEST_F(BackupTest, AnArchiveThatWasCutOffAnywhereIsRefused) {
  ASSERT_TRUE(make_backup(to("copy.tar")).ok());
  const std::string whole = content(root_ / "copy.tar");
  for (std::size_t size = 0; size + 1024 < whole.size(); size += 9'999) {
    put(root_ / "cut.tar", whole.substr(0, size));
    ASSERT_EQ(restore("cut.tar").error().code, ErrorCode::kCorrupt) << size;
  }
  EXPECT_EQ(names(), "copy.tar cut.tar data history.copy ");
}

TEST_F(BackupTest, NeverWritesOverWhatIsThere) {
  ASSERT_TRUE(make_backup(to("copy")).ok());
  EXPECT_EQ(make_backup(to("copy")).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(restore_backup(root_ / "copy", data_, {}).error().code, ErrorCode::kLocked);
  journal_.reset();
  EXPECT_EQ(restore_backup(root_ / "copy", data_, {}).error().code, ErrorCode::kAlreadyExists);
  fs::create_directory(root_ / "restored");
  EXPECT_TRUE(restore("copy").ok());  // An empty one is taken.
}

TEST_F(BackupTest, TakesThePlaceOfWhatAKilledOneLeft) {
  put(root_ / "copy.partial/token", "half");
  put(root_ / "copy.tar.partial", "half");
  EXPECT_TRUE(make_backup(to("copy")).ok());
  EXPECT_TRUE(make_backup(to("copy.tar")).ok());
  put(root_ / "restored.partial/token", "half");
  EXPECT_TRUE(restore("copy.tar").ok());
  EXPECT_EQ(names(), "copy copy.tar data history.copy restored ");
}

TEST_F(BackupTest, RefusesAPlaceInItsFolderALinkAndADamagedJournal) {
  BackupOptions inside = to("copy");
  inside.destination = data_ / "copy";
  EXPECT_EQ(make_backup(inside).error().code, ErrorCode::kInvalidArgument);
  fs::create_symlink(data_ / "token", data_ / "linked");
  EXPECT_EQ(make_backup(to("copy")).error().code, ErrorCode::kInvalidArgument);
  fs::remove(data_ / "linked");
  append(6);
  const fs::path segment = data_ / "journal/0000000000000001.seg";
  std::string bytes = content(segment);
  bytes[5'000] ^= 1;
  put(segment, bytes);
  EXPECT_EQ(make_backup(to("copy")).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(names(), "data history.copy ");
}

TEST(BackupManifest, ReadsWhatItWrote) {
  const Manifest manifest{.version = "1.2.3",
                          .taken = "2026-01-02T03:04:05Z",
                          .position = 17,
                          .files = {{.path = "token", .bytes = 65, .sha256 = std::string(64, 'a')}}};
  const Result<Manifest> read = parse_manifest(encode_manifest(manifest));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->version, "1.2.3");
  EXPECT_EQ(read->position, 17u);
  ASSERT_EQ(read->files.size(), 1u);
  EXPECT_EQ(read->files[0].path, "token");
  EXPECT_EQ(read->files[0].bytes, 65u);
}

TEST(BackupManifest, RefusesANewerFormatAndPathsThatLeaveTheFolder) {
  std::string text = encode_manifest({.version = "9.0.0", .taken = "t", .position = 1, .files = {}});
  text.replace(text.find(" 1\n"), 3, " 2\n");
  EXPECT_EQ(parse_manifest(text).error().code, ErrorCode::kVersion);
  EXPECT_NE(parse_manifest(text).error().message.find("9.0.0"), std::string::npos);
  for (const std::string path :
       {"", "/etc/passwd", "../token", "ca/../../x", "a//b", "a/", "a\nb", "a b", "."})
    EXPECT_FALSE(is_safe_path(path)) << path;
  EXPECT_TRUE(is_safe_path("ca/orders.key"));
}

TEST(BackupTar, HeadersKeepPathAndSizeOverEightGiB) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{513}, (uint64_t{1} << 33) - 1, uint64_t{1} << 40}) {
    const Result<std::string> block = encode_tar_header({.path = "ca/orders.key", .bytes = bytes});
    ASSERT_TRUE(block.ok());
    const std::optional<TarHeader> header = parse_tar_header(*block);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->path, "ca/orders.key");
    EXPECT_EQ(header->bytes, bytes);
    std::string altered = *block;
    altered[3] ^= 1;
    EXPECT_FALSE(parse_tar_header(altered).has_value());
  }
  EXPECT_FALSE(encode_tar_header({.path = std::string(100, 'p'), .bytes = 1}).ok());
}

}  // namespace
}  // namespace gpusched::backup
