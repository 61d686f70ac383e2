#include "host/host.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "base/limits.h"
#include "base/queue_limits.h"
#include "codec/snapshot.h"

namespace gpusched {
namespace {

class HostTest : public ::testing::Test {
 protected:
  HostTest() {
    char name[] = "/tmp/gpusched-host-XXXXXX";
    dir_ = mkdtemp(name);
  }
  ~HostTest() override {
    host_.reset();
    std::filesystem::remove_all(dir_);
  }

  void open() {
    host_.reset();
    HostOptions options;
    options.data_dir = dir_ + "/data";
    options.segment_bytes = int64_t{9} << 20;
    Result<std::unique_ptr<Host>> host = Host::open(options);
    ASSERT_TRUE(host.ok()) << host.error().message;
    host_ = std::move(*host);
  }
  Result<Decided> decide(Command command) {
    std::promise<Result<Decided>> promise;
    host_->propose(std::move(command), [&](Result<Decided> result) { promise.set_value(std::move(result)); });
    return promise.get_future().get();
  }
  /// Reads the observer once it has seen `sequence`.
  template <typename Read>
  auto read(uint64_t sequence, Read read) {
    std::promise<decltype(read(std::declval<const Observer::View&>()))> promise;
    host_->observer().read(sequence, [&](const Observer::View& view) { promise.set_value(read(view)); });
    return promise.get_future().get();
  }

  std::string dir_;
  std::unique_ptr<Host> host_;
};

SubmitJobs one_job() {
  SubmitJobs submit{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
  submit.jobs.push_back(
      JobRequest{.priority = 100, .parts = {Part{.gpu_count = 1, .cpu_milli = 1000}}, .spec = Blob("spec")});
  return submit;
}

TEST_F(HostTest, WhatWasAnsweredIsThereAfterARestart) {
  open();
  const Result<Decided> decided = decide(one_job());
  ASSERT_TRUE(decided.ok());
  const JobId job{decided->applied.first_id};
  EXPECT_EQ(decided->queue_position, 1);
  open();
  EXPECT_TRUE(read(0, [&](const Observer::View& view) { return view.state.jobs.find(job) != nullptr; }));
}

TEST_F(HostTest, TheObserverHasSeenWhatItWasAskedToWaitFor) {
  open();
  for (int i = 0; i < 100; ++i) {
    const Result<Decided> decided = decide(one_job());
    ASSERT_TRUE(decided.ok());
    const JobId job{decided->applied.first_id};
    ASSERT_TRUE(read(decided->sequence,
                     [&](const Observer::View& view) { return view.state.jobs.find(job) != nullptr; }));
  }
}

TEST_F(HostTest, WhileTheLoopIsBusyABoundedNumberOfRequestsWaitsAndTheRestIsRefusedAtOnce) {
  open();
  std::promise<void> reached, go;
  host_->with_nodes([&](NodeHub*) {
    reached.set_value();
    go.get_future().wait();
  });
  reached.get_future().wait();
  std::atomic<std::size_t> decided{0}, accepted{0};
  std::promise<void> all;
  std::size_t refused = 0;
  constexpr std::size_t kAsked = limits::kRequestsWaitingMax + limits::kRequestsWaitingMax / 4;
  for (std::size_t i = 0; i < kAsked; ++i) {
    const auto caller = std::this_thread::get_id();
    host_->propose(CancelJob{.job = JobId{1'000}}, [&, caller](const Result<Decided>& result) {
      if (result.ok()) {
        if (++decided == accepted) all.set_value();
        return;
      }
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
      ++refused;
    });
  }
  accepted = kAsked - refused;
  EXPECT_LE(accepted, limits::kRequestsWaitingMax);
  EXPECT_GE(accepted + 1, limits::kRequestsWaitingMax);  // The configuration of the start may still wait.
  std::size_t refused_reads = 0;
  host_->read_log(NodeId{1}, {},
                  [&](const Result<v1::LogChunk>& chunk) { refused_reads += chunk.ok() ? 0 : 1; });
  EXPECT_EQ(refused_reads, 1u);
  // The host's own inputs always have room.
  std::promise<void> touched;
  host_->touch([&] { touched.set_value(); });
  go.set_value();
  touched.get_future().wait();
  all.get_future().wait();
  const Result<Decided> last = decide(one_job());  // There is room again.
  ASSERT_TRUE(last.ok()) << last.error().message;
}

TEST_F(HostTest, ASecondSchedulerOnTheFolderIsRefusedAndToldWhoHoldsIt) {
  open();
  HostOptions options;
  options.data_dir = dir_ + "/data";
  const Result<std::unique_ptr<Host>> second = Host::open(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
  EXPECT_NE(second.error().message.find(std::to_string(getpid())), std::string::npos)
      << second.error().message;
}

TEST_F(HostTest, ACleanEndLeavesASnapshotThatReplaysToTheSameState) {
  open();
  uint64_t sequence = 0;
  for (int i = 0; i < 50; ++i) sequence = decide(one_job())->sequence;
  const uint64_t before =
      read(sequence, [](const Observer::View& view) { return snapshot_digest(view.state).value(); });
  open();
  EXPECT_GT(host_->recovery().snapshot_sequence, 0u);
  EXPECT_EQ(host_->recovery().replayed_commands, 0u);
  EXPECT_EQ(read(0, [](const Observer::View& view) { return snapshot_digest(view.state).value(); }), before);
}

TEST_F(HostTest, ACleanEndAfterARecoveryFromTheJournalLeavesASnapshotToo) {
  open();
  ASSERT_TRUE(decide(one_job()).ok());
  std::filesystem::copy(dir_ + "/data", dir_ + "/crashed", std::filesystem::copy_options::recursive);
  host_.reset();
  std::filesystem::remove_all(dir_ + "/data");
  std::filesystem::rename(dir_ + "/crashed", dir_ + "/data");
  open();
  EXPECT_GT(host_->recovery().replayed_commands, 0u);
  open();
  EXPECT_GT(host_->recovery().snapshot_sequence, 0u);
  EXPECT_EQ(host_->recovery().replayed_commands, 0u);
}

TEST_F(HostTest, AWaitingJobHasAReason) {
  open();
  const Result<Decided> decided = decide(one_job());
  ASSERT_TRUE(decided.ok());
  const JobId job{decided->applied.first_id};
  // The reason comes with the cycle behind the submission.
  for (int i = 0; i < 1000; ++i) {
    const WaitCode code = read(decided->sequence, [&](const Observer::View& view) {
      return view.reason_of(*view.state.jobs.find(job)).code;
    });
    if (code == WaitCode::kNoNode) return;
  }
  FAIL() << "no reason was published";
}

TEST_F(HostTest, AWatcherIsToldOfItsJobOnly) {
  open();
  const JobId first{decide(one_job())->applied.first_id};
  const Result<Decided> decided = decide(one_job());
  const JobId second{decided->applied.first_id};
  ASSERT_TRUE(read(decided->sequence, [](const Observer::View&) { return true; }));
  std::promise<JobState> told;
  host_->observer().on_change(
      second, [&](const Observer::View& view) { told.set_value(view.state.jobs.find(second)->state); });
  ASSERT_TRUE(decide(CancelJob{.job = first}).ok());
  ASSERT_TRUE(decide(CancelJob{.job = second}).ok());
  EXPECT_EQ(told.get_future().get(), JobState::kCancelled);
}

}  // namespace
}  // namespace gpusched
