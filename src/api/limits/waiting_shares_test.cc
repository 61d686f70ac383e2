#include "api/limits/waiting_shares.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/queue_limits.h"

namespace gpusched::api {
namespace {

access::Caller named(const std::string& name) { return {.kind = access::CallerKind::kService, .name = name}; }

TEST(WaitingShares, OneCallersFloodOfCommandsLeavesHalfToOthers) {
  const auto shares = std::make_shared<WaitingShares>();
  std::vector<WaitingShares::Charge> charged;
  while (const auto charge = shares->charge(named("flood"), CancelJob{.job = JobId{1}}))
    charged.push_back(*charge);
  EXPECT_EQ(charged.size(), limits::kRequestsWaitingMax / 2);
  EXPECT_EQ(shares->refused(), 1u);
  EXPECT_TRUE(shares->charge(named("other"), CancelJob{.job = JobId{1}}));
  for (const WaitingShares::Charge& charge : charged) shares->give_back(charge);
  EXPECT_TRUE(shares->charge(named("flood"), CancelJob{.job = JobId{1}}));
  EXPECT_EQ(shares->waiting(WaitingShares::Kind::kCommands), 2u);
}

TEST(WaitingShares, SpecificationsAreCountedByTheirBytes) {
  const auto shares = std::make_shared<WaitingShares>();
  SubmitJobs large{.tenant = kDefaultTenant, .jobs = {}};
  for (int i = 0; i < 8; ++i) large.jobs.push_back({.spec = Blob(std::string(1 << 20, 's'))});
  std::size_t bytes = 0;
  while (shares->charge(named("flood"), large)) bytes += std::size_t{8} << 20;
  EXPECT_LE(bytes, limits::kProposalBytesMax / 2);
  EXPECT_GE(bytes, limits::kProposalBytesMax / 2 - (std::size_t{16} << 20));
  EXPECT_TRUE(shares->charge(named("other"), large));
}

TEST(WaitingShares, APlaceIsGivenBackWithWhatHoldsIt) {
  const auto shares = std::make_shared<WaitingShares>();
  std::vector<std::shared_ptr<void>> places;
  while (auto place = shares->place(named("flood"), WaitingShares::Kind::kScans))
    places.push_back(std::move(place));
  EXPECT_EQ(places.size(), limits::kScansWaitingMax / 2);
  EXPECT_NE(shares->place(named("other"), WaitingShares::Kind::kScans), nullptr);
  places.clear();
  EXPECT_EQ(shares->waiting(WaitingShares::Kind::kScans), 0u);
}

}  // namespace
}  // namespace gpusched::api
