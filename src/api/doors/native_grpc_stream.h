#pragma once

#include "api/backend.h"
#include "api/grpc_call.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {

/// Serves one SubmitJobStream: at most 1,024 requests are under way, what the client does not read is not
/// asked for. It deletes itself when gRPC is done with it.
grpc::ServerBidiReactor<v1::SubmitJobsRequest, v1::SubmitJobsResponse>* serve_submit_stream(
    Backend& backend, GrpcFinisher& finisher);

/// A stream that is over before it began.
grpc::ServerBidiReactor<v1::SubmitJobsRequest, v1::SubmitJobsResponse>* refuse_submit_stream(
    grpc::CallbackServerContext* context, const ApiError& error);

}  // namespace gpusched::api
