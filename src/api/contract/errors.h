#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/result.h"
#include "base/time.h"

/// The one table of errors that clients see: stable code, HTTP status, gRPC status, and what to do.
/// docs/reference/errors.md is generated from it.
namespace gpusched::api {

enum class ErrorKind : uint8_t {
  kInvalidArgument,
  kMalformedJson,
  kUnauthenticated,
  kPermissionDenied,
  kQuotaExceeded,
  kNotFound,
  kJobNotFound,
  kTenantNotFound,
  kNodeNotFound,
  kDeviceNotFound,
  kAttemptNotFound,
  kLogNotFound,
  kLogRemoved,
  kLogElsewhere,
  kMethodNotAllowed,
  kRequestTimeout,
  kAlreadyExists,
  kTenantExists,
  kJobFinished,
  kTenantBusy,
  kKeyConflict,
  kJobNotWaiting,
  kJobNotPlaced,
  kNodeAlive,
  kNodeNotDrained,
  kNodeNameTaken,
  kNodeStillHeard,
  kNodeOverlap,
  kConflict,
  kTenantLimit,
  kNodeLimit,
  kTooLarge,
  kUnprocessable,
  kImageUnsupported,
  kInfeasible,
  kDependencyNotFound,
  kDependencyInvalid,
  kDeadlinePassed,
  kNotInteractive,
  kPartsUnsupported,
  kTenantParentInvalid,
  kRateLimited,
  kQueueFull,
  kSpecsFull,
  kThrottled,
  kReservationNotFound,
  kReservationExists,
  kReservationDenied,
  kReservationTaken,
  kReservationTimes,
  kReservationLimit,
  kRateExceeded,
  kDailyExceeded,
  kHeadersTooLarge,
  kInternal,
  kUnavailable,
  kStorageFull,
  kNoLeader,
  kShuttingDown,
  kOutcomeUnknown,
  kTimeout,
  kFileNotFound,
  kIsDirectory,
  kJobNotRunning,
  kSessionNotFound,
  kSessionLimit,
  kSessionFailed,
  kSessionLost,
  kTenantQueueFull,
  kTenantThrottled,
  kMoveStale,
  kNodeBusy,
  kTenantAmbiguous,
  kKeyNotFound,
  kKeyExists,
  kKeyLimit,
  kKeyRevoked,
  kUserNotFound,
  kUserExists,
  kUserLimit,
  kCallerLimit,
  kNodeTokenInvalid,
  kNodeIdentityLimit,
  kNodeIdentityNotFound,
  kNodeRevoked,
};

/// One row of the table. `grpc_status` is the number of the gRPC status code.
struct ErrorRow {
  ErrorKind kind;
  std::string_view code;  ///< Stable: clients compare it.
  uint16_t http_status;
  uint8_t grpc_status;
  std::string_view meaning;
  std::string_view what_to_do;
};

/// All rows, indexed by kind.
std::span<const ErrorRow> error_table();
const ErrorRow& row_of(ErrorKind kind);
/// Nothing when there is no such code.
std::optional<ErrorKind> kind_of_code(std::string_view code);
/// "INVALID_ARGUMENT" for 3, and so on.
std::string_view grpc_status_name(uint8_t grpc_status);
/// The text of docs/reference/errors.md.
std::string errors_markdown();

/// An error on its way to a client: a kind, one sentence that says what to do, the field at fault.
struct ApiError {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  std::string field = {};     ///< Empty when no field is at fault.
  Duration retry_after = {};  ///< Sent as `Retry-After` with 429 and 503 when positive.
  bool hidden = false;        ///< It is there, but the caller may not know of it. For the audit; never sent.
};

/// {"error":...,"code":...,"field":...}
std::string error_json(const ApiError& error);

/// The kind that a failure of the world is shown as.
ErrorKind kind_of(ErrorCode code);
ApiError to_api_error(const Error& error);

/// A value or the error that the client gets.
template <typename T>
class [[nodiscard]] Answer {
 public:
  Answer(T value)
      : value_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Answer(ApiError error)
      : value_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const T& operator*() const {
    CHECK(ok());
    return std::get<0>(value_);
  }
  T& operator*() {
    CHECK(ok());
    return std::get<0>(value_);
  }
  const T* operator->() const { return &**this; }
  T* operator->() { return &**this; }
  const ApiError& error() const {
    CHECK(!ok());
    return std::get<1>(value_);
  }

 private:
  std::variant<T, ApiError> value_;
};

/// Called once with the answer. Writes: on the host's thread, after the command is durable; answers that
/// became durable together are followed by one call of the group hook (see Backend::on_group_done). Reads: on
/// the observer's thread. It must not block; it may be called before the asking call returns.
template <typename T>
using Done = std::function<void(Answer<T>)>;

}  // namespace gpusched::api
