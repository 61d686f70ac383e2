#include "api/views/viewer.h"

#include <gtest/gtest.h>

#include "api/contract/names.h"
#include "api/views/state_views.h"
#include "engine/testing/test_engine.h"

namespace gpusched::api {
namespace {

using testing::TestEngine;

class ViewerTest : public ::testing::Test {
 protected:
  /// The job's sentence, with its word on the other job that it stands behind.
  std::string message(const Viewer& viewer) {
    std::vector<WaitReason> reasons(engine_.job(own_).job_class + 1,
                                    {.code = WaitCode::kReserved, .wanted = {}, .reserved_for = others_});
    const Observer::View view{.state = engine_.state(), .reasons = reasons};
    return view_of(view, engine_.job(own_), viewer).message;
  }

  std::string move(const Viewer& viewer, const MoveRecord& record) {
    Job job = engine_.job(own_);
    job.set_move_record(record);
    return move(viewer, job);
  }
  std::string move(const Viewer& viewer, const Job& job) {
    const std::vector<WaitReason> reasons(job.job_class + 1);
    return view_of({.state = engine_.state(), .reasons = reasons}, job, viewer).move_detail;
  }

  TestEngine engine_;
  TenantId first_ = engine_.add_tenant("first"), second_ = engine_.add_tenant("second");
  JobId own_ = engine_.submit({.gpus = 1, .tenant = first_});
  JobId others_ = engine_.submit({.gpus = 8, .tenant = second_});
  JobId open_ = engine_.submit({.gpus = 4});
};

constexpr const char* kHidden = "a job of another tenant";

TEST_F(ViewerTest, ATenantIsNotToldOfOthersJobs) {
  EXPECT_NE(message(Viewer::all()).find("reserved for " + job_name(others_)), std::string::npos);
  EXPECT_NE(message(Viewer::of(second_)).find("reserved for " + job_name(others_)), std::string::npos);
  EXPECT_NE(message(Viewer::of(first_)).find(std::string("reserved for ") + kHidden), std::string::npos);
}

TEST_F(ViewerTest, AnAnonymousCallerIsToldOfOpenTenantsJobs) {
  EXPECT_EQ(Viewer::of(anonymous_caller()).name_of(engine_.state(), open_), job_name(open_));
  EXPECT_EQ(Viewer::of(anonymous_caller()).name_of(engine_.state(), others_), kHidden);
  EXPECT_NE(message(Viewer::of(anonymous_caller())).find(std::string("reserved for ") + kHidden),
            std::string::npos);
}

TEST_F(ViewerTest, WhoNamesNoTenantIsToldOfAllJobsOnlyWhenItMaySeeAll) {
  EXPECT_EQ(Viewer::of(shared_token_caller(), "", first_).name_of(engine_.state(), others_),
            job_name(others_));
  EXPECT_EQ(Viewer::of(shared_token_caller(), "first", first_).name_of(engine_.state(), others_), kHidden);
  const auto ana = std::make_shared<access::Caller>(
      access::Caller{.kind = access::CallerKind::kPerson,
                     .name = "ana",
                     .bindings = {{.tenant = first_, .role = Role::kTenantAdmin}}});
  for (const CallerPtr& caller : {anonymous_caller(), CallerPtr(ana)}) {
    EXPECT_EQ(Viewer::of(caller, "", first_).name_of(engine_.state(), others_), kHidden);
    EXPECT_EQ(Viewer::of(caller, "", first_).name_of(engine_.state(), own_), job_name(own_));
  }
  EXPECT_EQ(Viewer::of(CallerPtr(ana)).name_of(engine_.state(), own_), job_name(own_));
  EXPECT_EQ(Viewer::of(CallerPtr(ana)).name_of(engine_.state(), open_), kHidden);
}

TEST_F(ViewerTest, WhatIsNoLongerKeptIsNobodys) {
  EXPECT_EQ(Viewer::of(first_).name_of(engine_.state(), JobId{999}), kHidden);
  EXPECT_EQ(Viewer::all().name_of(engine_.state(), JobId{999}), "job-999");
}

TEST_F(ViewerTest, AMoveNamesOnlyWhatIsSeen) {
  const MoveRecord moved{
      .moved = true, .from = "a", .to = "b", .others = {others_}, .by = "ana", .why = "urgent"};
  EXPECT_EQ(move(Viewer::all(), moved),
            "moved from node a to node b so that " + job_name(others_) + " can start, by ana: urgent");
  EXPECT_EQ(move(Viewer::of(first_), moved),
            std::string("moved from node a to node b so that ") + kHidden + " can start, by ana: urgent");
  const MoveRecord gained{
      .moved = false, .from = {}, .to = "b", .others = {own_, others_}, .by = "ana", .why = {}};
  EXPECT_EQ(move(Viewer::of(first_), gained),
            job_name(own_) + ", " + kHidden + " moved away from node b for it, by ana");
}

TEST_F(ViewerTest, ASentenceOfAnEarlierVersionIsForThoseWhoSeeAll) {
  Job job = engine_.job(own_);
  EXPECT_EQ(move(Viewer::all(), job), "");
  job.extras.set(&JobExtras::move_detail,
                 Blob("moved from node a to node b so that job-2 can start, by ana"));
  EXPECT_EQ(move(Viewer::all(), job), job.extras->move_detail.view());
  EXPECT_EQ(move(Viewer::of(first_), job).find("job-"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::api
