#pragma once

#include <string>
#include <vector>

#include "api/contract/backend.h"
#include "api/contract/names.h"
#include "gpusched/v1/services.pb.h"

/// Services in the native API's messages: what REST and gRPC have in common.
namespace gpusched::api {

void write_service(const ServiceView& service, v1::Service& out);
void write_services(const std::vector<ServiceView>& services, v1::ListServicesResponse& out);

/// The submission of a new service's record.
Answer<SubmitRequest> read_creation(const v1::CreateServiceRequest& message, bool containers_possible);
/// The submission of the record of a service's next generation; the service is named by its name alone.
Answer<SubmitRequest> read_rollout(const v1::RollOutServiceRequest& message, bool containers_possible);

/// Submits the record and shows the service as it then is. The backend must outlive the call.
void submit_record(Backend& backend, const CallerPtr& caller, SubmitRequest record, Done<ServiceView> shown);
/// Scales the service that the message names, for `by`. kInvalidArgument when it does not say how. The
/// backend must outlive the call.
void apply_scale(Backend& backend, const CallerPtr& caller, const v1::ScaleServiceRequest& message,
                 const std::string& by, Done<ServiceView> shown);

}  // namespace gpusched::api
