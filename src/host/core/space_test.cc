#include <gtest/gtest.h>

#include "engine/testing/test_engine.h"
#include "host/core/host_core.h"
#include "host/testing/test_core.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// A scheduler on a volume that has more or less room.
class Space : public ::testing::Test {
 protected:
  void settle() {
    for (int i = 0; i < 10; ++i) core_.commit();
  }
  void add_node() {
    core_.core.propose(registration_of("n1", {.gpus = 1}), {});
    settle();
  }
  JobId submit() {
    SubmitJobs command{.tenant = kDefaultTenant, .jobs = {}};
    command.jobs.push_back(request_of({.gpus = 1, .max_runtime = hours(1)}));
    JobId job;
    core_.core.propose(command, [&](const Result<Decided>& decided) {
      if (decided.ok()) job = JobId{decided->applied.first_id};
    });
    settle();
    return job;
  }
  bool is_placed(JobId job) const { return core_.core.state().jobs.find(job)->attempt_count > 0; }

  Core core_;
};

TEST_F(Space, WhatWaitsIsStartedWhereThereIsNoneForNewWork) {
  const JobId job = submit();
  core_.writer.room = JournalSpace::kReserveOnly;
  add_node();
  EXPECT_FALSE(is_placed(job));
  core_.writer.room = JournalSpace::kNoNewWork;
  settle();
  EXPECT_TRUE(is_placed(job));
  EXPECT_FALSE(core_.core.accepts_new_work());
  EXPECT_FALSE(submit().valid());
  core_.writer.room = JournalSpace::kOpen;
  settle();
  EXPECT_TRUE(submit().valid());
}

TEST_F(Space, WhatTakesRightsAwayIsDoneWhereThereIsNoneForNewWork) {
  core_.core.propose(Configure{.config = {.feature_level = kFeatureLevel}}, {});
  settle();
  const auto record = [this](const RecordPerson& command) {
    std::optional<Result<Decided>> answer;
    core_.core.propose(command, [&answer](Result<Decided> decided) { answer = std::move(decided); });
    settle();
    return answer && answer->ok() && !(*answer)->applied.rejection
               ? std::optional(PersonId{(*answer)->applied.first_id})
               : std::nullopt;
  };
  const RecordPerson ana{.given = kPersonTenant | kPersonEmail | kPersonRole,
                         .tenant = kDefaultTenant,
                         .email = "ana@example.org",
                         .role = Role::kTenantAdmin};
  const std::optional<PersonId> person = record(ana);
  ASSERT_TRUE(person);
  core_.writer.room = JournalSpace::kReserveOnly;
  settle();
  RecordPerson bob = ana;
  bob.email = "bob@example.org";
  EXPECT_FALSE(record(bob));
  EXPECT_FALSE(record({.person = *person, .given = kPersonEmail, .email = "eve@example.org"}));
  EXPECT_FALSE(record({.person = *person, .given = kPersonActive, .active = true}));
  EXPECT_TRUE(record({.person = *person, .given = kPersonRole, .role = Role::kUser}));
  EXPECT_EQ(core_.core.state().people.find(*person)->role, Role::kUser);
  EXPECT_TRUE(record({.person = *person, .given = kPersonActive, .active = false}));
  EXPECT_FALSE(core_.core.state().people.find(*person)->active);
  // A set of edits that closes a tenant is one of them, too.
  bool closed = false, renamed = false;
  const auto edit = [this](UpdateTenant change, bool& done) {
    change.tenant = kDefaultTenant;
    core_.core.propose(
        EditSet{.edits = {{.command = std::move(change)}},
                .decided = [&done](const Result<EditsDecided>& decided) { done = decided.ok(); }});
    settle();
  };
  edit({.given = kTenantAnonymous, .anonymous = false}, closed);
  edit({.given = kTenantOrganization, .organization = "another"}, renamed);
  EXPECT_TRUE(closed);
  EXPECT_FALSE(renamed);
}

// Simulator seed 97067759069687: a promised start that passed meanwhile woke it a thousand times a second.
TEST_F(Space, APromiseThatIsDueWakesNobodyWhileNothingMayStart) {
  add_node();
  ASSERT_TRUE(is_placed(submit()));
  ASSERT_FALSE(is_placed(submit()));
  core_.writer.room = JournalSpace::kReserveOnly;
  core_.clock.now = core_.clock.now + hours(3);
  settle();
  EXPECT_GT(core_.core.next_wakeup() - core_.clock.now, milliseconds(100));
}

}  // namespace
}  // namespace gpusched
