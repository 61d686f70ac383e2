#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "gpusched/v1/scheduler.grpc.pb.h"
#include "load/load.h"
#include "scheduler/scheduler.grpc.pb.h"

namespace gpusched::bench {
namespace {

constexpr int kBatchJobs = 1'000;

std::shared_ptr<grpc::Channel> channel_to(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // Else all channels share one connection.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

uint64_t job_number(const std::string& name) {
  uint64_t number = 0;
  const bool good = name.starts_with("job-") &&
                    std::from_chars(name.data() + 4, name.data() + name.size(), number).ec == std::errc{};
  expect(good, "an answer with the job id '" + name + "'");
  return number;
}
void take_ids(const v1::SubmitJobsResponse& response, std::vector<uint64_t>& jobs) {
  for (const std::string& name : response.job_ids()) jobs.push_back(job_number(name));
}
void take_ids(const scheduler::SubmitJobResponse& response, std::vector<uint64_t>& jobs) {
  jobs.push_back(job_number(response.job_id()));
}

/// Keeps `load.in_flight` calls of the same request on their way until all are answered.
template <typename Response, typename Begin>
LoadResult run_calls(const GrpcLoad& load, const Begin& begin_call) {
  struct Call {
    std::size_t number = 0;
    int64_t sent_at = 0;
    std::optional<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
    Response response;
    grpc::Status status;
  };
  LoadResult result;
  result.jobs.reserve(static_cast<std::size_t>(load.calls * load.jobs_per_call));
  grpc::CompletionQueue queue;
  std::vector<Call> calls(static_cast<std::size_t>(std::min<int64_t>(load.in_flight, load.calls)));
  int64_t sent = 0;
  const auto send_next = [&](Call& call) {
    if (sent == load.calls) return;
    ++sent;
    call.context.emplace();
    if (!load.token.empty()) call.context->AddMetadata("authorization", "Bearer " + load.token);
    call.response.Clear();
    call.sent_at = now_ns();
    call.reader = begin_call(call.number, &*call.context, &queue);
    call.reader->Finish(&call.response, &call.status, &call);
  };
  const int64_t begin = now_ns();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].number = i;
    send_next(calls[i]);
  }
  void* tag = nullptr;
  bool good = false;
  while (static_cast<int64_t>(result.latency.count()) < load.calls && queue.Next(&tag, &good)) {
    Call& call = *static_cast<Call*>(tag);
    result.latency.add(now_ns() - call.sent_at);
    expect(good && call.status.ok(), "a call failed: " + call.status.error_message());
    take_ids(call.response, result.jobs);
    send_next(call);
  }
  result.seconds = seconds_between(begin, now_ns());
  queue.Shutdown();
  while (queue.Next(&tag, &good)) {
  }
  return result;
}

void write_benchmark_job(v1::JobRequest& job) {
  v1::JobSpec& spec = *job.mutable_spec();
  spec.set_name("train-model");
  spec.add_command("/bin/true");
  spec.add_args("--epochs");
  spec.add_args("20");
  (*spec.mutable_labels())["team"] = "research";
}

LoadResult run_native(const GrpcLoad& load, const v1::SubmitJobsRequest& request) {
  std::vector<std::unique_ptr<v1::Scheduler::Stub>> stubs;
  for (int i = 0; i < load.channels; ++i) stubs.push_back(v1::Scheduler::NewStub(channel_to(load.address)));
  return run_calls<v1::SubmitJobsResponse>(
      load, [&](std::size_t number, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stubs[number % stubs.size()]->AsyncSubmitJobs(context, request, queue);
      });
}

LoadResult run_jobs_door(const GrpcLoad& load) {
  scheduler::SubmitJobRequest request;
  request.set_name("train-model");
  request.add_command("/bin/true");
  request.add_args("--epochs");
  request.add_args("20");
  (*request.mutable_labels())["team"] = "research";
  std::vector<std::unique_ptr<scheduler::SchedulerService::Stub>> stubs;
  for (int i = 0; i < load.channels; ++i) {
    stubs.push_back(scheduler::SchedulerService::NewStub(channel_to(load.address)));
  }
  return run_calls<scheduler::SubmitJobResponse>(
      load, [&](std::size_t number, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stubs[number % stubs.size()]->AsyncSubmitJob(context, request, queue);
      });
}

/// Batches of kBatchJobs jobs like this one, and the rest.
LoadResult submit_like(Scheduler& scheduler, int64_t count, const v1::JobRequest& job) {
  LoadResult all;
  for (const int64_t size : {int64_t{kBatchJobs}, count % kBatchJobs}) {
    GrpcLoad load{
        .address = scheduler.grpc_address(), .token = scheduler.token(), .in_flight = 4, .channels = 1};
    load.jobs_per_call = static_cast<int>(size);
    load.calls = size == kBatchJobs ? count / kBatchJobs : 1;
    if (size == 0 || load.calls == 0) continue;
    v1::SubmitJobsRequest request;
    for (int64_t i = 0; i < size; ++i) *request.add_jobs() = job;
    const LoadResult part = run_native(load, request);
    all.seconds += part.seconds;
    all.latency.add(part.latency);
    all.jobs.insert(all.jobs.end(), part.jobs.begin(), part.jobs.end());
  }
  return all;
}

}  // namespace

