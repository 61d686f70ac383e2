#include "api/backend/keys/open_under_keys.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace gpusched::api {
namespace {

ApiError why_of(KeyId key) { return {ErrorKind::kUnauthenticated, "key " + std::to_string(key.value)}; }

class OpenUnderKeysTest : public ::testing::Test {
 protected:
  std::shared_ptr<void> add(KeyId key, std::string& told, Time expires_at = {}) {
    return open_->add(key, {.caller = anonymous_caller(),
                            .action = std::nullopt,
                            .expires_at = expires_at,
                            .end = [&told](const ApiError& error) { told += error.message + ";"; }});
  }
  void end_all(KeyId key) {
    open_->look_at(key, [key](const OpenUnderKeys::Open&) { return std::optional(why_of(key)); });
  }

  std::shared_ptr<OpenUnderKeys> open_ = std::make_shared<OpenUnderKeys>();
};

TEST_F(OpenUnderKeysTest, WhatIsOpenUnderAKeyEndsOnce) {
  std::string first, second, other;
  const auto a = add(KeyId{1}, first), b = add(KeyId{1}, second), c = add(KeyId{2}, other);
  end_all(KeyId{1});
  end_all(KeyId{1});
  EXPECT_EQ(first, "key 1;");
  EXPECT_EQ(second, "key 1;");
  EXPECT_EQ(other, "");
  EXPECT_EQ(open_->size(), 1u);
}

TEST_F(OpenUnderKeysTest, WhatHasClosedIsForgotten) {
  std::string told;
  auto a = add(KeyId{1}, told), b = add(KeyId{1}, told, Time{5});
  a.reset();
  b.reset();
  EXPECT_EQ(open_->size(), 0u);
  end_all(KeyId{1});
  open_->expire(Time{9}, why_of);
  EXPECT_EQ(told, "");
}

TEST_F(OpenUnderKeysTest, WhatMayGoOnDoes) {
  std::string told;
  const auto a = add(KeyId{1}, told);
  open_->look_at(KeyId{1}, [](const OpenUnderKeys::Open&) { return std::optional<ApiError>(); });
  EXPECT_EQ(told, "");
  EXPECT_EQ(open_->size(), 1u);
}

TEST_F(OpenUnderKeysTest, KeysExpireInTheirOrder) {
  std::string early, late, never;
  const auto a = add(KeyId{1}, late, Time{20}), b = add(KeyId{2}, early, Time{10}), c = add(KeyId{3}, never);
  open_->expire(Time{9}, why_of);
  EXPECT_EQ(early, "");
  open_->expire(Time{10}, why_of);
  EXPECT_EQ(early, "key 2;");
  EXPECT_EQ(late, "");
  open_->expire(Time{1'000}, why_of);
  EXPECT_EQ(late, "key 1;");
  EXPECT_EQ(never, "");
}

TEST_F(OpenUnderKeysTest, AnEndMayCloseWhatItEnds) {
  std::shared_ptr<void> token;
  int told = 0;
  token = open_->add(KeyId{1}, {.caller = anonymous_caller(),
                                .action = std::nullopt,
                                .expires_at = Time{5},
                                .end = [&](const ApiError&) {
                                  told += 1;
                                  token.reset();
                                }});
  end_all(KeyId{1});
  EXPECT_EQ(told, 1);
  EXPECT_EQ(open_->size(), 0u);
}

TEST_F(OpenUnderKeysTest, ATokenMayOutliveThem) {
  std::string told;
  const auto token = add(KeyId{1}, told);
  open_.reset();
  EXPECT_EQ(told, "");
}

TEST_F(OpenUnderKeysTest, IsUsedByManyThreads) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> opened{0}, ended{0};
  std::vector<std::thread> threads;
  for (uint64_t key = 1; key <= 3; ++key) {
    threads.emplace_back([&, key] {
      while (!stop) {
        const auto token = open_->add(KeyId{key}, {.caller = anonymous_caller(),
                                                   .action = std::nullopt,
                                                   .expires_at = Time{static_cast<int64_t>(key)},
                                                   .end = [&](const ApiError&) { ended += 1; }});
        opened += 1;
      }
    });
  }
  while (opened < 5'000 || ended < 50) {
    end_all(KeyId{1});
    open_->expire(Time{2}, why_of);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(open_->size(), 0u);
  EXPECT_LE(ended, opened);
}

}  // namespace
}  // namespace gpusched::api
