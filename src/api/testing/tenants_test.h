#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/testing/doors_test.h"

namespace gpusched::api {

/// Doors through which one person comes, ana, and a backend for all others.
class TenantsTest : public DoorsTest {
 protected:
  static std::shared_ptr<access::Caller> person(std::string name) {
    return std::make_shared<access::Caller>(
        access::Caller{.kind = access::CallerKind::kPerson, .name = std::move(name)});
  }
  explicit TenantsTest(std::shared_ptr<access::Caller> ana = person("ana"), ServerOptions options = {})
      : DoorsTest(with_everybody(std::move(options), ana)), ana_(std::move(ana)) {
    EngineConfig config;
    config.feature_level = kFeatureLevel;
    propose(Configure{.config = config});
  }

  static ServerOptions with_everybody(ServerOptions options, const CallerPtr& who) {
    options.everybody = who;
    return options;
  }

  Decided propose(Command command) {
    std::promise<Result<Decided>> made;
    host_->propose(std::move(command),
                   [&made](Result<Decided> result) { made.set_value(std::move(result)); });
    Result<Decided> got = made.get_future().get();
    EXPECT_TRUE(got.ok());
    EXPECT_FALSE(got->applied.rejection.has_value());
    return std::move(*got);
  }
  template <typename T>
  Answer<T> outcome(const std::function<void(Done<T>)>& ask) {
    std::promise<Answer<T>> made;
    ask([&made](Answer<T> answer) { made.set_value(std::move(answer)); });
    return made.get_future().get();
  }
  template <typename T>
  T answer(const std::function<void(Done<T>)>& ask) {
    Answer<T> got = outcome<T>(ask);
    EXPECT_TRUE(got.ok()) << (got.ok() ? "" : got.error().message);
    return got.ok() ? std::move(*got) : T{};
  }

  TenantId make_tenant(TenantRequest tenant) {
    return answer<TenantView>(
               [&](auto done) { backend_.create_tenant(admin(), std::move(tenant), std::move(done)); })
        .id;
  }
  /// A body of the jobs door; `marked`: as from a door that marks its jobs by labels.
  Answer<Submitted> try_submit(const CallerPtr& who, const std::string& body, bool marked = false) {
    Answer<SubmitRequest> request = parse_submit(body, false);
    EXPECT_TRUE(request.ok()) << (request.ok() ? "" : request.error().message);
    request->sets_reserved_labels = marked;
    return outcome<Submitted>([&](auto done) { backend_.submit(who, *request, std::move(done)); });
  }
  JobId submit_as(const CallerPtr& who, const std::string& body, bool marked = false) {
    const Answer<Submitted> made = try_submit(who, body, marked);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    if (!made.ok()) return JobId{};
    // The doors' reads wait for what the doors submitted alone.
    answer<JobView>([&](auto done) { backend_.get_job(admin(), made->first_job, "", std::move(done)); });
    return made->first_job;
  }
  /// Returns once the job is in that state.
  void wait_for(JobId job, JobState state) {
    std::promise<void> reached;
    bool told = false;
    const auto watch = backend_.watch_job(admin(), job, "", [&](const Answer<JobView>& seen) {
      if (!seen.ok() || seen->state != state || std::exchange(told, true)) return;
      reached.set_value();
    });
    EXPECT_EQ(reached.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  }
  static const CallerPtr& admin() { return shared_token_caller(); }

  HostBackend backend_{*host_, {}};
  std::shared_ptr<access::Caller> ana_;
};

}  // namespace gpusched::api
