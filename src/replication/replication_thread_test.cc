#include "replication/replication_thread.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/prng.h"
#include "journal/disk/memory_disk.h"

namespace gpusched {
namespace {

using consensus::PeerFrame;
using consensus::Role;

constexpr uint64_t kCluster = 77;
constexpr uint64_t kSegmentBytes = 64u << 10;
const consensus::Members kMembers = {
    .voters = {1, 2, 3},
    .stores = {{.id = 1, .store = 11}, {.id = 2, .store = 12}, {.id = 3, .store = 13}},
    .id_max = 3};

/// Waits for what threads bring about; the deadline is for one that hangs.
template <typename Predicate>
[[nodiscard]] bool comes(Predicate predicate) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!predicate()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// A record's content, for comparisons.
using Said = std::pair<uint64_t, std::string>;

/// Three replicas with disks of their own in one process, and the network between them.
class ReplicationThreadTest : public testing::Test {
 protected:
  struct Node final : ReplicationClient {
    Node(ReplicationThreadTest& test, uint64_t number)
        : world(test), id(number), disk(std::make_unique<MemoryDisk>(number)) {}
    void send(PeerFrame frame) override { world.carry(std::move(frame)); }
    void leads() override { leading = true; }
    void lost_lead() override { leading = false, lost = true; }
    void leader_changed(uint64_t) override {}
    void appended(const JournalRecord& record) override { last_appended = record.position; }
    void failed(const Error& error) override {
      const std::lock_guard lock(world.mutex_);
      failure = error;
    }

    ReplicationThreadTest& world;
    const uint64_t id;
    std::unique_ptr<MemoryDisk> disk;
    std::unique_ptr<FileJournal> journal;
    std::unique_ptr<ReplicationThread> thread;
    std::atomic<bool> leading{false};
    std::atomic<bool> lost{false};
    std::atomic<uint64_t> last_appended{0};  ///< Last record of another one.
    std::optional<Error> failure;
  };

  ReplicationThreadTest() {
    for (uint64_t id = 1; id <= 3; ++id) {
      nodes_.push_back(std::make_unique<Node>(*this, id));
      make_log(*nodes_.back());
    }
  }
  ~ReplicationThreadTest() override {
    for (uint64_t id = 1; id <= 3; ++id) kill(id);
  }

  static void make_log(Node& node) {
    for (const char* folder : {"data", "data/replica"}) ASSERT_TRUE(node.disk->make_dir(folder).ok());
    Result<std::unique_ptr<FileJournal>> log = FileJournal::open(
        replica_log_folder("data"), {.segment_bytes = kSegmentBytes, .disk = node.disk.get()});
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(JournalLogStore(**log)
                    .create({.cluster = kCluster, .replica = node.id, .store = 10 + node.id}, kMembers)
                    .ok());
  }
  Node& at(uint64_t id) { return *nodes_[id - 1]; }

  void carry(PeerFrame frame) {
    const std::lock_guard lock(mutex_);
    if (away_.contains(frame.message.from) || away_.contains(frame.message.to)) return;
    Node& to = at(frame.message.to);
    if (running_.contains(to.id)) to.thread->received(std::move(frame));
  }
  void isolate(uint64_t id) {
    const std::lock_guard lock(mutex_);
    away_.insert(id);
  }
  void join(uint64_t id) {
    const std::lock_guard lock(mutex_);
    away_.erase(id);
  }

