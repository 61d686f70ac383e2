#include "consensus/log/replica_log.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/prng.h"
#include "consensus/testing/memory_log_store.h"

namespace gpusched::consensus {
namespace {

constexpr uint64_t kCluster = 77;
const Members kMembers = {.voters = {1}, .stores = {{.id = 1, .store = 11}}, .id_max = 1};

std::vector<Entry> entries(uint64_t first, uint64_t last, uint64_t term) {
  std::vector<Entry> list;
  for (uint64_t index = first; index <= last; ++index) {
    list.push_back({.index = index, .term = term, .data = std::to_string(index)});
  }
  return list;
}

class ReplicaLogOnDisk : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(disk_.create({.cluster = kCluster, .replica = 1, .store = 11}, kMembers).ok());
    reopen();
  }
  void reopen() {
    log_.reset();
    Prng draw(1);
    disk_.lose_power(draw);
    Result<std::unique_ptr<ReplicaLog>> opened = ReplicaLog::open(disk_, kCluster, 1);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    log_ = std::move(*opened);
  }
  void write(const std::vector<Entry>& list, const HardState& hard) {
    ASSERT_TRUE(log_->append(list, hard).ok());
    ASSERT_TRUE(log_->sync().ok());
  }
  Snapshot snapshot(uint64_t index, uint64_t term) {
    return {.index = index, .term = term, .members = kMembers, .data = "state"};
  }

  MemoryLogStore disk_;
  std::unique_ptr<ReplicaLog> log_;
};

