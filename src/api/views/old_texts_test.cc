// Old journals have names of requesters that are no UTF-8, which clients of gRPC cannot read.
#include <gtest/gtest.h>

#include "api/views/job_history.h"
#include "api/views/state_views.h"
#include "base/utf8.h"
#include "engine/testing/test_engine.h"

namespace gpusched::api {
namespace {

using testing::TestEngine;

const std::string kBad = "ana\xFF", kShown = "ana?";

TEST(OldTexts, OfNodesAndTheClusterAreShownAsUtf8) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  engine.apply(
      SetNodeAvailability{.node = node, .to = Availability::kDraining, .by = kBad, .reason = "for \xC3("});
  engine.apply(SetDeviceCondition{.node = node,
                                  .condition = DeviceCondition::kUnhealthy,
                                  .detail = kBad,
                                  .by_operator = true,
                                  .lasting = true,
                                  .by = kBad});
  engine.apply(PauseStarts{.paused = true, .by = kBad, .why = kBad});
  const NodeView view = view_of(engine.state(), *engine.state().find_node(node), {});
  EXPECT_EQ(view.state_by, kShown);
  EXPECT_EQ(view.state_reason, "for ?(");
  ASSERT_EQ(view.devices.size(), 1U);
  EXPECT_EQ(view.devices[0].quarantined_by, kShown);
  EXPECT_EQ(view.devices[0].quarantine_reason, kShown);
  EXPECT_TRUE(is_utf8(view.devices[0].detail)) << view.devices[0].detail;
}

TEST(OldTexts, OfJobsAreShownAsUtf8) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  engine.apply(PauseStarts{.paused = true, .by = kBad, .why = kBad});
  SubmitJobs submission{.tenant = kDefaultTenant, .jobs = {testing::request_of({.gpus = 1})}};
  submission.by = kBad;
  const JobId job{engine.apply(submission).first_id};
  engine.apply(HoldJob{.job = job, .held = true, .by = kBad});
  const std::vector<WaitReason> reasons(engine.job(job).job_class + 1);
  const JobView view = view_of({.state = engine.state(), .reasons = reasons}, engine.job(job), Viewer::all());
  EXPECT_EQ(view.submitted_by, kShown);
  EXPECT_TRUE(is_utf8(view.message)) << view.message;
  const HistoryView history = history_of(engine.state(), engine.job(job));
  ASSERT_GE(history.lines.size(), 2U);
  for (const HistoryLine& line : history.lines) {
    EXPECT_TRUE(is_utf8(line.message)) << line.message;
    EXPECT_EQ(line.by, kShown);
  }
}

}  // namespace
}  // namespace gpusched::api
