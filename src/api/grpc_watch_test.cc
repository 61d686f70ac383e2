#include <chrono>
#include <map>
#include <thread>

#include "api/testing/doors_test.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

using Event = v1::WatchEvent;

/// One watch of a client; whatever is read waits no longer than the deadline.
struct Watch {
  Watch(v1::Scheduler::Stub& stub, const v1::WatchRequest& request, const std::string& token = "") {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    reader = stub.Watch(&context, request);
  }
  Event next() {
    Event event;
    EXPECT_TRUE(reader->Read(&event));
    return event;
  }
  /// Reads until the job has that state; gives the sequence that came with it or soon after.
  uint64_t until(const std::string& job, v1::JobState state) {
    bool seen = false;
    for (int i = 0; i < 10'000; ++i) {
      Event event;
      if (!reader->Read(&event)) break;
      events += 1;
      if (event.event_case() == Event::kJob) told[event.job().job_id()] += 1;
      seen = seen || (event.event_case() == Event::kJob && event.job().job_id() == job &&
                      event.job().state() == state);
      if (seen && event.has_sequence()) return event.sequence();
    }
    ADD_FAILURE() << "the stream ended before " << job << " had its state";
    return 0;
  }
  grpc::Status cancelled() {
    context.TryCancel();
    Event event;
    while (reader->Read(&event)) {
    }
    return reader->Finish();
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<Event>> reader;
  std::map<std::string, int> told;
  int events = 0;
};

class GrpcWatch : public DoorsTest {
 protected:
  std::string cancelled_job() {
    const std::string job = submit();
    EXPECT_EQ(http("DELETE", "/api/v1/jobs/" + job).status, 200);
    return job;
  }
  std::unique_ptr<v1::Scheduler::Stub> stub_ = v1::Scheduler::NewStub(channel_);
};

TEST_F(GrpcWatch, TellsItsBeginningAndThenEachJobThatChanges) {
  Watch watch(*stub_, {});
  const Event first = watch.next();
  EXPECT_EQ(first.event_case(), Event::kBegin);
  ASSERT_TRUE(first.has_sequence());
  const std::string job = submit();
  const uint64_t sequence = watch.until(job, v1::JOB_STATE_PENDING);
  EXPECT_GT(sequence, first.sequence());
  http("DELETE", "/api/v1/jobs/" + job);
  EXPECT_GT(watch.until(job, v1::JOB_STATE_CANCELLED), sequence);
  EXPECT_EQ(watch.cancelled().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcWatch, IsResumedWithoutAGapAndWithoutARepetition) {
  uint64_t sequence = 0;
  std::string before;
  {
    Watch watch(*stub_, {});
    watch.next();
    before = cancelled_job();
    sequence = watch.until(before, v1::JOB_STATE_CANCELLED);
    watch.cancelled();
  }
  std::string last;
  for (int i = 0; i < 200; ++i) last = cancelled_job();  // More than a stream keeps for its client.
  v1::WatchRequest request;
  request.set_after_sequence(sequence);
  Watch watch(*stub_, request);
  const Event first = watch.next();
  EXPECT_EQ(first.event_case(), Event::kBegin);
  EXPECT_EQ(first.sequence(), sequence);
  watch.until(last, v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(watch.told.size(), 200U);
  EXPECT_EQ(watch.told.count(before), 0U);
  for (const auto& [job, times] : watch.told) EXPECT_EQ(times, 1) << job;
}

TEST_F(GrpcWatch, SaysThatItCannotBeResumedWhereNobodyWas) {
  v1::WatchRequest request;
  request.set_after_sequence(uint64_t{1} << 62);
  Watch watch(*stub_, request);
  EXPECT_EQ(watch.next().event_case(), Event::kBegin);
  EXPECT_EQ(watch.next().event_case(), Event::kResync);
  const std::string job = submit();
  watch.until(job, v1::JOB_STATE_PENDING);  // It goes on as a new one.
}

TEST_F(GrpcWatch, TellsOnlyWhatIsAskedFor) {
  v1::WatchRequest request;
  request.set_name("mine");
  request.set_state(v1::JOB_STATE_PENDING);
  Watch watch(*stub_, request);
  watch.next();
  submit(R"({"script":"true","name":"other"})");
  const std::string job = submit(R"({"script":"true","name":"mine"})");
  watch.until(job, v1::JOB_STATE_PENDING);
  EXPECT_EQ(watch.told.size(), 1U);
  http("DELETE", "/api/v1/jobs/" + job);
  Event left = watch.next();
  while (left.event_case() != Event::kLeft) left = watch.next();
  EXPECT_EQ(left.left().job_id(), job);
  EXPECT_EQ(left.left().state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(GrpcWatch, OfATenantThatIsNotThereIsRefused) {
  v1::WatchRequest request;
  request.set_tenant_id("nobody");
  Watch watch(*stub_, request);
  Event event;
  EXPECT_FALSE(watch.reader->Read(&event));
  EXPECT_EQ(watch.reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  request.Clear();
  request.set_state(static_cast<v1::JobState>(77));
  Watch odd(*stub_, request);
  EXPECT_FALSE(odd.reader->Read(&event));
  EXPECT_EQ(odd.reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcWatch, EndsWhenTheServerEnds) {
  Watch watch(*stub_, {});
  watch.next();
  std::thread ends([&] { server_->shutdown(); });
  Event event;
  while (watch.reader->Read(&event)) {
  }
  const grpc::Status status = watch.reader->Finish();
  EXPECT_TRUE(status.error_code() == grpc::StatusCode::CANCELLED ||
              status.error_code() == grpc::StatusCode::UNAVAILABLE)
      << status.error_code() << " " << status.error_message();
  ends.join();
}

}  // namespace
}  // namespace gpusched::api
