"""The blocking client of the native API.

>>> from gpu_scheduler import Client
>>> client = Client(URL)
>>> job = client.submit(["sh", "-c", "echo got $CUDA_VISIBLE_DEVICES"], gpus=1, name="first")
>>> client.wait(job, timeout_s=60).state
'completed'
>>> client.logs(job).startswith("got GPU-")
True
"""

import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

import httpx

from . import _http
from . import _operations as ops
from ._settings import local_token, resolve
from ._websocket import upload
from .errors import DeadlineError, GpuSchedulerError, OutcomeUnknownError
from .jobs import Job, id_of, job_request
from .leases import Lease

JobLike = Union[Job, str]


class Client:
    """A scheduler over its REST API. Safe to use from several threads; close it, or use it in a ``with`` statement.

    Args:
        address: ``http://HOST:8080``, ``https://HOST:8080`` or ``unix:///PATH``; several are tried in turn. If omitted:
            ``GPU_SCHEDULER_URL`` (several with commas), then the context of gpu-cli, then this machine's socket, then
            ``http://127.0.0.1:8080``.
        token: An API key, or the shared token. If omitted: ``token_file``, then ``GPU_SCHEDULER_TOKEN``, then the file
            of ``GPU_SCHEDULER_TOKEN_FILE``, then the context's. If there is none, the token of a scheduler on this
            machine is used where this user may read it.
        token_file: File with such a credential.
        verify: File with the certificates (PEM) that an https address is checked against; True for this machine's
            authorities; False for no check. If omitted: ``GPU_SCHEDULER_CA_FILE``, then True.
        tenant_id: Tenant for submissions and lists, by id or name.
        context: Context of gpu-cli to use.
        timeout_s: Seconds that one request may take.
        retry_s: Seconds for which a request is repeated while the scheduler is away or busy; 0: never.

    Raises:
        OSError: The token's or the certificates' file cannot be read.
        GpuSchedulerError: An address or context is wrong.
    """

    def __init__(self, address: Union[str, Sequence[str], None] = None, *, token: Optional[str] = None,
                 token_file: Optional[str] = None, verify: Union[bool, str, None] = None,
                 tenant_id: Optional[str] = None, context: Optional[str] = None, timeout_s: float = 30.0,
                 retry_s: float = 30.0) -> None:
        self._settings = resolve(address, token, token_file, verify, tenant_id, context)
        self._addresses = _http.Addresses(self._settings)
        self._tokens: Dict[str, Optional[str]] = {}
        self._timeout_s, self._retry_s = timeout_s, retry_s
        self._lock = threading.Lock()
        self._clients = {url: httpx.Client(**_http.client_arguments(
            url, self._settings.verify, timeout_s, httpx.HTTPTransport)) for url in self._settings.urls}

    # --- Jobs. ---

    def submit(self, command: Union[str, Sequence[str], None] = None, *, tenant_id: Optional[str] = None,
               idempotency_key: Optional[str] = None, **request: Any) -> Job:
        """Submits one job, array or gang; returns it once it is durable.

        Args:
            command: A list of words, executed as they are; or a line for a shell.
            tenant_id: Whose job it is, by id or name; the client's if omitted.
            idempotency_key: The same key with the same request again within 24 hours is the same job. If omitted each
                call has its own, which makes the client's own repetitions one job.
            request: The other arguments are those of :func:`gpu_scheduler.job_request`: ``gpus=2``, ``array="0-9"``,
                ``nodes=4``, ``after=[other]``, ``max_runtime_s=3600`` and more.

        Raises:
            InvalidRequestError: The request is wrong; ``field`` says where.
            QuotaExceededError: It could never run within the tenant's limits.
            TypeError: There is no such argument.

        >>> first = client.submit("true")
        >>> second = client.submit("echo done", after=first)
        >>> client.wait(second, timeout_s=60).succeeded
        True
        """
        return self._run(ops.submit(job_request(command, **request), self._tenant(tenant_id), idempotency_key))

    def submit_many(self, requests: Iterable[Mapping[str, Any]], *, tenant_id: Optional[str] = None,
                    idempotency_key: Optional[str] = None) -> List[str]:
        """Submits many jobs, given as :func:`gpu_scheduler.job_request` makes them; returns their ids in order.

        At most 1,000 are accepted together or not at all; more are submitted in parts of as many. ``"after_ok:#0"`` in
        ``dependencies`` names an earlier job of the same part by its place.

        >>> ids = client.submit_many([job_request("true"), job_request("true", dependencies=["after_ok:#0"])])
        >>> [job.succeeded for job in client.wait_all(ids, timeout_s=60)]
        [True, True]
        """
        return self._run(ops.submit_many(requests, self._tenant(tenant_id), idempotency_key))

    def map(self, commands: Iterable[Union[str, Sequence[str]]], *, progress: bool = False, check: bool = False,
            tenant_id: Optional[str] = None, **request: Any) -> Iterator[Job]:
        """Submits a job for each command; yields them in order as they end.

        Args:
            commands: Lines or lists of words.
            progress: Show a bar, where tqdm is installed.
            check: Raise JobFailedError at the first job that does not complete.
            request: The other arguments are those of :func:`gpu_scheduler.job_request`, for all of them.

        The jobs are submitted by this call, before the first is asked for.

        >>> [job.exit_code for job in client.map(["exit 0", "exit 3"], cpus=0.1)]
        [0, 3]
        """
        ids = self.submit_many(ops.requests_of(commands, request), tenant_id=tenant_id)
        return self._map_results(ids, progress, check)

    def get(self, job: JobLike) -> Job:
        """Returns the job as it is now.

        Raises:
            NotFoundError: It does not exist, or ended so long ago that it is no longer kept.

        >>> client.get("job-99999999")
        Traceback (most recent call last):
            ...
        gpu_scheduler.errors.NotFoundError: no such job: job-99999999; finished jobs are kept for 7 days
        """
        return self._run(ops.get(job))

    def list(self, *, state: Optional[str] = None, name: Optional[str] = None, user: Optional[str] = None,
             labels: Union[Mapping[str, str], Sequence[str], str, None] = None, since: Optional[str] = None,
             tenant_id: Optional[str] = None, page_size: int = 1000) -> Iterator[Job]:
        """Yields jobs, newest first, over all pages.

        Args:
            state: ``"running"``, ``"pending"``, ...
            name: Only jobs of this name; ``*`` and ``?`` stand for any text and any byte.
            user: Only jobs that this user submitted, or that run as it.
            labels: ``{"team": "vision"}``, or words such as ``"team=vision"`` and ``"team"``: all of them.
            since: A time (RFC 3339), or how long ago, such as ``"2h"``.
            page_size: Jobs that one request asks for, at most 10,000.

        >>> job = client.submit("true", labels={"kind": "listed"})
        >>> [found.id == job.id for found in client.list(labels={"kind": "listed"})]
        [True]
        """
        filters, token = ops.filters_of(state, name, user, labels, since, self._tenant(tenant_id)), ""
        while True:
            jobs, token = self._run(ops.page(token, page_size, filters))
            yield from jobs
            if not token:
                return

    def wait(self, job: JobLike, timeout_s: Optional[float] = None, *, check: bool = False) -> Job:
        """Waits until the job has ended; returns it.

        Args:
            timeout_s: Seconds to wait at most; None for no limit.
            check: Raise JobFailedError if it did not complete.

        Raises:
            WaitTimeoutError: The time is over; the job goes on.
            JobFailedError: With ``check``: it failed or was cancelled.

        >>> client.wait(client.submit("exit 3"), timeout_s=60).exit_code
        3
        """
        return self._run(ops.wait(job, timeout_s, check))

    def wait_all(self, jobs: Iterable[JobLike], timeout_s: Optional[float] = None, *, check: bool = False) -> List[Job]:
        """Waits until all jobs have ended; returns them in the same order. ``timeout_s`` is for all together."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return [self.wait(job, None if deadline is None else max(0.0, deadline - time.monotonic()), check=check)
                for job in jobs]

    def cancel(self, job: JobLike) -> Job:
        """Cancels the job; what runs of it is being ended when this returns.

        Raises:
            JobFinishedError: It has already ended.

        >>> job = client.submit("sleep 1000")
        >>> client.wait(client.cancel(job), timeout_s=60).state
        'cancelled'
        """
        return self._run(ops.act(job, "cancel"))

    def hold(self, job: JobLike) -> Job:
        """Holds a waiting job: it does not start until it is released."""
        return self._run(ops.act(job, "hold"))

    def release(self, job: JobLike) -> Job:
        """Releases a held job."""
        return self._run(ops.act(job, "release"))

    def requeue(self, job: JobLike) -> Job:
        """Ends a running job's attempt and puts the job back in line; no retry is spent."""
        return self._run(ops.act(job, "requeue"))

    def update(self, job: JobLike, **fields: Any) -> Job:
        """Changes what is given of a job that has not ended: ``priority=200``, ``max_runtime_ms=...``, ``name=...``.

        The fields are those of the API's UpdateJobRequest.

        >>> client.update(client.submit("true", held=True), priority=250)["priority"]
        250
        """
        return self._run(ops.update(job, fields))

    def plan(self, command: Union[str, Sequence[str], None] = None, *, tenant_id: Optional[str] = None,
             **request: Any) -> Dict[str, Any]:
        """Predicts what would become of a submission; nothing is submitted. Arguments as :meth:`submit`.

        Returns the API's PlanResponse: whether it starts now, where, and for how long it would wait.
        """
        return self._run(ops.plan(job_request(command, **request), self._tenant(tenant_id)))

    def explain(self, job: JobLike) -> Dict[str, Any]:
        """Says why the job waits: ``reason``, ``message``, ``lifted_by``, ``estimate``, ``changes``.

        >>> job = client.submit("true", gpus=1, gpu_model="H100")
        >>> "H100" in client.explain(job)["message"]
        True
        >>> client.cancel(job).state
        'cancelled'
        """
        return self._run(ops.about(job, "explain"))

    def history(self, job: JobLike) -> List[Dict[str, Any]]:
        """What happened to the job, oldest first: each line has ``at``, ``event`` and ``message``."""
        return list(self._run(ops.about(job, "history"))["lines"])

    def logs(self, job: JobLike, *, stream: str = "stdout", attempt: Optional[int] = None,
             member: Optional[int] = None, tail_lines: Optional[int] = None, since: Optional[str] = None,
             grep: Optional[str] = None, timestamps: bool = False) -> str:
        """Returns the job's output so far.

        Args:
            stream: ``"stdout"`` or ``"stderr"``.
            attempt: Which attempt, from 1 on; the latest if omitted.
            member: Of a gang: whose output, from 0 on.
            tail_lines: Only the last so many lines.
            grep: Only lines that hold this text.
            timestamps: Each line begins with the time at which it was there.

        Raises:
            NotFoundError: There is none: the job has not started, or its node has removed it.
        """
        data = self._bytes(ops.log_call(job, False, stream=stream, attempt=attempt, member=member,
                                        tail_lines=tail_lines, since=since, grep=grep, timestamps=timestamps or None))
        return data.decode("utf-8", "replace")

    def follow(self, job: JobLike, *, stream: str = "stdout", attempt: Optional[int] = None,
               member: Optional[int] = None, tail_lines: Optional[int] = None, grep: Optional[str] = None,
               timestamps: bool = False) -> Iterator[str]:
        """Yields the lines of the job's output as they come, from the attempt's start to its end.

        A connection that breaks is opened again, and no line is lost or repeated; with ``tail_lines``, ``grep`` or
        ``timestamps`` it cannot be, and OutcomeUnknownError is raised.

        >>> list(client.follow(client.submit("echo one; echo two")))
        ['one\\n', 'two\\n']
        """
        values = {"stream": stream, "attempt": attempt, "member": member, "tail_lines": tail_lines, "grep": grep,
                  "timestamps": timestamps or None}
        lines = _http.Lines()
        retries = None
        while True:
            try:
                for data in self._stream(ops.log_call(job, True, offset=lines.offset or None, **values)):
                    retries = None
                    yield from lines.feed(data)
                yield from lines.end()
                return
            except (OutcomeUnknownError, DeadlineError) as error:
                retries = retries or ops.Retries(ops.log_call(job, True), self._retry_s)
                pause = retries.pause_after(error) if _http.can_resume(values) else None
                if pause is None:
                    raise
                time.sleep(pause)

    def read_file(self, job: JobLike, path: str, *, attempt: Optional[int] = None) -> bytes:
        """Returns a file of the job, at most 64 MiB: of a running one, or as long as its node keeps its folder.

        Args:
            path: Relative to the job's working directory.

        Raises:
            NotFoundError: There is no such file.
        """
        return self._bytes(ops.file_call(job, path, attempt))

    def write_file(self, job: JobLike, path: str, data: bytes) -> None:
        """Writes a file into a running job's working directory, as the job's user. It is whole, or not there.

        Raises:
            ConflictError: The job has ended.
            NotFoundError: It has not started yet.

        >>> job = client.submit("until [ -e go ]; do sleep 0.1; done; cat go")
        >>> while client.get(job).state != "running": time.sleep(0.05)
        >>> client.write_file(job, "go", b"it went")
        >>> client.logs(client.wait(job, timeout_s=60))
        'it went'
        """
        url, token = self._addresses.url, self._token()
        upload(url, self._settings.verify, _http.headers(token), id_of(job), path, data, self._timeout_s)

    def usage(self, **filters: Any) -> Any:
        """What jobs used, one row a job: a pandas DataFrame where pandas is installed, else a list of dictionaries.

        Columns: ``job_id``, ``name``, ``state``, ``tenant_id``, ``owner``, ``gpus`` (a number), ``run_s``,
        ``gpu_seconds``, ``cpu_s``, ``peak_memory_bytes``, ``gpu_use`` (0 to 1), ``peak_gpu_memory_mb``; None where it
        is not known. The arguments are those of :meth:`list`.
        """
        return _http.table([job.usage_row() for job in self.list(**filters)])

    # --- Leases. ---

    def lease(self, gpus: int = 1, *, gpu_model: Optional[str] = None, min_memory_gb: Optional[int] = None,
              minutes: int = 60, cpus: Optional[int] = None, memory_mb: Optional[int] = None,
              name: Optional[str] = None, wait_s: Optional[float] = None) -> "LeaseContext":
        """Holds GPUs of one node for the time of a ``with`` block.

        Args:
            gpus: How many.
            min_memory_gb: Memory that each must have at least, in GB.
            minutes: After so many the lease ends by itself, unless it is renewed.
            wait_s: Seconds to wait for the GPUs at most; None for no limit.

        Raises:
            WaitTimeoutError: The GPUs were not there in time; nothing is held then.
            QuotaExceededError: The tenant has what it may have.

        >>> with client.lease(gpus=2, minutes=5, wait_s=60) as gpus:
        ...     len(gpus), sorted(gpus.environment)
        (2, ['CUDA_VISIBLE_DEVICES'])
        """
        return LeaseContext(self, ops.lease(gpus, gpu_model, min_memory_gb, minutes, cpus, memory_mb, name,
                                            ops.new_key()), wait_s)

    def renew_lease(self, lease: Lease, minutes: int = 60) -> Lease:
        """Lets a lease end no earlier than so many minutes from now. ConflictError: it has ended, or others wait."""
        return Lease(self._run(ops.lease_renew(lease.id, minutes)))

    # --- Services, nodes, and the rest. ---

    def create_service(self, name: str, command: Union[str, Sequence[str], None] = None, *,
                       tenant_id: Optional[str] = None, service: Optional[Mapping[str, Any]] = None,
                       **request: Any) -> Dict[str, Any]:
        """Creates a service: jobs that are kept running. ``service`` has its own fields, such as ``replicas``.

        >>> made = client.create_service("web", "sleep 1000", service={"replicas": 2})
        >>> made["replicas"], client.scale_service("web", 1)["replicas"], client.delete_service("web")["state"]
        (2, 1, 'deleting')
        """
        return self._run(ops.create_service(name, job_request(command, **request),
                                            self._tenant(tenant_id), dict(service or {})))

    def services(self) -> List[Dict[str, Any]]:
        """All services that the caller may see."""
        return list(self._run(ops.call("GET", "/v1/services", {"tenant_id": self._tenant(None)}))["services"])

    def service(self, name: str) -> Dict[str, Any]:
        """One service, with its replicas in ``jobs``."""
        return self._run(ops.service(name, "GET", "", self._tenant(None)))

    def scale_service(self, name: str, replicas: int) -> Dict[str, Any]:
        """Changes the number of a service's replicas."""
        return self._run(ops.service(name, "POST", "scale", None, {"replicas": replicas}))

    def delete_service(self, name: str) -> Dict[str, Any]:
        """Deletes a service; its replicas are being ended."""
        return self._run(ops.service(name, "DELETE"))

    def cluster(self) -> Dict[str, Any]:
        """Counts of nodes, GPUs and jobs.

        >>> client.cluster()["total_gpus"]
        4
        """
        return self._run(ops.call("GET", "/v1/cluster"))

    def nodes(self) -> List[Dict[str, Any]]:
        """All nodes with their devices."""
        return list(self._run(ops.call("GET", "/v1/nodes"))["nodes"])

    def request(self, method: str, path: str, *, params: Optional[Mapping[str, Any]] = None, body: Any = None,
                idempotency_key: Optional[str] = None) -> Any:
        """Any call of the API, with the client's credential, addresses and repetitions; returns the parsed answer.

        >>> client.request("GET", "/v1/quality")["forecasts"] >= 0
        True
        """
        return self._run(ops.call(method, path, params, body, idempotency_key))

    def close(self) -> None:
        """Closes the connections."""
        for one in self._clients.values():
            one.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # --- How a call is made. ---

    def _tenant(self, tenant_id: Optional[str]) -> Optional[str]:
        return tenant_id or self._settings.tenant_id

    def _map_results(self, ids: List[str], progress: bool, check: bool) -> Iterator[Job]:
        bar = _http.progress_bar(len(ids), progress)
        try:
            for job_id in ids:
                yield self.wait(job_id, check=check)
                if bar is not None:
                    bar.update(1)
        finally:
            if bar is not None:
                bar.close()

    def _run(self, operation: "ops.Operation[ops.T]") -> ops.T:
        answer: Any = None
        try:
            step = next(operation)
            while True:
                if isinstance(step, ops.Pause):
                    time.sleep(step.span_s)
                    answer = None
                else:
                    answer = self._perform(step)
                step = operation.send(answer)
        except StopIteration as stop:
            result: ops.T = stop.value
            return result

    def _perform(self, call: ops.Call) -> Any:
        return self._tried(call, lambda: self._once(call))

    def _tried(self, call: ops.Call, once: Callable[[], Any]) -> Any:
        retries, failed = ops.Retries(call, self._retry_s), 0
        while True:
            try:
                return once()
            except GpuSchedulerError as error:
                pause = retries.pause_after(error)
                if pause is None:
                    raise
                failed += 1
                if self._addresses.should_change(error):
                    self._addresses.next()
                    if failed % len(self._addresses.urls):
                        continue  # Another address may answer at once.
                time.sleep(pause)

    def _once(self, call: ops.Call) -> Any:
        url, token = self._addresses.url, self._token()
        try:
            response = self._clients[url].request(**_http.request_arguments(call, self._timeout_s, token))
        except httpx.HTTPError as error:
            raise ops.transport_error(error, url) from error
        return _http.parse(response)

    def _token(self) -> Optional[str]:
        if not self._addresses.asks_for_token(self._settings):
            return self._settings.token
        url = self._addresses.url
        with self._lock:
            if url not in self._tokens:
                try:
                    health = self._clients[url].get("/health").json()
                except (httpx.HTTPError, ValueError):
                    return None
                self._tokens[url] = local_token(url, health)
            return self._tokens[url]

    def _stream(self, call: ops.Call) -> Iterator[bytes]:
        response = self._tried(call, lambda: self._opened(call))
        url = self._addresses.url
        try:
            yield from response.iter_bytes()
        except httpx.HTTPError as error:
            raise ops.transport_error(error, url) from error
        finally:
            response.close()

    def _opened(self, call: ops.Call) -> httpx.Response:
        url, token = self._addresses.url, self._token()
        arguments = _http.request_arguments(call, self._timeout_s, token)
        arguments["timeout"] = httpx.Timeout(None, connect=self._timeout_s)
        try:
            response = self._clients[url].send(self._clients[url].build_request(**arguments), stream=True)
            if response.status_code // 100 != 2:
                response.read()
                _http.parse(response)
            return response
        except httpx.HTTPError as error:
            raise ops.transport_error(error, url) from error

    def _bytes(self, call: ops.Call) -> bytes:
        return bytes(self._tried(call, lambda: b"".join(self._stream(call))))


class LeaseContext:
    """What :meth:`Client.lease` returns: holds the GPUs from the beginning of a ``with`` block to its end."""

    def __init__(self, client: Client, asks: "ops.Operation[Dict[str, Any]]", wait_s: Optional[float]) -> None:
        self._client, self._asks, self._wait_s = client, asks, wait_s
        self._id = ""

    def __enter__(self) -> Lease:
        record = self._client._run(self._asks)
        self._id = record["id"]
        try:
            return Lease(self._client._run(ops.lease_held(record, self._wait_s)))
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: Any) -> None:
        self._client._run(ops.lease_release(self._id))
