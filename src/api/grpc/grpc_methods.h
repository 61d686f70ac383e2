#pragma once

#include <span>
#include <string_view>

#include "access/actions.h"

namespace gpusched::api {

/// A call of a gRPC service, and what the caller does by it.
struct GrpcMethodRow {
  std::string_view service;  ///< Its full name.
  std::string_view name;
  access::Action action;
};

/// Whether it is one of the standard services of gRPC, which tell everybody the same, whoever calls.
inline bool is_standard(const GrpcMethodRow& row) { return row.service.starts_with("grpc."); }

/// All calls of all services.
std::span<const GrpcMethodRow> grpc_methods();
/// It must be there.
const GrpcMethodRow& grpc_method(std::string_view service, std::string_view name);

}  // namespace gpusched::api
