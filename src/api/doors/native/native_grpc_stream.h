#pragma once

#include "api/contract/backend.h"
#include "api/grpc/grpc_call.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {

using SubmitStreamCall = GrpcBidi<v1::SubmitJobsRequest, v1::SubmitJobsResponse>::Call;

/// Serves one SubmitJobStream: at most 1,024 requests are under way, what the client does not read is not
/// asked for. A caller without the right credential is told so at once. It lives until gRPC is done with it.
void serve_submit_stream(Backend& backend, const Doorkeeper& doorkeeper, const GrpcMethodRow& method,
                         std::unique_ptr<SubmitStreamCall> call);

}  // namespace gpusched::api
