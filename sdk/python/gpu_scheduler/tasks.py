"""Tasks of AI agents: the client of the service ``algogpu.GPUScheduler`` over gRPC.

>>> from gpu_scheduler import GPUClient
>>> with GPUClient(host=TASKS_HOST) as client:
...     task_id = client.submit_task(task_id="doc-1", user_id="user-123", task_type="llm", gpu_memory_mb=8192,
...                                  payload={"prompt": "Hello, world!"})
...     result = client.wait(task_id, timeout=60)
>>> result["status"]
'COMPLETED'
"""

import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Union

from . import _messages
from ._token import read_token_file
from .errors import (BadAnswerError, DeadlineError, GpuSchedulerError, NotFoundError, TaskRejectedError,
                     UnreachableError, WaitTimeoutError, error_of)

_SERVICE = "/algogpu.GPUScheduler/"
_TYPES = {"": 0, "unspecified": 0, "embedding": 1, "llm": 2, "diffusion": 3, "other": 4}
_STATUSES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "REJECTED")
_FINAL = ("COMPLETED", "FAILED", "CANCELLED", "REJECTED")
_POLL_MAX_S = 1.0
_HTTP_STATUS = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429,
                "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504, "INVALID_ARGUMENT": 400, "INTERNAL": 500,
                "UNIMPLEMENTED": 405, "FAILED_PRECONDITION": 409}


def _status_name(number: int) -> str:
    return _STATUSES[number] if 0 <= number < len(_STATUSES) else "UNKNOWN({})".format(number)


def _payload_bytes(payload: Any) -> bytes:
    if payload is None:
        return b""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    return json.dumps(payload).encode()


