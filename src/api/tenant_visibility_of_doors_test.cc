// Doors that have ways of their own: watches, tasks of agents, allocations. As in tenant_visibility_test.cc
// everything is searched for the word of what the caller may not know of, and hidden things are answered like
// things that never were.
#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "algogpu/algogpu.grpc.pb.h"
#include "api/doors/allocation/allocation_ids.h"
#include "api/doors/allocation/allocation_json.h"
#include "api/doors/allocation/allocation_rest.h"
#include "api/testing/tenant_visibility_test.h"

namespace gpusched::api {
namespace {

class TenantVisibilityOfDoors : public TenantVisibilities {
 protected:
  static constexpr const char* kUpgrade =
      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

  /// A job that is a task of that id.
  JobId task(const CallerPtr& who, const std::string& tenant, const std::string& id) {
    return submit_as(who,
                     R"({"tenant_id":")" + tenant + R"(","name":")" + id +
                         R"(","script":"true","gpu_count":8,"labels":{"agent_task_id":")" + id + "\"}}",
                     /*marked=*/true);
  }
  JobId lease(const CallerPtr& who, const std::string& tenant) {
    Answer<SubmitRequest> request = parse_allocation("{}", "");
    EXPECT_TRUE(request.ok());
    request->tenant = tenant;
    const JobId job =
        answer<Submitted>([&](auto done) { backend_.submit(who, *request, std::move(done)); }).first_job;
    answer<JobView>([&](auto done) { backend_.get_job(admin(), job, "", std::move(done)); });
    return job;
  }
  std::string cluster() {
    return answer<ClusterView>([&](auto done) { backend_.get_cluster(admin(), std::move(done)); }).name;
  }
};

/// A stream or a socket of the server's, read until something is in it.
class Stream {
 public:
  Stream(int socket, const std::string& request) : socket_(socket) {
    const timeval patience{30, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(send(socket_, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
  }
  ~Stream() { close(socket_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// All that came until then.
  const std::string& read_until(const std::string& end) {
    char buffer[4'096];
    while (said_.find(end) == std::string::npos) {
      const ssize_t size = recv(socket_, buffer, sizeof buffer, 0);
      if (size <= 0) break;
      said_.append(buffer, static_cast<std::size_t>(size));
    }
    EXPECT_NE(said_.find(end), std::string::npos) << said_;
    return said_;
  }

 private:
  const int socket_;
  std::string said_;
};

INSTANTIATE_TEST_SUITE_P(Roles, TenantVisibilityOfDoors, ::testing::Values(Role::kViewer, Role::kUser),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST_P(TenantVisibilityOfDoors, WatchesTellOfTheOwnAlone) {
  const std::string end = "HTTP/1.1\r\nHost: localhost\r\n";
  Stream events(connect_to(server_->http_port()), "GET /v1/watch " + end + "\r\n");
  Stream socket(connect_to(server_->http_port()), "GET /api/v1/ws " + end + kUpgrade + "\r\n");
  Stream followed(connect_to(server_->http_port()),
                  "GET /v1/jobs/" + job_name(own_) + "/watch " + end + "\r\n");
  events.read_until("sequence");
  socket.read_until("sequence");
  followed.read_until(job_name(own_));
  // Others' jobs begin, change and end; then one of the own tenant, so that all before it has been told.
  const JobId hidden = submit_as(bob_, job_of("zqxv-other", R"("gpu_count":8,"priority":250)"));
  answer<Unit>([&](auto done) { backend_.cancel(bob_, hidden, "", "zqxv-bob", std::move(done)); });
  answer<Unit>([&](auto done) { backend_.cancel(bob_, running_, "", "zqxv-bob", std::move(done)); });
  const std::string last =
      job_name(submit_as(eve_, R"({"tenant_id":"lab","script":"true","gpu_count":8})")) + "\"";
  for (Stream* const stream : {&events, &socket}) {
    const std::string& said = stream->read_until(last);
    expect_nothing(said, "a watch");
    expect_not(said, job_name(hidden), "a watch");
  }
  answer<Unit>([&](auto done) { backend_.cancel(eve_, own_, "", "eve", std::move(done)); });
  expect_nothing(followed.read_until("cancelled"), "a watch of one job");
}

TEST_P(TenantVisibilityOfDoors, AWatchOfAHiddenTenantIsOneOfNone) {
  for (const std::string path : {"/v1/watch", "/api/v1/ws"}) {
    const std::string headers = path.ends_with("ws") ? kUpgrade : "";
    const Reply hidden = http("GET", path + "?tenant_id=" + kHiddenTenant, "", headers);
    const Reply absent = http("GET", path + "?tenant_id=" + kAbsentTenant, "", headers);
    EXPECT_EQ(hidden.status, 404) << path << hidden.body;
    EXPECT_EQ(absent.status, 404) << path << absent.body;
    EXPECT_EQ(hidden.body, replaced(absent.body, kAbsentTenant, kHiddenTenant)) << path;
  }
}

TEST_P(TenantVisibilityOfDoors, TasksOfOthersAreNotThere) {
  const JobId hidden = task(bob_, "zqxv-other", "zqxv-task");
  const auto stub = algogpu::GPUScheduler::NewStub(channel_);
  const auto told_of = [&](const std::string& id) {
    grpc::ClientContext asking, ending;
    algogpu::TaskStatusRequest status;
    status.set_task_id(id);
    algogpu::TaskStatusResponse state;
    const grpc::Status asked = stub->GetTaskStatus(&asking, status, &state);
    algogpu::CancelTaskRequest cancel;
    cancel.set_task_id(id);
    algogpu::CancelTaskResponse cancelled;
    const grpc::Status ended = stub->CancelTask(&ending, cancel, &cancelled);
    return std::to_string(asked.error_code()) + asked.error_message() + state.SerializeAsString() +
           std::to_string(ended.error_code()) + ended.error_message() + cancelled.SerializeAsString();
  };
  EXPECT_EQ(told_of("zqxv-task"), replaced(told_of("zqxv-none"), "zqxv-none", "zqxv-task"));
  const auto seen = answer<JobView>([&](auto done) { backend_.get_job(bob_, hidden, "", std::move(done)); });
  EXPECT_FALSE(is_final(seen.state));
  for (const AgentTasksRest::RouteRow& row : AgentTasksRest::routes()) {
    const Reply reply = http("GET", "/" + std::string(row.pattern));
    EXPECT_EQ(reply.status, 200) << row.pattern;
    expect_nothing(reply.body, std::string(row.pattern));
  }
  const auto queue = [&] { return http("GET", "/queue/status").body; };
  const std::string without = queue();
  task(bob_, "zqxv-other", "zqxv-task-2");
  EXPECT_EQ(queue(), without);
}

TEST_P(TenantVisibilityOfDoors, EventsOfTasksTellOfTheOwnAlone) {
  const auto stub = algogpu::GPUScheduler::NewStub(channel_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = stub->TaskEvents(&context, {});
  stream->WaitForInitialMetadata();  // From here on it is told.
  task(bob_, "zqxv-other", "zqxv-task");
  task(eve_, "lab", "own-task");
  algogpu::TaskEvent event;
  ASSERT_TRUE(stream->Read(&event));
  expect_nothing(event.SerializeAsString(), "an event");
  EXPECT_EQ(event.task_id(), "own-task");
  context.TryCancel();
  while (stream->Read(&event)) {
  }
}

TEST_P(TenantVisibilityOfDoors, LeasesAndKeysOfOthersAreNotThere) {
  const std::string name = cluster();
  const JobId job = lease(bob_, "zqxv-other");
  const auto about = [&](uint64_t gpu, uint64_t key) {
    Subjects one{.job = "", .tenant = ""};
    one.lease = allocation_id(name, AllocationIdKind::kGpu, gpu);
    one.lease_key = allocation_id(name, AllocationIdKind::kKey, key);
    return one;
  };
  const Subjects hidden = about(job.value, key_.value), absent = about(job.value + 9'999, key_.value + 9'999);
  std::size_t compared = 0;
  for (const AllocationRest::RouteRow& row : AllocationRest::routes()) {
    const Call call{row.method, row.action, row.pattern, true};
    const std::string what = std::string(to_string(row.method)) + " " + std::string(row.pattern);
    if (row.pattern.find('*') == std::string_view::npos) continue;
    const Reply is_hidden = answer_to(call, hidden), is_absent = answer_to(call, absent);
    // Only administrators of the cluster are told anything of users.
    const bool is_told_to_nobody = row.action == access::Action::kUpdateUser;
    // A lease of another organization is told to be one, and no more.
    if (row.pattern.find("gpu/*") != std::string_view::npos) {
      EXPECT_EQ(is_hidden.status, 403) << what;
      EXPECT_EQ(is_hidden.body, R"({"detail":"You do not have permission to access this resource."})")
          << what;
      EXPECT_EQ(is_absent.status, 404) << what << is_absent.body;
      compared += 1;
      continue;
    }
    EXPECT_EQ(is_hidden.status, is_told_to_nobody ? 403 : 404) << what << is_hidden.body;
    EXPECT_EQ(is_hidden.status, is_absent.status) << what;
    EXPECT_EQ(is_hidden.body, is_absent.body) << what;
    compared += 1;
  }
  EXPECT_GE(compared, 9U);
  for (const char* const list : {"/api/gpuscheduler/v1/gpus", "/api/gpuscheduler/v1/api-keys"}) {
    const std::string seen = http("GET", list).body;
    EXPECT_EQ(seen.find(hidden.lease), std::string::npos) << seen;
    EXPECT_EQ(seen.find(hidden.lease_key), std::string::npos) << seen;
    expect_nothing(seen, list);
  }
  const auto seen = answer<JobView>([&](auto done) { backend_.get_job(bob_, job, "", std::move(done)); });
  EXPECT_FALSE(is_final(seen.state));
}

}  // namespace
}  // namespace gpusched::api
