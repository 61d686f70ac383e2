#include "api/contract/errors.h"

#include <array>

#include "api/contract/json_writer.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

// Numbers of the gRPC status codes that the table uses.
constexpr uint8_t kInvalid = 3, kDeadline = 4, kMissing = 5, kExists = 6, kDenied = 7, kExhausted = 8,
                  kPrecondition = 9, kUnimplemented = 12, kInternalBug = 13, kDown = 14, kNoToken = 16;

using enum ErrorKind;

constexpr std::array kTable = {
    ErrorRow{kInvalidArgument, "invalid_argument", 400, kInvalid,
             "A field has a wrong type, a value out of range, or is missing.",
             "Correct the field that `field` names."},
    ErrorRow{kMalformedJson, "malformed_json", 400, kInvalid,
             "The body is no JSON: a syntax error, bytes that are not UTF-8, or more than 32 levels.",
             "Send one JSON object in UTF-8."},
    ErrorRow{kUnauthenticated, "unauthenticated", 401, kNoToken, "The shared token is missing or wrong.",
             "Send `Authorization: Bearer <token>` with the content of the scheduler's DATA_DIR/token."},
    ErrorRow{kPermissionDenied, "permission_denied", 403, kDenied, "The caller may not do this.",
             "Ask somebody who may."},
    ErrorRow{kQuotaExceeded, "quota_exceeded", 403, kExhausted,
             "The request alone is more than the tenant's quota: it could never run.",
             "Ask for less, or have the tenant's limit raised."},
    ErrorRow{kNotFound, "not_found", 404, kMissing, "No such path.",
             "Compare it with docs/reference/rest.md."},
    ErrorRow{kJobNotFound, "job_not_found", 404, kMissing,
             "No such job, or it ended so long ago that it is no longer kept.",
             "Look at `GET /api/v1/jobs`; finished jobs are kept for 7 days."},
    ErrorRow{kTenantNotFound, "tenant_not_found", 404, kMissing, "No such tenant.",
             "Create it with `POST /api/v1/tenants`, or use \"default\"."},
    ErrorRow{kNodeNotFound, "node_not_found", 404, kMissing, "No node of this name ever registered.",
             "Look at `GET /api/v1/nodes`."},
    ErrorRow{kDeviceNotFound, "device_not_found", 404, kMissing, "The node has no device of this index.",
             "Look at `GET /api/v1/nodes`."},
    ErrorRow{kAttemptNotFound, "attempt_not_found", 404, kMissing, "The attempt is over, or never was.",
             "Nothing: there is nothing left to do."},
    ErrorRow{kLogNotFound, "log_not_found", 404, kMissing,
             "This attempt has no output that can be read: it has not started, or its node cleaned it up.",
             "Ask for another attempt, or wait until the job has started."},
    ErrorRow{kLogRemoved, "log_removed", 410, kMissing,
             "The attempt's output was removed from its node by retention; the sentence says when and why.",
             "Nothing: have the agent keep output longer (`--keep-logs-hours`, `--log-quota-mb`)."},
    ErrorRow{kLogElsewhere, "log_elsewhere", 409, kPrecondition,
             "The job writes to a file that it named itself; the agent keeps no copy.",
             "Read the file that the sentence names, on the job's node."},
    ErrorRow{kMethodNotAllowed, "method_not_allowed", 405, kUnimplemented,
             "The path exists, the method does not.", "Use one of the methods in the `Allow` header."},
    ErrorRow{kRequestTimeout, "request_timeout", 408, kDeadline, "The request did not arrive in time.",
             "Send it faster; a header has 10 s, a body 30 s."},
    ErrorRow{kAlreadyExists, "already_exists", 409, kExists, "It exists already.",
             "Use what exists, or choose another name."},
    ErrorRow{kTenantExists, "tenant_exists", 409, kExists, "Another tenant has this name.",
             "Choose another name, or update that tenant."},
    ErrorRow{kJobFinished, "job_finished", 409, kPrecondition,
             "The job has ended: nothing is left to cancel.", "Nothing: its state is final."},
    ErrorRow{kTenantBusy, "tenant_busy", 409, kPrecondition,
             "The tenant has unfinished jobs or child tenants, or is the default one.",
             "Cancel its jobs or wait for their ends first."},
    ErrorRow{kKeyConflict, "request_key_conflict", 409, kPrecondition,
             "This request key was used with another request within the last 24 hours.",
             "Use a new key for a new request."},
    ErrorRow{kJobNotWaiting, "job_not_waiting", 409, kPrecondition,
             "Only a waiting job can be held or change its priority.",
             "Requeue the job first, or cancel it."},
    ErrorRow{kJobNotPlaced, "job_not_placed", 409, kPrecondition,
             "Only a job that is scheduled or running can be requeued.", "Nothing: it waits already."},
    ErrorRow{kNodeAlive, "node_alive", 409, kPrecondition, "The node reports: it is not dead.",
             "Stop its agent before confirming it dead."},
    ErrorRow{kNodeNotDrained, "node_not_drained", 409, kPrecondition,
             "The node takes work, or something still runs on it.", "Drain it and wait until it is drained."},
    ErrorRow{kNodeNameTaken, "node_name_taken", 409, kPrecondition,
             "Another agent, with another data folder, is registered under this node's name.",
             "Give each agent its own name; confirm the old one dead once it is certainly gone."},
    ErrorRow{
        kNodeStillHeard, "node_still_heard", 409, kPrecondition,
        "An agent of this node is heard from another boot of its machine.",
        "Nothing after a restart: it is let in when the lease is over. A copied machine needs its own name."},
    ErrorRow{kNodeOverlap, "node_overlap", 409, kPrecondition,
             "The agent's data folder or one of its GPUs belongs to another node that may be alive.",
             "Use that node's name; or confirm it dead once its agent is stopped for good."},
    ErrorRow{kConflict, "conflict", 409, kPrecondition, "What is asked for does not fit the present state.",
             "Read the present state and decide again."},
    ErrorRow{kTenantLimit, "tenant_limit", 409, kPrecondition, "There are as many tenants as there may be.",
             "Delete unused ones."},
    ErrorRow{kNodeLimit, "node_limit", 409, kPrecondition,
             "There are too many nodes, devices on one node, or kinds of device.",
             "Compare with the limits in docs/operate."},
    ErrorRow{kTooLarge, "too_large", 413, kExhausted,
             "The body is larger than 4 MiB, or a job's specification larger than 1 MiB.",
             "Put large data into a file that the job reads."},
    ErrorRow{kUnprocessable, "unprocessable", 422, kInvalid, "Well-formed, but it makes no sense as a whole.",
             "Remove the contradiction that the sentence names."},
    ErrorRow{kImageUnsupported, "image_unsupported", 422, kPrecondition,
             "`require_feasible` is set, and no node can run container images.",
             "Leave `image` out, or add a node that runs containers."},
    ErrorRow{kInfeasible, "infeasible", 422, kPrecondition,
             "`require_feasible` is set, and no registered node could ever run this.",
             "Ask for what a node has, or leave `require_feasible` out to wait for such a node."},
    ErrorRow{kDependencyNotFound, "dependency_not_found", 422, kPrecondition,
             "A job that it is to wait for does not exist, is another tenant's, or is no longer kept.",
             "Name an existing job."},
    ErrorRow{kDependencyInvalid, "dependency_invalid", 422, kInvalid,
             "A job is to wait for itself, for a later one of its submission, or twice for the same.",
             "Put a job behind those that it waits for, and name each once."},
    ErrorRow{kDeadlinePassed, "deadline_passed", 422, kInvalid,
             "The deadline is over before the job may begin.", "Give a later deadline."},
    ErrorRow{kNotInteractive, "not_interactive", 422, kPrecondition,
             "An interactive job asks for more GPUs or time than such a job may have, or is to start later.",
             "Ask for less, give it a short time limit, or submit it as a job that waits."},
    ErrorRow{kPartsUnsupported, "parts_unsupported", 422, kPrecondition,
             "The job's parts cannot be placed together: too many parts or members, more GPUs in one member "
             "than a "
             "node can have, shares beside other parts, or an elastic part that is not the last.",
             "Correct the parts as the sentence says."},
    ErrorRow{kTenantParentInvalid, "tenant_parent_invalid", 422, kPrecondition,
             "The parent tenant does not exist, or is nested too deep.",
             "Name an existing tenant as the parent."},
    ErrorRow{kRateLimited, "rate_limited", 429, kExhausted, "Too many requests a second from this address.",
             "Wait for as long as `Retry-After` says; submit jobs in batches."},
    ErrorRow{kQueueFull, "queue_full", 429, kExhausted,
             "As many jobs wait as `scheduler.max_queue_size` allows.",
             "Wait for as long as `Retry-After` says, then send it again."},
    ErrorRow{
        kSpecsFull, "specs_full", 429, kExhausted,
        "The specifications of jobs that are kept take as much as `scheduler.specs_mb_max` allows, or the "
        "tenant's take more than it leaves free for others.",
        "Wait for as long as `Retry-After` says, cancel jobs, or put large scripts and data into files that "
        "the jobs read."},
    ErrorRow{kThrottled, "throttled", 429, kExhausted,
             "More jobs wait than `admission.soft_queue`: each user's are let in one by one.",
             "Wait for as long as `Retry-After` says, then send it again."},
    ErrorRow{kReservationNotFound, "reservation_not_found", 404, kMissing,
             "No reservation has this name or number; those that are over are gone.",
             "Look at `GET /v1/reservations`."},
    ErrorRow{kReservationExists, "reservation_exists", 409, kExists, "A reservation has this name already.",
             "Choose another name, or cancel that one."},
    ErrorRow{kReservationDenied, "reservation_denied", 403, kDenied,
             "The reservation is for another tenant, for other users, or for maintenance.",
             "Submit without it."},
    ErrorRow{kReservationTaken, "reservation_taken", 409, kPrecondition,
             "Another reservation has one of these nodes at that time.",
             "Choose other nodes or another time; the sentence names the other one."},
    ErrorRow{kReservationTimes, "reservation_times", 422, kInvalid,
             "The reservation is over before it begins, or lasts longer than from one time to the next.",
             "Give other times."},
    ErrorRow{kReservationLimit, "reservation_limit", 409, kPrecondition, "There are too many reservations.",
             "Cancel some first."},
    ErrorRow{kRateExceeded, "rate_exceeded", 429, kExhausted,
             "The user's bucket has too few tokens for it (`admission.user_rate`, `user_burst`).",
             "Wait for as long as `Retry-After` says, then send it again."},
    ErrorRow{kDailyExceeded, "daily_exceeded", 429, kExhausted,
             "The user has spent its tokens of the day (`admission.user_daily`).",
             "Wait until midnight (UTC), as `Retry-After` says, or ask the operator for more."},
    ErrorRow{kHeadersTooLarge, "headers_too_large", 431, kExhausted, "The header is larger than 16 KiB.",
             "Send fewer or shorter header fields."},
    ErrorRow{kInternal, "internal", 500, kInternalBug, "A fault of the scheduler.",
             "Report it, with the scheduler's log."},
    ErrorRow{kUnavailable, "unavailable", 503, kDown, "Not now.", "Send it again after `Retry-After`."},
    ErrorRow{kStorageFull, "storage_full", 503, kDown,
             "The journal's disk is full: no new work is taken. Cancels and ends still are.",
             "Free space on the scheduler's disk; service resumes by itself."},
    ErrorRow{kNoLeader, "no_leader", 503, kDown, "No scheduler leads now.",
             "Send it again after `Retry-After`."},
    ErrorRow{kShuttingDown, "shutting_down", 503, kDown, "The scheduler is shutting down.",
             "Send it again after its restart."},
    ErrorRow{kOutcomeUnknown, "outcome_unknown", 503, kDown, "It may or may not have been done.",
             "Send it again with the same `Idempotency-Key`, or look before repeating it."},
    ErrorRow{kTimeout, "timeout", 504, kDeadline, "It was not done in time, and will not be.",
             "Send it again."},
    ErrorRow{kFileNotFound, "file_not_found", 404, kMissing,
             "The attempt has no such file, or its node has cleaned it up.",
             "Name a file relative to the job's working directory; look with `gpu-cli exec JOB -- ls`."},
    ErrorRow{kIsDirectory, "is_directory", 422, kInvalid, "The path is a folder's.",
             "Name a file; take a folder with `gpu-cli exec JOB -- tar -c FOLDER > folder.tar`."},
    ErrorRow{kJobNotRunning, "job_not_running", 409, kPrecondition,
             "The attempt has not started or has ended, and sessions are for running ones.",
             "Wait until the job runs; its output and files can be read after its end."},
    ErrorRow{kSessionNotFound, "session_not_found", 404, kMissing,
             "The job has no session of this number: it has ended, or the scheduler or agent was restarted.",
             "Open a new one."},
    ErrorRow{kSessionLimit, "session_limit", 429, kExhausted,
             "There are as many sessions as the job, its node or the scheduler may have.",
             "End one of them, or try again later."},
    ErrorRow{kSessionFailed, "session_failed", 500, kInternalBug,
             "The session, or the reading of a file, could not be set up on the node.",
             "Read the sentence; the agent's log has more."},
    ErrorRow{kSessionLost, "session_lost", 503, kDown,
             "The connection to the node broke, and with it the session; the job goes on.",
             "Open a new session when the node is back."},
    ErrorRow{
        kTenantQueueFull, "tenant_queue_full", 429, kExhausted,
        "As many jobs of the tenant, or of one above it, wait as its `max_waiting_jobs` allows.",
        "Wait for as long as `Retry-After` says; without it the submission alone is too large: split it."},
    ErrorRow{
        kTenantThrottled, "tenant_throttled", 429, kExhausted,
        "More jobs of the tenant, or of one above it, wait than its `soft_waiting_jobs`: each user's are "
        "let in one by one.",
        "Wait for as long as `Retry-After` says, then send it again."},
    ErrorRow{kMoveStale, "move_stale", 409, kPrecondition,
             "A proposal of moves that is not known, is too old, or no longer holds: a job ended, started or "
             "changed, or a place is taken.",
             "Ask for moves again and apply one of those."},
    ErrorRow{kNodeBusy, "node_busy", 409, kPrecondition,
             "The node holds work, has GPUs that nobody has seen empty, or is part of a reservation.",
             "Read the sentence: confirm the node dead, or cancel the reservation, then remove it."},
    ErrorRow{kTenantAmbiguous, "tenant_ambiguous", 409, kPrecondition,
             "Several tenants have this name; the sentence lists their ids.",
             "Name the tenant by its id, or rename or delete the others."},
};

}  // namespace