class GPUClient:
    """A connection to the scheduler's tasks door. Safe to use from several threads.

    Args:
        host: ``HOST:PORT`` of the gRPC service: the scheduler's ``tasks.grpc_port`` (50051), or its ``api.grpc_port``.
        token: An API key, or the shared token. If omitted: the variable ``GPU_SCHEDULER_TOKEN``, then the file that
            ``GPU_SCHEDULER_TOKEN_FILE`` names, then none.
        ca_file: File with the certificates (PEM) that the scheduler's is checked against. Given: the connection is
            encrypted. A token is sent in the clear without it.
        request_timeout_s: Seconds that one call may take. ``events`` has no limit.

    Raises:
        ImportError: grpcio or protobuf is not installed; the extra ``grpc`` brings both.
        OSError: The file of the token or of the certificates cannot be read.
    """

    def __init__(self, host: str = "localhost:50051", *, token: Optional[str] = None, ca_file: Optional[str] = None,
                 request_timeout_s: float = 30.0) -> None:
        self._messages = _messages.load()
        import grpc

        self._grpc = grpc
        self.host = host
        self.request_timeout_s = request_timeout_s
        if token is None:
            token = os.environ.get("GPU_SCHEDULER_TOKEN")
        if not token and os.environ.get("GPU_SCHEDULER_TOKEN_FILE"):
            token = read_token_file(os.environ["GPU_SCHEDULER_TOKEN_FILE"])
        self._metadata = [("authorization", "Bearer " + token)] if token else []
        if ca_file is None:
            self._channel = grpc.insecure_channel(host)
        else:
            with open(ca_file, "rb") as file:
                self._channel = grpc.secure_channel(host, grpc.ssl_channel_credentials(file.read()))

    def submit_task(self, task_id: str, user_id: str, task_type: str, gpu_memory_mb: int = 0,
                    payload: Union[Dict[str, Any], List[Any], str, bytes, None] = None,
                    gpu_compute_required: int = 0, estimated_runtime_ms: int = 0) -> str:
        """Submits a task; returns its id once it is durable.

        Args:
            task_id: Chosen by the caller. The same id with the same content again is the same task, so a call may be
                repeated; with other content it is refused.
            user_id: Whose tokens the task costs.
            task_type: ``"embedding"``, ``"llm"``, ``"diffusion"`` or ``"other"``: chooses the worker and the cost.
            gpu_memory_mb: GPU memory in MB; 0 for the default, or what was learned.
            payload: What the worker reads on its standard input: bytes as they are, anything else as JSON. At most
                4 MiB.
            gpu_compute_required: In TFLOPS; 0 for the smallest share of a GPU.
            estimated_runtime_ms: In milliseconds; accepted, and nothing depends on it.

        Raises:
            TaskRejectedError: It was refused, such as with ``queue is full`` or ``insufficient token``. It is a
                RuntimeError, too.
            ValueError: There is no such task type.
            GpuSchedulerError: The call itself failed.
        """
        if task_type.lower() not in _TYPES:
            raise ValueError("task_type is one of embedding, llm, diffusion and other, and not {!r}".format(task_type))
        answer = self._call("SubmitTask", "TaskRequest", "TaskResponse", {
            "task_id": task_id, "user_id": user_id, "task_type": _TYPES[task_type.lower()],
            "gpu_memory_required": gpu_memory_mb, "gpu_compute_required": gpu_compute_required,
            "estimated_runtime_ms": estimated_runtime_ms, "payload": _payload_bytes(payload)})
        if not answer.accepted:
            raise TaskRejectedError(answer.message, "rejected")
        return task_id

    def get_status(self, task_id: str) -> Dict[str, Any]:
        """Returns what is known of a task.

        Returns:
            ``task_id``; ``status``, one of PENDING, RUNNING, COMPLETED, FAILED, CANCELLED and REJECTED, and its number
            as ``status_code``; ``message``; ``created_at``, ``started_at`` and ``completed_at`` in Unix seconds, 0 for
            not yet. A task that is not known has the status FAILED and the message ``Task not found``.
        """
        answer = self._call("GetTaskStatus", "TaskStatusRequest", "TaskStatusResponse", {"task_id": task_id})
        return {"task_id": answer.task_id, "status": _status_name(answer.status), "status_code": answer.status,
                "message": answer.message, "created_at": answer.created_at, "started_at": answer.started_at,
                "completed_at": answer.completed_at}

    def wait(self, task_id: str, timeout: Optional[float] = None, poll_interval: float = 0.05) -> Dict[str, Any]:
        """Waits until a task has ended; returns what ``get_status`` does.

        Args:
            timeout: Seconds to wait at most; None for no limit. The task goes on when they are over.
            poll_interval: Seconds between the first two looks; doubles up to one second.

        Raises:
            WaitTimeoutError: The time is over. It is a TimeoutError, too.
            NotFoundError: There is no such task.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = max(poll_interval, 0.001)
        while True:
            status = self.get_status(task_id)
            if status["message"] == "Task not found":
                raise NotFoundError("there is no task " + task_id, "task_not_found")
            if status["status"] in _FINAL:
                return status
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise WaitTimeoutError("task {} is still {} after {} s".format(
                    task_id, status["status"], timeout), "wait_timeout")
            time.sleep(pause if left is None else min(pause, left))
            pause = min(pause * 2, max(_POLL_MAX_S, poll_interval))

    def cancel(self, task_id: str) -> bool:
        """Cancels a task; a running one is stopped. Returns False where there is none to cancel."""
        answer = self._call("CancelTask", "CancelTaskRequest", "CancelTaskResponse", {"task_id": task_id})
        return bool(answer.success)

    def gpu_status(self) -> List[Dict[str, Any]]:
        """Returns each GPU of the cluster.

        Returns:
            ``gpu_id``, its number in the cluster; ``name``; ``memory_total``, ``memory_used`` and ``memory_free`` in
            MB; ``compute_util`` and ``memory_util`` in percent; ``temperature`` in degrees Celsius; ``running_tasks``.
        """
        answer = self._call("GetGPUStatus", "GetGPUStatusRequest", "GPUStatusResponse", {})
        names = ("gpu_id", "name", "memory_total", "memory_used", "memory_free", "compute_util", "memory_util",
                 "temperature")
        return [dict([(name, getattr(gpu, name)) for name in names], running_tasks=list(gpu.running_tasks))
                for gpu in answer.gpus]

    def events(self) -> Iterator[Dict[str, Any]]:
        """Yields each change of state of the caller's tasks, from the call on, until the iterator is closed.

        Changes are told from the moment at which this method returns. Each event has ``task_id``, ``status``,
        ``status_code``, ``message`` and ``timestamp`` (Unix seconds).

        Raises:
            RateLimitedError: The caller read too slowly and missed events: ask ``get_status``, then listen again.
        """
        call = self._channel.unary_stream(
            _SERVICE + "TaskEvents", request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self._messages["TaskEvent"].FromString)(
                self._messages["TaskEventsRequest"](), metadata=self._metadata)
        try:
            call.initial_metadata()  # Comes as soon as changes are told.
        except self._grpc.RpcError as error:
            raise self._error_of(error) from error
        return self._read_events(call)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    # Names by which existing programs call these.
    cancel_task = cancel
    get_gpu_status = gpu_status

    def __enter__(self) -> "GPUClient":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _read_events(self, call: Any) -> Iterator[Dict[str, Any]]:
        try:
            for event in call:
                yield {"task_id": event.task_id, "status": _status_name(event.status), "status_code": event.status,
                       "message": event.message, "timestamp": event.timestamp}
        except self._grpc.RpcError as error:
            raise self._error_of(error) from error
        finally:
            call.cancel()

    def _call(self, method: str, request: str, answer: str, fields: Dict[str, Any]) -> Any:
        call = self._channel.unary_unary(
            _SERVICE + method, request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self._messages[answer].FromString)
        try:
            return call(self._messages[request](**fields), metadata=self._metadata, timeout=self.request_timeout_s)
        except self._grpc.RpcError as error:
            raise self._error_of(error) from error

    def _error_of(self, error: Any) -> GpuSchedulerError:
        name = error.code().name
        known = {key: value for key, value in (error.trailing_metadata() or ())}
        code = known.get("gpusched-code", "")
        sentence = error.details() or name
        if code:
            return error_of(code, sentence, known.get("gpusched-field", ""), _HTTP_STATUS.get(name, 0))
        if name == "UNAVAILABLE":
            return UnreachableError("no scheduler answers at {}: {}".format(self.host, sentence), "unreachable")
        if name == "DEADLINE_EXCEEDED":
            return DeadlineError("the scheduler at {} did not answer in time".format(self.host), "timeout")
        return BadAnswerError("{} answered {}: {}".format(self.host, name, sentence), "bad_answer")