TEST_F(ReplicaLogOnDisk, OwnSnapshotKeepsTheEntriesBehindIt) {
  write(entries(1, 10, 1), {.term = 1, .vote = 1, .commit = 6});
  ASSERT_TRUE(log_->compact(snapshot(6, 1)).ok());
  EXPECT_EQ(log_->last_index(), 10u);
  reopen();
  EXPECT_EQ(log_->first_index(), 7u);
  EXPECT_EQ(log_->last_index(), 10u);
  EXPECT_EQ(log_->entries(7, 11, 1'000).size(), 4u);
}

TEST_F(ReplicaLogOnDisk, InstalledSnapshotDropsEveryEntry) {
  write(entries(1, 10, 1), {.term = 2, .vote = 1, .commit = 3});
  ASSERT_TRUE(log_->install(snapshot(8, 2), {.term = 2, .vote = 1, .commit = 8}).ok());
  EXPECT_EQ(log_->last_index(), 8u);
  reopen();
  EXPECT_EQ(log_->last_index(), 8u);
  EXPECT_EQ(log_->term(8), 2u);
}

TEST_F(ReplicaLogOnDisk, BootCommitsAtLeastTheSnapshot) {
  // The commit index is written with the next entries only, so a snapshot may be ahead of it.
  write(entries(1, 10, 1), {.term = 1, .vote = 1, .commit = 2});
  ASSERT_TRUE(disk_.put_snapshot(snapshot(6, 1), {.term = 1, .vote = 1, .commit = 2}, true).ok());
  reopen();
  EXPECT_EQ(log_->hard_state().commit, 6u);
  EXPECT_EQ(log_->last_index(), 10u);
}

/// Runs `work` with the power failing at each operation, before and behind it; the log must open each time.
void at_each_operation(const std::function<void(ReplicaLog&)>& before,
                       const std::function<void(ReplicaLog&)>& work,
                       const std::function<void(const ReplicaLog&)>& check) {
  for (uint64_t operation = 0; operation < 8; ++operation) {
    for (const bool done : {false, true}) {
      MemoryLogStore disk;
      ASSERT_TRUE(disk.create({.cluster = kCluster, .replica = 1, .store = 11}, kMembers).ok());
      {
        Result<std::unique_ptr<ReplicaLog>> log = ReplicaLog::open(disk, kCluster, 1);
        ASSERT_TRUE(log.ok());
        before(**log);
        disk.fail_after(operation, done);
        work(**log);
      }
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        MemoryLogStore image = disk;
        Prng draw(seed);
        image.lose_power(draw);
        const Result<std::unique_ptr<ReplicaLog>> log = ReplicaLog::open(image, kCluster, 1);
        ASSERT_TRUE(log.ok()) << "operation " << operation << ": " << log.error().message;
        check(**log);
      }
    }
  }
}

TEST(ReplicaLogCrash, InTheMiddleOfAnInstallationLeavesOneOrTheOther) {
  at_each_operation(
      [](ReplicaLog& log) {
        ASSERT_TRUE(log.append(entries(1, 5, 1), HardState{.term = 1, .vote = 1, .commit = 3}).ok());
        ASSERT_TRUE(log.sync().ok());
      },
      [](ReplicaLog& log) {
        (void)log.install({.index = 9, .term = 2, .members = kMembers}, {.term = 2, .commit = 9});
      },
      [](const ReplicaLog& log) {
        EXPECT_TRUE((log.last_index() == 5 && log.hard_state().term == 1) ||
                    (log.last_index() == 9 && log.hard_state().term == 2));
      });
}

TEST(ReplicaLogCrash, InTheMiddleOfAConflictNeverMixesOldAndNewEntries) {
  at_each_operation(
      [](ReplicaLog& log) {
        ASSERT_TRUE(log.append(entries(1, 6, 1), HardState{.term = 1, .vote = 1, .commit = 2}).ok());
        ASSERT_TRUE(log.sync().ok());
      },
      [](ReplicaLog& log) {
        if (!log.append(entries(4, 5, 2), HardState{.term = 2, .vote = 1, .commit = 2})) return;
        (void)log.sync();
      },
      [](const ReplicaLog& log) {
        EXPECT_GE(log.last_index(), 3u);  // Entries that both have are never lost.
        for (uint64_t index = 4; index <= log.last_index(); ++index) {
          EXPECT_EQ(log.term(index), log.term(4)) << index;
        }
      });
}

TEST(ReplicaLogCrash, InTheMiddleOfAnAppendLeavesATermAndACommitThatTheLogHas) {
  at_each_operation(
      [](ReplicaLog& log) {
        ASSERT_TRUE(log.append(entries(1, 2, 1), HardState{.term = 1, .vote = 1}).ok());
      },
      [](ReplicaLog& log) {
        // The first entries of a new leader, and all of them committed.
        if (!log.append(entries(3, 6, 2), HardState{.term = 2, .commit = 6})) return;
        (void)log.sync();
      },
      [](const ReplicaLog& log) {
        EXPECT_GE(log.hard_state().term, log.term(log.last_index()));
        EXPECT_LE(log.hard_state().commit, log.last_index());
      });
}

TEST_F(ReplicaLogOnDisk, RemovedEntriesAreDurableNoMore) {
  write(entries(1, 6, 1), {.term = 1, .vote = 1, .commit = 2});
  EXPECT_EQ(log_->durable_index(), 6u);
  ASSERT_TRUE(log_->append(entries(4, 8, 2), HardState{.term = 2, .vote = 1, .commit = 2}).ok());
  EXPECT_EQ(log_->durable_index(), 3u);
  ASSERT_TRUE(log_->sync().ok());
  EXPECT_EQ(log_->durable_index(), 8u);
}

TEST_F(ReplicaLogOnDisk, ConflictIsRemovedDurablyBeforeAnythingIsWritten) {
  write(entries(1, 6, 1), {.term = 1, .vote = 1, .commit = 2});
  disk_.fail_after(1, false);  // The removal takes effect, and nothing behind it.
  EXPECT_FALSE(log_->append(entries(4, 8, 2), HardState{.term = 2, .vote = 1, .commit = 2}).ok());
  reopen();
  EXPECT_EQ(log_->last_index(), 3u);
}

TEST_F(ReplicaLogOnDisk, AnEmptyDiskIsRefused) {
  disk_.wipe();
  const Result<std::unique_ptr<ReplicaLog>> opened = ReplicaLog::open(disk_, kCluster, 1);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  EXPECT_NE(opened.error().message.find("with a new id"), std::string::npos);
}

TEST_F(ReplicaLogOnDisk, SomebodyElsesDiskIsRefused) {
  EXPECT_EQ(ReplicaLog::open(disk_, kCluster, 2).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ReplicaLog::open(disk_, kCluster + 1, 1).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ReplicaLogOnDisk, ADiskThatForgotCommittedEntriesIsRefused) {
  write(entries(1, 6, 1), {.term = 1, .vote = 1});
  write({}, {.term = 1, .vote = 1, .commit = 6});
  ASSERT_TRUE(disk_.truncate_after(4).ok());
  EXPECT_EQ(ReplicaLog::open(disk_, kCluster, 1).error().code, ErrorCode::kCorrupt);
}

TEST_F(ReplicaLogOnDisk, ADiskThatForgotItsTermIsRefused) {
  write(entries(1, 6, 3), {.term = 2, .vote = 1, .commit = 2});
  EXPECT_EQ(ReplicaLog::open(disk_, kCluster, 1).error().code, ErrorCode::kCorrupt);
}

TEST_F(ReplicaLogOnDisk, EntriesComeUpToABoundAndAtLeastOne) {
  write({{.index = 1, .term = 1, .data = std::string(100, 'a')},
         {.index = 2, .term = 1, .data = std::string(100, 'b')},
         {.index = 3, .term = 1, .data = std::string(100, 'c')}},
        {.term = 1});
  EXPECT_EQ(log_->entries(1, 4, 10).size(), 1u);
  EXPECT_EQ(log_->entries(1, 4, 200).size(), 2u);
  EXPECT_EQ(log_->entries(1, 3, 1'000).size(), 2u);
}

TEST_F(ReplicaLogOnDisk, ASnapshotThatDoesNotKnowAMemberIsNotGivenToIt) {
  write(entries(1, 6, 1), {.term = 1, .vote = 1, .commit = 6});
  ASSERT_TRUE(log_->compact(snapshot(6, 1)).ok());
  EXPECT_TRUE(log_->snapshot(1).has_value());
  EXPECT_FALSE(log_->wants_snapshot());
  EXPECT_FALSE(log_->snapshot(2).has_value());
  EXPECT_TRUE(log_->wants_snapshot());
}

}  // namespace
}  // namespace gpusched::consensus
