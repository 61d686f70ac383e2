// The history of a running host: what it writes, and what a start finds again in journal and snapshots.
#include "host/history/host_with_history.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "history/history.h"
#include "history/testing/place.h"
#include "host/history/history_source.h"

namespace gpusched {
namespace {

class HostHistoryTest : public ::testing::Test {
 protected:
  ~HostHistoryTest() override { host_.reset(); }

  void open(bool with_history = true) {
    host_.reset();
    HostOptions options;
    options.data_dir = place_.file("data");
    options.segment_bytes = int64_t{9} << 20;
    Result<std::unique_ptr<Host>> host = Host::open(options);
    ASSERT_TRUE(host.ok()) << host.error().message;
    history_ = nullptr;
    if (!with_history) {
      host_ = std::move(*host);
      return;
    }
    auto both = std::make_unique<HostWithHistory>(
        std::move(*host), options.data_dir,
        history::HistoryOptions{.path = database(), .days = 0, .linger = milliseconds(1)},
        [](const Job& job) { return std::string(job.spec.view()); });
    history_ = &both->history();
    host_ = std::move(both);
  }
  std::string database() const { return place_.file("history/history.db"); }
  Result<Decided> decide(Command command) {
    std::promise<Result<Decided>> promise;
    host_->propose(std::move(command), [&](Result<Decided> result) { promise.set_value(std::move(result)); });
    return promise.get_future().get();
  }
  /// Jobs that are cancelled while they wait.
  void finish(int count) {
    for (int i = 0; i < count; ++i) {
      SubmitJobs submit{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
      submit.jobs.push_back(JobRequest{
          .priority = 100, .parts = {Part{.gpu_count = 1, .cpu_milli = 1000}}, .spec = Blob("spec")});
      const Result<Decided> decided = decide(submit);
      ASSERT_TRUE(decided.ok());
      ASSERT_TRUE(decide(CancelJob{.job = JobId{decided->applied.first_id}}).ok());
    }
  }
  void wait_for_history() {
    for (int i = 0; i < 20'000 && history_->stats().lag.ns != 0; ++i) ::usleep(1'000);
    ASSERT_EQ(history_->stats().lag.ns, 0);
  }
  std::string jobs() const {
    return history::testing::rows_of(database(),
                                     "SELECT id, name, state, reason, submitted_ms, ended_ms FROM jobs"
                                     " ORDER BY id");
  }
  std::string count() const { return history::testing::rows_of(database(), "SELECT COUNT(*) FROM jobs"); }

  history::testing::Place place_;
  std::unique_ptr<Host> host_;
  history::History* history_ = nullptr;
};

TEST_F(HostHistoryTest, FinishedJobsAreInItAndSoAreThoseOfTheNextStart) {
  open();
  finish(20);
  host_->stop();
  EXPECT_EQ(count(), "20|\n");
  EXPECT_NE(jobs().find("|spec|cancelled|cancelled|"), std::string::npos) << jobs();
  open();
  finish(5);
  host_->stop();
  EXPECT_EQ(count(), "25|\n");
}

TEST_F(HostHistoryTest, ADatabaseThatIsGoneIsMadeAgainFromTheJournal) {
  open();
  finish(30);
  host_->stop();
  const std::string before = jobs();
  std::filesystem::remove_all(place_.file("history"));
  open();
  wait_for_history();
  EXPECT_EQ(history_->stats().gaps, 0u);
  host_->stop();
  EXPECT_EQ(jobs(), before);
}

TEST_F(HostHistoryTest, WhatHappenedWhileItWasOffIsReadWhenItIsOnAgain) {
  open();
  finish(3);
  host_->stop();
  open(/*with_history=*/false);
  finish(4);
  host_->stop();
  open();
  finish(5);
  wait_for_history();
  EXPECT_EQ(history_->stats().gaps, 0u);
  host_->stop();
  EXPECT_EQ(count(), "12|\n");
}

TEST_F(HostHistoryTest, WithoutTheOldJournalTheStatesFinishedJobsAreTakenAndTheGapIsTold) {
  open();
  finish(10);
  host_->stop();
  open(/*with_history=*/false);
  finish(10);
  host_->stop();
  // Only the newest snapshot is left, and no record before it.
  const std::vector<uint64_t> snapshots = snapshot_positions(posix_disk(), place_.file("data/snapshots"));
  ASSERT_GE(snapshots.size(), 2u);
  for (std::size_t i = 0; i + 1 < snapshots.size(); ++i)
    std::filesystem::remove(snapshot_path(place_.file("data/snapshots"), snapshots[i]));
  uint64_t adopted = 0;
  std::size_t found = 0;
  const history::History::Sink look = [&](const history::Batch& batch) {
    for (const history::Event& event : batch.events) {
      const auto* const one = std::get_if<history::Adopted>(&event);
      adopted += one == nullptr ? 0 : 1;
      found += one == nullptr ? 0 : one->jobs.size();
    }
    return true;
  };
  const Result<Unit> read =
      read_history(place_.file("data"), nullptr, false, snapshots.back() - 1, snapshots.back(), look);
  // The journal still begins at its first record: nothing is lost.
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(adopted, 0u);
  std::filesystem::remove_all(place_.file("data/journal"));
  const Result<Unit> alone =
      read_history(place_.file("data"), nullptr, false, snapshots.back() - 1, snapshots.back(), look);
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  EXPECT_EQ(adopted, 1u);
  EXPECT_EQ(found, 20u);
}

}  // namespace
}  // namespace gpusched
