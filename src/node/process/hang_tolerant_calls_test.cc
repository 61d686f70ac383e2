#include "node/process/hang_tolerant_calls.h"

#include <gtest/gtest.h>

#include <future>

namespace gpusched {
namespace {

TEST(HangTolerantCalls, GiveWhatComesBackInTime) {
  HangTolerantCalls calls;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(calls.ask("a", [] { return std::string("b"); }, seconds(30)), "b");
}

TEST(HangTolerantCalls, AreNotMadeAgainWhileTheyHang) {
  HangTolerantCalls calls;
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  const auto hang = [open] {
    open.wait();
    return std::string("late");
  };
  EXPECT_EQ(calls.ask("hangs", hang, milliseconds(10)), std::nullopt);
  EXPECT_EQ(calls.ask("hangs", [] { return std::string("called"); }, seconds(30)), std::nullopt);
  EXPECT_EQ(calls.ask("other", [] { return std::string("called"); }, seconds(30)), "called");
  gate.set_value();
  while (calls.ask("hangs", [] { return std::string("again"); }, seconds(30)) != "again") {
  }
}

TEST(HangTolerantCalls, AreBounded) {
  HangTolerantCalls calls;
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  for (int i = 0; i < HangTolerantCalls::kHangingMax; ++i) {
    const auto hang = [open] {
      open.wait();
      return std::string();
    };
    EXPECT_EQ(calls.ask(std::to_string(i), hang, milliseconds(0)), std::nullopt);
  }
  EXPECT_EQ(calls.ask("one more", [] { return std::string("called"); }, seconds(30)), std::nullopt);
  gate.set_value();
}

}  // namespace
}  // namespace gpusched
