#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "api/contract/backend.h"
#include "api/contract/spec_peek.h"
#include "api/doors/events/event_feed.h"
#include "api/grpc/grpc_call.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {

using SubmitStreamCall = GrpcBidi<v1::SubmitJobsRequest, v1::SubmitJobsResponse>::Call;

/// Serves one SubmitJobStream: at most 1,024 requests are under way, what the client does not read is not
/// asked for. A caller without the right credential is told so at once. It lives until gRPC is done with it.
void serve_submit_stream(Backend& backend, const Doorkeeper& doorkeeper, const GrpcMethodRow& method,
                         std::unique_ptr<SubmitStreamCall> call);

/// Takes messages that are packed already.
using WatchWriter = GrpcWriter<grpc::ByteBuffer>;

/// Sends WatchEvents until the client goes away. The handler has let the caller in.
void serve_watch(Backend& backend, RunLater run_later, CallerPtr caller,
                 const std::shared_ptr<WatchWriter>& writer, const v1::WatchRequest& request);

inline constexpr int64_t kTimeMaxSeconds = 4'000'000'000;

/// The jobs that a ListJobsRequest or a WatchRequest is about.
template <typename Request>
Answer<JobFilter> read_jobs_wanted(const Request& request) {
  JobFilter filter{.tenant = request.tenant_id()};
  if (request.state() != v1::JOB_STATE_UNSPECIFIED) {
    if (!v1::JobState_IsValid(request.state())) {
      return ApiError{ErrorKind::kInvalidArgument,
                      "state must be pending, scheduled, running, completed, failed, cancelled or preempted",
                      "state"};
    }
    filter.state = static_cast<JobState>(request.state());
  }
  filter.name = request.name();
  filter.user = request.user();
  for (const std::string& label : request.labels()) filter.labels.push_back(parse_label(label));
  if (request.has_since()) {
    if (request.since().seconds() < 0 || request.since().seconds() > kTimeMaxSeconds)
      return ApiError{ErrorKind::kInvalidArgument, "since is out of range", "since"};
    filter.since = Time{request.since().seconds() * 1'000'000'000 + request.since().nanos()};
  }
  return filter;
}

}  // namespace gpusched::api
