#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// A node that is reserved for an hour, in an hour.
class BookingTest : public ::testing::Test {
 protected:
  BookingId make(Duration every = {}) {
    const Applied made = engine_.apply(MakeBooking{.name = "course",
                                                   .tenant = kDefaultTenant,
                                                   .nodes = {node_},
                                                   .begin_after = hours(1),
                                                   .length = hours(1),
                                                   .every = every});
    EXPECT_FALSE(made.rejection.has_value());
    return BookingId{made.first_id};
  }
  /// Moves time on and lets what is due fire, so often: a reservation that never gets beyond it must not
  /// hang.
  void pass(Duration span) {
    engine_.set_now(engine_.now() + span);
    for (int i = 0; i < 8; ++i) engine_.apply(AdvanceTime{});
  }
  TestEngine engine_;
  NodeId node_ = engine_.add_node("n1", {.gpus = 1});
};

TEST_F(BookingTest, BeginAndEndAtTheirTimesAndAreGone) {
  const BookingId id = make();
  EXPECT_EQ(engine_.node(node_).booked_from, engine_.now() + hours(1));
  pass(hours(1));
  EXPECT_EQ(engine_.node(node_).booked_by, id.value);
  pass(hours(1));
  EXPECT_EQ(engine_.state().find_booking(id), nullptr);
  EXPECT_EQ(engine_.node(node_).booked_by, 0u);
  EXPECT_EQ(engine_.node(node_).booked_from, kNever);
  EXPECT_TRUE(engine_.state().timers.empty());
}

TEST_F(BookingTest, ThatRepeatBeginAgainAtTheirNextTime) {
  const Time begin = engine_.now() + hours(1);
  const BookingId id = make(hours(24));
  pass(hours(2));
  ASSERT_NE(engine_.state().find_booking(id), nullptr);
  EXPECT_FALSE(engine_.state().find_booking(id)->active);
  EXPECT_EQ(engine_.state().find_booking(id)->begin, begin + hours(24));
  EXPECT_EQ(engine_.node(node_).booked_by, 0u) << "until then others may use the node";
  EXPECT_EQ(engine_.node(node_).booked_from, begin + hours(24));
}

TEST_F(BookingTest, TimesThatWentByWithoutASchedulerAreNotMadeUpFor) {
  const Time begin = engine_.now() + hours(1);
  const BookingId id = make(hours(24));
  engine_.set_now(begin + hours(24) * 3 + hours(5));
  engine_.apply(NoteStart{});
  pass(Duration{});
  ASSERT_NE(engine_.state().find_booking(id), nullptr);
  EXPECT_FALSE(engine_.state().find_booking(id)->active);
  EXPECT_EQ(engine_.state().find_booking(id)->begin, begin + hours(24) * 4);
}

TEST_F(BookingTest, TheirNodeTakesNoOtherJobWhileTheyLast) {
  make();
  pass(hours(1));
  const JobId other = engine_.submit({.gpus = 1});
  const JobId own = engine_.submit({.gpus = 1, .booking = "course"});
  engine_.cycle();
  EXPECT_EQ(engine_.state_of(own), JobState::kScheduled);
  EXPECT_EQ(engine_.state_of(other), JobState::kPending);
}

}  // namespace
}  // namespace gpusched