  Result<Unit> start(uint64_t id) {
    Node& node = at(id);
    node.leading = node.lost = false;
    Result<std::unique_ptr<FileJournal>> journal =
        FileJournal::open("data/journal", {.segment_bytes = kSegmentBytes,
                                           .reserve_bytes = kSegmentBytes / 2,
                                           .retry = milliseconds(5),
                                           .disk = node.disk.get()});
    if (!journal) return journal.error();
    node.journal = std::move(*journal);
    Result<std::unique_ptr<ReplicationThread>> thread =
        ReplicationThread::start({.data_dir = "data",
                                  .cluster = kCluster,
                                  .id = id,
                                  .tick = milliseconds(20),
                                  .election_ticks = 25,  // No election because this machine is busy.
                                  .log_bytes_max = log_bytes_max_,
                                  .log_segment_bytes = kSegmentBytes,
                                  .disk = node.disk.get()},
                                 *node.journal, node);
    if (!thread) return thread.error();
    const std::lock_guard lock(mutex_);
    node.thread = std::move(*thread);
    running_.insert(id);
    return Unit{};
  }
  void start_all() {
    for (uint64_t id = 1; id <= 3; ++id) {
      const Result<Unit> started = start(id);
      ASSERT_TRUE(started.ok()) << started.error().message;
    }
  }
  /// As SIGKILL: what was written stays, what was only in the process is lost.
  void kill(uint64_t id) {
    {
      const std::lock_guard lock(mutex_);
      running_.erase(id);
    }
    at(id).leading = false;
    at(id).thread.reset();
    at(id).journal.reset();
  }
  void lose_power(uint64_t id, uint64_t seed) {
    kill(id);
    Prng draw(seed);
    at(id).disk->lose_power(draw);
  }
  Result<Unit> end(uint64_t id) {
    {
      const std::lock_guard lock(mutex_);
      running_.erase(id);
    }
    return at(id).thread->stop();
  }

