#include "main/replicas/replica_folders.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "journal/file_journal.h"
#include "main/own_certificate.h"
#include "main/replicas/replica_place.h"
#include "replication/committed_records.h"
#include "replication/journal_log_store.h"
#include "replication/replica_folder.h"

namespace gpusched {
namespace {

namespace fs = std::filesystem;

class ReplicaFoldersTest : public testing::Test {
 protected:
  ReplicaFoldersTest() {
    std::string made = (fs::temp_directory_path() / "gpusched_members_XXXXXX").string();
    CHECK(::mkdtemp(made.data()) != nullptr);
    folder_ = made;
    first_ = folder_ + "/first";
    second_ = folder_ + "/second";
    fs::create_directory(first_);
    const auto journal = open_journal(first_ + "/journal");
    for (int i = 0; i < 3; ++i) {
      const uint64_t position = journal->last_position() + 1;
      CHECK(journal
                ->append({.position = position,
                          .term = 1,
                          .first_sequence = position,
                          .command_count = 1,
                          .payload = "payload"})
                .ok());
    }
    CHECK(journal->seal().ok());
  }
  ~ReplicaFoldersTest() override { fs::remove_all(folder_); }

  static std::unique_ptr<FileJournal> open_journal(const std::string& path) {
    Result<std::unique_ptr<FileJournal>> opened =
        FileJournal::open(path, {.segment_bytes = 16u << 20, .reserve_bytes = 1, .background = false});
    CHECK(opened.ok());
    return std::move(*opened);
  }
  static Config config(int64_t id) {
    Config config;
    config.replica.id = id;
    config.replica.peers = {"1=one.example:7080", "2=two.example:7080", "3=[fd00::3]:7080"};
    return config;
  }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::string refusal(const auto& result) { return result.ok() ? "accepted" : result.error().message; }

