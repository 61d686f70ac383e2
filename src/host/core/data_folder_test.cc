#include "host/core/data_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <string>

#include "base/check.h"
#include "codec/group.h"
#include "host/core/system_clock.h"

namespace gpusched {
namespace {

constexpr Duration kMonth = hours(24 * 30);

/// A real folder whose newest record is as old as the test says.
class DataFolderTest : public ::testing::Test {
 protected:
  DataFolderTest() {
    char name[] = "/tmp/gpusched-folder-XXXXXX";
    CHECK(::mkdtemp(name) != nullptr);
    options_.data_dir = name;
    options_.segment_bytes = int64_t{9} << 20;
  }
  ~DataFolderTest() override {
    host_.reset();
    std::filesystem::remove_all(options_.data_dir);
  }

  void write_record(Time at, uint64_t term = 1) {
    Result<DataFolder> folder = open_data_folder(options_);
    ASSERT_TRUE(folder.ok()) << folder.error().message;
    GroupEncoder encoder;
    encoder.begin(at);
    encoder.note_digest(folder->recovered.state.digest.value());
    encoder.add(AdvanceTime{});
    ASSERT_TRUE(folder->journal
                    ->append({.position = folder->recovered.position + 1,
                              .term = term,
                              .first_sequence = folder->recovered.state.last.sequence + 1,
                              .command_count = 1,
                              .payload = encoder.payload()})
                    .ok());
    ASSERT_TRUE(folder->journal->sync().ok());
  }
  void open() {
    Result<std::unique_ptr<Host>> host = Host::open(options_);
    ASSERT_TRUE(host.ok()) << host.error().message;
    host_ = std::move(*host);
  }
  /// When a job that is submitted now is submitted, by the journal.
  Time submit() {
    SubmitJobs submit{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
    submit.jobs.push_back(JobRequest{.parts = {Part{.cpu_milli = 1'000}}, .spec = Blob("spec")});
    std::promise<Result<Decided>> promise;
    host_->propose(submit, [&](Result<Decided> result) { promise.set_value(std::move(result)); });
    const Result<Decided> decided = promise.get_future().get();
    CHECK(decided.ok());
    std::promise<Time> at;
    host_->observer().read(decided->sequence, [&](const Observer::View& view) {
      at.set_value(view.state.jobs.find(JobId{decided->applied.first_id})->submitted_at);
    });
    return at.get_future().get();
  }
  bool is_told() {
    for (const std::string& concern : host_->health().concerns) {
      if (concern.find("accept-clock") != std::string::npos) return true;
    }
    return false;
  }

  HostOptions options_;
  SystemClock clock_;
  std::unique_ptr<Host> host_;
};

TEST_F(DataFolderTest, KnowsTheHighestTermOfTheJournalAndOfTheLeader) {
  EXPECT_EQ(open_data_folder(options_)->report.term, 0u);
  write_record(clock_.wall());
  EXPECT_EQ(open_data_folder(options_)->report.term, 1u);
  write_record(clock_.wall(), 7);
  EXPECT_EQ(open_data_folder(options_)->report.term, 7u);
  options_.term = 6;
  EXPECT_EQ(open_data_folder(options_)->report.term, 7u);
  options_.term = 8;
  EXPECT_EQ(open_data_folder(options_)->report.term, 8u);
}

TEST_F(DataFolderTest, AClockThatIsFarFromTheJournalIsNotBelievedAndToldAndWorkGoesOn) {
  const Time newest = clock_.wall() - kMonth;
  write_record(newest);
  open();
  const Time at = submit();
  EXPECT_GE(at, newest);
  EXPECT_LT(at, newest + hours(1));
  EXPECT_TRUE(is_told());
  EXPECT_TRUE(host_->health().serving);
}

TEST_F(DataFolderTest, AnOperatorsWordMakesItTheTime) {
  write_record(clock_.wall() - kMonth);
  const Time before = clock_.wall();
  const Result<AcceptedClock> accepted = accept_clock(options_, clock_);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  EXPECT_GE(accepted->wall, before);
  EXPECT_LT(accepted->newest, before - kMonth + hours(1));
  open();
  EXPECT_GE(submit(), before);
  EXPECT_FALSE(is_told());
}

TEST_F(DataFolderTest, AShortAbsenceNeedsNoWord) {
  write_record(clock_.wall() - hours(24 * 5));
  const Result<AcceptedClock> accepted = accept_clock(options_, clock_);
  ASSERT_FALSE(accepted.ok());
  EXPECT_EQ(accepted.error().code, ErrorCode::kInvalidArgument);
  const Time before = clock_.wall();
  open();
  EXPECT_GE(submit(), before);
  EXPECT_FALSE(is_told());
}

TEST_F(DataFolderTest, AClockThatIsBehindIsToldAndCannotBeAccepted) {
  const Time newest = clock_.wall() + kMonth;
  write_record(newest);
  const Result<AcceptedClock> accepted = accept_clock(options_, clock_);
  ASSERT_FALSE(accepted.ok());
  EXPECT_NE(accepted.error().message.find("never goes back"), std::string::npos) << accepted.error().message;
  open();
  EXPECT_GE(submit(), newest);
  EXPECT_TRUE(is_told());
}

TEST_F(DataFolderTest, NothingIsAcceptedWhileASchedulerRuns) {
  open();
  const Result<AcceptedClock> accepted = accept_clock(options_, clock_);
  ASSERT_FALSE(accepted.ok());
  EXPECT_EQ(accepted.error().code, ErrorCode::kLocked);
}

TEST_F(DataFolderTest, ASchedulerAloneGoesOnWithTheTermThatItsGroupHad) {
  const SystemClock clock;
  write_record(clock.wall(), 1'700'000'000);
  open();
  submit();
  host_.reset();
  Result<DataFolder> folder = open_data_folder(options_);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_EQ(folder->journal->last_term(), 1'700'000'000u);
  EXPECT_GT(folder->journal->last_position(), 1u);
}

TEST_F(DataFolderTest, AReplicasFolderIsNotOpenedAlone) {
  std::filesystem::create_directory(options_.data_dir + "/replica");
  const Result<DataFolder> folder = open_data_folder(options_);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(folder.error().message.find("with its peers"), std::string::npos) << folder.error().message;
}

}  // namespace
}  // namespace gpusched
