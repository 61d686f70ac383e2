"""Client of gpu-scheduler.

* :class:`Client` and :class:`AsyncClient` speak the native REST API: jobs, arrays, gangs, leases, services.
* :class:`GpuExecutor` runs Python functions as jobs and needs the extra ``functions``.
* :class:`GPUClient` submits small tasks of AI agents over gRPC and needs the extra ``grpc``.
"""

from .aio import AsyncClient
from .client import Client
from .errors import (AlreadyExistsError, AuthenticationError, BadAnswerError, ConflictError, DeadlineError,
                     GpuSchedulerError, InfeasibleError, InternalError, InvalidRequestError, JobFailedError,
                     JobFinishedError, NotFoundError, OutcomeUnknownError, PermissionDeniedError, QuotaExceededError,
                     RateLimitedError, TaskRejectedError, TooLargeError, UnavailableError, UnreachableError,
                     WaitTimeoutError)
from .executor import GpuExecutor, GpuFuture
from .jobs import Job, job_request
from .leases import Lease
from .tasks import GPUClient

__version__ = "0.1.0"
__all__ = [
    "AlreadyExistsError", "AsyncClient", "AuthenticationError", "BadAnswerError", "Client", "ConflictError",
    "DeadlineError", "GPUClient", "GpuExecutor", "GpuFuture", "GpuSchedulerError", "InfeasibleError", "InternalError",
    "InvalidRequestError", "Job", "JobFailedError", "JobFinishedError", "Lease", "NotFoundError", "OutcomeUnknownError",
    "PermissionDeniedError", "QuotaExceededError", "RateLimitedError", "TaskRejectedError", "TooLargeError",
    "UnavailableError", "UnreachableError", "WaitTimeoutError", "job_request",
]
