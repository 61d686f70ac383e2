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
  /// What clients are told: a code of the table of errors (src/api/contract/errors.h), which has its HTTP and
  /// gRPC status.
  std::string_view client_code;
  std::string_view sentence = {};                    ///< What happened and what to do,
  std::string (*say)(const Rejection&) = nullptr;    ///< or, where it names figures, what makes it.
  std::string_view field = {};                       ///< The field of the request at fault,
  std::string_view (*field_of)(Resource) = nullptr;  ///< or which one, by the resource.
  bool names_job = false;                            ///< It is about one job of a batch.
};

/// In the order of their codes.
std::span<const RejectionRow> rejection_rows();
const RejectionRow& row_of(RejectionCode code);
/// Empty when no field is.
std::string_view field_at_fault(const Rejection& rejection);

}  // namespace gpusched
