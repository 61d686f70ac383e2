#include "api/backend/key_index.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace gpusched::api {
namespace {

class KeyIndexTest : public ::testing::Test {
 protected:
  /// Adds a key to the state, and returns what its holder has.
  std::string add(KeyId id, TenantId home, const std::string& name, Time expires_at = {}) {
    sign::NewApiKey made = sign::make_api_key();
    CHECK(state_.keys.add({.id = id,
                           .tenant = home,
                           .name = name,
                           .kind = CallerKind::kService,
                           .prefix = made.prefix,
                           .hash = Blob(made.hash),
                           .bindings = {{.tenant = home, .role = Role::kUser}},
                           .unix_users = {"ana"},
                           .created_by = "x",
                           .created_at = Time{1},
                           .expires_at = expires_at,
                           .revoked_at = {},
                           .revoked_by = {}}));
    return made.text;
  }
  void tell(Event event) {
    Changes changes;
    changes.events.push_back(std::move(event));
    changes.last.at = newest_;
    ring_.observe(state_, changes);
  }
  std::string told(const std::string& text) const {
    const auto parts = sign::parse_api_key(text);
    CHECK(parts.has_value());
    const Answer<CallerPtr> holder = ring_.holder_of(*parts);
    return holder ? (*holder)->name : holder.error().message;
  }

  CallerPtr holder(const std::string& text) const {
    const Answer<CallerPtr> holder = ring_.holder_of(*sign::parse_api_key(text));
    CHECK(holder.ok());
    return *holder;
  }
  /// Something that stays open under a key until it is told why it ends.
  struct Opened {
    std::string told;
    std::shared_ptr<void> token;
    std::string refused;
  };
  void open(const CallerPtr& caller, Opened& opened, std::optional<access::Action> action = std::nullopt) {
    Answer<std::shared_ptr<void>> token =
        ring_.while_valid(caller, action, [&opened](const ApiError& error) { opened.told += error.message; });
    if (token) opened.token = std::move(*token);
    if (!token) opened.refused = token.error().message;
  }
  void bind(KeyId key, const Binding& binding, bool taken) {
    state_.keys.bind(key, binding, taken);
    tell(RoleBound{.key = key, .tenant = binding.tenant, .role = binding.role, .taken = taken, .by = "x"});
  }
  void revoke(KeyId key) {
    state_.keys.revoke(key, Time{5}, "x");
    tell(KeyRevoked{.key = key, .at = Time{5}, .by = "x"});
  }

