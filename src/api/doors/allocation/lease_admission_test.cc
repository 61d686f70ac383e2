// The admission of leases: when it gives the turn on, and what it touches after an answer.
#include "api/doors/allocation/lease_admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "api/doors/allocation/allocation_json.h"
#include "api/testing/host_proxy.h"
#include "api/testing/tenants_test.h"
#include "base/queue_limits.h"

namespace gpusched::api {
namespace {

class LeaseAdmissions : public TenantsTest {
 protected:
  LeaseAdmissions() {
    TenantRequest tenant;
    tenant.name = "lab";
    tenant.max_gpus = 3;
    lab_ = make_tenant(tenant);
    ana_->bindings = {{.tenant = lab_, .role = Role::kUser}};
  }
  static SubmitRequest lease() { return *parse_allocation("{}", ""); }

  TenantId lab_;
};

TEST_F(LeaseAdmissions, MayBeGoneFromWithinTheirLastAnswer) {
  alignas(LeaseAdmission) std::byte place[sizeof(LeaseAdmission)];
  auto* const admission = new (place) LeaseAdmission(backend_);
  std::promise<bool> made;
  admission->allocate(ana_, lease(), [&](const Answer<Submitted>& answer) {
    admission->~LeaseAdmission();
    std::memset(place, 0, sizeof place);  // Where whoever still uses it finds no turn.
    made.set_value(answer.ok());
  });
  EXPECT_TRUE(made.get_future().get());
  std::promise<void> later;  // The thread that answered is past it.
  host_->propose(DeleteTenant{.tenant = TenantId{404}, .by = "test"},
                 [&later](const Result<Decided>&) { later.set_value(); });
  later.get_future().get();
}

/// A host that keeps submissions until the test lets them go.
class HoldingHost final : public HostProxy {
 public:
  using HostProxy::HostProxy;
  using HostProxy::propose;
  void propose(Proposal proposal) override {
    if (!std::holds_alternative<SubmitJobs>(proposal.command)) return HostProxy::propose(std::move(proposal));
    held_.set_value(std::move(proposal));
  }
  void let_go() { HostProxy::propose(kept_.get()); }
  void wait() { kept_.wait(); }

 private:
  std::promise<Proposal> held_;
  std::future<Proposal> kept_ = held_.get_future();
};

TEST_F(LeaseAdmissions, RefuseManyAtOnceOneAfterTheOther) {
  constexpr std::size_t kWaiting = 900;
  HoldingHost holding(*host_);
  HostBackend backend(holding, {});
  LeaseAdmission admission(backend);
  std::promise<bool> first;
  admission.allocate(ana_, lease(),
                     [&first](const Answer<Submitted>& answer) { first.set_value(answer.ok()); });
  holding.wait();
  std::vector<uintptr_t> depths;  // Depths of the stack, where each was answered. One thread answers all.
  for (std::size_t i = 0; i < kWaiting; ++i) {
    admission.allocate(ana_, lease(), [&depths](const Answer<Submitted>& answer) {
      EXPECT_FALSE(answer.ok());
      depths.push_back(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
    });
  }
  for (int i = 0; i < 2; ++i)  // Each asks two questions before it waits for its turn.
    answer<TenantView>([&](auto done) { backend.get_tenant(admin(), "lab", std::move(done)); });
  // From now on quotas are not looked up: as many long questions wait as may.
  for (std::size_t i = 0; i < limits::kScansWaitingMax; ++i)
    host_->observer().scan(UINT64_MAX, [](const Observer::View&) { return false; });
  holding.let_go();
  EXPECT_TRUE(first.get_future().get());
  ASSERT_EQ(depths.size(), kWaiting);
  const auto [low, high] = std::ranges::minmax_element(depths);
  EXPECT_LT(*high - *low, 1'024U);
}

TEST_F(LeaseAdmissions, CountLeasesOfClosedTenantsForCallersWithoutACredential) {
  TenantRequest change;
  change.max_gpus = 3;
  answer<TenantView>([&](auto done) {
    backend_.update_tenant(admin(), tenant_name(kDefaultTenant), change, std::move(done));
  });
  TenantRequest closed;
  closed.name = "closed";
  closed.parent = tenant_name(kDefaultTenant);
  ana_->bindings = {{.tenant = make_tenant(closed), .role = Role::kUser}};
  LeaseAdmission admission(backend_);
  const auto allocate = [&](const CallerPtr& caller, int count) {
    return outcome<Submitted>([&](auto done) {
      admission.allocate(caller, *parse_allocation("{\"count\":" + std::to_string(count) + "}", ""),
                         std::move(done));
    });
  };
  EXPECT_TRUE(allocate(ana_, 2).ok());
  const Answer<Submitted> refused = allocate(anonymous_caller(), 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kQuotaExceeded);
  EXPECT_TRUE(allocate(anonymous_caller(), 1).ok());
}

}  // namespace
}  // namespace gpusched::api
