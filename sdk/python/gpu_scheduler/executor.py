"""Python functions as jobs, behind the interface of ``concurrent.futures``.

>>> from gpu_scheduler import GpuExecutor
>>> with GpuExecutor(client, gpus=1, python=PYTHON) as executor:
...     future = executor.submit(pow, 2, 10)
...     squares = list(executor.map(lambda number: number * number, range(3)))
>>> future.result(), squares
(1024, [0, 1, 4])
"""

import concurrent.futures
import io
import os
import pickle
import struct
import sys
import threading
import time
import zipfile
from typing import Any, Callable, Dict, List, TypeVar

from .client import Client
from .errors import ConflictError, GpuSchedulerError, JobFailedError, NotFoundError, UnavailableError
from .jobs import Job, id_of

T = TypeVar("T")
_CALL, _RESULT = ".gpu-scheduler-call", ".gpu-scheduler-result"
_POLL_MIN_S, _POLL_MAX_S = 0.05, 1.0
_LOOK = "3s"  # A job that runs is looked at so often, in case that it was put back in line.
_CALL_WAIT_S = 300
_STDERR_LINES = 20
_MISSING = ("GpuExecutor needs cloudpickle, and it is not installed; install it with "
            "`pip install 'gpu-scheduler-client[functions]'`")

# What the job runs: waits for its call, which the client writes into the working directory; leaves the result there.
# The call is: the size of a zip with cloudpickle (eight bytes), that zip, and the pickled function and arguments.
_BOOTSTRAP = """
import os, pickle, struct, sys, time, traceback
deadline = time.monotonic() + %(wait_s)d
while not os.path.exists(%(call)r):
    if time.monotonic() > deadline:
        sys.exit("the client did not send the function within %(wait_s)d s")
    time.sleep(0.02)
with open(%(call)r, "rb") as file:
    data = file.read()
size, = struct.unpack(">Q", data[:8])
package = os.path.abspath(%(call)r + ".zip")
with open(package, "wb") as file:
    file.write(data[8:8 + size])
sys.path.append(package)
wanted = tuple(int(word) for word in sys.argv[1].split("."))
if sys.version_info[:2] != wanted:
    sys.exit("the function is of Python %%s, and this is Python %%d.%%d: give python=, an interpreter of the node of "
             "the same version" %% (sys.argv[1], sys.version_info[0], sys.version_info[1]))
import cloudpickle
try:
    function, words, names = pickle.loads(data[8 + size:])
    outcome, status = (True, function(*words, **names)), 0
except BaseException as error:
    traceback.print_exc()
    outcome, status = (False, error), 1
try:
    packed = cloudpickle.dumps(outcome)
except Exception as error:
    traceback.print_exc()
    packed, status = cloudpickle.dumps((False, TypeError("the result cannot be sent back: %%s" %% error))), 1
with open(%(result)r + ".part", "wb") as file:
    file.write(packed)
os.rename(%(result)r + ".part", %(result)r)
sys.exit(status)
""" % {"call": _CALL, "result": _RESULT, "wait_s": _CALL_WAIT_S}


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError as missing:
        raise ImportError(_MISSING) from missing
    return cloudpickle


def _packed_cloudpickle(package: Any) -> bytes:
    """cloudpickle's own files as a zip from which Python imports: the node need not have it."""
    folder, out = os.path.dirname(package.__file__), io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                archive.write(os.path.join(folder, name), "cloudpickle/" + name)
    return out.getvalue()


class GpuFuture(concurrent.futures.Future):  # type: ignore[type-arg]
    """A future with the job behind it.

    Attributes:
        job_id: The id of the job, once it is submitted; empty before.
    """

    job_id = ""


