#include <gtest/gtest.h>

#include <string>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

// People: who is recorded, and what becomes of their keys.
namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class People : public ::testing::Test {
 protected:
  People() { configure(kFeatureLevel); }
  void configure(int64_t level) {
    EngineConfig config = engine.state().config;
    config.feature_level = level;
    engine.apply(Configure{.config = config});
  }
  RecordPerson command_of(const std::string& email) {
    return {.person = {},
            .given = kPersonTenant | kPersonEmail | kPersonRole,
            .tenant = lab,
            .email = email,
            .role = Role::kUser,
            .by = "op"};
  }
  PersonId record(const std::string& email) {
    const Applied applied = engine.apply(command_of(email));
    EXPECT_FALSE(applied.rejection.has_value());
    return PersonId{applied.first_id};
  }
  Applied change(PersonId id, uint32_t given, RecordPerson command = {}) {
    command.person = id;
    command.given = given;
    command.by = "admin";
    return engine.apply(command);
  }
  Applied make_key(PersonId id, TenantId home, Role role = Role::kUser) {
    return engine.apply(CreateKey{.tenant = home,
                                  .name = key_name_of(id),
                                  .kind = CallerKind::kPerson,
                                  .prefix = "prefix" + std::to_string(10 + ++made_),
                                  .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
                                  .bindings = {{.tenant = home, .role = role}},
                                  .by = "op"});
  }
  const Person& person(PersonId id) { return *engine.state().people.find(id); }
  const AccessKey& key(uint64_t id) { return *engine.state().keys.find(KeyId{id}); }

  TestEngine engine;
  TenantId lab = engine.add_tenant("lab"), other = engine.add_tenant("other");
  int made_ = 0;
};

TEST_F(People, AreRecordedUnderTheirSequenceNumber) {
  const uint64_t next = engine.state().last.sequence + 1;
  const PersonId id = record("ana@x.org");
  EXPECT_EQ(id.value, next);
  EXPECT_EQ(person(id).tenant, lab);
  EXPECT_TRUE(person(id).active);
  EXPECT_EQ(person(id).created_at, engine.now());
  engine.advance(hours(1));
  change(id, kPersonPassword, {.password = Blob("$argon2id$")});
  EXPECT_EQ(person(id).email, "ana@x.org");
  EXPECT_EQ(person(id).password.view(), "$argon2id$");
  EXPECT_EQ(person(id).updated_at, engine.now());
  EXPECT_EQ(person(id).created_at, engine.now() - hours(1));
}

TEST_F(People, HaveAnAddressOfTheirOwnWhateverItsCase) {
  const PersonId ana = record("ana@x.org"), bob = record("bob@x.org");
  expect_rejected(engine.apply(command_of("Ana@X.org")), RejectionCode::kPersonExists);
  expect_rejected(change(bob, kPersonEmail, {.email = "ANA@x.org"}), RejectionCode::kPersonExists);
  EXPECT_FALSE(change(ana, kPersonEmail, {.email = "Ana@x.org"}).rejection.has_value());
  EXPECT_FALSE(change(ana, kPersonEmail, {.email = "anna@x.org"}).rejection.has_value());
  record("ana@x.org");
}

TEST_F(People, AreOfATenantThatIsThereWithARoleThatItHas) {
  RecordPerson command = command_of("ana@x.org");
  command.tenant = TenantId{404};
  expect_rejected(engine.apply(command), RejectionCode::kTenantNotFound);
  command = command_of("ana@x.org");
  command.role = Role::kAdmin;
  expect_rejected(engine.apply(command), RejectionCode::kBindingInvalid);
  expect_rejected(change(PersonId{404}, kPersonActive), RejectionCode::kPersonNotFound);
}

TEST_F(People, HaveAKeyWhileTheyAreActiveInItsHome) {
  const PersonId id = record("ana@x.org");
  expect_rejected(make_key(id, other), RejectionCode::kPersonNotFound);
  expect_rejected(make_key(PersonId{404}, lab), RejectionCode::kPersonNotFound);
  const Applied made = make_key(id, lab);
  ASSERT_FALSE(made.rejection.has_value());
  change(id, kPersonActive, {.active = false});
  EXPECT_FALSE(key(made.first_id).is_alive(engine.now()));
  EXPECT_EQ(key(made.first_id).revoked_by, "admin");
  expect_rejected(make_key(id, lab), RejectionCode::kPersonNotFound);
  change(id, kPersonActive, {.active = true});
  EXPECT_FALSE(make_key(id, lab).rejection.has_value());
}

TEST_F(People, HaveNoKeyOfARoleThatTheyHadBefore) {
  const PersonId id = record("ana@x.org");
  change(id, kPersonRole, {.role = Role::kViewer});
  expect_rejected(make_key(id, lab), RejectionCode::kStale);
  EXPECT_FALSE(make_key(id, lab, Role::kViewer).rejection.has_value());
}

TEST_F(People, LoseTheirKeyWhenTheyMoveAndKeepItWithAnotherRole) {
  const PersonId id = record("ana@x.org");
  const uint64_t made = make_key(id, lab).first_id;
  change(id, kPersonRole, {.role = Role::kTenantAdmin});
  EXPECT_TRUE(key(made).is_alive(engine.now()));
  EXPECT_EQ(key(made).bindings, (std::vector<Binding>{{.tenant = lab, .role = Role::kTenantAdmin}}));
  change(id, kPersonTenant, {.tenant = other});
  EXPECT_FALSE(key(made).is_alive(engine.now()));
  EXPECT_FALSE(make_key(id, other, Role::kTenantAdmin).rejection.has_value());
}

TEST_F(People, OfADeletedTenantAreActiveNoMore) {
  const PersonId id = record("ana@x.org");
  engine.apply(DeleteTenant{.tenant = lab, .by = "op"});
  EXPECT_FALSE(person(id).active);
  expect_rejected(change(id, kPersonActive, {.active = true}), RejectionCode::kTenantNotFound);
  const RecordPerson moved{.tenant = other, .active = true};
  EXPECT_FALSE(change(id, kPersonTenant | kPersonActive, moved).rejection.has_value());
}

TEST_F(People, BeforeFeatureLevelElevenThereAreNone) {
  configure(10);
  expect_rejected(engine.apply(command_of("ana@x.org")), RejectionCode::kStale);
  EXPECT_FALSE(make_key(PersonId{404}, lab).rejection.has_value());
}

}  // namespace
}  // namespace gpusched
