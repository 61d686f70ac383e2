#include "replication/journal_log_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "consensus/log/replica_log.h"
#include "consensus/testing/simulated_group.h"
#include "journal/disk/memory_disk.h"
#include "journal/file_journal.h"

namespace gpusched {
namespace {

using consensus::Entry;
using consensus::HardState;
using consensus::Members;
using consensus::ReplicaLog;
using consensus::Snapshot;

constexpr uint64_t kCluster = 77;
constexpr uint64_t kSegmentBytes = 16'384;
const Members kMembers = {.voters = {1}, .stores = {{.id = 1, .store = 11}}, .id_max = 1};

/// The real journal on a disk in memory.
class JournalDisk final : public consensus::SimulatedDisk {
 public:
  explicit JournalDisk(uint64_t seed) : disk_(seed) {}

  Result<consensus::LogStore*> open() override {
    store_.reset();
    journal_.reset();
    Result<std::unique_ptr<FileJournal>> journal =
        FileJournal::open("journal", {.segment_bytes = kSegmentBytes,
                                      .reserve_bytes = 1,
                                      .background = false,
                                      .disk = &disk_,
                                      .store_id = 42});
    if (!journal) return journal.error();
    journal_ = std::move(*journal);
    store_ = std::make_unique<JournalLogStore>(*journal_);
    return store_.get();
  }
  void lose_power(Prng& draw) override {
    store_.reset();
    journal_.reset();
    disk_.lose_power(draw);
    disk_.heal();
  }
  void fail_after(uint64_t operations, bool done) override {
    const auto call = operations % 2 == 0 ? MemoryDisk::Call::kSync : MemoryDisk::Call::kWrite;
    const auto outcome = done ? MemoryDisk::Outcome::kFailsLate : MemoryDisk::Outcome::kFails;
    disk_.fail_once(call, {.outcome = outcome}, operations);
  }
  void heal() override { disk_.heal(); }

  FileJournal& journal() { return *journal_; }

 private:
  MemoryDisk disk_;
  std::unique_ptr<FileJournal> journal_;
  std::unique_ptr<JournalLogStore> store_;
};

std::vector<Entry> entries(uint64_t first, uint64_t last, uint64_t term, std::size_t bytes = 20) {
  std::vector<Entry> list;
  for (uint64_t index = first; index <= last; ++index) {
    list.push_back({.index = index, .term = term, .data = std::string(bytes, 'a')});
  }
  return list;
}

class ReplicaJournal : public testing::Test {
 protected:
  void SetUp() override {
    const Result<consensus::LogStore*> store = disk_.open();
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->create({.cluster = kCluster, .replica = 1, .store = 11}, kMembers).ok());
    reopen();
  }
  void reopen() {
    log_.reset();
    Prng draw(1);
    disk_.lose_power(draw);
    const Result<consensus::LogStore*> store = disk_.open();
    ASSERT_TRUE(store.ok()) << store.error().message;
    Result<std::unique_ptr<ReplicaLog>> log = ReplicaLog::open(**store, kCluster, 1);
    ASSERT_TRUE(log.ok()) << log.error().message;
    log_ = std::move(*log);
  }
  void write(const HardState& hard, const std::vector<Entry>& list) {
    ASSERT_TRUE(log_->append(list, hard).ok());
    ASSERT_TRUE(log_->sync().ok());
  }

  JournalDisk disk_{1};
  std::unique_ptr<ReplicaLog> log_;
};

TEST_F(ReplicaJournal, HoldsEntriesAndHardStateOverAStart) {
  write({.term = 3, .vote = 2}, entries(1, 5, 3));
  write({.term = 4, .vote = 1, .commit = 4}, {});
  reopen();
  EXPECT_EQ(log_->last_index(), 5u);
  EXPECT_EQ(log_->term(5), 3u);
  EXPECT_EQ(log_->hard_state(), (HardState{.term = 4, .vote = 1, .commit = 4}));
  EXPECT_EQ(log_->identity(), (consensus::Identity{.cluster = kCluster, .replica = 1, .store = 11}));
  EXPECT_EQ(log_->members(), kMembers);
}

TEST_F(ReplicaJournal, ARemovalForgetsNoVote) {
  write({.term = 3, .vote = 2}, entries(1, 5, 3));
  write({.term = 6, .vote = 3}, {});  // Behind the entries that go next.
  ASSERT_TRUE(log_->append(entries(3, 3, 2), {}).ok());
  reopen();
  EXPECT_EQ(log_->hard_state().term, 6u);
  EXPECT_EQ(log_->hard_state().vote, 3u);
  EXPECT_EQ(log_->term(2), 3u);
  EXPECT_GE(log_->last_index(), 2u);
  EXPECT_LE(log_->last_index(), 3u);
}

TEST_F(ReplicaJournal, ASnapshotFreesSegmentsAndKeepsWhatIsNeeded) {
  write({.term = 3, .vote = 2}, entries(1, 400, 3, 200));
  write({.term = 3, .vote = 2, .commit = 400}, {});
  ASSERT_TRUE(log_->compact({.index = 300, .term = 3, .members = kMembers, .data = "state"}).ok());
  reopen();
  EXPECT_GT(disk_.journal().first_position(), 200u);
  EXPECT_EQ(log_->first_index(), 301u);
  EXPECT_EQ(log_->last_index(), 400u);
  EXPECT_EQ(log_->hard_state(), (HardState{.term = 3, .vote = 2, .commit = 400}));
  EXPECT_EQ(log_->identity().store, 11u);
}

TEST_F(ReplicaJournal, AReceivedSnapshotReplacesTheLog) {
  write({.term = 3, .vote = 2}, entries(1, 50, 3));
  ASSERT_TRUE(log_->install({.index = 900, .term = 7, .members = kMembers}, {.term = 7, .commit = 900}).ok());
  write({.term = 7, .vote = 0, .commit = 900}, entries(901, 903, 7));
  reopen();
  EXPECT_EQ(log_->first_index(), 901u);
  EXPECT_EQ(log_->last_index(), 903u);
}

TEST_F(ReplicaJournal, ARecordOfAnotherKindIsRefused) {
  FileJournal& journal = disk_.journal();
  ASSERT_TRUE(journal.append({.position = journal.last_position() + 1, .term = 9, .payload = "\x7f"}).ok());
  ASSERT_TRUE(journal.sync().ok());
  const Result<consensus::LogStore*> store = disk_.open();
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(ReplicaLog::open(**store, kCluster, 1).error().code, ErrorCode::kCorrupt);
}

TEST(ReplicaJournalInTheSimulation, KeepsEveryPromise) {
  consensus::SimulationReport sum;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const consensus::SimulationReport report =
        consensus::SimulatedGroup(
            {.seed = seed,
             .replicas = 3,
             .steps = 2'000,
             .changes_members = seed % 3 == 0,
             .make_disk = [](uint64_t own) { return std::make_unique<JournalDisk>(own); }})
            .run();
    EXPECT_EQ(report.violation, "") << "seed " << seed;
    sum.committed += report.committed;
    sum.crashes += report.crashes;
    sum.installed += report.installed;
  }
  EXPECT_GT(sum.committed, 3'000u);
  EXPECT_GT(sum.crashes, 200u);
  EXPECT_GT(sum.installed, 20u);
}

}  // namespace
}  // namespace gpusched
