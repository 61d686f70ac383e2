#include "api/backend/watch/change_feed.h"

#include <gtest/gtest.h>

#include "engine/testing/test_engine.h"

namespace gpusched::api {
namespace {

using testing::TestEngine;

TEST(ChangeFeed, TellsEachCallerOfTheJobsThatItMaySee) {
  TestEngine engine;
  const TenantId closed = engine.add_tenant("closed");
  const auto feed = std::make_shared<ChangeFeed>();
  std::vector<JobId> open_seen, all_seen, own_seen;
  const auto ana = std::make_shared<access::Caller>(
      access::Caller{.kind = access::CallerKind::kPerson,
                     .name = "ana",
                     .bindings = {{.tenant = closed, .role = Role::kViewer}}});
  const auto into = [](std::vector<JobId>& seen) {
    return [&seen](const ChangeNotice& notice) {
      EXPECT_FALSE(notice.jobs.empty()) << "told that something happened";
      seen.insert(seen.end(), notice.jobs.begin(), notice.jobs.end());
    };
  };
  const auto first = feed->subscribe(anonymous_caller(), into(open_seen));
  const auto second = feed->subscribe(shared_token_caller(), into(all_seen));
  const auto third = feed->subscribe(ana, into(own_seen));
  const auto publish = [&](TenantId tenant) {
    const JobId job = engine.submit({.tenant = tenant});
    Changes changes{.last = engine.state().last};
    changes.events.push_back(JobHoldChanged{.job = job, .held = true});
    feed->publish(engine.state(), changes);
    return job;
  };
  const JobId hidden = publish(closed), open = publish(kDefaultTenant);
  EXPECT_EQ(open_seen, std::vector{open});
  EXPECT_EQ(all_seen, (std::vector{hidden, open}));
  EXPECT_EQ(own_seen, std::vector{hidden});
}

}  // namespace
}  // namespace gpusched::api