  State state_;
  Time now_{seconds(100).ns};
  Time newest_{1};
  KeyIndex ring_{[this] { return now_; }};
};

TEST_F(KeyIndexTest, AHolderIsWhatTheKeySays) {
  const std::string text = add(KeyId{7}, TenantId{3}, "ci");
  ring_.fill(state_);
  const Answer<CallerPtr> holder = ring_.holder_of(*sign::parse_api_key(text));
  ASSERT_TRUE(holder.ok());
  EXPECT_EQ((*holder)->kind, CallerKind::kService);
  EXPECT_EQ((*holder)->name, "tenant-3/ci");
  EXPECT_EQ((*holder)->key_id, "key-7");
  EXPECT_EQ((*holder)->bindings, (std::vector<Binding>{{.tenant = TenantId{3}, .role = Role::kUser}}));
  EXPECT_EQ((*holder)->unix_users, std::vector<std::string>{"ana"});
}

TEST_F(KeyIndexTest, OneNameInTwoHomesIsTwoHolders) {
  const std::string three = add(KeyId{1}, TenantId{3}, "ci");
  const std::string four = add(KeyId{2}, TenantId{4}, "ci");
  const std::string cluster = add(KeyId{3}, TenantId{}, "ci");
  const std::string other = add(KeyId{4}, kDefaultTenant, "ci");
  ring_.fill(state_);
  EXPECT_EQ(told(three), "tenant-3/ci");
  EXPECT_EQ(told(four), "tenant-4/ci");
  EXPECT_EQ(told(cluster), "ci");
  EXPECT_EQ(told(other), "default/ci");
}

TEST_F(KeyIndexTest, AWrongSecretIsToldNoMoreThanAStranger) {
  const std::string right = add(KeyId{1}, TenantId{3}, "ci");
  ring_.fill(state_);
  const std::string stranger = told(sign::make_api_key().text);
  std::string wrong = right;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  EXPECT_EQ(told(wrong), stranger);
  EXPECT_EQ(stranger, unknown_credential().message);
  state_.keys.revoke(KeyId{1}, Time{5}, "x");
  tell(KeyRevoked{.key = KeyId{1}, .at = Time{5}, .by = "x"});
  EXPECT_EQ(told(wrong), stranger);
  EXPECT_EQ(told(right), "the API key key-1 was revoked; send another one");
}

TEST_F(KeyIndexTest, AKeyEndsWithItsTime) {
  const std::string text = add(KeyId{1}, TenantId{3}, "ci", Time{seconds(101).ns});
  ring_.fill(state_);
  EXPECT_EQ(told(text), "tenant-3/ci");
  now_ = Time{seconds(101).ns};
  EXPECT_EQ(told(text), "the API key key-1 has expired; send another one");
  now_ = Time{seconds(50).ns};
  EXPECT_EQ(told(text), "tenant-3/ci");
}

TEST_F(KeyIndexTest, AWallClockSetBackRevivesNoKey) {
  const std::string text = add(KeyId{1}, TenantId{3}, "ci", Time{seconds(101).ns});
  ring_.fill(state_);
  newest_ = Time{seconds(102).ns};
  tell(KeyForgotten{.key = KeyId{99}});
  now_ = Time{seconds(50).ns};
  EXPECT_EQ(told(text), "the API key key-1 has expired; send another one");
}

TEST_F(KeyIndexTest, FollowsWhatHappensToKeys) {
  ring_.fill(state_);
  const std::string text = add(KeyId{1}, TenantId{3}, "ci");
  EXPECT_EQ(told(text), unknown_credential().message);
  tell(KeyCreated{.key = *state_.keys.find(KeyId{1})});
  EXPECT_EQ(told(text), "tenant-3/ci");
  const Binding more{.tenant = TenantId{3}, .role = Role::kTenantAdmin};
  state_.keys.bind(KeyId{1}, more, false);
  tell(RoleBound{.key = KeyId{1}, .tenant = more.tenant, .role = more.role, .taken = false, .by = "x"});
  EXPECT_EQ((*ring_.holder_of(*sign::parse_api_key(text)))->bindings.back(), more);
  state_.keys.revoke_all_of(TenantId{3}, Time{5}, "x");
  tell(TenantDeleted{.tenant = TenantId{3}, .at = Time{5}, .by = "x"});
  EXPECT_EQ(told(text), "the API key key-1 was revoked; send another one");
  state_.keys.remove(KeyId{1});
  tell(KeyForgotten{.key = KeyId{1}});
  EXPECT_EQ(told(text), unknown_credential().message);
}

TEST_F(KeyIndexTest, WhatIsOpenEndsWithItsKey) {
  const std::string one = add(KeyId{1}, TenantId{3}, "ci"), two = add(KeyId{2}, TenantId{3}, "cd");
  ring_.fill(state_);
  Opened first, second;
  open(holder(one), first);
  open(holder(two), second);
  ring_.end_expired();
  revoke(KeyId{1});
  EXPECT_EQ(first.told, "the API key key-1 was revoked; send another one");
  EXPECT_EQ(second.told, "");
  state_.keys.revoke_all_of(TenantId{3}, Time{5}, "x");
  tell(TenantDeleted{.tenant = TenantId{3}, .at = Time{5}, .by = "x"});
  EXPECT_EQ(second.told, "the API key key-2 was revoked; send another one");
}

TEST_F(KeyIndexTest, WhatIsOpenEndsWhenItsKeyExpires) {
  const std::string text = add(KeyId{1}, TenantId{3}, "ci", Time{seconds(101).ns});
  ring_.fill(state_);
  Opened opened;
  open(holder(text), opened);
  ring_.end_expired();
  EXPECT_EQ(opened.told, "");
  now_ = Time{seconds(101).ns};
  ring_.end_expired();
  EXPECT_EQ(opened.told, "the API key key-1 has expired; send another one");
}

TEST_F(KeyIndexTest, NothingIsOpenedUnderAKeyThatHasJustEnded) {
  const std::string one = add(KeyId{1}, TenantId{3}, "a"), two = add(KeyId{2}, TenantId{3}, "b"),
                    three = add(KeyId{3}, TenantId{3}, "c", Time{seconds(101).ns}),
                    four = add(KeyId{4}, TenantId{3}, "d");
  ring_.fill(state_);
  // Let in a moment ago.
  const CallerPtr callers[] = {holder(one), holder(two), holder(three), holder(four)};
  revoke(KeyId{1});
  bind(KeyId{2}, {.tenant = TenantId{3}, .role = Role::kUser}, true);
  now_ = Time{seconds(101).ns};
  state_.keys.remove(KeyId{4});
  tell(KeyForgotten{.key = KeyId{4}});
  Opened opened[4];
  for (int i = 0; i < 4; ++i) open(callers[i], opened[i]);
  EXPECT_EQ(opened[0].refused, "the API key key-1 was revoked; send another one");
  EXPECT_NE(opened[1].refused.find("a role that this needs was taken from the API key key-2"),
            std::string::npos);
  EXPECT_EQ(opened[2].refused, "the API key key-3 has expired; send another one");
  EXPECT_EQ(opened[3].refused, "the API key key-4 was revoked; send another one");
}

TEST_F(KeyIndexTest, WhatALostRoleAllowedEnds) {
  const Binding viewer{.tenant = TenantId{3}, .role = Role::kViewer}, user{TenantId{3}, Role::kUser};
  const std::string text = add(KeyId{1}, TenantId{3}, "ci");
  ring_.fill(state_);
  bind(KeyId{1}, viewer, false);
  Opened watch, log, unknown;
  open(holder(text), watch, access::Action::kSeeJob);
  open(holder(text), log, access::Action::kReadJobOutput);
  bind(KeyId{1}, {.tenant = TenantId{3}, .role = Role::kTenantAdmin}, false);
  EXPECT_EQ(watch.told + log.told, "");  // More is not less.
  bind(KeyId{1}, {.tenant = TenantId{3}, .role = Role::kTenantAdmin}, true);
  EXPECT_EQ(watch.told + log.told, "");  // They began without it.
  bind(KeyId{1}, viewer, true);
  EXPECT_EQ(watch.told + log.told, "");  // A user sees all that a viewer does.
  bind(KeyId{1}, viewer, false);
  open(holder(text), unknown);
  bind(KeyId{1}, user, true);
  EXPECT_NE(log.told, "");
  EXPECT_NE(watch.told, "");  // It shows the scripts of the holder's own jobs.
  EXPECT_NE(unknown.told, "");
  Opened seen;
  open(holder(text), seen, access::Action::kSeeJob);
  EXPECT_EQ(seen.refused, "");
  bind(KeyId{1}, viewer, true);
  EXPECT_NE(seen.told, "");
}

TEST_F(KeyIndexTest, NothingStaysOpenThatIsOpenedWhileItsKeyEnds) {
  std::atomic<int> missed{0};
  for (uint64_t i = 1; i <= 300; ++i) {
    const std::string text = add(KeyId{i}, TenantId{3}, "k" + std::to_string(i));
    tell(KeyCreated{.key = *state_.keys.find(KeyId{i})});
    const CallerPtr caller = holder(text);
    std::atomic<bool> go{false};
    std::atomic<int> told{0};
    std::shared_ptr<void> token;
    bool refused = false;
    std::thread opener([&] {
      go = true;
      Answer<std::shared_ptr<void>> answer =
          ring_.while_valid(caller, std::nullopt, [&](const ApiError&) { told += 1; });
      refused = !answer.ok();
      if (answer) token = std::move(*answer);
    });
    while (!go) std::this_thread::yield();
    revoke(KeyId{i});
    opener.join();
    missed += !refused && told == 0;
    EXPECT_LE(told, 1);
  }
  EXPECT_EQ(missed, 0);
}

TEST_F(KeyIndexTest, KnowsWhenAKeyLastLetSomebodyIn) {
  const Time minute{minutes(1).ns}, hour{hours(1).ns};
  const std::string one = add(KeyId{1}, TenantId{3}, "a"), two = add(KeyId{2}, TenantId{3}, "b");
  add(KeyId{3}, TenantId{3}, "c");
  ring_.fill(state_);
  EXPECT_TRUE(ring_.uses().empty());
  told(one);
  EXPECT_EQ(ring_.last_use(KeyId{1}), minute);  // It is 100 s.
  now_ = hour + seconds(59);
  told(two);
  std::string wrong = one;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  told(wrong);
  EXPECT_EQ(ring_.uses(), (KeyUses{{KeyId{1}, minute}, {KeyId{2}, hour}}));
  // A change of the key keeps it, and what a key that ended is asked for is no use of it.
  bind(KeyId{1}, {.tenant = TenantId{3}, .role = Role::kViewer}, false);
  EXPECT_EQ(ring_.last_use(KeyId{1}), minute);
  revoke(KeyId{1});
  told(one);
  EXPECT_EQ(ring_.last_use(KeyId{1}), minute);
}

TEST_F(KeyIndexTest, TakesUpWhatWasKnownOfKeys) {
  const std::string one = add(KeyId{1}, TenantId{3}, "a");
  add(KeyId{2}, TenantId{3}, "b");
  ring_.fill(state_);
  now_ = Time{hours(2).ns};
  told(one);
  const Time before{hours(1).ns};
  ring_.restore({{KeyId{1}, before}, {KeyId{2}, before}, {KeyId{9}, before}});
  EXPECT_EQ(ring_.uses(), (KeyUses{{KeyId{1}, now_}, {KeyId{2}, before}}));
}

TEST_F(KeyIndexTest, IsAskedWhileItChanges) {
  const std::string text = add(KeyId{1}, TenantId{3}, "ci");
  ring_.fill(state_);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> wrong{0}, asked{0};
  std::thread reader([&] {
    while (!stop) {
      wrong += told(text) != "tenant-3/ci";
      asked += 1;
    }
  });
  for (int i = 0; i < 500; ++i)
    tell(RoleBound{.key = KeyId{1}, .tenant = {}, .role = {}, .taken = {}, .by = {}});
  while (asked < 100) std::this_thread::yield();
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gpusched::api
