#include "api/backend/tasks/task_index.h"

#include <gtest/gtest.h>

#include "api/testing/tenants_test.h"

namespace gpusched::api {
namespace {

constexpr TaskContent kContent{.high = 1, .low = 2}, kOtherContent{.high = 1, .low = 3};

/// The index of a backend over a real host.
class TaskIndexs : public TenantsTest {
 protected:
  TaskIndexs() {
    for (const char* const name : {"lab", "other"}) {
      TenantRequest tenant;
      tenant.name = name;
      (std::string(name) == "lab" ? lab_ : other_) = make_tenant(tenant);
    }
    ana_->bindings = {{.tenant = lab_, .role = Role::kUser}};
    bob_->bindings = {{.tenant = other_, .role = Role::kUser}};
  }
  JobId submit_task(const CallerPtr& who, const std::string& tenant, const std::string& id) {
    return submit_as(
        who, R"({"tenant_id":")" + tenant + R"(","script":"true","labels":{"agent_task_id":")" + id + "\"}}",
        /*marked=*/true);
  }
  /// As the tasks' door does it.
  JobId submit_task(const CallerPtr& who, const std::string& tenant, const std::string& id,
                    TaskContent content) {
    Answer<SubmitRequest> request = parse_submit(
        R"({"tenant_id":")" + tenant + R"(","script":"true","labels":{"agent_task_id":")" + id + "\"}}",
        false);
    EXPECT_TRUE(request.ok());
    add_task_content(request->jobs[0].spec, content);
    request->sets_reserved_labels = true;
    const auto made =
        answer<Submitted>([&](auto done) { backend_.submit(who, std::move(*request), std::move(done)); });
    answer<JobView>([&](auto done) { backend_.get_job(admin(), made.first_job, "", std::move(done)); });
    return made.first_job;
  }
  TaskName of_ana(const std::string& id) const { return {.tenant = lab_, .owner = "person ana", .id = id}; }
  TaskName of_bob(const std::string& id) const { return {.tenant = other_, .owner = "person bob", .id = id}; }
  void cancel(JobId job) {
    answer<Unit>([&](auto done) { backend_.cancel(admin(), job, "", "an admin", std::move(done)); });
    wait_for(job, JobState::kCancelled);
  }
  TaskIndex& index() { return backend_.tasks(); }

  TenantId lab_, other_;
  std::shared_ptr<access::Caller> bob_ = person("bob");
};

TEST_F(TaskIndexs, KnowTasksByTheirLabelOwnerAndTenant) {
  const JobId first = submit_task(ana_, "lab", "t-1");
  const JobId again = submit_task(ana_, "lab", "t-1");  // Not by the tasks door, which takes an id once.
  const JobId theirs = submit_task(bob_, "other", "t-1");
  const JobId plain = submit_as(ana_, R"({"tenant_id":"lab","script":"true","labels":{"team":"t-1"}})");
  EXPECT_EQ(index().find(of_ana("t-1")), first);
  EXPECT_EQ(index().find(of_bob("t-1")), theirs);
  EXPECT_FALSE(index().find(of_ana("t-2")).has_value());
  EXPECT_EQ(index().id_of(again), "t-1");
  EXPECT_EQ(index().id_of(plain), "");
  EXPECT_EQ(index().waiting(lab_), 2);
  EXPECT_EQ(index().waiting(other_), 1);
  cancel(first);
  EXPECT_EQ(index().waiting(lab_), 1);
  EXPECT_EQ(index().find(of_ana("t-1")), first);  // As long as the job is kept.
}

TEST_F(TaskIndexs, KeepTheIdsOfEachOwnerApart) {
  const auto carl = person("carl");
  carl->bindings = {{.tenant = lab_, .role = Role::kUser}};
  const TaskName of_carl{.tenant = lab_, .owner = "person carl", .id = "t-1"};
  const JobId theirs = submit_task(carl, "lab", "t-1");
  EXPECT_FALSE(index().find(of_ana("t-1")).has_value());
  EXPECT_EQ(index().find_any(lab_, "t-1"), theirs);
  EXPECT_FALSE(index().find_any(other_, "t-1").has_value());
  EXPECT_EQ(index().begin(of_ana("t-1"), kContent, nullptr), TaskIndex::Begun::kFirst);
  const JobId own = submit_task(ana_, "lab", "t-1");
  index().settle(of_ana("t-1"), own);
  EXPECT_EQ(index().find(of_ana("t-1")), own);
  EXPECT_EQ(index().find(of_carl), theirs);
  HostBackend later(*host_, {});
  EXPECT_EQ(later.tasks().find(of_ana("t-1")), own);
  EXPECT_EQ(later.tasks().find(of_carl), theirs);
  EXPECT_EQ(later.tasks().find_any(lab_, "t-1"), theirs);
}

