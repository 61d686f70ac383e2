#include "host/readers/observer.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "base/limits.h"
#include "base/queue_limits.h"

namespace gpusched {
namespace {

Changes changes(uint64_t sequence, uint64_t bytes = 100) {
  return {.events = {},
          .last = Stamp{.sequence = sequence, .at = Time{static_cast<int64_t>(sequence)}},
          .position = sequence,
          .payload_bytes = bytes,
          .reasons = {}};
}

/// Holds the observer's thread in a question until `let_go`.
class Held {
 public:
  explicit Held(Observer& observer) {
    observer.read(0, [this](const Observer::View&) {
      reached_.set_value();
      go_.get_future().wait();
    });
    reached_.get_future().wait();
  }
  void let_go() { go_.set_value(); }

 private:
  std::promise<void> reached_, go_;
};

/// Until no other scan waits: they take turns, so that the last one asked may end before others do.
void wait_for_all(Observer& observer) {
  std::promise<void> done;
  observer.scan(0, [&](const Observer::View&) {
    if (observer.scans_waiting() > 1) return true;
    done.set_value();
    return false;
  });
  done.get_future().wait();
}

TEST(Observer, QuestionsDoNotStandBeforeChanges) {
  Observer observer(State(), 0);
  std::vector<std::string> order;
  observer.add_listener([&](const Observer::View&, const Changes&) { order.emplace_back("change"); });
  Held held(observer);
  constexpr std::size_t kQuestions = 10 * limits::kReadsPerTurn;
  for (std::size_t i = 0; i < kQuestions; ++i) {
    observer.read(0, [&](const Observer::View&) { order.emplace_back("read"); });
    observer.scan(0, [&, left = 3](const Observer::View&) mutable {
      order.emplace_back("step");
      return --left > 0;
    });
  }
  observer.publish(changes(1));
  held.let_go();
  wait_for_all(observer);
  EXPECT_EQ(order.front(), "change");
  EXPECT_EQ(std::count(order.begin(), order.end(), "read"), std::ptrdiff_t{kQuestions});
  EXPECT_EQ(std::count(order.begin(), order.end(), "step"), std::ptrdiff_t{3 * kQuestions});
}

TEST(Observer, BetweenTwoChangesStandsABoundedNumberOfQuestionsAndOneStep) {
  Observer observer(State(), 0);
  std::size_t since_change = 0;
  std::size_t most = 0;
  uint64_t sequence = 0;
  // Each change publishes the next, so that there is always one.
  observer.add_listener([&](const Observer::View&, const Changes&) {
    most = std::max(most, std::exchange(since_change, 0));
    if (sequence < 1'000) observer.publish(changes(++sequence));
  });
  Held held(observer);
  for (int i = 0; i < 5'000; ++i) {
    observer.read(0, [&](const Observer::View&) { since_change += 1; });
    observer.scan(0, [&](const Observer::View&) {
      since_change += 1;
      return false;
    });
  }
  observer.publish(changes(++sequence));
  held.let_go();
  wait_for_all(observer);
  EXPECT_EQ(most, limits::kReadsPerTurn + 1);
}

TEST(Observer, SaysWhenChangesPileUpAndWhenTheyDoNotAnyMore) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{8} << 20}) {
    Observer observer(State(), 0);
    Held held(observer);
    uint64_t published = 0;
    while (observer.has_room()) observer.publish(changes(++published, bytes));
    EXPECT_LE(published, limits::kChangesWaitingMax);
    EXPECT_LE(published * bytes, limits::kChangeBytesWaitingMax + bytes);
    held.let_go();
    wait_for_all(observer);
    EXPECT_TRUE(observer.has_room());
  }
}

TEST(Observer, AQuestionForALaterStateWaitsAndIsCounted) {
  Observer observer(State(), 0);
  std::promise<uint64_t> seen;
  observer.read(2, [&](const Observer::View& view) { seen.set_value(view.state.last.sequence); });
  observer.publish(changes(1));
  wait_for_all(observer);
  EXPECT_EQ(observer.reads_waiting(), 1u);
  observer.publish(changes(2));
  EXPECT_EQ(seen.get_future().get(), 2u);
  wait_for_all(observer);
  EXPECT_EQ(observer.reads_waiting(), 0u);
}

TEST(Observer, AStateThatIsNotThePublishedOneIsToldAndNobodySeesTheBatch) {
  Observer observer(State(), 0, false);
  uint64_t told = 0;
  std::string difference;
  observer.add_listener([&](const Observer::View& view, const Changes&) { told = view.position; });
  observer.on_difference([&](const std::string& what) { difference = what; });
  Changes same = changes(1);
  same.position = 1;
  same.digest = State().digest.value();
  observer.publish(std::move(same));
  EXPECT_EQ(told, 1u);
  EXPECT_EQ(difference, "");
  Changes other = changes(2);
  other.position = 2;
  other.digest = State().digest.value() + 1;
  observer.publish(std::move(other));
  EXPECT_EQ(told, 1u);
  EXPECT_NE(difference.find("journal record 2"), std::string::npos) << difference;
}

TEST(Observer, WithoutAThreadEverythingHappensInTheCalls) {
  Observer observer(State(), 0, false);
  int steps = 0;
  observer.scan(9, [&](const Observer::View&) { return ++steps < 3; });
  EXPECT_EQ(steps, 0);
  observer.publish(changes(9));
  EXPECT_EQ(steps, 3);
}

}  // namespace
}  // namespace gpusched
