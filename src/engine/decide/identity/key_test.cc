#include <gtest/gtest.h>

#include <string>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

// Keys: what may be made, that what is revoked stays so, and when they are forgotten.
namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class Keys : public ::testing::Test {
 protected:
  Keys() { configure(kFeatureLevel); }
  void configure(int64_t level) {
    EngineConfig config = engine.state().config;
    config.feature_level = level;
    engine.apply(Configure{.config = config});
  }
  CreateKey command_of(const std::string& name, TenantId home = {}) {
    return {.tenant = home,
            .name = name,
            .kind = CallerKind::kService,
            .prefix = "prefix" + std::to_string(10 + ++made_),
            .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
            .bindings = {},
            .unix_users = {"ana"},
            .expires_at = {},
            .by = "operator"};
  }
  KeyId make(const CreateKey& command) {
    const Applied applied = engine.apply(command);
    EXPECT_FALSE(applied.rejection.has_value());
    return KeyId{applied.first_id};
  }
  KeyId make(const std::string& name, TenantId home = {}) { return make(command_of(name, home)); }
  const AccessKey& key(KeyId id) { return *engine.state().keys.find(id); }
  Applied bind(KeyId id, const Binding& binding, bool taken = false) {
    return engine.apply(BindRole{.key = id, .tenant = binding.tenant, .role = binding.role, .taken = taken});
  }

  TestEngine engine;
  TenantId lab = engine.add_tenant("lab"), group = engine.add_tenant("group", lab),
           other = engine.add_tenant("other");
  int made_ = 0;
};

TEST_F(Keys, OneIsMadeUnderItsSequenceNumber) {
  CreateKey command = command_of("ci", lab);
  command.bindings = {{.tenant = group, .role = Role::kUser}};
  command.expires_at = engine.now() + hours(1);
  const uint64_t next = engine.state().last.sequence + 1;
  const KeyId id = make(command);
  EXPECT_EQ(id.value, next);
  EXPECT_EQ(key(id).name, "ci");
  EXPECT_EQ(key(id).tenant, lab);
  EXPECT_EQ(key(id).bindings, command.bindings);
  EXPECT_EQ(key(id).unix_users, command.unix_users);
  EXPECT_EQ(key(id).created_at, engine.now());
  EXPECT_EQ(key(id).created_by, "operator");
  EXPECT_EQ(engine.state().keys.find_prefix(command.prefix)->id, id);
  EXPECT_TRUE(key(id).is_alive(engine.now() + minutes(59)));
  EXPECT_FALSE(key(id).is_alive(engine.now() + hours(1)));
}

TEST_F(Keys, BeforeFeatureLevelNineThereAreNone) {
  configure(8);
  expect_rejected(engine.apply(command_of("ci")), RejectionCode::kStale);
  EXPECT_EQ(engine.state().keys.size(), 0u);
}

TEST_F(Keys, AHomeIsATenantThatIsThere) {
  expect_rejected(engine.apply(command_of("ci", TenantId{404})), RejectionCode::kTenantNotFound);
  engine.apply(DeleteTenant{.tenant = other});
  expect_rejected(engine.apply(command_of("ci", other)), RejectionCode::kTenantNotFound);
}

TEST_F(Keys, ANameIsOneLivingKeysInItsHome) {
  const KeyId first = make("ci", lab);
  expect_rejected(engine.apply(command_of("ci", lab)), RejectionCode::kKeyExists);
  make("ci", other);
  engine.apply(RevokeKey{.key = first});
  CreateKey short_lived = command_of("ci", lab);
  short_lived.expires_at = engine.now() + hours(1);
  make(short_lived);
  engine.advance(hours(1));
  make("ci", lab);
}

TEST_F(Keys, APrefixIsOneKeysForAsLongAsThatIsKept) {
  const CreateKey command = command_of("a");
  engine.apply(RevokeKey{.key = make(command)});
  CreateKey again = command_of("b");
  again.prefix = command.prefix;
  expect_rejected(engine.apply(again), RejectionCode::kKeyExists);
}

TEST_F(Keys, OneThatIsOverAlreadyIsRefused) {
  CreateKey command = command_of("ci");
  command.expires_at = engine.now();
  expect_rejected(engine.apply(command), RejectionCode::kKeyExpiry);
}

TEST_F(Keys, ThereAreBoundedManyOfOneHome) {
  for (uint32_t i = 0; i < limits::kKeysOfOneHomeMax; ++i) make("k" + std::to_string(i), lab);
  expect_rejected(engine.apply(command_of("more", lab)), RejectionCode::kKeyLimit);
  make("more", other);
}

TEST_F(Keys, NoBindingLeadsOutOfItsHome) {
  const KeyId id = make("ci", lab);
  EXPECT_FALSE(bind(id, {.tenant = lab, .role = Role::kTenantAdmin}).rejection.has_value());
  EXPECT_FALSE(bind(id, {.tenant = group, .role = Role::kUser}).rejection.has_value());
  EXPECT_EQ(key(id).bindings.size(), 2u);
  for (const Binding& binding :
       {Binding{.tenant = other, .role = Role::kUser}, Binding{.tenant = {}, .role = Role::kViewer},
        Binding{.tenant = {}, .role = Role::kAdmin}, Binding{.tenant = lab, .role = Role::kAdmin},
        Binding{.tenant = lab, .role = Role::kNode}, Binding{.tenant = TenantId{404}, .role = Role::kUser}}) {
    expect_rejected(bind(id, binding), RejectionCode::kBindingInvalid);
    CreateKey command = command_of("x", lab);
    command.bindings = {binding};
    expect_rejected(engine.apply(command), RejectionCode::kBindingInvalid);
  }
  const KeyId admins = make("admin");
  EXPECT_FALSE(bind(admins, {.tenant = {}, .role = Role::kAdmin}).rejection.has_value());
  EXPECT_FALSE(bind(admins, {.tenant = other, .role = Role::kUser}).rejection.has_value());
}

