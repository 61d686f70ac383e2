// bench_echo: how many calls gRPC alone serves. Prints its port and answers submissions of both doors at
// once, with an id each and nothing behind it: a service as gRPC generates it, on one completion queue and
// one thread, with what the scheduler turns off in gRPC turned off.
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpusched/v1/scheduler.grpc.pb.h"
#include "scheduler/scheduler.grpc.pb.h"

namespace gpusched::bench {
namespace {

constexpr int kAskedFor = 64;  ///< Calls that wait for a client, of each method; as many as the doors have.

std::string next_job() {
  static uint64_t number = 0;
  return "job-" + std::to_string(++number);
}

void answer(v1::SubmitJobsResponse& response) { response.add_job_ids(next_job()); }
void answer(scheduler::SubmitJobResponse& response) {
  response.set_job_id(next_job());
  response.set_status("submitted");
  response.set_message("Job submitted successfully");
}

class Event {
 public:
  virtual ~Event() = default;
  virtual void done(bool ok) = 0;
};

template <typename Service, typename Request, typename Response>
class Call final : public Event {
 public:
  using Responder = grpc::ServerAsyncResponseWriter<Response>;
  using Ask = void (Service::*)(grpc::ServerContext*, Request*, Responder*, grpc::CompletionQueue*,
                                grpc::ServerCompletionQueue*, void*);

  Call(Service& service, Ask ask, grpc::ServerCompletionQueue& queue)
      : service_(service), ask_(ask), queue_(queue) {
    ask_for_one();
  }

  void done(bool ok) override {
    if (answered_) return ask_for_one();
    if (!ok) return;
    response_.Clear();
    answer(response_);
    answered_ = true;
    responder_->Finish(response_, grpc::Status::OK, static_cast<Event*>(this));
  }

 private:
  void ask_for_one() {
    answered_ = false;
    context_.emplace();
    responder_.emplace(&*context_);
    request_.Clear();
    (service_.*ask_)(&*context_, &request_, &*responder_, &queue_, &queue_, static_cast<Event*>(this));
  }

  Service& service_;
  const Ask ask_;
  grpc::ServerCompletionQueue& queue_;
  std::optional<grpc::ServerContext> context_;
  std::optional<Responder> responder_;
  Request request_;
  Response response_;
  bool answered_ = false;
};

int run() {
  using Native = v1::Scheduler::WithAsyncMethod_SubmitJobs<v1::Scheduler::Service>;
  using Jobs = scheduler::SchedulerService::WithAsyncMethod_SubmitJob<scheduler::SchedulerService::Service>;
  Native native;
  Jobs jobs;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  for (const char* const filter :
       {GRPC_ARG_ENABLE_CENSUS, GRPC_ARG_ENABLE_DEADLINE_CHECKS, GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION,
        GRPC_ARG_ENABLE_CHANNELZ, GRPC_ARG_HTTP2_BDP_PROBE}) {
    builder.AddChannelArgument(filter, 0);
  }
  builder.RegisterService(&native);
  builder.RegisterService(&jobs);
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::vector<std::unique_ptr<Event>> calls;
  for (int i = 0; i < kAskedFor; ++i) {
    calls.push_back(std::make_unique<Call<Native, v1::SubmitJobsRequest, v1::SubmitJobsResponse>>(
        native, &Native::RequestSubmitJobs, *queue));
    calls.push_back(std::make_unique<Call<Jobs, scheduler::SubmitJobRequest, scheduler::SubmitJobResponse>>(
        jobs, &Jobs::RequestSubmitJob, *queue));
  }
  std::printf("%d\n", port);
  std::fflush(stdout);
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) static_cast<Event*>(tag)->done(ok);
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

int main() { return gpusched::bench::run(); }