std::span<const ErrorRow> error_table() { return kTable; }

const ErrorRow& row_of(ErrorKind kind) {
  const ErrorRow& row = kTable.at(static_cast<std::size_t>(kind));
  CHECK(row.kind == kind);  // The table is in the order of the kinds.
  return row;
}

std::optional<ErrorKind> kind_of_code(std::string_view code) {
  for (const ErrorRow& row : kTable) {
    if (row.code == code) return row.kind;
  }
  return std::nullopt;
}

std::string_view grpc_status_name(uint8_t grpc_status) {
  static constexpr std::array<std::string_view, 17> kNames = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return kNames.at(grpc_status);
}

namespace {

/// Whether the same request can succeed later, as clients see it by the status.
bool is_retryable(const ErrorRow& row) {
  return row.http_status == 429 || row.http_status == 503 || row.http_status == 504;
}

}  // namespace

std::string errors_markdown() {
  std::string out =
      "# Errors\n\n"
      "Every error has one shape. REST: the status below and `{\"error\":\"<a "
      "sentence>\",\"code\":\"<code>\","
      "\"field\":\"<the field at fault>\"}`;\n"
      "`field` is there when a field is at fault. gRPC: the status below, the sentence as its message, and "
      "the "
      "trailing metadata\n"
      "`gpusched-code` and `gpusched-field`. Codes are stable; sentences may change. With 429 and 503 comes "
      "`Retry-After` in seconds\n"
      "when it is known how long to wait. *Retry* marks what may pass by itself: the same request, sent "
      "again "
      "later,\ncan succeed.\n\n"
      "This page is generated from `src/api/contract/errors.cc`; a test compares the two.\n\n"
      "| code | HTTP | gRPC | retry | what it means | what to do |\n|---|---|---|---|---|---|\n";
  for (const ErrorRow& row : kTable) {
    out.append("| `").append(row.code).append("` | ").append(std::to_string(row.http_status)).append(" | ");
    out.append(grpc_status_name(row.grpc_status)).append(is_retryable(row) ? " | yes | " : " |  | ");
    out.append(row.meaning).append(" | ");
    out.append(row.what_to_do).append(" |\n");
  }
  return out;
}

