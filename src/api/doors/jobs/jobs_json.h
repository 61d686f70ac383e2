#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/jobs.h"
#include "api/contract/parse.h"
#include "api/contract/tenants.h"
#include "api/fields/job_rules.h"

/// Reads and checks the jobs door's REST bodies. Pure functions over untrusted bytes: tests and a fuzzer call
/// them as they are. Errors: 400 malformed, 413 too large, 422 well-formed but unprocessable.
namespace gpusched::api {

/// The body of POST /jobs. The request has one job; its key comes from a header. The names of fields that
/// mean nothing here go into `ignored`.
Answer<SubmitRequest> parse_submit(std::string_view body, bool containers_possible,
                                   std::vector<std::string>* ignored = nullptr);

/// The body of POST /tenants (`creating`: a name is needed) or PUT /tenants/{id}, where a limit that is null
/// is lifted.
Answer<TenantRequest> parse_tenant(std::string_view body, bool creating);

struct ConditionRequest {
  DeviceCondition condition = DeviceCondition::kOk;
  std::string detail;
  std::string by;
};
/// The body of POST /nodes/{name}/gpus/{index}/condition. `caller`: who it is when the body does not say.
Answer<ConditionRequest> parse_condition(std::string_view body, std::string_view caller);

/// A key that makes a request safe to repeat: at most 128 printable characters.
std::optional<ApiError> check_request_key(std::string_view key, std::string_view field);

}  // namespace gpusched::api
