#include "replay/scheduler/journal_trace.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/policies.h"
#include "journal/file_journal.h"
#include "journal/snapshot_store.h"

namespace gpusched::replay {
namespace {

/// A small scheduler that writes a journal.
class JournalTraceTest : public ::testing::Test {
 protected:
  JournalTraceTest() : planner_(policy::default_policies()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "journal.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    planner_.reset(state_);
  }
  ~JournalTraceTest() override { std::filesystem::remove_all(folder_); }

  void open() {
    Result<std::unique_ptr<FileJournal>> opened =
        FileJournal::open((folder_ / "journal").string(), {.segment_bytes = 1u << 20, .reserve_bytes = 0});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    journal_ = std::move(*opened);
  }

  Applied apply(const Command& command) {
    GroupEncoder encoder;
    encoder.begin(now_);
    encoder.add(command);
    const uint64_t first = state_.last.sequence + 1;
    EXPECT_TRUE(journal_
                    ->append({.position = journal_->last_position() + 1,
                              .term = 1,
                              .first_sequence = first,
                              .command_count = encoder.command_count(),
                              .payload = encoder.payload()})
                    .ok());
    events_.clear();
    const Applied applied = gpusched::apply(state_, command, {.sequence = first, .at = now_}, events_);
    for (const Event& event : events_) planner_.observe(state_, event);
    return applied;
  }

  JobId submit(TenantId tenant, int32_t gpus) {
    return JobId{apply(SubmitJobs{.tenant = tenant,
                                  .request_key = {},
                                  .jobs = {{.parts = {{.gpu_count = gpus}}, .max_runtime = hours(1)}}})
                     .first_id};
  }
  void cycle() {
    Planner::Slice slice = planner_.plan(state_, now_);
    if (slice.plan.groups.empty()) return;
    const CommitPlan plan = slice.plan;
    apply(plan);
    planner_.plan_applied(state_);
    for (const PlanGroup& group : plan.groups)
      apply(AttemptStarted{
          .job = group.job, .attempt = 1, .node = state_.jobs.find(group.job)->node, .image_digest = {}});
  }
  void end(JobId id) {
    const Job* job = state_.jobs.find(id);
    const NodeId node = job->node;
    const uint64_t mask = job->device_mask;
    apply(AttemptEnded{
        .job = id, .attempt = 1, .node = node, .outcome = {.cause = EndCause::kExited, .detail = {}}});
    for (uint32_t device = 0; device < 2; ++device) {
      if ((mask >> device & 1) != 0) {
        apply(DeviceReleased{.node = node,
                             .device = device,
                             .generation = state_.find_node(node)->devices[device].generation});
      }
    }
  }
  /// Two GPUs; a job of two for 100 s, one of one behind it for 50 s, and one that goes on.
  void write_three_jobs() {
    RegisterNode node{
        .name = "n1", .instance = "n1", .boot_id = "b", .version = {}, .cpu_milli = 8000, .memory_mb = 100};
    for (const char* uuid : {"GPU-1", "GPU-2"})
      node.devices.push_back({.uuid = uuid, .model = "NVIDIA H200", .memory_mb = 141'000, .detail = {}});
    apply(node);
    const TenantId team{apply(CreateTenant{.name = "team", .weight_milli = 2000}).first_id};
    const JobId first = submit(kDefaultTenant, 2);
    cycle();
    now_ = now_ + seconds(10);
    const JobId second = submit(team, 1);
    now_ = now_ + seconds(90);
    end(first);
    cycle();
    submit(team, 1);
    cycle();
    now_ = now_ + seconds(50);
    end(second);
    EXPECT_TRUE(journal_->sync().ok());
  }

  std::filesystem::path folder_;
  std::unique_ptr<FileJournal> journal_;
  State state_;
  Planner planner_;
  Events events_;
  Time now_ = Time{} + seconds(1'700'000'000);
};

TEST_F(JournalTraceTest, TellsWhatEndedOnWhatAndWhen) {
  open();
  write_three_jobs();
  const Result<JournalTrace> read = read_journal_trace(folder_.string());  // Beside its writer.
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->trace.jobs.size(), 2u);
  EXPECT_EQ(read->unfinished, 1u);
  EXPECT_EQ(read->gpus, 2);
  EXPECT_EQ(read->trace.jobs[0].run, seconds(100));
  EXPECT_EQ(read->trace.jobs[1].submitted, seconds(10));
  EXPECT_EQ(read->trace.jobs[1].size, 1);
  EXPECT_EQ(read->trace.jobs[1].requested, hours(1));
  EXPECT_EQ(read->as_it_was.runs[1].started, seconds(100));
  EXPECT_EQ(read->tenants[read->trace.jobs[1].queue].weight_milli, 2000);
  ASSERT_EQ(read->nodes.size(), 1u);
  EXPECT_EQ(read->nodes[0].devices[1].model, "NVIDIA H200");
}

TEST_F(JournalTraceTest, ReplayedUnderItsOwnPolicyItGoesAsItWent) {
  open();
  write_three_jobs();
  const Result<JournalTrace> read = read_journal_trace(folder_.string());
  ASSERT_TRUE(read.ok()) << read.error().message;
  const Result<ReplayOutcome> outcome =
      replay_engine(read->trace.jobs, {.name = "same", .scheduling = read->config.policy}, options_of(*read));
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  for (std::size_t i = 0; i < read->trace.jobs.size(); ++i) {
    EXPECT_EQ(outcome->runs[i].started, read->as_it_was.runs[i].started);
    EXPECT_EQ(outcome->runs[i].ended, read->as_it_was.runs[i].ended);
  }
}

TEST_F(JournalTraceTest, AFolderWithoutAJournalIsNamed) {
  const Result<JournalTrace> read = read_journal_trace(folder_.string());
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find(folder_.string()), std::string::npos) << read.error().message;
}

}  // namespace
}  // namespace gpusched::replay