LoadResult run_grpc_load(const GrpcLoad& load) {
  if (load.door == GrpcLoad::Door::kJobs) return run_jobs_door(load);
  v1::SubmitJobsRequest request;
  for (int i = 0; i < load.jobs_per_call; ++i) write_benchmark_job(*request.add_jobs());
  return run_native(load, request);
}

LoadResult submit_batches(Scheduler& scheduler, int64_t count) {
  v1::JobRequest job;
  write_benchmark_job(job);
  return submit_like(scheduler, count, job);
}

LoadResult submit_commands(Scheduler& scheduler, int64_t count, const std::vector<std::string>& command) {
  v1::JobRequest job;
  for (const std::string& word : command) job.mutable_spec()->add_command(word);
  return submit_like(scheduler, count, job);
}

void print_round(const char* name, const LoadResult& result) {
  std::string rate = text_of("%9.0f requests/s", result.requests_per_second());
  if (result.jobs.size() != result.latency.count())
    rate += text_of("  %9.0f jobs/s", result.jobs_per_second());
  print_line(name,
             rate + text_of("  p50 %6.2f ms  p99 %6.2f ms  worst %7.2f ms", result.latency.percentile_ms(0.5),
                            result.latency.percentile_ms(0.99), result.latency.percentile_ms(1)));
}

void check_all_there(Scheduler& scheduler, std::vector<uint64_t> acknowledged) {
  std::sort(acknowledged.begin(), acknowledged.end());
  expect(std::adjacent_find(acknowledged.begin(), acknowledged.end()) == acknowledged.end(),
         "two submissions were given one id");
  const auto count = static_cast<int64_t>(acknowledged.size());
  const auto check = [&](const char* when) {
    const int64_t there = scheduler.job_count("");
    expect(there == count, text_of("%s: %lld jobs were acknowledged, %lld are there", when,
                                   static_cast<long long>(count), static_cast<long long>(there)));
    for (int64_t i = 0; i < count; i += std::max<int64_t>(count / 500, 1)) {  // Fails unless it is there.
      scheduler.get("/api/v1/jobs/job-" + std::to_string(acknowledged[static_cast<std::size_t>(i)]));
    }
  };
  check("at the end");
  scheduler.kill_hard();
  scheduler.start();
  check("after kill -9 and a restart");
  print_line("checked",
             text_of("%lld jobs acknowledged, all with their own id; the API counts as many, and as many "
                     "after kill -9 and a restart",
                     static_cast<long long>(count)));
}

}  // namespace gpusched::bench
