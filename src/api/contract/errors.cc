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
             "The body is not valid JSON: a syntax error, bytes that are not UTF-8, or more than 32 levels "
             "of nesting.",
             "Send one JSON object in UTF-8."},
    ErrorRow{
        kUnauthenticated, "unauthenticated", 401, kNoToken,
        "The credential is missing or wrong, or the API key has ended.",
        "Send `Authorization: Bearer <credential>` with an API key, or with the shared token, the content of "
        "the scheduler's DATA_DIR/token."},
    ErrorRow{kPermissionDenied, "permission_denied", 403, kDenied,
             "The caller does not have permission for this.",
             "Have somebody with the permission do it, or send the shared token."},
    ErrorRow{kQuotaExceeded, "quota_exceeded", 403, kExhausted,
             "The request alone exceeds the tenant's quota: it could never run.",
             "Request less, or have the tenant's limit raised."},
    ErrorRow{kNotFound, "not_found", 404, kMissing, "The path does not exist.",
             "Compare it with the paths in docs/reference/rest.md."},
    ErrorRow{
        kJobNotFound, "job_not_found", 404, kMissing,
        "The job does not exist, or ended so long ago that it is no longer kept.",
        "Choose one of `GET /api/v1/jobs`; finished jobs are kept for 7 days unless configured otherwise."},
    ErrorRow{kTenantNotFound, "tenant_not_found", 404, kMissing, "The tenant does not exist.",
             "Create it with `POST /api/v1/tenants`, or use \"default\"."},
    ErrorRow{kNodeNotFound, "node_not_found", 404, kMissing, "No node with this name has ever registered.",
             "Look at `GET /api/v1/nodes`."},
    ErrorRow{kDeviceNotFound, "device_not_found", 404, kMissing, "The node has no device with this index.",
             "Look at `GET /api/v1/nodes`."},
    ErrorRow{kAttemptNotFound, "attempt_not_found", 404, kMissing, "The attempt has ended, or never existed.",
             "Nothing: there is nothing left to stop."},
    ErrorRow{kLogNotFound, "log_not_found", 404, kMissing,
             "The attempt has no readable output: it has not started, or its node has removed the output.",
             "Request another attempt, or wait until the job has started."},
    ErrorRow{kLogRemoved, "log_removed", 410, kMissing,
             "Retention removed the attempt's output from its node; the sentence says when and why.",
             "Nothing for this attempt; to keep output longer, configure the agent (`--keep-logs-hours`, "
             "`--log-quota-mb`)."},
    ErrorRow{kLogElsewhere, "log_elsewhere", 409, kPrecondition,
             "The job writes its output to a file of its own choice; the agent keeps no copy.",
             "Read the file that the sentence names, on the job's node."},
    ErrorRow{kMethodNotAllowed, "method_not_allowed", 405, kUnimplemented,
             "The path exists, but does not support this method.",
             "Use one of the methods in the `Allow` header."},
    ErrorRow{kRequestTimeout, "request_timeout", 408, kDeadline, "The request did not arrive in time.",
             "Send it faster; a header has 10 s, a body 30 s."},
    ErrorRow{kAlreadyExists, "already_exists", 409, kExists, "An object with this name already exists.",
             "Use the existing one, or choose another name."},
    ErrorRow{kTenantExists, "tenant_exists", 409, kExists, "Another tenant already has this name.",
             "Choose another name, or update that tenant."},
    ErrorRow{kJobFinished, "job_finished", 409, kPrecondition, "The job has already ended.",
             "Nothing: its state is final."},
    ErrorRow{kTenantBusy, "tenant_busy", 409, kPrecondition,
             "The tenant has unfinished jobs or child tenants, or is the default tenant.",
             "Cancel its jobs or wait until they end, and delete its child tenants."},
    ErrorRow{kKeyConflict, "request_key_conflict", 409, kPrecondition,
             "This request key was used for a different request within the last 24 hours.",
             "Use a new key for each new request."},
    ErrorRow{kJobNotWaiting, "job_not_waiting", 409, kPrecondition,
             "Only a waiting job can be held or given another priority.",
             "Requeue the job first, or cancel it."},
    ErrorRow{kJobNotPlaced, "job_not_placed", 409, kPrecondition,
             "Only a scheduled or running job can be requeued.", "Nothing: it is already waiting."},
    ErrorRow{kNodeAlive, "node_alive", 409, kPrecondition, "The node still reports, so it is not dead.",
             "Stop its agent before declaring it dead."},
    ErrorRow{kNodeNotDrained, "node_not_drained", 409, kPrecondition,
             "The node still accepts jobs, or jobs still run on it.",
             "Drain it, and wait until it is drained."},
    ErrorRow{kNodeNameTaken, "node_name_taken", 409, kPrecondition,
             "Another agent, with another data folder, is registered under this node's name.",
             "Give each agent its own name; declare the old node dead once it is certainly gone."},
    ErrorRow{kNodeStillHeard, "node_still_heard", 409, kPrecondition,
             "An agent of this node still reports from another boot of its machine.",
             "Nothing after a restart: the node is admitted when the lease has expired. A copied machine "
             "needs its own name."},
    ErrorRow{kNodeOverlap, "node_overlap", 409, kPrecondition,
             "The agent's data folder or one of its GPUs belongs to another node that may be alive.",
             "Use that node's name, or declare it dead once its agent is stopped for good."},
    ErrorRow{kConflict, "conflict", 409, kPrecondition, "The request conflicts with the current state.",
             "Read the current state, and decide again."},
    ErrorRow{kTenantLimit, "tenant_limit", 409, kPrecondition, "The maximum number of tenants is reached.",
             "Delete unused tenants."},
    ErrorRow{kNodeLimit, "node_limit", 409, kPrecondition,
             "There are too many nodes, devices on one node, or kinds of device.",
             "Compare with the limits in docs/operate."},
    ErrorRow{kTooLarge, "too_large", 413, kExhausted,
             "The body is larger than 4 MiB, or a job's specification larger than 1 MiB.",
             "Put large data into a file that the job reads."},
    ErrorRow{kUnprocessable, "unprocessable", 422, kInvalid,
             "The request is well-formed, but contradicts itself.",
             "Remove the contradiction that the sentence names."},
    ErrorRow{kImageUnsupported, "image_unsupported", 422, kPrecondition,
             "`require_feasible` is set, but no registered node can run container images.",
             "Remove `image`, or add a node that runs containers."},
    ErrorRow{kInfeasible, "infeasible", 422, kPrecondition,
             "`require_feasible` is set, but no registered node can ever run the job.",
             "Request what a node has, or remove `require_feasible` to wait for such a node."},
    ErrorRow{kDependencyNotFound, "dependency_not_found", 422, kPrecondition,
             "A job that it depends on does not exist, belongs to another tenant, or is no longer kept.",
             "Name an existing job."},
    ErrorRow{kDependencyInvalid, "dependency_invalid", 422, kInvalid,
             "A job depends on itself, on a later job of its submission, or twice on the same job.",
             "Place each job after those that it depends on, and name each dependency once."},
    ErrorRow{kDeadlinePassed, "deadline_passed", 422, kInvalid,
             "The deadline passes before the job may begin.", "Set a later deadline."},
    ErrorRow{kNotInteractive, "not_interactive", 422, kPrecondition,
             "An interactive job requests more GPUs or time than allowed, or cannot start at once.",
             "Request less, set a shorter time limit, or submit it as an ordinary job."},
    ErrorRow{
        kPartsUnsupported, "parts_unsupported", 422, kPrecondition,
        "The job's parts cannot be placed together: too many parts or members, more GPUs in one member than "
        "a node can have, a share together with other parts, or an elastic part that is not the last.",
        "Correct the parts as the sentence says."},
    ErrorRow{kTenantParentInvalid, "tenant_parent_invalid", 422, kPrecondition,
             "The parent tenant does not exist, or is nested too deeply.",
             "Name an existing tenant as the parent."},
    ErrorRow{
        kRateLimited, "rate_limited", 429, kExhausted,
        "Too many requests per second from this caller or address, or too many wrong credentials from it.",
        "Wait for as long as `Retry-After` says; submit jobs in batches."},
    ErrorRow{
        kQueueFull, "queue_full", 429, kExhausted,
        "The number of waiting jobs has reached `scheduler.max_queue_size`, or that of the tenant's jobs "
        "its share of it: nobody has more jobs waiting than places are left free for others.",
        "Wait for as long as `Retry-After` says, then send it again."},
    ErrorRow{
        kSpecsFull, "specs_full", 429, kExhausted,
        "The specifications of all kept jobs have reached `scheduler.specs_mb_max`, or those of the tenant's "
        "jobs exceed their share of it.",
        "Wait for as long as `Retry-After` says, cancel jobs, or put large scripts and data into files that "
        "the jobs read."},
    ErrorRow{kThrottled, "throttled", 429, kExhausted,
             "More jobs are waiting than `admission.soft_queue`: each user's submissions are throttled.",
             "Wait for as long as `Retry-After` says, then send it again."},
    ErrorRow{kReservationNotFound, "reservation_not_found", 404, kMissing,
             "No reservation has this name or id; reservations that have ended are not kept.",
             "Choose one of `GET /v1/reservations`."},
    ErrorRow{kReservationExists, "reservation_exists", 409, kExists,
             "A reservation with this name already exists.", "Choose another name, or cancel that one."},
    ErrorRow{kReservationDenied, "reservation_denied", 403, kDenied,
             "The reservation is for another tenant, for other users, or for maintenance.",
             "Submit the job without it."},
    ErrorRow{kReservationTaken, "reservation_taken", 409, kPrecondition,
             "Another reservation has one of these nodes at that time.",
             "Choose other nodes or another time; the sentence names the other one."},
    ErrorRow{kReservationTimes, "reservation_times", 422, kInvalid,
             "The reservation ends before it begins, or lasts longer than its repeat interval.",
             "Correct the times."},
    ErrorRow{kReservationLimit, "reservation_limit", 409, kPrecondition,
             "The maximum number of reservations is reached.", "Cancel some of them first."},
    ErrorRow{kRateExceeded, "rate_exceeded", 429, kExhausted,
             "The user's bucket has too few tokens for the submission (`admission.user_rate`, `user_burst`).",
             "Wait for as long as `Retry-After` says, then send it again."},
    ErrorRow{kDailyExceeded, "daily_exceeded", 429, kExhausted,
             "The user has spent the tokens of the day (`admission.user_daily`).",
             "Wait until midnight (UTC), as `Retry-After` says, or ask the operator for more."},
    ErrorRow{kHeadersTooLarge, "headers_too_large", 431, kExhausted, "The header is larger than 16 KiB.",
             "Send fewer or shorter header fields."},
    ErrorRow{kInternal, "internal", 500, kInternalBug, "Internal error of the scheduler.",
             "Report it together with the scheduler's log."},
    ErrorRow{kUnavailable, "unavailable", 503, kDown,
             "The scheduler cannot process the request at the moment.", "Send it again after `Retry-After`."},
    ErrorRow{
        kStorageFull, "storage_full", 503, kDown,
        "The journal's disk is full: new work is refused; cancellations, the ends of jobs and what takes "
        "rights away are still recorded.",
        "Free space on the scheduler's disk; service resumes by itself."},
    ErrorRow{kNoLeader, "no_leader", 503, kDown, "No scheduler is the leader at the moment.",
             "Send it again after `Retry-After`."},
    ErrorRow{kShuttingDown, "shutting_down", 503, kDown, "The scheduler is shutting down.",
             "Send it again after its restart."},
    ErrorRow{kOutcomeUnknown, "outcome_unknown", 503, kDown,
             "The outcome is unknown: the request may or may not have been carried out.",
             "Send it again with the same `Idempotency-Key`, or check before you repeat it."},
    ErrorRow{kTimeout, "timeout", 504, kDeadline, "The request was not carried out in time, and will not be.",
             "Send it again."},
    ErrorRow{kFileNotFound, "file_not_found", 404, kMissing,
             "The attempt has no such file, or its node has removed it.",
             "Name a file relative to the job's working directory; look with `gpu-cli exec JOB -- ls`."},
    ErrorRow{kIsDirectory, "is_directory", 422, kInvalid, "The path is that of a folder.",
             "Name a file; to copy a folder: `gpu-cli exec JOB -- tar -c FOLDER > folder.tar`."},
    ErrorRow{kJobNotRunning, "job_not_running", 409, kPrecondition,
             "The attempt has not started or has already ended; sessions need a running attempt.",
             "Wait until the job runs; after its end, its output and files can still be read."},
    ErrorRow{
        kSessionNotFound, "session_not_found", 404, kMissing,
        "The job has no session with this number: it has ended, or the scheduler or agent was restarted.",
        "Open a new session."},
    ErrorRow{kSessionLimit, "session_limit", 429, kExhausted,
             "The job, its node or the scheduler has reached its maximum number of sessions.",
             "End one of them, or try again later."},
    ErrorRow{kSessionFailed, "session_failed", 500, kInternalBug,
             "The node could not set up the session or the copy of a file.",
             "Follow the sentence; the agent's log has details."},
    ErrorRow{kSessionLost, "session_lost", 503, kDown,
             "The connection to the node was lost, and the session ended with it; the job continues.",
             "Open a new session when the node is connected again."},
    ErrorRow{kTenantQueueFull, "tenant_queue_full", 429, kExhausted,
             "The number of waiting jobs of the tenant, or of a tenant above it, has reached its "
             "`max_waiting_jobs`.",
             "Wait for as long as `Retry-After` says; if there is none, the submission alone is too large: "
             "split it."},
    ErrorRow{kTenantThrottled, "tenant_throttled", 429, kExhausted,
             "The tenant, or a tenant above it, has more waiting jobs than its `soft_waiting_jobs`: each "
             "user's submissions are throttled.",
             "Wait for as long as `Retry-After` says, then send it again."},
    ErrorRow{kMoveStale, "move_stale", 409, kPrecondition,
             "The proposal of moves is unknown, too old or no longer valid: a job ended, started or changed, "
             "or a GPU was taken.",
             "Request new proposals, and apply one of those."},
    ErrorRow{kNodeBusy, "node_busy", 409, kPrecondition,
             "The node has work, has GPUs that are not confirmed empty, or is part of a reservation.",
             "Declare the node dead or cancel the reservation, as the sentence says, then remove the node."},
    ErrorRow{kTenantAmbiguous, "tenant_ambiguous", 409, kPrecondition,
             "Several tenants have this name; the sentence lists their ids.",
             "Name the tenant by its id, or rename or delete the others."},
    ErrorRow{kKeyNotFound, "key_not_found", 404, kMissing,
             "The key does not exist, or ended so long ago that it is no longer kept.",
             "Choose one of the list of keys; ended ones are kept for 90 days."},
    ErrorRow{kKeyExists, "key_exists", 409, kExists, "Another key in use has this name.",
             "Choose another name, or revoke that key first."},
    ErrorRow{kKeyLimit, "key_limit", 409, kPrecondition,
             "The maximum number of keys, or of roles of one key, is reached.",
             "Revoke keys that nobody uses, or take roles from this one."},
    ErrorRow{kKeyRevoked, "key_revoked", 409, kPrecondition, "The key was revoked or has expired.",
             "Create another one: a key that ended stays so."},
    ErrorRow{kUserNotFound, "user_not_found", 404, kMissing,
             "The user does not exist, or a key is asked for one that is inactive or of another "
             "organization.",
             "Choose an active one of the list of users."},
    ErrorRow{kUserExists, "user_exists", 409, kExists, "Another user has this email.",
             "Change that user, or give another email."},
    ErrorRow{kUserLimit, "user_limit", 409, kPrecondition, "The maximum number of users is reached.",
             "Change a user that nobody needs; there are at most 100,000."},
    ErrorRow{
        kCallerLimit, "caller_limit", 429, kExhausted,
        "The caller, or its tenant, has as many calls, streams, sessions or requests under way as one may "
        "have beside others.",
        "Wait for as long as `Retry-After` says, or until some of them have ended."},
    ErrorRow{kNodeTokenInvalid, "node_token_invalid", 403, kDenied,
             "The node token does not exist, has expired, was used, or is for another node.",
             "Create another one for the node with gpu-scheduler node-token create."},
    ErrorRow{kNodeIdentityLimit, "node_identity_limit", 409, kPrecondition,
             "The maximum number of node tokens, or of nodes with certificates, is reached.",
             "Wait until tokens that nobody used have expired."},
    ErrorRow{kNodeIdentityNotFound, "node_identity_not_found", 404, kMissing,
             "The node has no certificate, or has joined anew since.",
             "Choose one of the list of nodes with certificates."},
    ErrorRow{kNodeRevoked, "node_revoked", 409, kPrecondition, "The node was revoked.",
             "Create a node token for it and join it anew, if it shall be a node again."},
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
      "Every error has the same shape. REST: the status below and\n"
      "`{\"error\":\"<a sentence>\",\"code\":\"<code>\",\"field\":\"<the field at fault>\"}`; `field` is "
      "present when a field is\n"
      "at fault. gRPC: the status below, the sentence as its message, and the trailing metadata "
      "`gpusched-code` and\n"
      "`gpusched-field`. Codes are stable; sentences may change. Answers with 429 and 503 carry "
      "`Retry-After` in seconds if the\n"
      "time to wait is known. *Retry* marks conditions that may pass by themselves: the same request, sent "
      "again later, can\n"
      "succeed.\n\n"
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
  // Not now, for this one: others are answered.
  if (error.code == ErrorCode::kUnavailable && !error.field.empty())
    shown = {ErrorKind::kCallerLimit, error.message, "", seconds(1)};
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
