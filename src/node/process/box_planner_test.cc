#include "node/process/box_planner.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "node/ports/system_clock.h"
#include "node/testing/testing.h"

namespace gpusched {
namespace {

/// A box without cgroups, so that nothing of it is outside its folder.
BoxOptions options() { return {.allow_root_jobs = true, .use_cgroups = false}; }

v1::StartAttempt order() {
  v1::StartAttempt order;
  order.mutable_key()->set_job(12);
  order.mutable_key()->set_attempt(1);
  return order;
}

/// A scheduler refuses such a job by itself. One of another version may know more names than this node.
TEST(BoxPlanner, RefusesAJobsLimitThatItDoesNotKnow) {
  const TemporaryFolder folder;
  const SystemClock clock;
  auto planner = BoxPlanner::open(options(), {.data_folder = folder.path(), .instance = "abc"}, clock);
  ASSERT_TRUE(planner.ok()) << planner.error().message;
  v1::JobSpec spec;
  (*spec.mutable_limits())["nofile"] = 64;
  const Result<BoxPlan> good = (*planner)->plan(order(), spec, {});
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_EQ(std::count(good->box.limits.begin(), good->box.limits.end(),
                       shim::ResourceLimit{.resource = RLIMIT_NOFILE, .soft = 64, .hard = 64}),
            1);
  (*spec.mutable_limits())["nofil"] = 64;
  const Result<BoxPlan> bad = (*planner)->plan(order(), spec, {});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message, "'nofil' is not a resource limit of this node");
}

TEST(BoxPlanner, RefusesAJobWhoseUserCannotReachItsFolders) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a job another user";
  const TemporaryFolder folder;
  const std::string data = folder.path() + "/data";
  std::filesystem::create_directory(data);
  const SystemClock clock;
  auto planner = BoxPlanner::open(options(), {.data_folder = data, .instance = "abc"}, clock);
  ASSERT_TRUE(planner.ok()) << planner.error().message;
  v1::JobSpec spec;
  spec.set_user("nobody");
  chmod(folder.path().c_str(), 0700);
  const Result<BoxPlan> bad = (*planner)->plan(order(), spec, {});
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("cannot enter the folder " + folder.path()), std::string::npos);
  chmod(folder.path().c_str(), 0711);
  EXPECT_TRUE((*planner)->plan(order(), spec, {}).ok());
  chmod(folder.path().c_str(), 0700);
  spec.set_user("root");
  EXPECT_TRUE((*planner)->plan(order(), spec, {}).ok());
}

TEST(BoxPlanner, RefusesAnOperatorsLimitThatItDoesNotKnow) {
  const TemporaryFolder folder;
  const SystemClock clock;
  BoxOptions unknown = options();
  unknown.limits["nofil"] = 64;
  const auto planner =
      BoxPlanner::open(std::move(unknown), {.data_folder = folder.path(), .instance = "abc"}, clock);
  ASSERT_FALSE(planner.ok());
  EXPECT_EQ(planner.error().message, "--limit 'nofil' is not a resource limit (see man setrlimit)");
}

}  // namespace
}  // namespace gpusched
