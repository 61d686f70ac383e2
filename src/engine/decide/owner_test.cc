#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

// Owners of jobs, and their request keys.
namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

const JobOwner kAna{.kind = CallerKind::kPerson, .name = "ana"};
const JobOwner kProgram{.kind = CallerKind::kService, .name = "ana"};
const JobOwner kAnonymous{.kind = CallerKind::kAnonymous, .name = ""};

class Owners : public ::testing::Test {
 protected:
  Owners() { configure(kFeatureLevel); }
  void configure(int64_t level) {
    EngineConfig config = engine.state().config;
    config.feature_level = level;
    engine.apply(Configure{.config = config});
  }
  static SubmitJobs command_of(const JobOwner& owner, std::string key = {}) {
    return {.tenant = kDefaultTenant,
            .request_key = std::move(key),
            .jobs = {{.parts = {Part{.cpu_milli = 1}}}},
            .owner_kind = owner.kind,
            .owner = owner.name};
  }
  JobId submit(const JobOwner& owner) { return JobId{engine.apply(command_of(owner)).first_id}; }
  const JobOwner* owner_of(JobId job) { return engine.state().owners.at(engine.job(job).owner); }

  TestEngine engine;
};

TEST_F(Owners, AJobAndItsElementsAreOwnedByWhoSubmittedThem) {
  SubmitJobs command = command_of(kAna);
  command.jobs.push_back(command.jobs.front());
  command.jobs.front().flow.push_back({.array = {{.first = 0, .last = 2}}});
  const uint64_t first = engine.apply(command).first_id;
  const JobId other = submit(kProgram);
  const JobId anonymous = submit(kAnonymous);
  engine.apply(HoldJob{.job = JobId{first + 2}, .held = true});
  for (const uint64_t job : {first, first + 2, first + 4}) {
    ASSERT_NE(owner_of(JobId{job}), nullptr) << job;
    EXPECT_EQ(*owner_of(JobId{job}), kAna) << job;
  }
  EXPECT_EQ(*owner_of(other), kProgram) << "a program is not the person of that name";
  EXPECT_EQ(*owner_of(anonymous), kAnonymous);
  EXPECT_EQ(engine.state().owners.size(), 3u);
}

TEST_F(Owners, BeforeFeatureLevelNineAJobIsNobodys) {
  configure(8);
  engine.apply(command_of(kAna, "key"));
  EXPECT_EQ(engine.state().owners.size(), 0u);
  EXPECT_TRUE(engine.apply(command_of(kProgram, "key")).repeated) << "as it was then";
}

TEST_F(Owners, AKeyNeverAnswersWithAnothersJobs) {
  const Applied first = engine.apply(command_of(kAna, "key"));
  for (const JobOwner& owner : {kProgram, kAnonymous}) {
    const Applied own = engine.apply(command_of(owner, "key"));
    EXPECT_FALSE(own.repeated);
    EXPECT_NE(own.first_id, first.first_id);
    SubmitJobs another = command_of(owner, "key");
    another.jobs.front().priority = 7;
    expect_rejected(engine.apply(another), RejectionCode::kRequestKeyConflict);
    const Applied again = engine.apply(command_of(owner, "key"));
    EXPECT_TRUE(again.repeated);
    EXPECT_EQ(again.first_id, own.first_id);
  }
  EXPECT_EQ(engine.apply(command_of(kAna, "key")).first_id, first.first_id);
  SubmitJobs another = command_of({.kind = CallerKind::kPerson, .name = "bob"}, "key");
  another.jobs.front().priority = 7;
  EXPECT_FALSE(engine.apply(another).rejection.has_value()) << "nor tells that somebody else used it";
}

TEST_F(Owners, AKeyOfBeforeFeatureLevelNineIsAnsweredAgain) {
  configure(8);
  const Applied first = engine.apply(command_of(kAna, "key"));
  configure(kFeatureLevel);
  EXPECT_EQ(engine.apply(command_of(kAna, "key")).first_id, first.first_id);
  engine.advance(limits::kRequestKeysKept);
  EXPECT_FALSE(engine.apply(command_of(kAna, "key")).repeated);
}

TEST_F(Owners, AnOwnerIsForgottenWithItsLastJobAndKey) {
  const Applied applied = engine.apply(command_of(kAna, "key"));
  const uint32_t number = engine.job(JobId{applied.first_id}).owner;
  engine.apply(CancelJob{.job = JobId{applied.first_id}});
  engine.advance(limits::kRequestKeysKept);
  EXPECT_EQ(engine.state().requests.size(), 0u);
  EXPECT_EQ(engine.state().owners.find(kAna.kind, kAna.name), number) << "its job is still there";
  engine.advance(engine.state().config.finished_jobs_kept);
  EXPECT_EQ(engine.state().owners.size(), 0u);
  EXPECT_EQ(engine.job(submit(kProgram)).owner, number) << "the number is another's";
}

TEST_F(Owners, WhoOwnsJobsIsAPossibleCaller) {
  EXPECT_TRUE(well_formed(command_of({})));
  EXPECT_TRUE(well_formed(command_of(kAnonymous)));
  EXPECT_TRUE(well_formed(command_of(kAna)));
  EXPECT_FALSE(well_formed(command_of({.kind = CallerKind{}, .name = "ana"})));
  EXPECT_FALSE(well_formed(command_of({.kind = static_cast<CallerKind>(6), .name = "ana"})));
  EXPECT_FALSE(well_formed(command_of({.kind = CallerKind::kPerson, .name = ""})));
  EXPECT_STREQ(unprintable_field(command_of({.kind = CallerKind::kPerson, .name = "a\nb"})), "owner");
}

}  // namespace
}  // namespace gpusched