TEST_F(Keys, ARoleIsGivenOnceAndTakenOnce) {
  const KeyId id = make("ci", lab);
  const Binding user{.tenant = lab, .role = Role::kUser};
  bind(id, user);
  const Digest before = engine.digest();
  EXPECT_FALSE(bind(id, user).rejection.has_value());
  EXPECT_EQ(engine.digest(), before);
  bind(id, user, true);
  EXPECT_TRUE(key(id).bindings.empty());
  EXPECT_FALSE(bind(id, user, true).rejection.has_value());
}

TEST_F(Keys, AKeyHasBoundedManyRoles) {
  const KeyId id = make("ci");
  for (std::size_t i = 0; i < limits::kKeyBindingsMax; ++i)
    bind(id, {.tenant = engine.add_tenant("t" + std::to_string(i)), .role = Role::kUser});
  expect_rejected(bind(id, {.tenant = lab, .role = Role::kUser}), RejectionCode::kKeyLimit);
}

TEST_F(Keys, WhatIsRevokedStaysSo) {
  const KeyId id = make("ci", lab);
  engine.apply(RevokeKey{.key = id, .by = "ana"});
  EXPECT_FALSE(key(id).is_alive(engine.now()));
  EXPECT_EQ(key(id).revoked_by, "ana");
  const Time at = key(id).revoked_at;
  engine.advance(hours(1));
  expect_rejected(engine.apply(RevokeKey{.key = id, .by = "bob"}), RejectionCode::kKeyRevoked);
  expect_rejected(bind(id, {.tenant = lab, .role = Role::kUser}), RejectionCode::kKeyRevoked);
  EXPECT_EQ(key(id).revoked_at, at);
  expect_rejected(engine.apply(RevokeKey{.key = KeyId{404}}), RejectionCode::kKeyNotFound);
  expect_rejected(bind(KeyId{404}, {.tenant = lab, .role = Role::kUser}), RejectionCode::kKeyNotFound);
}

TEST_F(Keys, TheKeysOfADeletedTenantAreRevoked) {
  const KeyId id = make("ci", other), kept = make("ci", lab);
  engine.apply(DeleteTenant{.tenant = other, .by = "ana"});
  EXPECT_FALSE(key(id).is_alive(engine.now()));
  EXPECT_EQ(key(id).revoked_by, "ana");
  EXPECT_TRUE(key(kept).is_alive(engine.now()));
}

TEST_F(Keys, WhatEndedIsForgottenLater) {
  const KeyId revoked = make("a"), kept = make("b");
  CreateKey command = command_of("c");
  command.expires_at = engine.now() + hours(2);
  const KeyId expired = make(command);
  engine.apply(RevokeKey{.key = revoked});
  engine.advance(limits::kKeysKept - milliseconds(1));
  EXPECT_NE(engine.state().keys.find(revoked), nullptr);
  engine.advance(milliseconds(1));
  EXPECT_EQ(engine.state().keys.find(revoked), nullptr);
  EXPECT_NE(engine.state().keys.find(expired), nullptr);
  engine.advance(hours(2));
  EXPECT_EQ(engine.state().keys.find(expired), nullptr);
  EXPECT_EQ(engine.state().keys.size(), 1u);
  EXPECT_TRUE(key(kept).is_alive(engine.now()));
}

TEST_F(Keys, OnlyWhatMayBeAKeyIsProposed) {
  const CreateKey good = command_of("ci");
  EXPECT_TRUE(well_formed(good));
  const auto changed = [&](auto change) {
    CreateKey command = good;
    change(command);
    return well_formed(command);
  };
  EXPECT_FALSE(changed([](CreateKey& c) { c.name.clear(); }));
  EXPECT_FALSE(changed([](CreateKey& c) { c.kind = CallerKind::kOperator; }));
  EXPECT_FALSE(changed([](CreateKey& c) { c.kind = CallerKind{}; }));
  EXPECT_FALSE(changed([](CreateKey& c) { c.prefix = "Short"; }));
  EXPECT_FALSE(changed([](CreateKey& c) { c.prefix = "prefix.1"; }));
  EXPECT_FALSE(changed([](CreateKey& c) { c.hash = Blob("short"); }));
  EXPECT_FALSE(changed([](CreateKey& c) { c.unix_users = {""}; }));
  EXPECT_FALSE(
      changed([](CreateKey& c) { c.bindings.assign(2, {.tenant = kDefaultTenant, .role = Role::kUser}); }));
  EXPECT_FALSE(well_formed(BindRole{.key = KeyId{2}, .role = Role{}}));
  EXPECT_STREQ(unprintable_field(command_of("a\nb")), "name");
}

}  // namespace
}  // namespace gpusched
