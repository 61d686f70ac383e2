#include "api/views/job_history.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

TEST(JobHistoryView, AnElementPlacedInTheMillisecondOfItsSubmissionWasSubmittedFirst) {
  constexpr Time kSubmitted{1'790'000'000'000'700'000};  // 0.7 ms behind a whole millisecond.
  Job array;
  array.id = array.array = JobId{1};
  array.submitted_at = kSubmitted;
  Job element = array;
  element.id = JobId{2};
  element.note({.step = JobStep::kPlaced, .at = kSubmitted + Duration{100'000}, .attempt = 1});
  array.note({.step = JobStep::kCancelAsked, .at = kSubmitted + milliseconds(5), .by = "carol"});
  element.note(
      {.step = JobStep::kFinished, .at = kSubmitted + milliseconds(9), .state = JobState::kCancelled});
  State state;
  state.jobs.insert(array);
  std::vector<std::string> events;
  for (const HistoryLine& line : history_of(state, element).lines) events.push_back(line.event);
  EXPECT_EQ(events, (std::vector<std::string>{"submitted", "placed", "cancel_requested", "finished"}));
}

}  // namespace
}  // namespace gpusched::api