TEST_F(TaskIndexs, TakeNoLabelsFromOtherDoors) {
  for (const char* const label :
       {"agent_task_id", "agent_user_id", "agent_task_memory", "agent_task_load", "gpusched.lease-request"}) {
    const Answer<Submitted> refused = try_submit(
        ana_, R"({"tenant_id":"lab","script":"true","labels":{")" + std::string(label) + R"(":"t-1"}})");
    ASSERT_FALSE(refused.ok()) << label;
    EXPECT_EQ(refused.error().kind, ErrorKind::kUnprocessable);
    EXPECT_EQ(refused.error().field, "labels");
    EXPECT_NE(refused.error().message.find(label), std::string::npos) << refused.error().message;
  }
  EXPECT_FALSE(index().find_any(lab_, "t-1").has_value());
  submit_as(ana_,
            R"({"tenant_id":"lab","script":"echo agent_task_id","labels":{"agent_team":"agent_task_id"}})");
}

TEST_F(TaskIndexs, AreFilledFromTheJobsAtAStart) {
  const JobId first = submit_task(ana_, "lab", "t-1");
  const JobId ended = submit_task(ana_, "lab", "t-2");
  cancel(ended);
  HostBackend later(*host_, {});
  EXPECT_EQ(later.tasks().find(of_ana("t-1")), first);
  EXPECT_EQ(later.tasks().find(of_ana("t-2")), ended);
  EXPECT_EQ(later.tasks().waiting(lab_), 1);
  EXPECT_EQ(later.tasks().begin(of_ana("t-1"), kContent, nullptr), TaskIndex::Begun::kKnown);
  EXPECT_EQ(later.tasks().begin(of_ana("t-2"), kContent, nullptr), TaskIndex::Begun::kKnown);
}

TEST_F(TaskIndexs, CountAndListTheTasksOfATenant) {
  const JobId first = submit_task(ana_, "lab", "t-1");
  const JobId second = submit_task(ana_, "lab", "t-2");
  const JobId theirs = submit_task(bob_, "other", "t-1");
  EXPECT_EQ(index().tasks(lab_, TaskState::kPending, 10), (std::vector{first, second}));
  EXPECT_EQ(index().tasks(lab_, TaskState::kPending, 1), std::vector{first});
  EXPECT_TRUE(index().tasks(lab_, TaskState::kRunning, 10).empty());
  cancel(first);
  index().note_refused(lab_);
  EXPECT_EQ(index().tasks(lab_, TaskState::kPending, 10), std::vector{second});
  EXPECT_EQ(index().tasks(other_, TaskState::kPending, 10), std::vector{theirs});
  const TaskIndex::Counts counts = index().counts(lab_);
  EXPECT_EQ(counts.pending, 1);
  EXPECT_EQ(counts.running, 0);
  EXPECT_EQ(counts.cancelled, 1);
  EXPECT_EQ(counts.refused, 1);
  EXPECT_EQ(index().counts(other_).refused, 0);
  HostBackend later(*host_, {});
  EXPECT_EQ(later.tasks().counts(lab_).cancelled, 1);
  EXPECT_EQ(later.tasks().counts(lab_).refused, 0);
}

TEST_F(TaskIndexs, MakeOneJobOfSubmissionsAtTheSameTime) {
  std::vector<std::string> told;
  const auto note = [&told](const Answer<JobId>& outcome) {
    told.push_back(outcome.ok() ? job_name(*outcome) : outcome.error().message);
  };
  EXPECT_EQ(index().begin(of_ana("t-1"), kContent, note), TaskIndex::Begun::kFirst);
  EXPECT_EQ(index().waiting(lab_), 1);
  EXPECT_EQ(index().begin(of_ana("t-1"), kContent, note), TaskIndex::Begun::kAfter);
  EXPECT_EQ(index().begin(of_bob("t-1"), kContent, note), TaskIndex::Begun::kFirst);
  EXPECT_TRUE(told.empty());
  index().settle(of_ana("t-1"), ApiError{ErrorKind::kRateExceeded, "insufficient token"});
  EXPECT_EQ(told, std::vector<std::string>{"insufficient token"});
  EXPECT_EQ(index().waiting(lab_), 0);
  // A refused task may come again.
  EXPECT_EQ(index().begin(of_ana("t-1"), kContent, note), TaskIndex::Begun::kFirst);
  const JobId job = submit_task(ana_, "lab", "t-1");
  EXPECT_EQ(index().waiting(lab_), 1);  // Once, not as a submission and as a job.
  EXPECT_EQ(index().begin(of_ana("t-1"), kContent, note), TaskIndex::Begun::kKnown);
  index().settle(of_ana("t-1"), job);
  EXPECT_EQ(index().waiting(lab_), 1);
  // The scheduler may accept it before the index has seen the job.
  EXPECT_EQ(index().begin(of_ana("t-2"), kContent, note), TaskIndex::Begun::kFirst);
  index().settle(of_ana("t-2"), JobId{987});
  EXPECT_EQ(index().begin(of_ana("t-2"), kContent, note), TaskIndex::Begun::kKnown);
  EXPECT_EQ(index().find(of_ana("t-2")), JobId{987});
}

