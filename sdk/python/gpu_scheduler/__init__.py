"""Client of gpu-scheduler.

:class:`GPUClient` submits small tasks of AI agents over gRPC and needs the extra ``grpc``.
"""

from .errors import (AlreadyExistsError, AuthenticationError, BadAnswerError, ConflictError, DeadlineError,
                     GpuSchedulerError, InfeasibleError, InternalError, InvalidRequestError, JobFailedError,
                     JobFinishedError, NotFoundError, OutcomeUnknownError, PermissionDeniedError, QuotaExceededError,
                     RateLimitedError, TaskRejectedError, TooLargeError, UnavailableError, UnreachableError,
                     WaitTimeoutError)
from .tasks import GPUClient

__version__ = "0.1.0"
__all__ = [
    "AlreadyExistsError", "AuthenticationError", "BadAnswerError", "ConflictError", "DeadlineError",
    "GPUClient", "GpuSchedulerError", "InfeasibleError", "InternalError", "InvalidRequestError", "JobFailedError",
    "JobFinishedError", "NotFoundError", "OutcomeUnknownError", "PermissionDeniedError", "QuotaExceededError",
    "RateLimitedError", "TaskRejectedError", "TooLargeError", "UnavailableError", "UnreachableError",
    "WaitTimeoutError",
]
