#include "api/backend/services/service_index.h"

#include <gtest/gtest.h>

#include "api/backend/services/service_keeper.h"
#include "api/testing/tenants_test.h"
#include "base/job_labels.h"
#include "base/queue_limits.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

/// Services of a backend over a real host without nodes: replicas wait.
class Services : public TenantsTest {
 protected:
  Services() {
    TenantRequest tenant;
    tenant.name = "lab";
    lab_ = make_tenant(tenant);
    ana_->bindings = {{.tenant = lab_, .role = Role::kUser}};
    bob_->bindings = {{.tenant = lab_, .role = Role::kUser}};
  }

  static std::string body(const std::string& labels, const std::string& more = R"("held":true,)") {
    return R"({"tenant_id":"lab","script":"sleep 1",)" + more + R"("labels":{)" + labels + "}}";
  }
  static std::string named(const std::string& service, int generation = 1, const std::string& more = "") {
    return R"("gpusched.service":")" + service + R"(","gpusched.service-generation":")" +
           std::to_string(generation) + "\"" + more;
  }
  static std::string replicas(int count) {
    return R"(,"gpusched.service-replicas":")" + std::to_string(count) + "\"";
  }
  ServiceView get(const std::string& service, const CallerPtr& who) {
    return answer<ServiceView>([&](auto done) { backend_.get_service(who, service, "", std::move(done)); });
  }
  ServiceView get(const std::string& service) { return get(service, ana_); }
  /// The service when that holds of it.
  ServiceView wait_until(const std::string& service, const std::function<bool(const ServiceView&)>& holds) {
    for (int i = 0; i < 3'000; ++i) {
      ServiceView now = get(service);
      if (holds(now)) return now;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "it never came to that";
    return {};
  }
  ServiceView wait_for_jobs(const std::string& service, std::size_t count) {
    return wait_until(service, [count](const ServiceView& now) { return now.jobs.size() == count; });
  }
  /// All jobs that are not final and have that label.
  std::size_t live_with(const std::string& label) {
    JobFilter filter{.limit = 1'000};
    filter.labels = {{label, std::nullopt}};
    const JobPage page =
        answer<JobPage>([&](auto done) { backend_.list_jobs(admin(), filter, std::move(done)); });
    return static_cast<std::size_t>(
        std::ranges::count_if(page.jobs, [](const JobView& job) { return !is_final(job.state); }));
  }
  ErrorKind refused(const CallerPtr& who, const std::string& text) {
    const Answer<Submitted> made = try_submit(who, text);
    EXPECT_FALSE(made.ok()) << text;
    return made.ok() ? ErrorKind::kInternal : made.error().kind;
  }
  ErrorKind refused(const std::string& text) { return refused(ana_, text); }

  static std::string comment_of(const JobView& job) {
    v1::JobSpec spec;
    EXPECT_TRUE(spec.ParseFromString(std::string(job.spec.view())));
    return spec.comment();
  }

  TenantId lab_;
  std::shared_ptr<access::Caller> bob_ = person("bob");
};

TEST_F(Services, AreMadeOfAHeldJobAndKeepTheirReplicas) {
  const JobId record = submit_as(ana_, body(named("web", 1, replicas(3))));
  const ServiceView made = wait_for_jobs("web", 3);
  EXPECT_EQ(made.record, record);
  EXPECT_EQ(made.state, "starting");
  EXPECT_EQ(made.owner, "person ana");
  EXPECT_EQ(made.settings, (ServiceSettings{.replicas = 3}));
  for (const ReplicaView& replica : made.jobs) {
    const JobView job =
        answer<JobView>([&](auto done) { backend_.get_job(ana_, replica.job, "", std::move(done)); });
    EXPECT_EQ(job.name, "web-" + std::to_string(replica.index));
    EXPECT_EQ(job.owner, "person ana");
    EXPECT_EQ(job.submitted_by, "service web");
    EXPECT_FALSE(job.held);
  }
  // One that somebody cancels is replaced, not before a second has passed.
  answer<Unit>([&](auto done) { backend_.cancel(ana_, made.jobs[1].job, "", "ana", std::move(done)); });
  const ServiceView again = wait_until("web", [&](const ServiceView& now) {
    return now.jobs.size() == 3 && now.jobs[1].job != made.jobs[1].job;
  });
  EXPECT_EQ(again.jobs[1].restarts, 1);
  EXPECT_TRUE(again.jobs[1].starts_at.valid());
  EXPECT_EQ(live_with(std::string(kReplicaLabel)), 3U);
}

TEST_F(Services, ScaleAndEnd) {
  submit_as(ana_, body(named("web", 1, replicas(2))));
  wait_for_jobs("web", 2);
  const auto scale = [&](int64_t count) {
    return answer<ServiceView>(
        [&](auto done) { backend_.scale_service(ana_, "web", "", count, "ana", std::move(done)); });
  };
  EXPECT_EQ(scale(5).settings.replicas, 5);
  wait_until("web", [this](const ServiceView&) { return live_with(std::string(kReplicaLabel)) == 5; });
  scale(1);
  wait_until("web", [this](const ServiceView&) { return live_with(std::string(kReplicaLabel)) == 1; });
  const auto beyond = outcome<ServiceView>(
      [&](auto done) { backend_.scale_service(ana_, "web", "", 1'001, "ana", std::move(done)); });
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().kind, ErrorKind::kInvalidArgument);
  answer<ServiceView>([&](auto done) { backend_.delete_service(ana_, "web", "", "ana", std::move(done)); });
  for (int i = 0; i < 3'000 && live_with(std::string(kServiceLabel)) > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(live_with(std::string(kServiceLabel)), 0U);
  submit_as(ana_, body(named("web")));  // The name is free again.
  wait_for_jobs("web", 1);
}

TEST_F(Services, RollOutTheNextGenerationAlone) {
  submit_as(ana_, body(named("web", 1, replicas(2))));
  const ServiceView before = wait_for_jobs("web", 2);
  EXPECT_EQ(refused(body(named("web", 1))), ErrorKind::kAlreadyExists);
  EXPECT_EQ(refused(body(named("web", 3))), ErrorKind::kConflict);
  EXPECT_EQ(refused(body(named("other", 2))), ErrorKind::kNotFound);
  EXPECT_EQ(refused(bob_, body(named("web", 2))), ErrorKind::kPermissionDenied);
  const JobId record = submit_as(ana_, body(named("web", 2)));
  const ServiceView after = wait_until("web", [](const ServiceView& now) {
    return now.jobs.size() == 2 && now.jobs[0].generation == 2 && now.jobs[1].generation == 2;
  });
  EXPECT_EQ(after.record, record);
  EXPECT_EQ(after.settings, (ServiceSettings{.replicas = 2, .generation = 2}));  // As many as before.
  wait_for(before.record, JobState::kCancelled);
  EXPECT_EQ(live_with(std::string(kServiceLabel)), 3U);
}

TEST_F(Services, AreTheSameAfterAStart) {
  submit_as(ana_, body(named("web", 1, replicas(2))));
  const ServiceView before = wait_for_jobs("web", 2);
  HostBackend later(*host_, {});
  const ServiceView after =
      answer<ServiceView>([&](auto done) { later.get_service(ana_, "web", "", std::move(done)); });
  ASSERT_EQ(after.jobs.size(), 2U);
  EXPECT_EQ(after.jobs[0].job, before.jobs[0].job);
  EXPECT_EQ(after.jobs[1].job, before.jobs[1].job);
  // Two that keep the same service at the same time make nothing twice.
  answer<ServiceView>([&](auto done) { later.scale_service(ana_, "web", "", 9, "ana", std::move(done)); });
  wait_for_jobs("web", 9);
  answer<JobView>([&](auto done) { later.get_job(ana_, before.record, "", std::move(done)); });
  EXPECT_EQ(live_with(std::string(kReplicaLabel)), 9U);
}

TEST_F(Services, ARepeatedSubmissionIsTheSameService) {
  Answer<SubmitRequest> request = parse_submit(body(named("web")), false);
  ASSERT_TRUE(request.ok());
  request->request_key = "once";
  const auto submit = [&] {
    return answer<Submitted>([&](auto done) { backend_.submit(ana_, *request, std::move(done)); }).first_job;
  };
  const JobId first = submit();
  EXPECT_EQ(submit(), first);
  wait_for_jobs("web", 1);
  EXPECT_EQ(live_with(std::string(kServiceLabel)), 2U);
}

TEST_F(Services, RefuseRecordsThatSayNothingOfUse) {
  EXPECT_EQ(refused(body(named("web"), "")), ErrorKind::kUnprocessable);  // Not held.
  EXPECT_EQ(refused(body(named("a b"))), ErrorKind::kUnprocessable);
  EXPECT_EQ(refused(body(named("job-12"))), ErrorKind::kUnprocessable);
  EXPECT_EQ(refused(body(named("web", 0))), ErrorKind::kUnprocessable);
  EXPECT_EQ(refused(body(named("web", 1, replicas(1'001)))), ErrorKind::kUnprocessable);
  EXPECT_EQ(refused(body(named("web", 1, R"(,"gpusched.service-restart":"often")"))),
            ErrorKind::kUnprocessable);
  EXPECT_EQ(refused(body(named("web", 1, R"(,"gpusched.replica":"0")"))), ErrorKind::kUnprocessable);
  EXPECT_EQ(refused(body(R"("gpusched.replica":"0")", "")), ErrorKind::kUnprocessable);
  EXPECT_EQ(refused(body(named("web"), R"("held":true,"array":"0-3",)")), ErrorKind::kUnprocessable);
}

TEST_F(Services, KeepTheirRecordsFromStarting) {
  const JobId record = submit_as(ana_, body(named("web")));
  const auto released = outcome<JobView>(
      [&](auto done) { backend_.hold_job(ana_, record, "", false, "ana", std::move(done)); });
  ASSERT_FALSE(released.ok());
  EXPECT_EQ(released.error().kind, ErrorKind::kUnprocessable);
}

TEST_F(Services, LoseNoneOfTwoChangesThatComeAtOnce) {
  const JobId record = submit_as(ana_, body(named("web")));
  std::string comment;
  int64_t replicas = 1;
  for (int i = 2; i < 40; ++i) {
    // One writes a text into the specification, the other one a label: each replaces it whole.
    std::promise<Answer<JobView>> patched;
    std::promise<Answer<ServiceView>> scaled;
    JobUpdate update;
    update.texts.push_back({.number = 65, .text = "v" + std::to_string(i)});  // Its comment.
    const auto patch = [&] {
      backend_.update_job(ana_, record, "", update,
                          [&](Answer<JobView> answer) { patched.set_value(std::move(answer)); });
    };
    if (i % 2 == 0) patch();
    backend_.scale_service(ana_, "web", "", i, "ana",
                           [&](Answer<ServiceView> answer) { scaled.set_value(std::move(answer)); });
    if (i % 2 == 1) patch();
    const Answer<JobView> text = patched.get_future().get();
    const Answer<ServiceView> count = scaled.get_future().get();
    for (const ApiError* const error : {text ? nullptr : &text.error(), count ? nullptr : &count.error()}) {
      if (error == nullptr) continue;
      EXPECT_EQ(error->kind, ErrorKind::kConflict) << error->message;
    }
    ASSERT_TRUE(text.ok() || count.ok());  // The first one is made.
    if (text) comment = update.texts.front().text;
    if (count) replicas = i;
    const JobView seen =
        answer<JobView>([&](auto done) { backend_.get_job(ana_, record, "", std::move(done)); });
    EXPECT_EQ(comment_of(seen), comment);
    EXPECT_EQ(get("web").settings.replicas, replicas);
  }
}

TEST_F(Services, AreNotReleasedByWhoComesBeforeTheyAreSeen) {
  const JobId first = submit_as(ana_, body(named("first")));
  for (uint64_t i = 1; i < 40; ++i) {
    std::promise<Answer<Submitted>> made;
    std::promise<Answer<JobView>> released;
    Answer<SubmitRequest> request = parse_submit(body(named("web-" + std::to_string(i))), false);
    ASSERT_TRUE(request.ok());
    backend_.submit(ana_, *request, [&](Answer<Submitted> answer) { made.set_value(std::move(answer)); });
    const JobId next = made.get_future().get()->first_job;  // Durable, and perhaps not seen yet.
    backend_.hold_job(ana_, next, "", false, "ana",
                      [&](Answer<JobView> answer) { released.set_value(std::move(answer)); });
    const Answer<JobView> answer = released.get_future().get();
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().kind, ErrorKind::kUnprocessable) << answer.error().message;
  }
  EXPECT_TRUE(first.valid());
}

TEST_F(Services, LetNobodyFillTheObserversLineWithReleases) {
  const JobId record = submit_as(ana_, body(named("web")));
  std::promise<void> go_on;
  host_->observer().read(0, [held = go_on.get_future().share()](const Observer::View&) { held.wait(); });
  std::atomic<std::size_t> answered{0};
  std::optional<ApiError> refusal;
  std::size_t asked = 0;
  while (!refusal && asked < 2 * limits::kReadsWaitingMax) {
    ++asked;
    backend_.hold_job(ana_, record, "", false, "ana", [&](const Answer<JobView>& answer) {
      ++answered;
      if (answer.error().kind != ErrorKind::kUnprocessable) refusal = answer.error();
    });
  }
  go_on.set_value();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_NE(refusal->message.find("this caller has as many requests waiting"), std::string::npos)
      << refusal->message;
  EXPECT_LE(asked, limits::kReadsWaitingMax / 2 + 1);  // Others have the rest.
  while (answered < asked) std::this_thread::yield();
}

TEST_F(Services, OfWhichNoPlanWantsMoreAreForgottenByTheirKeeper) {
  const auto index = std::make_shared<ServiceIndex>();
  const auto keeper = std::make_shared<ServiceKeeper>(*host_, index);
  host_->observer().add_listener([index, keeper](const Observer::View& view, const Changes& changes) {
    keeper->step(view, index->observe(view.state, changes));
  });
  const auto comes_to_remember = [&](std::size_t count) {
    for (int i = 0; i < 3'000 && keeper->remembered() != count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return keeper->remembered() == count;
  };
  TenantRequest limit;
  limit.max_waiting_jobs = 1;  // The record has that place: its replicas are refused, again and again.
  answer<TenantView>([&](auto done) { backend_.update_tenant(admin(), "lab", limit, std::move(done)); });
  submit_as(ana_, body(named("web", 1, replicas(3))));
  EXPECT_TRUE(comes_to_remember(3)) << keeper->remembered();
  answer<ServiceView>([&](auto done) { backend_.scale_service(ana_, "web", "", 1, "ana", std::move(done)); });
  EXPECT_TRUE(comes_to_remember(1)) << keeper->remembered();
  answer<ServiceView>([&](auto done) { backend_.delete_service(ana_, "web", "", "ana", std::move(done)); });
  EXPECT_TRUE(comes_to_remember(0)) << keeper->remembered();
  keeper->stop();
}

TEST_F(Services, FollowTheJobsThatWaitWithALabel) {
  const auto job = [this](const std::string& label, const std::string& more = "") {
    return submit_as(ana_, body(label, more));
  };
  const auto comes_to = [this](int64_t waiting, int64_t replicas) {
    return wait_until("llm", [=](const ServiceView& now) {
      return now.scaling && now.scaling->waiting == waiting && now.settings.replicas == replicas;
    });
  };
  const std::string label = R"("kind":"llm")";
  job(label);  // It was there before.
  job(R"("kind":"other")");
  const std::string scaling =
      R"(,"gpusched.service-scale-queue":"kind=llm","gpusched.service-scale-max":"3",)"
      R"("gpusched.service-scale-per-replica":"2",)"
      R"("gpusched.service-scale-down-after-ms":"0","kind":"llm")";
  submit_as(ana_, body(named("llm", 1, scaling)));  // Its record and its replicas have the label, too.
  EXPECT_EQ(comes_to(1, 1).scaling->wanted, 1);
  const JobId second = job(label), third = job(label);
  comes_to(3, 2);
  job(label, R"("held":true,)");
  const JobId array = job(label, R"("array":"0-9",)");
  EXPECT_EQ(comes_to(13, 3).scaling->wanted, 3);
  for (const JobId one : {array, second})
    answer<Unit>([&](auto done) { backend_.cancel(ana_, one, "", "ana", std::move(done)); });
  comes_to(2, 1);
  answer<Unit>([&](auto done) { backend_.cancel(ana_, third, "", "ana", std::move(done)); });
  comes_to(1, 1);
}

TEST_F(Services, ThatFollowAQueueAreNotScaledByHand) {
  submit_as(ana_, body(named("llm", 1,
                             R"(,"gpusched.service-scale-queue":"kind","gpusched.service-scale-max":"3")")));
  const auto by_hand = [&](int64_t count) {
    return outcome<ServiceView>(
        [&](auto done) { backend_.scale_service(ana_, "llm", "", count, "ana", std::move(done)); });
  };
  const auto by_queue = [&](std::map<std::string, std::string> labels) {
    return outcome<ServiceView>([&](auto done) {
      backend_.scale_service_by_queue(ana_, "llm", "", std::move(labels), "ana", std::move(done));
    });
  };
  wait_for_jobs("llm", 1);
  ASSERT_FALSE(by_hand(2).ok());
  EXPECT_EQ(by_hand(2).error().kind, ErrorKind::kConflict);
  EXPECT_FALSE(by_queue({{std::string(kServiceReplicasLabel), "2"}}).ok());
  EXPECT_EQ(by_queue({{std::string(kServiceScaleMinLabel), "4"}}).error().kind, ErrorKind::kUnprocessable);
  EXPECT_EQ(by_queue({{std::string(kServiceScaleMinLabel), "2"}})->settings.replicas, 2);
  const ServiceView free =
      *by_queue({{std::string(kServiceQueueLabel), "none"}, {std::string(kServiceReplicasLabel), "3"}});
  EXPECT_FALSE(free.settings.scaling);
  EXPECT_EQ(free.settings.replicas, 3);
  EXPECT_TRUE(by_hand(1).ok());
}

TEST_F(Services, AreSeenByThoseAloneWhoMaySeeTheirRecords) {
  submit_as(ana_, body(named("web")));
  const auto eve = person("eve");
  TenantRequest tenant;
  tenant.name = "other";
  eve->bindings = {{.tenant = make_tenant(tenant), .role = Role::kUser}};
  const auto hidden =
      outcome<ServiceView>([&](auto done) { backend_.get_service(eve, "web", "", std::move(done)); });
  ASSERT_FALSE(hidden.ok());
  EXPECT_EQ(hidden.error().kind, ErrorKind::kNotFound);
  const auto listed = [&](const CallerPtr& who) {
    return answer<std::vector<ServiceView>>(
               [&](auto done) { backend_.list_services(who, "", std::move(done)); })
        .size();
  };
  EXPECT_EQ(listed(eve), 0U);
  EXPECT_EQ(listed(ana_), 1U);
  EXPECT_EQ(listed(admin()), 1U);
  const auto touched = outcome<ServiceView>(
      [&](auto done) { backend_.delete_service(eve, "web", "", "eve", std::move(done)); });
  ASSERT_FALSE(touched.ok());
  EXPECT_EQ(touched.error().kind, ErrorKind::kNotFound);
  const auto others = outcome<ServiceView>(
      [&](auto done) { backend_.scale_service(bob_, "web", "", 2, "bob", std::move(done)); });
  ASSERT_FALSE(others.ok());
}

}  // namespace
}  // namespace gpusched::api