class GpuExecutor(concurrent.futures.Executor):
    """Runs each call as a job. Safe to use from several threads.

    The function, its arguments and its result are pickled and travel as files of the caller's own job: into its
    working directory through a session, and out of it through the files API. Nothing of them is in the job's
    specification or in a folder that others share. What is printed is the job's output. The node needs a Python of the
    same minor version, and the packages that the function imports; cloudpickle is brought along.

    Args:
        client: Whose jobs they are; the executor does not close it.
        max_workers: Jobs at a time; further calls wait here.
        python: The interpreter on the node.
        request: What each job needs, as arguments of :func:`gpu_scheduler.job_request`: ``gpus=1``, ``memory_mb=4096``,
            ``max_runtime_s=600``.

    Raises:
        ImportError: cloudpickle is not installed; the extra ``functions`` brings it.

    Errors of a call are in its future: the function's own exception; JobFailedError where the job ended without a
    result, with the last lines that it wrote to its standard error. A result has at most 64 MiB. A job that is put back
    in line calls the function again.
    """

    def __init__(self, client: Client, *, max_workers: int = 32, python: str = "python3", **request: Any) -> None:
        self._client, self._python, self._request = client, python, request
        self._pickle = _cloudpickle()
        self._package = _packed_cloudpickle(self._pickle)
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers, thread_name_prefix="gpu-executor")
        self._lock = threading.Lock()
        self._waiting: List[GpuFuture] = []
        self._closed = False

    def submit(self, fn: Callable[..., T], *args: Any,  # type: ignore[override]
               **kwargs: Any) -> "concurrent.futures.Future[T]":
        """Runs ``fn(*args, **kwargs)`` as a job; returns its future, whose ``job_id`` is the job's.

        Raises:
            TypeError, pickle.PicklingError: The function or an argument cannot be pickled.
            RuntimeError: The executor was shut down.
        """
        call = self._pickle.dumps((fn, args, kwargs))
        data = struct.pack(">Q", len(self._package)) + self._package + call
        name = getattr(fn, "__name__", type(fn).__name__)
        future = GpuFuture()
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor was shut down")
            self._waiting.append(future)
            self._pool.submit(self._carry_out, future, data, name)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no further calls. With ``cancel_futures`` those that have no job yet are cancelled; jobs go on."""
        with self._lock:
            self._closed = True
            left = list(self._waiting)
        if cancel_futures:
            for future in left:
                future.cancel()
        self._pool.shutdown(wait=wait)

    def _carry_out(self, future: GpuFuture, data: bytes, name: str) -> None:
        with self._lock:
            self._waiting.remove(future)
        if not future.set_running_or_notify_cancel():
            return
        try:
            good, value = self._result_of(future, data, name)
        except BaseException as error:  # The future's owner decides what to do about it.
            future.set_exception(error)
            return
        if good:
            future.set_result(value)
        else:
            future.set_exception(value)

    def _result_of(self, future: GpuFuture, data: bytes, name: str) -> Any:
        request: Dict[str, Any] = {"name": name[:64], **self._request}
        version = "{}.{}".format(*sys.version_info[:2])
        job = self._client.submit([self._python, "-c", _BOOTSTRAP, version], **request)
        future.job_id = job.id
        job = self._deliver_and_wait(job, data)
        try:
            packed = self._client.read_file(job, _RESULT)
        except NotFoundError:
            raise self._failure(job) from None
        return pickle.loads(packed)

    def _deliver_and_wait(self, job: Job, data: bytes) -> Job:
        """The job once it has ended. Each of its attempts gets the call."""
        delivered, pause = 0, _POLL_MIN_S
        while not job.is_final:
            if job.state == "running" and delivered != job.attempts:
                if self._deliver(job, data):
                    delivered = job.attempts
            if job.state == "running" and delivered == job.attempts:
                job = Job(self._client.request("GET", "/v1/jobs/" + id_of(job), params={"wait": _LOOK}))
                continue
            time.sleep(pause)
            pause = min(pause * 2, _POLL_MAX_S)
            job = self._client.get(job)
        return job

    def _deliver(self, job: Job, data: bytes) -> bool:
        try:
            self._client.write_file(job, _CALL, data)
        except (ConflictError, NotFoundError, UnavailableError):
            return False  # It ended, or is not quite there: the next look tells.
        return True

    def _failure(self, job: Job) -> GpuSchedulerError:
        said = ""
        try:
            said = self._client.logs(job, stream="stderr", tail_lines=_STDERR_LINES).strip()
        except GpuSchedulerError:
            pass  # It never ran, or its output is gone.
        sentence = "{} {}: {}".format(job.id, job.state, job.message)
        return JobFailedError(sentence + ("\n" + said if said else ""), job)