TEST_F(TaskIndexs, TellOtherContentFromARepetition) {
  submit_task(ana_, "lab", "t-1", kContent);
  submit_task(ana_, "lab", "t-before");
  HostBackend later(*host_, {});
  for (TaskIndex* const tasks : {&index(), &later.tasks()}) {
    EXPECT_EQ(tasks->begin(of_ana("t-1"), kContent, nullptr), TaskIndex::Begun::kKnown);
    EXPECT_EQ(tasks->begin(of_ana("t-1"), kOtherContent, nullptr), TaskIndex::Begun::kOther);
    // It was made before contents were kept.
    EXPECT_EQ(tasks->begin(of_ana("t-before"), kOtherContent, nullptr), TaskIndex::Begun::kKnown);
  }
  // The scheduler may accept it before the index has seen the job.
  EXPECT_EQ(index().begin(of_ana("t-2"), kContent, nullptr), TaskIndex::Begun::kFirst);
  index().settle(of_ana("t-2"), JobId{987});
  EXPECT_EQ(index().begin(of_ana("t-2"), kContent, nullptr), TaskIndex::Begun::kKnown);
  EXPECT_EQ(index().begin(of_ana("t-2"), kOtherContent, nullptr), TaskIndex::Begun::kOther);
}

TEST_F(TaskIndexs, TellOtherContentAtTheSameTimeWhatBecameOfTheFirst) {
  std::vector<std::string> told;
  const auto note = [&told](const std::string& who) {
    return [&told, who](const Answer<JobId>& outcome) {
      told.push_back(who + ": " + (outcome.ok() ? job_name(*outcome) : outcome.error().message));
    };
  };
  const auto begin_all = [&] {
    EXPECT_EQ(index().begin(of_ana("t-1"), kContent, nullptr), TaskIndex::Begun::kFirst);
    EXPECT_EQ(index().begin(of_ana("t-1"), kOtherContent, note("other")), TaskIndex::Begun::kAfter);
    EXPECT_EQ(index().begin(of_ana("t-1"), kContent, note("same")), TaskIndex::Begun::kAfter);
    EXPECT_TRUE(told.empty());
  };
  begin_all();
  index().settle(of_ana("t-1"), ApiError{ErrorKind::kRateExceeded, "insufficient token"});
  EXPECT_EQ(told,
            (std::vector<std::string>{"other: the task was submitted with other content at the same time, "
                                      "and that was refused; submit it again",
                                      "same: insufficient token"}));
  told.clear();
  begin_all();
  index().settle(of_ana("t-1"), JobId{987});
  EXPECT_EQ(told,
            (std::vector<std::string>{"other: task already exists with other content", "same: job-987"}));
}

TEST_F(TaskIndexs, TellWatchersOfTheirOwnTasksInOrder) {
  std::mutex mutex;
  std::vector<std::string> told;
  const auto note = [&](const TaskChange& change) {
    const std::lock_guard lock(mutex);
    told.push_back(change.id + " " + std::to_string(static_cast<int>(change.state)));
    EXPECT_TRUE(change.job.valid() && change.at.valid());
    EXPECT_NE(change.message, "");
  };
  std::shared_ptr<void> watch = index().watch(ana_, note);
  submit_task(bob_, "other", "theirs");
  const JobId first = submit_task(ana_, "lab", "t-1");
  submit_as(ana_, R"({"tenant_id":"lab","script":"true"})");
  submit_task(ana_, "lab", "t-2");
  cancel(first);
  watch.reset();
  submit_task(ana_, "lab", "t-3");
  const std::lock_guard lock(mutex);
  EXPECT_EQ(told, (std::vector<std::string>{"t-1 0", "t-2 0", "t-1 4"}));
}

}  // namespace
}  // namespace gpusched::api
