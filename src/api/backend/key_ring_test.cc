#include "api/backend/key_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace gpusched::api {
namespace {

class KeyRingTest : public testing::Test {
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

  State state_;
  Time now_{seconds(100).ns};
  Time newest_{1};
  KeyRing ring_{[this] { return now_; }};
};

TEST_F(KeyRingTest, AHolderIsWhatTheKeySays) {
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

TEST_F(KeyRingTest, OneNameInTwoHomesIsTwoHolders) {
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

TEST_F(KeyRingTest, AWrongSecretIsToldNoMoreThanAStranger) {
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

TEST_F(KeyRingTest, AKeyEndsWithItsTime) {
  const std::string text = add(KeyId{1}, TenantId{3}, "ci", Time{seconds(101).ns});
  ring_.fill(state_);
  EXPECT_EQ(told(text), "tenant-3/ci");
  now_ = Time{seconds(101).ns};
  EXPECT_EQ(told(text), "the API key key-1 has expired; send another one");
  now_ = Time{seconds(50).ns};
  EXPECT_EQ(told(text), "tenant-3/ci");
}

TEST_F(KeyRingTest, AWallClockSetBackRevivesNoKey) {
  const std::string text = add(KeyId{1}, TenantId{3}, "ci", Time{seconds(101).ns});
  ring_.fill(state_);
  newest_ = Time{seconds(102).ns};
  tell(KeyForgotten{.key = KeyId{99}});
  now_ = Time{seconds(50).ns};
  EXPECT_EQ(told(text), "the API key key-1 has expired; send another one");
}

TEST_F(KeyRingTest, FollowsWhatHappensToKeys) {
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

TEST_F(KeyRingTest, IsAskedWhileItChanges) {
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
