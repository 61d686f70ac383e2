"""Exceptions of the client: one class for each kind of refusal, with the scheduler's stable code and its sentence.

Every exception is a :class:`GpuSchedulerError`. Codes never change, sentences may: decide by the class or by ``code``.

>>> error = error_of("job_not_found", "no such job: job-1", status=404)
>>> type(error).__name__, error.code, str(error)
('NotFoundError', 'job_not_found', 'no such job: job-1')
"""

from typing import Any, Dict, Optional, Tuple, Type


class GpuSchedulerError(Exception):
    """Base of all exceptions of this package.

    Attributes:
        code: The API's stable code, such as ``quota_exceeded``, or one of the client's own: ``unreachable``,
            ``wait_timeout``, ``job_failed``, ``rejected``, ``bad_answer``, ``usage``.
        field: The field of the request at fault, or an empty string.
        status: The HTTP status, or 0 where there was none.
        retry_after_s: Seconds after which the same request may succeed, where the scheduler said so.
    """

    def __init__(self, sentence: str, code: str = "", field: str = "", status: int = 0,
                 retry_after_s: Optional[float] = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.field = field
        self.status = status
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(kind: Type[GpuSchedulerError], args: Any, attributes: Dict[str, Any]) -> GpuSchedulerError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class InvalidRequestError(GpuSchedulerError, ValueError):
    """The request is malformed or contradicts itself; ``field`` names what is wrong with it."""


class InfeasibleError(InvalidRequestError):
    """No registered node can ever run the job, and ``require_feasible`` was set."""


class AuthenticationError(GpuSchedulerError):
    """The credential is missing or wrong, or the API key has ended."""


class PermissionDeniedError(GpuSchedulerError, PermissionError):
    """The caller does not have permission for this."""


class QuotaExceededError(GpuSchedulerError):
    """The request alone exceeds the tenant's quota: it could never run."""


class NotFoundError(GpuSchedulerError, LookupError):
    """The job, tenant, node, file or output does not exist, or is no longer kept."""


class ConflictError(GpuSchedulerError):
    """The request conflicts with the present state, such as a job that does not run."""


class AlreadyExistsError(ConflictError):
    """An object with this name already exists."""


class JobFinishedError(ConflictError):
    """The job has already ended."""


class TooLargeError(GpuSchedulerError):
    """The request, the job's specification or the file is too large."""


class RateLimitedError(GpuSchedulerError):
    """Too many requests, waiting jobs or open streams at the moment; ``retry_after_s`` says when to try again."""


class UnavailableError(GpuSchedulerError):
    """The scheduler cannot process the request at the moment."""


class UnreachableError(UnavailableError, ConnectionError):
    """No scheduler answers at any of the addresses."""


class OutcomeUnknownError(UnavailableError):
    """The connection broke before the answer: the request may or may not have been carried out."""


class DeadlineError(GpuSchedulerError, TimeoutError):
    """The scheduler did not carry the request out in time, and will not."""


class InternalError(GpuSchedulerError):
    """The scheduler, or the job's node, failed."""


class BadAnswerError(GpuSchedulerError):
    """What answers is not a scheduler, or its answer cannot be read."""


class WaitTimeoutError(GpuSchedulerError, TimeoutError):
    """The time that a caller gave to a wait is over; what was waited for goes on."""


class TaskRejectedError(GpuSchedulerError, RuntimeError):
    """A task was not accepted; the sentence is the scheduler's, such as ``queue is full``."""


class JobFailedError(GpuSchedulerError):
    """A job that had to complete failed or was cancelled.

    Attributes:
        job: The job as it ended, a :class:`gpu_scheduler.Job`.
    """

    def __init__(self, sentence: str, job: Any = None) -> None:
        super().__init__(sentence, "job_failed")
        self.job = job


_BY_CODE: Dict[str, Type[GpuSchedulerError]] = {
    "invalid_argument": InvalidRequestError, "malformed_json": InvalidRequestError,
    "unprocessable": InvalidRequestError, "dependency_not_found": InvalidRequestError,
    "dependency_invalid": InvalidRequestError, "deadline_passed": InvalidRequestError,
    "parts_unsupported": InvalidRequestError, "tenant_parent_invalid": InvalidRequestError,
    "reservation_times": InvalidRequestError, "is_directory": InvalidRequestError,
    "method_not_allowed": InvalidRequestError, "infeasible": InfeasibleError, "image_unsupported": InfeasibleError,
    "not_interactive": InfeasibleError, "unauthenticated": AuthenticationError,
    "permission_denied": PermissionDeniedError, "reservation_denied": PermissionDeniedError,
    "node_token_invalid": PermissionDeniedError, "quota_exceeded": QuotaExceededError,
    "log_removed": NotFoundError, "already_exists": AlreadyExistsError, "job_finished": JobFinishedError,
    "too_large": TooLargeError, "headers_too_large": TooLargeError, "outcome_unknown": OutcomeUnknownError,
    "timeout": DeadlineError, "request_timeout": DeadlineError, "session_failed": InternalError,
}
# Where a code comes without an HTTP status: at the end of a session, over gRPC.
_GROUPS: Tuple[Tuple[Type[GpuSchedulerError], str], ...] = (
    (ConflictError,
     "log_elsewhere tenant_busy request_key_conflict job_not_waiting job_not_placed node_alive "
     "node_not_drained node_name_taken node_still_heard node_overlap conflict tenant_limit node_limit "
     "reservation_taken reservation_limit job_not_running move_stale node_busy tenant_ambiguous "
     "key_limit key_revoked user_limit node_identity_limit node_revoked"),
    (RateLimitedError,
     "rate_limited queue_full specs_full throttled rate_exceeded daily_exceeded session_limit "
     "tenant_queue_full tenant_throttled caller_limit"),
    (InternalError,
     "internal"),
    (UnavailableError,
     "unavailable storage_full no_leader shutting_down session_lost"),
)
_BY_CODE.update((code, kind) for kind, codes in _GROUPS for code in codes.split())
_BY_STATUS: Dict[int, Type[GpuSchedulerError]] = {
    400: InvalidRequestError, 401: AuthenticationError, 403: PermissionDeniedError, 404: NotFoundError,
    405: InvalidRequestError, 408: DeadlineError, 409: ConflictError, 410: NotFoundError, 413: TooLargeError,
    422: InvalidRequestError, 429: RateLimitedError, 431: TooLargeError, 500: InternalError, 502: UnavailableError,
    503: UnavailableError, 504: DeadlineError,
}


def class_of(code: str, status: int = 0) -> Type[GpuSchedulerError]:
    """The class of a code; of a code that this version does not know by its ending and the HTTP status.

    >>> class_of("storage_full", 503).__name__, class_of("key_exists", 409).__name__
    ('UnavailableError', 'AlreadyExistsError')
    """
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code.endswith("not_found"):
        return NotFoundError
    if code.endswith("_exists"):
        return AlreadyExistsError
    return _BY_STATUS.get(status, GpuSchedulerError)


def error_of(code: str, sentence: str, field: str = "", status: int = 0,
             retry_after_s: Optional[float] = None) -> GpuSchedulerError:
    """The exception for a refusal of the scheduler."""
    return class_of(code, status)(sentence, code, field, status, retry_after_s)
