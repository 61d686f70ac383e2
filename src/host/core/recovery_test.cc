#include "host/core/recovery.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/check.h"
#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "host/readers/snapshot_image.h"
#include "journal/disk/memory_disk.h"
#include "journal/memory_journal.h"

namespace gpusched {
namespace {

constexpr const char* kDir = "snapshots";

/// A journal with its state, record by record, and snapshots of it.
class Recovery : public ::testing::Test {
 protected:
  Recovery() { store_ = open(); }

  std::unique_ptr<SnapshotStore> open() {
    auto store = SnapshotStore::open(kDir, &disk_);
    CHECK(store.ok());
    return std::move(*store);
  }
  void append(int records) {
    for (int i = 0; i < records; ++i) {
      SubmitJobs submit{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
      submit.jobs.push_back(JobRequest{.parts = {Part{.gpu_count = 1}}, .spec = Blob("spec")});
      append(submit, state_.digest.value());
    }
  }
  void append(const Command& command, std::optional<uint64_t> digest) {
    GroupEncoder encoder;
    encoder.begin(now_ = now_ + seconds(1));
    if (digest) encoder.note_digest(*digest);
    encoder.add(command);
    append_payload(encoder.payload());
    Events events;
    apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events);
  }
  void append_payload(std::string_view payload) {
    CHECK(journal_
              .append({.position = journal_.last_position() + 1,
                       .term = 1,
                       .first_sequence = state_.last.sequence + 1,
                       .command_count = 1,
                       .payload = payload})
              .ok());
    CHECK(journal_.sync().ok());
  }
  void snapshot() { CHECK(write_image(*store_, image_of(state_, journal_.last_position())).ok()); }
  /// A snapshot as nobody should write one: as an older program did, without a proof.
  void unproven(SnapshotImage image) {
    auto writer = store_->begin(image.info);
    CHECK(writer.ok());
    for (const std::string& piece : image.pieces) CHECK((*writer)->write(piece).ok());
    CHECK(store_->commit(**writer, [](const Snapshot&) -> Result<Unit> { return Unit{}; }).ok());
  }
  std::string newest() { return std::string(kDir) + "/" + disk_.list(kDir)->back(); }
  Result<Recovered> recover(Threads threads) {
    report_ = {};
    store_ = open();
    return gpusched::recover(journal_, *store_, report_, kFeatureLevel, threads);
  }
  /// With one thread and with two, which must agree.
  Result<Recovered> recover() {
    const Result<Recovered> one = recover(Threads::kOne);
    const RecoveryReport report = report_;
    Result<Recovered> two = recover(Threads::kTwo);
    EXPECT_EQ(one.ok(), two.ok());
    EXPECT_EQ(report.replayed_records, report_.replayed_records);
    EXPECT_EQ(report.replayed_bytes, report_.replayed_bytes);
    EXPECT_EQ(report.refused_snapshots, report_.refused_snapshots);
    if (one.ok() && two.ok()) {
      EXPECT_EQ(snapshot_digest(one->state), snapshot_digest(two->state));
      EXPECT_FALSE(one->copy.has_value());
    } else if (!one.ok() && !two.ok()) {
      EXPECT_EQ(one.error().message, two.error().message);
    }
    return two;
  }
  void expect_whole(const Result<Recovered>& recovered, uint64_t snapshot_position, std::size_t refused) {
    ASSERT_TRUE(recovered.ok()) << recovered.error().message;
    EXPECT_EQ(snapshot_digest(recovered->state), snapshot_digest(state_));
    EXPECT_EQ(recovered->position, journal_.last_position());
    EXPECT_EQ(report_.snapshot_position, snapshot_position);
    EXPECT_EQ(report_.refused_snapshots.size(), refused);
  }