  std::string folder_, first_, second_;
};

class ExportedReplicaTest : public ReplicaFoldersTest {
 protected:
  ExportedReplicaTest() {
    const Result<ReplicaGroup> begun = begin_group(config(1), first_);
    CHECK(begun.ok());
    group_ = *begun;
    tar_ = folder_ + "/replica-2.tar";
  }
  Result<backup::Summary> write(uint64_t id) {
    return export_replica(config(1), first_, id, tar_, {.version = "1", .taken = "2026-01-01T00:00:00Z"});
  }
  ReplicaGroup group_;
  std::string tar_;
};

TEST_F(ReplicaFoldersTest, TheFirstOneIsMadeOnceWithAllThatTheOthersNeed) {
  const Result<ReplicaGroup> group = begin_group(config(1), first_);
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ(group->id, 1u);
  EXPECT_EQ(group->position, 3u);
  EXPECT_EQ(group->stores.size(), 3u);
  EXPECT_NE(group->stores.at(1), group->stores.at(2));
  for (const char* name :
       {"/token", "/ca/ca.key", "/ca/orders.key", "/replica/peer.pem", "/replica/group.json"}) {
    struct stat facts{};
    ASSERT_EQ(::stat((first_ + name).c_str(), &facts), 0) << name;
    EXPECT_EQ(facts.st_mode & 077, 0u) << name;
  }
  EXPECT_EQ(*read_replica_group(first_), *group);
  EXPECT_NE(refusal(begin_group(config(1), first_)).find("is a replica's data folder already"),
            std::string::npos);
}

TEST_F(ReplicaFoldersTest, WithoutPeersOrAJournalNothingIsMade) {
  EXPECT_NE(refusal(begin_group(Config{}, first_)).find("replica.peers is empty"), std::string::npos);
  EXPECT_NE(refusal(begin_group(config(1), second_)).find("holds no journal: start gpu-scheduler"),
            std::string::npos);
  const auto runs = open_journal(first_ + "/journal");
  const Result<ReplicaGroup> refused = begin_group(config(1), first_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kLocked);
  EXPECT_NE(refused.error().message.find("stop that scheduler first"), std::string::npos);
  EXPECT_FALSE(fs::exists(first_ + "/replica"));
}

TEST_F(ExportedReplicaTest, AnotherOneBeginsLikeTheFirst) {
  const Result<backup::Summary> made = write(2);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->position, 3u);
  const Result<ReplicaGroup> joined = join_group(config(2), tar_, second_);
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_FALSE(fs::exists(tar_));
  EXPECT_EQ(joined->id, 2u);
  EXPECT_EQ(joined->cluster, group_.cluster);
  EXPECT_EQ(joined->term, group_.term);
  EXPECT_EQ(joined->stores, group_.stores);
  for (const char* name : {"/token", "/ca/ca.key", "/ca/orders.key"})
    EXPECT_EQ(text_of(second_ + name), text_of(first_ + name)) << name;
  EXPECT_EQ(open_journal(second_ + "/journal")->last_position(), 3u);
  for (int64_t id : {1, 2}) {
    const auto place = find_replica_place(config(id), id == 1 ? first_ : second_);
    ASSERT_TRUE(place.ok() && place->has_value()) << refusal(place);
    EXPECT_EQ((*place)->transport.id, static_cast<uint64_t>(id));
    EXPECT_EQ((*place)->transport.peers.size(), 3u);
    EXPECT_EQ((*place)->transport.address, id == 1 ? "one.example" : "two.example");
    EXPECT_EQ((*place)->host_of(3), "fd00::3");
    Result<std::unique_ptr<FileJournal>> log =
        FileJournal::open(replica_log_folder(id == 1 ? first_ : second_), {.segment_bytes = 16u << 20});
    ASSERT_TRUE(log.ok());
    JournalLogStore store(**log);
    const Result<std::optional<consensus::StoredLog>> stored = store.load();
    ASSERT_TRUE(stored.ok() && stored->has_value());
    EXPECT_EQ((*stored)->identity.replica, static_cast<uint64_t>(id));
    EXPECT_EQ((*stored)->identity.store, group_.stores.at(static_cast<uint64_t>(id)));
    EXPECT_EQ((*stored)->snapshot.members.voters, (std::vector<uint64_t>{1, 2, 3}));
  }
}

TEST_F(ExportedReplicaTest, AWrongExportIsRefusedInOneSentence) {
  EXPECT_EQ(refusal(write(1)), "replica 1 is none of the others of this cluster, which are 2, 3");
  EXPECT_EQ(refusal(write(4)), "replica 4 is none of the others of this cluster, which are 2, 3");
  tar_ = folder_ + "/replica-2";
  EXPECT_NE(refusal(write(2)).find("must be named *.tar"), std::string::npos);
  EXPECT_TRUE(fs::is_directory(first_) && !fs::exists(tar_) && !fs::exists(tar_ + ".group"));
}

TEST_F(ExportedReplicaTest, ARunningClusterIsNotCopied) {
  {
    const auto journal = open_journal(replica_log_folder(first_));
    JournalLogStore log(*journal);
    ASSERT_TRUE(log.load().ok());
    ASSERT_TRUE(log.append(consensus::HardState{.term = group_.term + 1, .vote = 1}, {}).ok());
    ASSERT_TRUE(log.sync().ok());
  }
  const Result<backup::Summary> refused = write(2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(fs::exists(tar_));
}

TEST_F(ExportedReplicaTest, LeavingTakesWhatTheLogAloneHas) {
  {
    const auto journal = open_journal(replica_log_folder(first_));
    JournalLogStore log(*journal);
    ASSERT_TRUE(log.load().ok());
    const uint64_t term = group_.term + 1;
    std::vector<consensus::Entry> entries = {{.index = 1, .term = term}};
    for (const uint64_t position : {4, 5}) {
      entries.push_back({.index = position - 2,
                         .term = term,
                         .data = encode_record_entry({.position = position,
                                                      .term = term,
                                                      .first_sequence = position,
                                                      .command_count = 1,
                                                      .payload = "agreed"})});
    }
    ASSERT_TRUE(log.append(consensus::HardState{.term = term, .vote = 1, .commit = 1}, entries).ok());
    ASSERT_TRUE(log.sync().ok());
  }
  ASSERT_TRUE(leave_group(first_).ok());
  EXPECT_FALSE(fs::exists(first_ + "/replica"));
  EXPECT_EQ(open_journal(first_ + "/journal")->last_position(), 5u);
  EXPECT_EQ(leave_group(first_).error().code, ErrorCode::kNotFound);
  const Result<ReplicaGroup> again = begin_group(config(1), first_);
  ASSERT_TRUE(again.ok());
  EXPECT_NE(again->cluster, group_.cluster);
  EXPECT_EQ(again->position, 5u);
  EXPECT_TRUE(write(2).ok());
}

TEST_F(ExportedReplicaTest, ALogThatContradictsTheJournalIsLeftAlone) {
  {
    const auto journal = open_journal(replica_log_folder(first_));
    JournalLogStore log(*journal);
    ASSERT_TRUE(log.load().ok());
    ASSERT_TRUE(log.append(consensus::HardState{.term = group_.term + 1},
                           {{.index = 1,
                             .term = group_.term + 1,
                             .data = encode_record_entry({.position = 3,
                                                          .term = group_.term + 1,
                                                          .first_sequence = 3,
                                                          .command_count = 1,
                                                          .payload = "another"})}})
                    .ok());
    ASSERT_TRUE(log.sync().ok());
  }
  const Result<Unit> refused = leave_group(first_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(has_replica_log(first_));
}

TEST_F(ExportedReplicaTest, AJoinThatFailsLeavesTheFolderEmptyAndTheFileThere) {
  ASSERT_TRUE(write(2).ok());
  EXPECT_NE(
      refusal(join_group(config(3), tar_, second_)).find("the file is for replica 2, and replica.id is 3"),
      std::string::npos);
  EXPECT_TRUE(fs::is_empty(second_));
  EXPECT_TRUE(join_group(Config{}, tar_, second_).ok());
  const std::string plain = folder_ + "/plain.tar";
  ASSERT_TRUE(
      backup::make_backup({.data_dir = first_, .destination = plain, .version = "1", .taken = "now"}).ok());
  EXPECT_NE(
      refusal(join_group(config(2), plain, folder_ + "/third")).find("is no file of gpu-scheduler members"),
      std::string::npos);
}

TEST_F(ExportedReplicaTest, FolderAndConfigurationMustBelongTogether) {
  EXPECT_NE(refusal(find_replica_place(Config{}, first_)).find("of replica 1 of several schedulers"),
            std::string::npos);
  EXPECT_NE(refusal(find_replica_place(config(2), first_)).find("of replica 1, and replica.id is 2"),
            std::string::npos);
  Config other = config(1);
  other.replica.peers.back() = "4=four.example:7080";
  EXPECT_NE(refusal(find_replica_place(other, first_))
                .find("has the replicas 1, 2, 3, and replica.peers lists 1, 2, 4; list the same ones"),
            std::string::npos);
  fs::create_directory(second_);
  EXPECT_NE(refusal(find_replica_place(config(2), second_)).find("is the data folder of none of them"),
            std::string::npos);
  const auto alone = find_replica_place(Config{}, second_);
  ASSERT_TRUE(alone.ok());
  EXPECT_FALSE(alone->has_value());
}

TEST(ReplicaCertificates, AServersOwnIsForTheHostsOfAll) {
  Config config;
  config.replica.id = 1;
  config.replica.peers = {"1=one.example:7080", "2=two.example:7080", "3=[fd00::3]:7080"};
  const std::vector<std::string> names = server_names(config);
  for (const char* host : {"one.example", "two.example", "fd00::3"})
    EXPECT_NE(std::ranges::find(names, host), names.end()) << host;
}

}  // namespace
}  // namespace gpusched