  /// The one that leads and serves.
  uint64_t leader() {
    uint64_t found = 0;
    EXPECT_TRUE(comes([&] {
      for (const auto& node : nodes_) {
        if (node->leading) found = node->id;
      }
      return found != 0;
    }));
    return found;
  }
  Result<Unit> propose(uint64_t id, const std::string& payload) {
    std::promise<Result<Unit>> answer;
    start_proposal(id, payload, answer);
    return answer.get_future().get();
  }
  void start_proposal(uint64_t id, const std::string& payload, std::promise<Result<Unit>>& answer) {
    const uint64_t position = at(id).thread->status().position + 1;
    at(id).thread->propose({.position = position, .first_sequence = 10 * position, .command_count = 10},
                           payload, [&answer](Result<Unit> result) { answer.set_value(std::move(result)); });
  }
  bool has_position(uint64_t id, uint64_t position) {
    return comes([&] { return at(id).thread->status().position >= position; });
  }
  /// The records in the files of a replica that does not run.
  std::vector<Said> records(uint64_t id) {
    std::vector<Said> said;
    Result<std::unique_ptr<FileJournal>> journal =
        FileJournal::open("data/journal", {.segment_bytes = kSegmentBytes, .disk = at(id).disk.get()});
    EXPECT_TRUE(journal.ok()) << journal.error().message;
    const Result<Unit> read = (*journal)->read_from(1, [&](const JournalRecord& record) {
      EXPECT_EQ(record.first_sequence, 10 * record.position);
      EXPECT_EQ(record.command_count, 10u);
      said.emplace_back(record.position, record.payload);
      return Result<Unit>(Unit{});
    });
    EXPECT_TRUE(read.ok());
    return said;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::set<uint64_t> away_;
  std::set<uint64_t> running_;
  uint64_t log_bytes_max_ = 8u << 20;
};

TEST_F(ReplicationThreadTest, WhatIsAnsweredIsInTheJournalsOfAllOfThem) {
  start_all();
  const uint64_t first = leader();
  for (const char* payload : {"one", "two", "three"}) ASSERT_TRUE(propose(first, payload).ok());
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(has_position(id, 3));
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(at(id).last_appended, id == first ? 0u : 3u);
    ASSERT_TRUE(end(id).ok());
    kill(id);
    EXPECT_EQ(records(id), (std::vector<Said>{{1, "one"}, {2, "two"}, {3, "three"}})) << id;
  }
}

TEST_F(ReplicationThreadTest, OnlyTheLeaderTakesProposals) {
  start_all();
  const uint64_t other = leader() % 3 + 1;
  const Result<Unit> refused = propose(other, "one");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

TEST_F(ReplicationThreadTest, ANewLeaderHasAllThatWasAnsweredWheneverTheOldOneIsKilled) {
  start_all();
  std::vector<Said> answered;
  for (int round = 0; round < 4; ++round) {
    const uint64_t first = leader();
    for (int i = 0; i < 5; ++i) {
      const std::string payload = std::to_string(round) + "/" + std::to_string(i);
      ASSERT_TRUE(propose(first, payload).ok());
      answered.emplace_back(answered.size() + 1, payload);
    }
    if (round % 2 == 0) {
      kill(first);
    } else {
      lose_power(first, static_cast<uint64_t>(round));
    }
    const uint64_t second = leader();
    ASSERT_NE(second, first);
    EXPECT_EQ(at(second).thread->status().position, answered.size());
    const Result<Unit> back = start(first);
    ASSERT_TRUE(back.ok()) << back.error().message;
  }
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(has_position(id, answered.size()));
  for (uint64_t id = 1; id <= 3; ++id) {
    kill(id);
    EXPECT_EQ(records(id), answered) << id;
  }
}

TEST_F(ReplicationThreadTest, ALeaderThatIsCutOffAnswersThatTheOutcomeIsUnknownAndKeepsItOutOfItsJournal) {
  start_all();
  const uint64_t first = leader();
  ASSERT_TRUE(propose(first, "kept").ok());
  isolate(first);
  std::promise<Result<Unit>> answer;
  start_proposal(first, "lost", answer);
  const Result<Unit> unknown = answer.get_future().get();
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kOutcomeUnknown);
  ASSERT_TRUE(comes([&] { return at(first).lost.load(); }));
  EXPECT_EQ(propose(first, "later").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(at(first).thread->status().position, 1u);
  const uint64_t second = leader();
  ASSERT_NE(second, first);
  ASSERT_TRUE(propose(second, "new").ok());
  join(first);
  // Until its next start it votes and stores, and leaves the ordinary journal alone.
  ASSERT_TRUE(comes([&] { return at(first).thread->status().leader == second; }));
  ASSERT_TRUE(propose(second, "newer").ok());
  EXPECT_EQ(at(first).thread->status().position, 1u);
  kill(first);
  ASSERT_TRUE(start(first).ok());
  ASSERT_TRUE(has_position(first, 3));
  kill(first);
  EXPECT_EQ(records(first), (std::vector<Said>{{1, "kept"}, {2, "new"}, {3, "newer"}}));
}

TEST_F(ReplicationThreadTest, AStartAppendsFromTheLogWhatTheOrdinaryJournalLacks) {
  start_all();
  const uint64_t first = leader();
  std::vector<Said> answered;
  for (uint64_t i = 1; i <= 20; ++i) {
    answered.emplace_back(i, "payload " + std::to_string(i));
    ASSERT_TRUE(propose(first, answered.back().second).ok());
  }
  const uint64_t other = first % 3 + 1;
  ASSERT_TRUE(has_position(other, 20));
  lose_power(other, 3);
  // None of its records was synced, and the power took some.
  Result<std::unique_ptr<FileJournal>> left =
      FileJournal::open("data/journal", {.segment_bytes = kSegmentBytes, .disk = at(other).disk.get()});
  ASSERT_TRUE(left.ok()) << left.error().message;
  EXPECT_LT((*left)->last_position(), 20u);
  left->reset();
  ASSERT_TRUE(start(other).ok());
  ASSERT_TRUE(has_position(other, 20));
  kill(other);
  EXPECT_EQ(records(other), answered);
}

TEST_F(ReplicationThreadTest, AJournalThatSaysSomethingElseIsRefused) {
  start_all();
  const uint64_t first = leader();
  ASSERT_TRUE(propose(first, "one").ok());
  ASSERT_TRUE(propose(first, "two").ok());
  const uint64_t other = first % 3 + 1;
  ASSERT_TRUE(has_position(other, 2));
  kill(other);
  {
    Result<std::unique_ptr<FileJournal>> journal =
        FileJournal::open("data/journal", {.segment_bytes = kSegmentBytes, .disk = at(other).disk.get()});
    ASSERT_TRUE(journal.ok());
    ASSERT_TRUE((*journal)->truncate_after(1).ok());
    ASSERT_TRUE(
        (*journal)
            ->append({.position = 2, .term = 9, .first_sequence = 20, .command_count = 10, .payload = "two"})
            .ok());
    ASSERT_TRUE((*journal)->sync().ok());
  }
  Result<Unit> started = start(other);
  if (started.ok()) {  // It did not know yet that the entry is committed.
    ASSERT_TRUE(comes([&] { return !at(other).thread->status().trouble.empty(); }));
    const std::lock_guard lock(mutex_);
    started = *at(other).failure;
  }
  EXPECT_EQ(started.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(started.error().message.find("record 2 of the journal is not the one"), std::string::npos)
      << started.error().message;
}

TEST_F(ReplicationThreadTest, AJournalThatEndsBeforeTheGroupsBeginningIsRefused) {
  for (const uint64_t id : {1, 2}) {  // The third one's folder is a copy from before the last record.
    Result<std::unique_ptr<FileJournal>> journal =
        FileJournal::open("data/journal", {.segment_bytes = kSegmentBytes, .disk = at(id).disk.get()});
    ASSERT_TRUE(journal.ok());
    ASSERT_TRUE(
        (*journal)
            ->append({.position = 1, .term = 1, .first_sequence = 10, .command_count = 10, .payload = "a"})
            .ok());
    ASSERT_TRUE((*journal)->sync().ok());
  }
  start_all();
  isolate(3);
  const uint64_t first = leader();
  ASSERT_NE(first, 3u);
  ASSERT_TRUE(propose(first, "b").ok());
  join(3);
  ASSERT_TRUE(comes([&] { return !at(3).thread->status().trouble.empty(); }));
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(at(3).failure->code, ErrorCode::kCorrupt);
  EXPECT_NE(at(3).failure->message.find("record 1 of the journal is missing"), std::string::npos)
      << at(3).failure->message;
}

TEST_F(ReplicationThreadTest, TheLogIsBoundedAndAReplicaThatWasAwayForLongerSaysWhatToDo) {
  log_bytes_max_ = 40'000;
  start_all();
  const uint64_t first = leader();
  const uint64_t near = first % 3 + 1;
  const uint64_t far = near % 3 + 1;
  kill(far);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(propose(first, std::string(1'000, 'a')).ok());
  kill(near);
  ASSERT_TRUE(start(near).ok());
  ASSERT_TRUE(has_position(near, 30));
  for (int i = 0; i < 60; ++i) {
    const Result<Unit> done = propose(first, std::string(1'000, 'b'));
    ASSERT_TRUE(done.ok()) << i << ": " << done.error().message;
  }
  EXPECT_LE(at(first).thread->status().log_bytes, 41'100u);
  ASSERT_TRUE(start(far).ok());
  ASSERT_TRUE(comes([&] { return !at(far).thread->status().trouble.empty(); }));
  {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(at(far).failure->code, ErrorCode::kNotFound);
    EXPECT_NE(at(far).failure->message.find("members join"), std::string::npos);
  }
  // The others go on, also after their own next start from a log without its beginning.
  ASSERT_TRUE(propose(first, "c").ok());
  kill(near);
  ASSERT_TRUE(start(near).ok());
  ASSERT_TRUE(has_position(near, 91));
}

TEST_F(ReplicationThreadTest, TheOrdinaryJournalIsShortenedBesideWhoeverLeads) {
  start_all();
  const uint64_t first = leader();
  const uint64_t other = first % 3 + 1;
  for (int i = 0; i < 120; ++i) ASSERT_TRUE(propose(first, std::string(2'000, 'a')).ok());
  ASSERT_TRUE(has_position(other, 120));
  for (const uint64_t id : {first, other}) {
    at(id).thread->compact_before(100);
  }
  ASSERT_TRUE(propose(first, "behind").ok());
  ASSERT_TRUE(has_position(other, 121));
  for (const uint64_t id : {first, other}) {
    lose_power(id, id);  // The log has what the journal lacks.
    ASSERT_TRUE(start(id).ok());
    EXPECT_GT(at(id).journal->first_position(), 30u);
  }
  for (const uint64_t id : {first, other}) ASSERT_TRUE(has_position(id, 121));
}

TEST_F(ReplicationThreadTest, AHandOverNamesAnotherLeaderWithoutAnElectionTimeout) {
  start_all();
  const uint64_t first = leader();
  ASSERT_TRUE(propose(first, "one").ok());
  ASSERT_TRUE(at(first).thread->hand_over(seconds(30)));
  ASSERT_TRUE(end(first).ok());
  EXPECT_TRUE(at(first).lost);
  EXPECT_FALSE(at(first).leading);
  const uint64_t second = leader();
  EXPECT_NE(second, first);
  ASSERT_TRUE(propose(second, "two").ok());
}

TEST_F(ReplicationThreadTest, AHandOverWithoutAnybodyEndsAfterItsPatience) {
  start_all();
  const uint64_t first = leader();
  kill(first % 3 + 1);
  kill((first + 1) % 3 + 1);
  EXPECT_FALSE(at(first).thread->hand_over(milliseconds(20)));
}

TEST_F(ReplicationThreadTest, AFullDiskIsToldBeforeAnythingIsProposed) {
  start_all();
  const uint64_t first = leader();
  ASSERT_TRUE(propose(first, "one").ok());
  MemoryDisk& disk = *at(first).disk;
  disk.set_capacity(disk.used());
  Result<Unit> written = Unit{};
  uint64_t last = 1;
  for (int i = 0; i < 2'000 && written.ok(); ++i) {
    written = propose(first, std::string(2'000, 'a'));
    if (written.ok()) ++last;
  }
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kStorageFull);
  EXPECT_EQ(at(first).thread->space(), JournalSpace::kReserveOnly);
  EXPECT_EQ(at(first).thread->status().trouble, "");
  disk.set_capacity(UINT64_MAX);
  ASSERT_TRUE(comes([&] { return at(first).thread->space() == JournalSpace::kOpen; }));
  const uint64_t now = leader();
  ASSERT_TRUE(propose(now, "room again").ok());
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(has_position(id, last + 1));
}

TEST_F(ReplicationThreadTest, AFolderWithoutALogIsRefusedWithWhatToDo) {
  at(1).disk = std::make_unique<MemoryDisk>();
  ASSERT_TRUE(at(1).disk->make_dir("data").ok());
  const Result<Unit> started = start(1);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::kNotFound);
  EXPECT_NE(started.error().message.find("members init"), std::string::npos);
}

TEST_F(ReplicationThreadTest, AnotherReplicasLogIsRefused) {
  at(1).disk = std::make_unique<MemoryDisk>();
  Node other(*this, 2);
  make_log(other);
  at(1).disk = std::move(other.disk);
  const Result<Unit> started = start(1);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::kInvalidArgument);
}

TEST(RecordEntry, HoldsARecordAndRefusesEverythingElse) {
  const JournalRecord record{.position = 7, .first_sequence = 900, .command_count = 3, .payload = "payload"};
  consensus::Entry entry{.index = 5, .term = 4, .data = encode_record_entry(record)};
  const Result<JournalRecord> read = decode_record_entry(entry);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->position, 7u);
  EXPECT_EQ(read->term, 4u);
  EXPECT_EQ(read->first_sequence, 900u);
  EXPECT_EQ(read->command_count, 3u);
  EXPECT_EQ(read->payload, "payload");
  const std::string whole = entry.data;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    entry.data = whole.substr(0, size);
    EXPECT_EQ(decode_record_entry(entry).error().code, ErrorCode::kCorrupt);
  }
  entry.data = whole + "x";
  EXPECT_EQ(decode_record_entry(entry).error().code, ErrorCode::kCorrupt);
  entry.data = whole;
  entry.data[0] = 2;
  EXPECT_EQ(decode_record_entry(entry).error().code, ErrorCode::kCorrupt);
}

TEST(ReplicaFolder, IsMadeOnceForAVoter) {
  char name[] = "/tmp/gpusched-replica-XXXXXX";
  const std::string dir = mkdtemp(name);
  EXPECT_FALSE(has_replica_log(dir));
  EXPECT_EQ(create_replica_log(dir, {.cluster = 7, .id = 4, .members = kMembers}).error().code,
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(create_replica_log(dir, {.cluster = 7, .id = 2, .term = 1'000, .members = kMembers}).ok());
  EXPECT_TRUE(has_replica_log(dir));
  {
    Result<std::unique_ptr<FileJournal>> journal =
        FileJournal::open(replica_log_folder(dir), {.segment_bytes = kReplicaSegmentBytes});
    ASSERT_TRUE(journal.ok());
    JournalLogStore store(**journal);
    const auto log = consensus::ReplicaLog::open(store, 7, 2);
    ASSERT_TRUE(log.ok()) << log.error().message;
    EXPECT_EQ((*log)->hard_state(), (consensus::HardState{.term = 1'000}));
    EXPECT_EQ((*log)->members(), kMembers);
    EXPECT_EQ((*log)->identity().store, 12u);
  }
  EXPECT_EQ(create_replica_log(dir, {.cluster = 7, .id = 2, .members = kMembers}).error().code,
            ErrorCode::kAlreadyExists);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace gpusched