  MemoryDisk disk_;
  MemoryJournal journal_;
  std::unique_ptr<SnapshotStore> store_;
  State state_;
  Time now_{1'750'000'000'000'000'000};
  RecoveryReport report_;
};

TEST_F(Recovery, CopiesBesideTheProofOfASnapshotThatIsTheLastWord) {
  append(3);
  snapshot();
  Result<Recovered> recovered = recover();
  expect_whole(recovered, 3, 0);
  ASSERT_TRUE(recovered->copy.has_value());
  EXPECT_EQ(snapshot_digest(recovered->take_copy()), snapshot_digest(state_));
  EXPECT_FALSE(recovered->copy.has_value());
  append(1);
  recovered = recover();
  expect_whole(recovered, 3, 0);
  EXPECT_FALSE(recovered->copy.has_value());  // It would be of an older state.
  EXPECT_EQ(snapshot_digest(recovered->take_copy()), snapshot_digest(state_));
}

TEST_F(Recovery, BeginsAtTheNewestSnapshot) {
  append(3);
  snapshot();
  append(3);
  snapshot();
  append(2);
  expect_whole(recover(), 6, 0);
  EXPECT_EQ(report_.replayed_records, 2u);
}

TEST_F(Recovery, ASnapshotThatTheDecoderRefusesIsPassedOver) {
  append(3);
  snapshot();
  append(3);
  SnapshotImage image = image_of(state_, 6);
  image.pieces = {"not a state"};
  unproven(image);
  append(2);
  expect_whole(recover(), 3, 1);
  EXPECT_EQ(report_.replayed_records, 5u);
  EXPECT_NE(report_.refused_snapshots[0].find(newest()), std::string::npos) << report_.refused_snapshots[0];
}

TEST_F(Recovery, ASnapshotWithAnotherDigestIsPassedOver) {
  append(3);
  snapshot();
  append(3);
  SnapshotImage image = image_of(state_, 6);
  image.info.state_digest += 1;
  unproven(image);
  expect_whole(recover(), 3, 1);
  EXPECT_NE(report_.refused_snapshots[0].find("digest"), std::string::npos);
}

TEST_F(Recovery, ASnapshotOfAnotherStateIsPassedOver) {
  append(3);
  snapshot();
  SnapshotImage image = image_of(state_, 6);
  append(3);
  image.info.last_sequence = 6;
  unproven(image);
  expect_whole(recover(), 3, 1);
}

TEST_F(Recovery, ADamagedSnapshotIsPassedOver) {
  append(3);
  snapshot();
  append(3);
  snapshot();
  disk_.corrupt(newest(), 4100, "X");
  expect_whole(recover(), 3, 1);
}

TEST_F(Recovery, WithoutAnyUsableSnapshotTheWholeJournalIsEnough) {
  append(3);
  snapshot();
  disk_.corrupt(newest(), 4100, "X");
  append(2);
  expect_whole(recover(), 0, 1);
  EXPECT_EQ(report_.replayed_records, 5u);
}

TEST_F(Recovery, WhereTheJournalForgotWhatNoSnapshotHasItSaysBoth) {
  append(3);
  snapshot();
  append(3);
  snapshot();
  CHECK(journal_.compact_before(*store_->compactable_position() + 1).ok());
  const std::string first = std::string(kDir) + "/" + disk_.list(kDir)->front();
  disk_.corrupt(first, 4100, "X");
  disk_.corrupt(newest(), 4100, "X");
  const Result<Recovered> recovered = recover();
  ASSERT_FALSE(recovered.ok());
  EXPECT_EQ(recovered.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(recovered.error().message.find("begins at record 4"), std::string::npos)
      << recovered.error().message;
  EXPECT_NE(recovered.error().message.find(first), std::string::npos);
  EXPECT_NE(recovered.error().message.find(newest()), std::string::npos);
}

TEST_F(Recovery, AJournalThatEndsBeforeADamagedSnapshotHasLostRecords) {
  append(3);
  snapshot();
  append(3);
  snapshot();
  disk_.corrupt(newest(), 4100, "X");
  CHECK(journal_.truncate_after(4).ok());
  const Result<Recovered> recovered = recover();
  ASSERT_FALSE(recovered.ok());
  EXPECT_NE(recovered.error().message.find("the journal ends at record 4, before the newest snapshot's 6"),
            std::string::npos)
      << recovered.error().message;
}

TEST_F(Recovery, WhatAStartRefusedIsReplacedByTheNextSnapshotAndTheJournalStaysUntilThen) {
  append(3);
  snapshot();
  append(3);
  snapshot();
  const std::string refused = newest();
  disk_.corrupt(refused, 4100, "X");
  expect_whole(recover(), 3, 1);
  EXPECT_EQ(*store_->compactable_position(), 0u);
  append(1);
  snapshot();
  ASSERT_TRUE(store_->prune().ok());
  EXPECT_FALSE(disk_.exists(refused));
  EXPECT_EQ(*store_->compactable_position(), 3u);
}

TEST_F(Recovery, ARecordBehindAnotherStateEndsTheStart) {
  append(3);
  append(AdvanceTime{}, state_.digest.value() + 1);
  append(1);
  const Result<Recovered> recovered = recover();
  ASSERT_FALSE(recovered.ok());
  EXPECT_EQ(recovered.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(recovered.error().message.find("record 4 was written after a state with digest"),
            std::string::npos)
      << recovered.error().message;
}

TEST_F(Recovery, RecordsOfOlderVersionsHaveNoDigest) {
  append(2);
  append(AdvanceTime{}, std::nullopt);
  append(2);
  expect_whole(recover(), 0, 0);
}

TEST_F(Recovery, AFolderThatANewerProgramConfiguredIsRefused) {
  append(2);
  snapshot();
  EngineConfig config = state_.config;
  config.feature_level = kFeatureLevel + 1;
  append(Configure{.config = config}, state_.digest.value());
  const auto expect_refused = [&](const Result<Recovered>& recovered) {
    ASSERT_FALSE(recovered.ok());
    EXPECT_EQ(recovered.error().code, ErrorCode::kVersion);
    EXPECT_NE(recovered.error().message.find("newer version"), std::string::npos)
        << recovered.error().message;
  };
  expect_refused(recover());
  // By its snapshot alone, too: an older one, which this program could read, is no way back.
  unproven(image_of(state_, journal_.last_position()));
  expect_refused(recover());
}

TEST_F(Recovery, AnOlderProgramIsRefusedAndTheOneOfTheFolderGoesOn) {
  append(2);
  EngineConfig config = state_.config;
  config.feature_level = kFeatureLevel;
  append(Configure{.config = config}, state_.digest.value());
  snapshot();
  append(1);
  store_ = open();
  const Result<Recovered> older = gpusched::recover(journal_, *store_, report_, kFeatureLevel - 1);
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(older.error().code, ErrorCode::kVersion);
  expect_whole(recover(), 3, 0);
}

TEST_F(Recovery, AFieldThatThisProgramDoesNotKnowIsNewer) {
  append(2);
  std::string payload;
  ByteWriter writer(payload);
  writer.fixed64(static_cast<uint64_t>((now_ + seconds(1)).ns));
  writer.varint(Command(CancelJob{}).index());
  const std::string fields("\x08\x06\xF8\x06\x02", 5);  // Field 1, a job, and field 111, a number.
  writer.fixed32(static_cast<uint32_t>(fields.size()));
  append_payload(payload + fields);
  const Result<Recovered> recovered = recover();
  ASSERT_FALSE(recovered.ok());
  EXPECT_EQ(recovered.error().code, ErrorCode::kVersion) << recovered.error().message;
}

}  // namespace
}  // namespace gpusched