ErrorKind kind_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kInvalidArgument;
    case ErrorCode::kNotFound:
      return kNotFound;
    case ErrorCode::kAlreadyExists:
      return kAlreadyExists;
    case ErrorCode::kPermissionDenied:
      return kPermissionDenied;
    case ErrorCode::kUnauthenticated:
      return kUnauthenticated;
    case ErrorCode::kTooLarge:
      return kTooLarge;
    case ErrorCode::kUnavailable:
      return kUnavailable;
    case ErrorCode::kStorageFull:
      return kStorageFull;
    case ErrorCode::kSpecsFull:
      return kSpecsFull;
    case ErrorCode::kTimeout:
      return kTimeout;
    case ErrorCode::kOutcomeUnknown:
      return kOutcomeUnknown;
    case ErrorCode::kLocked:
      return kConflict;
    case ErrorCode::kIo:
    case ErrorCode::kCorrupt:
    case ErrorCode::kVersion:
    case ErrorCode::kInternal:
      return kInternal;
  }
  UNREACHABLE();
}

ApiError to_api_error(const Error& error) {
  ApiError shown{kind_of(error.code), error.message, error.field};
  if (row_of(shown.kind).http_status == 503) shown.retry_after = seconds(1);
  if (error.code == ErrorCode::kSpecsFull) shown.retry_after = limits::kQueueFullRetry;
  return shown;
}

std::string error_json(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("error", error.message).field("code", row_of(error.kind).code);
  if (!error.field.empty()) json.field("field", error.field);
  json.end_object();
  return out;
}

}  // namespace gpusched::api
