// Work done for a call about one job before it is decided whether the caller may know of the job: for one
// that is hidden no more than for one that never was, so that no forecast, log, session or command tells them
// apart by the time that it takes.
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "api/testing/host_proxy.h"
#include "api/testing/tenants_test.h"

namespace gpusched::api {
namespace {

/// Counts what goes beyond a look at the state.
class WatchedHost final : public HostProxy {
 public:
  using HostProxy::HostProxy;
  using HostProxy::propose;
  void propose(Proposal proposal) override {
    count("propose");
    HostProxy::propose(std::move(proposal));
  }
  void propose(EditSet set) override {
    count("propose");
    HostProxy::propose(std::move(set));
  }
  ForecastService& forecasts() override {
    count("forecasts");
    return HostProxy::forecasts();
  }
  void read_log(NodeId node, v1::ReadLog request, std::function<void(Result<v1::LogChunk>)> done) override {
    count("read_log");
    HostProxy::read_log(node, std::move(request), std::move(done));
  }
  void with_nodes(std::function<void(NodeHub*)> use) override {
    count("with_nodes");
    HostProxy::with_nodes(std::move(use));
  }
  /// Since the call before.
  std::map<std::string, int> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(counts_, {});
  }

 private:
  void count(const char* what) {
    const std::lock_guard lock(mutex_);
    counts_[what] += 1;
  }
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

class HiddenWork : public TenantsTest {
 protected:
  HiddenWork() {
    TenantRequest tenant;
    tenant.name = "lab";
    lab_ = make_tenant(tenant);
    tenant.name = "other";
    other_ = make_tenant(tenant);
    bob_->bindings = {{.tenant = lab_, .role = Role::kUser}, {.tenant = other_, .role = Role::kUser}};
    eve_->bindings = {{.tenant = lab_, .role = Role::kTenantAdmin}};
    hidden_ = submit_as(bob_, R"({"tenant_id":"other","script":"true"})");
    seen_ = submit_as(bob_, R"({"tenant_id":"lab","script":"true"})");
  }

  struct Peer final : SessionPeer {
    explicit Peer(std::function<void()> ended) : ended_(std::move(ended)) {}
    void on_number(uint64_t) override {}
    void on_opened() override {}
    void on_output(std::string, bool) override {}
    void on_credit(int64_t) override {}
    void on_end(End) override { ended_(); }
    const std::function<void()> ended_;
  };

  /// All calls about one job, by what they are called: each calls `done` once it is answered.
  using Call = std::function<void(const CallerPtr&, JobId, std::function<void()> done)>;
  std::map<std::string, Call> calls() {
    const auto told = [](std::function<void()> done) {
      return [done = std::move(done)](const auto&) { done(); };
    };
    return {
        {"get",
         [this, told](auto& who, JobId job, auto done) { watched_.get_job(who, job, "", told(done)); }},
        {"history",
         [this, told](auto& who, JobId job, auto done) { watched_.get_history(who, job, "", told(done)); }},
        {"explain",
         [this, told](auto& who, JobId job, auto done) { watched_.explain_job(who, job, "", told(done)); }},
        {"cancel",
         [this, told](auto& who, JobId job, auto done) { watched_.cancel(who, job, "", "x", told(done)); }},
        {"hold", [this, told](auto& who, JobId job,
                              auto done) { watched_.hold_job(who, job, "", true, "x", told(done)); }},
        {"requeue", [this, told](auto& who, JobId job,
                                 auto done) { watched_.requeue_job(who, job, "", "x", told(done)); }},
        {"update",
         [this, told](auto& who, JobId job, auto done) {
           JobUpdate update;
           update.priority = 1;
           watched_.update_job(who, job, "", std::move(update), told(done));
         }},
        {"read_log",
         [this, told](auto& who, JobId job, auto done) {
           watched_.read_log(who, {.job = job, .tenant = {}}, told(done));
         }},
        {"read_file",
         [this, told](auto& who, JobId job, auto done) {
           FileRequest request;
           request.job = job;
           request.path = "x";
           watched_.read_file(who, std::move(request), told(done));
         }},
        {"session",
         [this](auto& who, JobId job, auto done) {
           SessionRequest request;
           request.job = job;
           session_ = watched_.open_session(who, std::move(request), std::make_shared<Peer>(done));
         }},
    };
  }
  std::map<std::string, int> work_of(const Call& call, const CallerPtr& who, JobId job) {
    host_proxy_.take();
    std::promise<void> answered;
    call(who, job, [&answered] { answered.set_value(); });
    answered.get_future().get();
    return host_proxy_.take();
  }

  WatchedHost host_proxy_{*host_};
  HostBackend watched_{host_proxy_, {}};
  std::shared_ptr<SessionHandle> session_;
  std::shared_ptr<access::Caller> bob_ = person("bob"), eve_ = person("eve");
  TenantId lab_, other_;
  JobId hidden_, seen_;
};

TEST_F(HiddenWork, IsThatOfAJobThatNeverWas) {
  const JobId absent{hidden_.value + 9'999};
  for (const auto& [name, call] : calls()) {
    EXPECT_EQ(work_of(call, eve_, hidden_), (std::map<std::string, int>{})) << name;
    EXPECT_EQ(work_of(call, eve_, absent), (std::map<std::string, int>{})) << name;
  }
}

TEST_F(HiddenWork, IsDoneForWhatTheCallerMaySee) {
  // Else nothing would be counted above.
  const std::map<std::string, Call> all = calls();
  EXPECT_EQ(work_of(all.at("get"), eve_, seen_).count("forecasts"), 1U);
  EXPECT_EQ(work_of(all.at("explain"), eve_, seen_).count("forecasts"), 1U);
  EXPECT_EQ(work_of(all.at("hold"), eve_, seen_).count("propose"), 1U);
  EXPECT_EQ(work_of(all.at("cancel"), eve_, seen_).count("propose"), 1U);
}

}  // namespace
}  // namespace gpusched::api
