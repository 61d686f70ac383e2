#include "base/result.h"

namespace gpusched {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kAlreadyExists:
      return "already_exists";
    case ErrorCode::kPermissionDenied:
      return "permission_denied";
    case ErrorCode::kUnauthenticated:
      return "unauthenticated";
    case ErrorCode::kTooLarge:
      return "too_large";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kStorageFull:
      return "storage_full";
    case ErrorCode::kSpecsFull:
      return "specs_full";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kOutcomeUnknown:
      return "outcome_unknown";
    case ErrorCode::kIo:
      return "io_error";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kLocked:
      return "locked";
    case ErrorCode::kVersion:
      return "newer_version";
    case ErrorCode::kInternal:
      return "internal";
  }
  UNREACHABLE();
}

}  // namespace gpusched
