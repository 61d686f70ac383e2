#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/messages/rejection.h"

namespace gpusched {

/// All that is told about one rejection.
struct RejectionRow {
  RejectionCode code = RejectionCode::kStale;
  std::string_view name;  ///< Stable: in logs, and in what agents are told.
  /// Code for clients: one of the table of errors (src/api/contract/errors.h), which has its HTTP and gRPC
  /// status.
  std::string_view client_code;
  std::string_view sentence = {};                    ///< The event and the remedy; empty: see `say`.
  std::string (*say)(const Rejection&) = nullptr;    ///< Makes the text, if it has figures.
  std::string_view field = {};                       ///< Field at fault of the request; empty: `field_of`.
  std::string_view (*field_of)(Resource) = nullptr;  ///< Field at fault, by the resource.
  bool names_job = false;                            ///< It is about one job of a batch.
};

/// In the order of their codes.
std::span<const RejectionRow> rejection_rows();
const RejectionRow& row_of(RejectionCode code);
/// Empty when no field is.
std::string_view field_at_fault(const Rejection& rejection);

}  // namespace gpusched
