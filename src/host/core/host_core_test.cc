#include "host/core/host_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/limits.h"
#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "host/testing/test_core.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(HostCore, ARememberedAnswerIsGivenWhileTheDiskIsFull) {
  Core core;
  const auto first = core.submit("key-1");
  ASSERT_TRUE(first && first->ok());
  core.writer.room = JournalSpace::kReserveOnly;
  core.core.turn();
  const int groups = core.writer.started;
  const auto again = core.submit("key-1");
  ASSERT_TRUE(again && again->ok());
  EXPECT_TRUE((*again)->applied.repeated);
  EXPECT_EQ((*again)->applied.first_id, (*first)->applied.first_id);
  const auto conflict = core.submit("key-1", 2);
  ASSERT_TRUE(conflict && conflict->ok());
  EXPECT_EQ((*conflict)->applied.rejection->code, RejectionCode::kRequestKeyConflict);
  const auto other = core.submit("key-2");
  ASSERT_TRUE(other && !other->ok());
  EXPECT_EQ(other->error().code, ErrorCode::kStorageFull);
  EXPECT_EQ(core.writer.started, groups);
}

TEST(HostCore, WhoeverWaitsWhenAnotherSchedulerDecidesIsToldWhetherItWasDone) {
  for (const ErrorCode code : {ErrorCode::kLocked, ErrorCode::kUnavailable}) {
    Core core;
    const auto kept = core.submit("key-1");
    ASSERT_TRUE(kept && kept->ok());
    std::vector<Error> told;
    const auto submit = [&] {
      SubmitJobs command{.tenant = kDefaultTenant, .jobs = {}};
      command.jobs.push_back(JobRequest{.parts = {Part{.cpu_milli = 1'000}}});
      core.core.propose(command, [&told](const Result<Decided>& result) { told.push_back(result.error()); });
    };
    submit();
    core.core.turn();
    ASSERT_TRUE(core.core.in_flight());
    submit();  // Waits for its group.
    const uint64_t digest = core.core.state().digest.value();
    core.core.on_durable(Error{.code = code, .message = "another one leads"});
    ASSERT_EQ(told.size(), 2u);
    EXPECT_EQ(told[0].code,
              code == ErrorCode::kLocked ? ErrorCode::kOutcomeUnknown : ErrorCode::kUnavailable);
    EXPECT_EQ(told[0].message, "another one leads");
    EXPECT_EQ(told[1].code, ErrorCode::kUnavailable);
    submit();
    ASSERT_EQ(told.size(), 3u);
    EXPECT_EQ(told[2].code, ErrorCode::kUnavailable);
    const int groups = core.writer.started;
    core.clock.now = core.clock.now + hours(1);
    core.core.turn();
    EXPECT_EQ(core.writer.started, groups);
    EXPECT_EQ(core.core.state().digest.value(), digest);
    EXPECT_FALSE(core.fatal);
  }
}

TEST(HostCore, WhatNoRecordHoldsIsRefusedAndTheSchedulerGoesOn) {
  Core core;
  const auto ask = [&](const Command& command) {
    std::optional<Result<Decided>> answer;
    core.core.propose(command, [&answer](Result<Decided> result) { answer = std::move(result); });
    core.commit();
    return answer;
  };
  const auto refused = ask(Core::batch_of(limits::kGroupBytesMax));
  ASSERT_TRUE(refused && !refused->ok());
  EXPECT_EQ(refused->error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(refused->error().field, "jobs");
  EXPECT_NE(refused->error().message.find(std::to_string(limits::kGroupBytesMax - kGroupHeaderBytes)),
            std::string::npos);
  const auto largest = ask(Core::batch_of(limits::kGroupBytesMax - 1'024));
  ASSERT_TRUE(largest && largest->ok());
  EXPECT_FALSE((*largest)->applied.rejection);
  EXPECT_FALSE(core.fatal);
}

TEST(HostCore, AGroupNeverExceedsARecordWhateverWaits) {
  constexpr std::size_t kRecord = 10'000;
  Core core(HostTuning{}, kRecord);
  Prng prng(5);
  int answers = 0;
  int accepted = 0;
  constexpr int kAsked = 500;
  for (int i = 0; i < kAsked; ++i) {
    const std::size_t bytes =
        prng.chance(300) ? prng.between(kRecord - 200, kRecord + 200) : prng.between(1, 3'000);
    core.core.propose(Core::batch_of(bytes), [&](const Result<Decided>& result) {
      answers += 1;
      if (result.ok()) {
        accepted += 1;
      } else {
        EXPECT_EQ(result.error().code, ErrorCode::kTooLarge);
      }
    });
    if (prng.chance(100)) core.commit();
  }
  while (!core.core.idle()) core.commit();
  EXPECT_EQ(answers, kAsked);
  EXPECT_GT(accepted, kAsked / 2);
  EXPECT_LT(accepted, kAsked);
  EXPECT_LE(core.writer.largest, kRecord);
  EXPECT_FALSE(core.fatal);
}

TEST(HostCore, AGroupThatTheJournalCallsTooLargeWasNotWrittenAndEndsNothing) {
  Core core;
  std::optional<Result<Decided>> answer;
  core.core.propose(Core::batch_of(10), [&answer](Result<Decided> result) { answer = std::move(result); });
  core.core.turn();
  ASSERT_TRUE(core.core.in_flight());
  core.core.on_durable(Error{.code = ErrorCode::kTooLarge, .message = "larger than a record"});
  ASSERT_TRUE(answer && !answer->ok());
  EXPECT_EQ(answer->error().code, ErrorCode::kTooLarge);
  EXPECT_FALSE(core.fatal);
  const auto next = core.submit("key");
  ASSERT_TRUE(next && next->ok());
}

TEST(HostCore, WhileTheObserverIsBehindNothingMoreIsDecided) {
  Core core;
  core.sink.room = false;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(core.submit("key-" + std::to_string(i)));
    EXPECT_GT(core.core.next_wakeup(), core.clock.now);  // It does not spin meanwhile.
  }
  EXPECT_EQ(core.writer.started, 0);
  core.sink.room = true;
  const auto answer = core.submit("last");
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ(core.core.state().waiting_count(), 101);
}

TEST(HostCore, NewWorkThatWaitsForTheDiskIsBoundedInNumberAndBytes) {
  for (const bool large : {false, true}) {
    HostTuning tuning;
    tuning.proposals_max = 1'000;
    tuning.proposal_bytes_max = std::size_t{8} << 20;
    Core core(tuning);
    core.core.propose(Core::batch_of(1), {});
    core.core.turn();
    ASSERT_TRUE(core.core.in_flight());  // The disk is slow.
    std::size_t shed = 0;
    std::size_t waiting_bytes = 0;
    const std::size_t bytes = large ? 100'000 : 10;
    for (int i = 0; i < 10'000; ++i) {
      bool refused = false;
      core.core.propose(Core::batch_of(bytes), [&](const Result<Decided>& result) {
        refused = !result.ok() && result.error().code == ErrorCode::kUnavailable;
      });
      refused ? shed += 1 : waiting_bytes += bytes;
    }
    EXPECT_GE(shed, 9'000u);
    EXPECT_LE(waiting_bytes, tuning.proposal_bytes_max);
    // New work that is no tenant's takes what tenants left.
    bool full = false;
    for (int i = 0; i < 10'000 && !full; ++i) {
      core.core.propose(CreateTenant{.name = "t" + std::to_string(i)},
                        [&full](const Result<Decided>& result) {
                          full = !result.ok() && result.error().code == ErrorCode::kUnavailable &&
                                 !is_over_share(result.error());
                        });
    }
    EXPECT_TRUE(full);
    // Commands that are no new work are not shed.
    bool answered = false;
    core.core.propose(CancelJob{.job = JobId{1}}, [&](const Result<Decided>& result) {
      answered = true;
      EXPECT_TRUE(result.ok());
    });
    EXPECT_FALSE(answered);
    core.core.on_durable(Unit{});
    while (!core.core.idle()) core.commit();
    EXPECT_TRUE(answered);
  }
}

TEST(HostCore, NoTenantHasMoreNewWorkWaitingThanAllLeaveFree) {
  HostTuning tuning;
  tuning.proposals_max = 1'000;
  Core core(tuning);
  const auto create = [&core](const std::string& name, bool anonymous) {
    TenantId id;
    core.core.propose(CreateTenant{.name = name, .anonymous = anonymous},
                      [&id](const Result<Decided>& result) { id = TenantId{result->applied.first_id}; });
    core.commit();
    return id;
  };
  const TenantId calm = create("calm", false);
  const std::array<TenantId, 2> strangers = {create("x", true), create("y", true)};
  core.core.propose(Core::batch_of(1), {});
  core.core.turn();
  ASSERT_TRUE(core.core.in_flight());  // The disk is slow.
  const auto waits = [&core](TenantId tenant) {
    bool taken = true;
    SubmitJobs command = Core::batch_of(1);
    command.tenant = tenant;
    core.core.propose(command, [&taken](const Result<Decided>& result) {
      EXPECT_TRUE(result.ok() || is_over_share(result.error()));
      taken = result.ok();
    });
    return taken;
  };
  const auto flood = [&waits](TenantId tenant) {
    int taken = 0;
    while (waits(tenant)) ++taken;
    return taken;
  };
  EXPECT_EQ(flood(kDefaultTenant), 500);
  // A tenant that asks less is served, and so are commands that are no new work.
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(waits(calm));
  bool answered = false;
  core.core.propose(CancelJob{.job = JobId{1}}, [&answered](const Result<Decided>&) { answered = true; });
  EXPECT_FALSE(answered);
  // Tenants of callers without a credential are one.
  EXPECT_EQ(flood(strangers[0]), 200);
  EXPECT_FALSE(waits(strangers[1]));
  core.core.on_durable(Unit{});
  while (!core.core.idle()) core.commit();
  EXPECT_TRUE(answered);
  EXPECT_TRUE(waits(kDefaultTenant));
}

EngineConfig with_queue(int64_t size) {
  EngineConfig config;
  config.queue_size_max = size;
  return config;
}

TEST(HostCore, TheConfigurationIsJournaledOnceTheDiskHasRoom) {
  Core core;
  core.writer.room = JournalSpace::kReserveOnly;
  core.core.want(with_queue(7));
  core.commit();
  EXPECT_NE(core.core.state().config, with_queue(7));
  core.writer.room = JournalSpace::kOpen;
  core.commit();
  EXPECT_EQ(core.core.state().config, with_queue(7));
  const int groups = core.writer.started;
  core.commit();
  EXPECT_EQ(core.writer.started, groups) << "and only once";
}

TEST(HostCore, AConfigurationThatTheFullDiskRefusedIsTriedAgain) {
  Core core;
  core.core.want(with_queue(7));
  core.core.turn();
  ASSERT_TRUE(core.core.in_flight());
  core.core.on_durable(Error{.code = ErrorCode::kStorageFull, .message = "no room"});
  EXPECT_NE(core.core.state().config, with_queue(7));
  core.clock.now = core.clock.now + seconds(1);
  core.commit();
  EXPECT_EQ(core.core.state().config, with_queue(7));
}

TEST(HostCore, AConfigurationThatWasProposedIsNotTakenBack) {
  Core core;
  core.core.want(with_queue(7));
  core.commit();
  core.core.propose(Configure{.config = with_queue(8)}, {});
  core.commit();
  core.commit();
  EXPECT_EQ(core.core.state().config, with_queue(8));
}

TEST(HostCore, SharesThatWereSetAreNotAskedForAgain) {
  Core core;
  EngineConfig config;
  config.pools = {.online_milli = 700, .batch_milli = 300};
  core.core.want(config);
  core.commit();
  core.core.propose(SetPools{.online_milli = 500, .batch_milli = 500, .by = "op"}, {});
  core.commit();
  const int groups = core.writer.started;
  core.commit();
  EXPECT_EQ(core.writer.started, groups);
  EXPECT_EQ(core.core.state().config.pools.online_milli, 500);
  config.queue_size_max = 17;
  core.core.want(config);
  core.commit();
  EXPECT_EQ(core.core.state().config.queue_size_max, 17);
  EXPECT_EQ(core.core.state().config.pools.online_milli, 500);
}

TEST(HostCore, AConfigurationThatTheEngineRefusesIsTriedOnceAndTold) {
  Core core;
  EngineConfig bad;
  bad.pools = {.online_milli = 900, .batch_milli = 900};
  core.core.want(bad);
  core.commit();
  EXPECT_NE(core.core.config_trouble(), "");
  const int groups = core.writer.started;
  core.commit();
  EXPECT_EQ(core.writer.started, groups);
}

TEST(HostCore, FinishedJobsAreForgottenOnAFullDiskAndTheConfigurationComesBack) {
  Core core;
  core.core.want(EngineConfig{});
  for (int i = 0; i < 4; ++i) {
    const auto job = core.submit("");
    core.core.propose(CancelJob{.job = JobId{(*job)->applied.first_id}}, {});
    core.commit();
  }
  ASSERT_EQ(core.core.state().finished.size(), 4u);
  core.core.keep_finished(2);
  core.commit();
  EXPECT_EQ(core.core.state().finished.size(), 4u) << "the disk has room";
  core.writer.room = JournalSpace::kReserveOnly;
  core.core.turn();
  core.core.keep_finished(2);
  for (int i = 0; i < 6; ++i) core.commit();
  EXPECT_EQ(core.core.state().finished.size(), 2u);
  EXPECT_EQ(core.core.state().config.finished_jobs_max, 2);
  core.writer.room = JournalSpace::kOpen;
  for (int i = 0; i < 3; ++i) core.commit();
  EXPECT_EQ(core.core.state().config, EngineConfig{});
}

TEST(HostCore, WhatWaitsAtTheEndIsAnswered) {
  Core core;
  const auto job = core.submit("");
  std::vector<ErrorCode> answers;
  const auto answer = [&](const Result<Decided>& result) {
    answers.push_back(result.ok() ? ErrorCode::kIo : result.error().code);
  };
  core.core.propose(CancelJob{.job = JobId{(*job)->applied.first_id}}, answer);
  core.core.turn();
  ASSERT_TRUE(core.core.in_flight());
  // Nothing was written: it waits for room, and the end comes before that.
  core.core.on_durable(Error{.code = ErrorCode::kStorageFull, .message = "no room"});
  EXPECT_TRUE(answers.empty());
  core.core.close();
  EXPECT_EQ(answers, std::vector<ErrorCode>{ErrorCode::kUnavailable});
}

TEST(HostCore, EachGroupNamesTheDigestBehindTheOneBefore) {
  Core core;
  ASSERT_TRUE(core.submit(""));
  const uint64_t digest = core.core.state().digest.value();
  ASSERT_TRUE(core.submit(""));
  const Result<CommandGroup> group = decode_group(core.writer.last.payload);
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ(group->digest_before, digest);
}

// Programs before feature level 11 may take the folder until then.
TEST(HostCore, WhoProposedIsJournaledFromTheFeatureLevelOnThatKnowsIt) {
  const Proposer service{.kind = CallerKind::kService, .name = "ci", .key_id = "key-3"};
  for (const int64_t level : {int64_t{10}, int64_t{11}}) {
    Core core;
    core.core.propose(Configure{.config = {.feature_level = level}}, {});
    while (core.core.state().config.feature_level != level) core.commit();
    bool answered = false;
    core.core.propose(Proposal{.command = PauseStarts{.by = "ana"},
                               .decision = [&](const Result<Decided>&) { answered = true; },
                               .by = service});
    while (!answered) core.commit();
    const Result<CommandGroup> group = decode_group(core.writer.last.payload);
    ASSERT_TRUE(group.ok()) << group.error().message;
    ASSERT_TRUE(std::holds_alternative<PauseStarts>(group->commands.front()));
    const Proposer* const by = group->proposer_of(0);
    ASSERT_EQ(by != nullptr, level >= 11);
    EXPECT_EQ(by == nullptr ? service : *by, service);
  }
}

/// Submissions of 1 MB and more for two tenants, under a limit of 64 MB.
class Specs : public ::testing::Test {
 protected:
  static constexpr int64_t kMax = int64_t{64} << 20;
  static constexpr int64_t kOne = limits::kSpecBytesMax;

  Specs() : core_(HostTuning{.spec_bytes_max = kMax}) {
    core_.core.want(core_.core.state().config);
    EXPECT_TRUE(ask(CreateTenant{.name = "other"})->ok());
    other_ = core_.core.state().find_tenant_named("other")->id;
  }
  std::optional<Result<Decided>> ask(const Command& command) {
    std::optional<Result<Decided>> answer;
    core_.core.propose(command, [&answer](Result<Decided> result) { answer = std::move(result); });
    while (!answer) core_.commit();
    return answer;
  }
  static SubmitJobs batch(TenantId tenant, int64_t bytes) {
    SubmitJobs command = Core::batch_of(static_cast<std::size_t>(bytes));
    command.tenant = tenant;
    return command;
  }
  bool fits(TenantId tenant, int64_t bytes) { return ask(batch(tenant, bytes))->ok(); }
  const State& state() const { return core_.core.state(); }
  void settle() {
    for (int i = 0; i < 50; ++i) core_.commit();
  }

  Core core_;
  TenantId other_;
};

TEST_F(Specs, ManyAtOnceNeverTakeMoreThanTheLimitAndNobodyMoreThanIsLeft) {
  int64_t accepted = 0;
  int64_t refused = 0;
  std::string sentence;
  for (int i = 0; i < 100; ++i) {  // All wait at the same time.
    core_.core.propose(batch(kDefaultTenant, kOne), [&](const Result<Decided>& result) {
      ++(result.ok() ? accepted : refused);
      if (result.ok()) return;
      EXPECT_EQ(result.error().code, ErrorCode::kSpecsFull);
      sentence = result.error().message;
    });
  }
  while (accepted + refused < 100) core_.commit();
  EXPECT_EQ(accepted, 32);
  EXPECT_EQ(state().spec_bytes, 32 * kOne);
  EXPECT_EQ(sentence,
            "the specifications of jobs that have not ended take 32 MB of the 64 MB that "
            "scheduler.specs_mb_max allows, 32 MB of it those that tenant default has, and nobody may use "
            "more than the space left free for others; wait until jobs end, cancel some, or put large "
            "scripts and data into files that the jobs read");
  // Another one finds room, up to what is left then.
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(fits(other_, kOne));
  EXPECT_FALSE(fits(other_, kOne));
  EXPECT_FALSE(fits(kDefaultTenant, 1));
  EXPECT_EQ(state().unfinished_spec_bytes, 48 * kOne);
}

TEST_F(Specs, TenantsOfCallersWithoutACredentialAreOne) {
  std::vector<TenantId> made;
  for (int i = 0; i < 8; ++i) {
    const auto decided = ask(CreateTenant{.name = "open" + std::to_string(i), .anonymous = true});
    made.push_back(TenantId{(*decided)->applied.first_id});
  }
  int64_t accepted = 0;
  for (int i = 0; i < 80; ++i) accepted += fits(made[static_cast<std::size_t>(i % 8)], kOne) ? 1 : 0;
  EXPECT_EQ(accepted, 32);
  EXPECT_TRUE(fits(other_, kOne));
  ASSERT_TRUE(ask(UpdateTenant{.tenant = made[0], .given = kTenantAnonymous, .anonymous = false})->ok());
  EXPECT_EQ(state().unfinished_spec_bytes_of.at(made[0]), 4 * kOne);
  EXPECT_EQ(state().unfinished_spec_bytes_of.at(TenantId{}), 28 * kOne);
}

TEST_F(Specs, ARefusalNamesTheCallersTenantAndNoneAboveIt) {
  const auto make = [&](const char* name, TenantId parent) {
    return TenantId{(*ask(CreateTenant{.name = name, .parent = parent}))->applied.first_id};
  };
  const TenantId top = make("secret-top", {});
  const TenantId middle = make("secret-middle", top);
  const TenantId leaf = make("leaf", middle);
  const TenantId sibling = make("secret-sibling", top);
  while (fits(sibling, kOne)) {
  }
  const auto refused = ask(batch(leaf, kOne));
  ASSERT_FALSE(refused->ok());
  EXPECT_EQ(refused->error().code, ErrorCode::kSpecsFull);
  EXPECT_EQ(refused->error().message.find("secret"), std::string::npos) << refused->error().message;
  EXPECT_NE(refused->error().message.find("tenant leaf"), std::string::npos) << refused->error().message;
  const auto at_top = ask(batch(top, kOne));
  EXPECT_NE(at_top->error().message.find("secret-top"), std::string::npos) << at_top->error().message;
}

TEST_F(Specs, AnArrayCountsOnceAndAnEditLikeASubmission) {
  SubmitJobs array = batch(kDefaultTenant, kOne);
  array.jobs[0].flow.push_back(JobFlow{.array = {{.first = 0, .last = 99, .step = 1}}});
  const auto decided = ask(array);
  ASSERT_TRUE(decided->ok() && !(*decided)->applied.rejection);
  settle();
  EXPECT_GT(state().jobs.size(), 100u);
  EXPECT_EQ(state().spec_bytes, kOne);
  std::vector<JobId> small;
  for (int i = 0; i < 40; ++i) small.push_back(JobId{(*ask(batch(other_, 10)))->applied.first_id});
  int64_t grown = 0;
  const auto grow = [&](JobId job) {
    return ask(UpdateJob{.job = job, .given = kJobSpec, .spec = Blob(std::string(kOne, 'u'))})->ok();
  };
  for (const JobId job : small) grown += grow(job) ? 1 : 0;
  EXPECT_EQ(grown, 31);
  EXPECT_EQ(state().spec_bytes, 32 * kOne + 9 * 10);
  EXPECT_TRUE(grow(small.front()));  // By as much as it gives back.
  // An element that gets its own takes room; the others go on sharing.
  EXPECT_TRUE(grow(JobId{(*decided)->applied.first_id + 1}));
  EXPECT_EQ(state().spec_bytes, 33 * kOne + 9 * 10);
}

TEST_F(Specs, CancelledJobsMakeRoomAndTheOldestFinishedOnesAreForgotten) {
  for (int round = 0; round < 8; ++round) {
    const uint64_t first = (*ask(batch(kDefaultTenant, 7 * kOne)))->applied.first_id;
    for (uint64_t job = first; job < first + 7; ++job) ASSERT_TRUE(ask(CancelJob{.job = JobId{job}})->ok());
    EXPECT_LE(state().spec_bytes, kMax);
  }
  EXPECT_EQ(state().unfinished_spec_bytes, 0);
  settle();
  EXPECT_LE(state().spec_bytes, kMax / 8 * 7);
  EXPECT_GT(state().finished.size(), 30u);
  for (int i = 0; i < 30; ++i) {
    std::optional<Result<Decided>> answer = ask(batch(kDefaultTenant, kOne));
    if (!answer->ok()) {  // Room is being made: who asks again finds it.
      EXPECT_NE(answer->error().message.find("removed to free space"), std::string::npos);
      settle();
      answer = ask(batch(kDefaultTenant, kOne));
    }
    EXPECT_TRUE(answer->ok());
    EXPECT_LE(state().spec_bytes, kMax);
  }
  settle();
  EXPECT_EQ(state().unfinished_spec_bytes, 30 * kOne);
}

TEST_F(Specs, WhatWasAcceptedIsAnsweredAgainAndARestartCountsTheSame) {
  SubmitJobs keyed = batch(kDefaultTenant, kOne);
  keyed.request_key = "again";
  const auto first = ask(keyed);
  while (fits(kDefaultTenant, kOne)) {
  }
  const auto again = ask(keyed);
  ASSERT_TRUE(again->ok());
  EXPECT_EQ((*again)->applied.first_id, (*first)->applied.first_id);
  FakeWriter writer(limits::kGroupBytesMax);
  NoSink sink;
  HostCore restarted(state().clone(), 0, HostTuning{.spec_bytes_max = kMax}, core_.clock, writer, sink,
                     [](const Error&) {});
  std::optional<Result<Decided>> answer;
  restarted.propose(batch(kDefaultTenant, kOne), [&](Result<Decided> result) { answer = std::move(result); });
  for (int i = 0; i < 5 && !answer; ++i) {
    restarted.turn();
    if (restarted.in_flight()) restarted.on_durable(Unit{});
  }
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().code, ErrorCode::kSpecsFull);
}

// Planned while another group was written, for a job whose deadline the disk then lets come too near.
TEST(HostCore, APlanThatWaitedForTheDiskIsMadeAnew) {
  Core core(HostTuning{.node_lease = hours(1)});
  const auto ask = [&](const Command& command) {
    uint64_t id = 0;
    core.core.propose(command, [&id](const Result<Decided>& result) {
      ASSERT_TRUE(result.ok() && !result->applied.rejection);
      id = result->applied.first_id;
    });
    while (!core.core.idle()) core.commit();
    return id;
  };
  const auto submit = [&](uint64_t tenant, Duration deadline_after) {
    JobRequest request = request_of({.gpus = 1});
    if (deadline_after.ns > 0) request.flow = {{.deadline_after = deadline_after}};
    return JobId{ask(SubmitJobs{.tenant = TenantId{tenant}, .jobs = {request}})};
  };
  ask(Configure{.config = {.feature_level = kFeatureLevel}});
  const NodeId node{ask(registration_of("n1", {.gpus = 1}))};
  const uint64_t low = ask(CreateTenant{.name = "low", .allow_preemption = true});
  const uint64_t high = ask(CreateTenant{.name = "high", .priority_tier = 5'000, .can_preempt_others = true});
  const JobId victim = submit(low, {});
  const Job* running = core.core.state().jobs.find(victim);
  ASSERT_EQ(running->state, JobState::kScheduled);
  ask(AttemptStarted{.job = victim, .attempt = 1, .node = node});
  ASSERT_EQ(running->state, JobState::kRunning);
  core.clock.now = core.clock.now + seconds(30);
  submit(high, seconds(60));
  ASSERT_EQ(core.core.stats().preemptions, 0U);  // A job that just began is let run for a minute.

  core.clock.now = core.clock.now + seconds(25);
  core.core.propose(Core::batch_of(1), {});
  core.core.turn();
  ASSERT_TRUE(core.core.in_flight());
  core.clock.now = core.clock.now + seconds(10);
  core.core.turn();
  ASSERT_EQ(core.core.proposals_waiting(), 2U);  // The plan waits for the group.
  core.clock.now = core.clock.now + seconds(20);
  core.core.on_durable(Unit{});
  while (!core.core.idle()) core.commit();
  // Its victim would be given ten seconds, and the deadline comes in five.
  EXPECT_EQ(core.core.stats().preemptions, 0U);
  EXPECT_EQ(running->state, JobState::kRunning);
}

TEST(HostCore, WhatStillWaitsAtTheEndIsRefused) {
  Core core;
  core.sink.room = false;  // Nothing is begun.
  int refused = 0;
  core.core.propose(Core::batch_of(1),
                    [&](const Result<Decided>& result) { refused += result.ok() ? 0 : 1; });
  core.core.propose(
      EditSet{.edits = {{.command = UpdateTenant{.tenant = kDefaultTenant}}},
              .decided = [&](const Result<EditsDecided>& result) { refused += result.ok() ? 0 : 1; }});
  core.core.turn();
  EXPECT_EQ(refused, 0);
  core.core.close();
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace gpusched
