#include "host/core/standby.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "host/core/data_folder.h"

namespace gpusched {
namespace {

/// A record and its bytes.
struct Kept {
  JournalRecord record;
  std::string payload;
};

/// The journal of a leader, and a folder that has its first records only.
class StandbyTest : public ::testing::Test, public SharedJournal {
 protected:
  StandbyTest() {
    char name[] = "/tmp/gpusched-standby-XXXXXX";
    CHECK(::mkdtemp(name) != nullptr);
    folder_ = name;
    options_.data_dir = folder_ + "/data";
    write_leaders();
  }
  ~StandbyTest() override {
    standby_.reset();
    journal_.reset();
    std::filesystem::remove_all(folder_);
  }

  FileJournal& journal() override { return *journal_; }
  uint64_t term() const override { return 9; }
  std::unique_ptr<JournalWriter> writer(std::function<void(Result<Unit>)>) override { return nullptr; }
  std::shared_ptr<Standby> standby() override { return std::exchange(standby_, nullptr); }

  void write_leaders() {
    HostOptions leader;
    leader.data_dir = folder_ + "/leader";
    Result<std::unique_ptr<Host>> host = Host::open(leader);
    CHECK(host.ok());
    for (int i = 0; i < 40; ++i) {
      SubmitJobs submit{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
      submit.jobs.push_back(JobRequest{.parts = {Part{.cpu_milli = 1'000}}, .spec = Blob("spec")});
      std::promise<void> done;
      (*host)->propose(submit, [&](const Result<Decided>&) { done.set_value(); });
      done.get_future().wait();
    }
    (*host)->stop();
    host->reset();
    Result<DataFolder> opened = open_data_folder(leader);
    CHECK(opened.ok());
    digest_ = opened->report.digest;
    const Result<Unit> read = opened->journal->read_from(1, [&](const JournalRecord& record) {
      kept_.push_back({.record = record, .payload = std::string(record.payload)});
      return Result<Unit>(Unit{});
    });
    CHECK(read.ok());
  }
  void append(Kept& kept) {
    kept.record.payload = kept.payload;
    ASSERT_TRUE(journal_->append(kept.record).ok());
    if (standby_ != nullptr) standby_->follow(kept.record);
  }
  /// A standby that has recovered the first `count` records.
  void open(std::size_t count) {
    std::filesystem::create_directory(options_.data_dir);
    Result<std::unique_ptr<FileJournal>> journal =
        FileJournal::open(options_.data_dir + "/journal", ordinary_journal_options(options_));
    ASSERT_TRUE(journal.ok());
    journal_ = std::move(*journal);
    for (std::size_t i = 0; i < count; ++i) append(kept_[i]);
    ASSERT_TRUE(journal_->sync().ok());
    Result<std::unique_ptr<Standby>> standby =
        Standby::open(options_, *this,
                      {.differs = [this](const Error& error) { differs_.set_value(error); },
                       .committed = [this](uint64_t position) { compacted_ = position; }});
    ASSERT_TRUE(standby.ok()) << standby.error().message;
    standby_ = std::move(*standby);
  }

  std::string folder_;
  HostOptions options_;
  std::vector<Kept> kept_;
  uint64_t digest_ = 0;
  std::unique_ptr<FileJournal> journal_;
  std::shared_ptr<Standby> standby_;
  std::promise<Error> differs_;
  std::atomic<uint64_t> compacted_{0};
};

TEST_F(StandbyTest, HasTheLeadersStateWithoutARecovery) {
  open(5);
  for (std::size_t i = 5; i < kept_.size(); ++i) append(kept_[i]);
  const Result<DataFolder> folder = open_data_folder(options_, this);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_EQ(folder->report.digest, digest_);
  EXPECT_EQ(folder->recovered.position, kept_.back().record.position);
  EXPECT_EQ(folder->recovered.state.digest.value(), digest_);
  EXPECT_EQ(folder->report.term, 9u);  // Nodes obey it from now on.
  EXPECT_EQ(standby_, nullptr);
}

TEST_F(StandbyTest, ARecordThatItsStartHasReadIsNotAppliedAgain) {
  open(10);
  for (std::size_t i = 5; i < 10; ++i) {
    kept_[i].record.payload = kept_[i].payload;
    standby_->follow(kept_[i].record);
  }
  for (std::size_t i = 10; i < kept_.size(); ++i) append(kept_[i]);
  const std::optional<Standby::Warm> warm = standby_->take();
  ASSERT_TRUE(warm);
  EXPECT_EQ(warm->report.digest, digest_);
}

TEST_F(StandbyTest, AStateThatDiffersFromTheLeadersIsToldAndNotUsed) {
  open(5);
  // The record behind this one was written by a scheduler that decided it.
  kept_[7].record.payload = kept_[7].payload;
  JournalRecord skipped = kept_[7].record;
  skipped.first_sequence = kept_[5].record.first_sequence;
  skipped.position = kept_[5].record.position;
  standby_->follow(skipped);
  const Error error = differs_.get_future().get();
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_NE(error.message.find("digest"), std::string::npos) << error.message;
  EXPECT_FALSE(standby_->take());
}

TEST_F(StandbyTest, TakesSnapshotsSoThatTheJournalStaysShort) {
  options_.snapshot_bytes = 400;
  open(5);
  for (std::size_t i = 5; i < kept_.size(); ++i) append(kept_[i]);
  const std::optional<Standby::Warm> warm = standby_->take();
  ASSERT_TRUE(warm);
  EXPECT_GT(warm->report.snapshot_position, 5u);
  EXPECT_GT(compacted_, 5u);
  standby_.reset();
  const Result<DataFolder> folder = open_data_folder(options_, this);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_GT(folder->report.snapshot_position, 5u);
  EXPECT_EQ(folder->report.digest, digest_);
}

}  // namespace
}  // namespace gpusched
