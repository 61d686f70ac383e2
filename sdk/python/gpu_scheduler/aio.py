"""The asyncio client of the native API: the methods of :class:`gpu_scheduler.Client`, awaited.

>>> import asyncio
>>> from gpu_scheduler import AsyncClient
>>> async def main():
...     async with AsyncClient(URL) as client:
...         jobs = [await client.submit("exit {}".format(code), cpus=0.1) for code in (0, 3)]
...         return [job.exit_code for job in await client.wait_all(jobs, timeout_s=60)]
>>> asyncio.run(main())
[0, 3]
"""

import asyncio
import time
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

import httpx

from . import _http
from . import _operations as ops
from ._settings import local_token, resolve
from .client import JobLike
from .errors import DeadlineError, GpuSchedulerError, OutcomeUnknownError
from .jobs import Job, job_request
from .leases import Lease


class AsyncClient:
    """A scheduler over its REST API, for one event loop. Arguments, results and errors are those of
    :class:`gpu_scheduler.Client`; lists and followed logs are asynchronous iterators.
    """

    def __init__(self, address: Union[str, Sequence[str], None] = None, *, token: Optional[str] = None,
                 token_file: Optional[str] = None, verify: Union[bool, str, None] = None,
                 tenant_id: Optional[str] = None, context: Optional[str] = None, timeout_s: float = 30.0,
                 retry_s: float = 30.0) -> None:
        self._settings = resolve(address, token, token_file, verify, tenant_id, context)
        self._addresses = _http.Addresses(self._settings)
        self._tokens: Dict[str, Optional[str]] = {}
        self._timeout_s, self._retry_s = timeout_s, retry_s
        self._clients = {url: httpx.AsyncClient(**_http.client_arguments(
            url, self._settings.verify, timeout_s, httpx.AsyncHTTPTransport)) for url in self._settings.urls}

    async def submit(self, command: Union[str, Sequence[str], None] = None, *, tenant_id: Optional[str] = None,
                     idempotency_key: Optional[str] = None, **request: Any) -> Job:
        """Like :meth:`Client.submit`."""
        return await self._run(ops.submit(job_request(command, **request), self._tenant(tenant_id), idempotency_key))

    async def submit_many(self, requests: Iterable[Mapping[str, Any]], *, tenant_id: Optional[str] = None,
                          idempotency_key: Optional[str] = None) -> List[str]:
        """Like :meth:`Client.submit_many`."""
        return await self._run(ops.submit_many(requests, self._tenant(tenant_id), idempotency_key))

    async def map(self, commands: Iterable[Union[str, Sequence[str]]], *, progress: bool = False, check: bool = False,
                  tenant_id: Optional[str] = None, **request: Any) -> AsyncIterator[Job]:
        """Like :meth:`Client.map`; the jobs are submitted when the first is asked for."""
        ids = await self.submit_many(ops.requests_of(commands, request), tenant_id=tenant_id)
        bar = _http.progress_bar(len(ids), progress)
        try:
            for job_id in ids:
                yield await self.wait(job_id, check=check)
                if bar is not None:
                    bar.update(1)
        finally:
            if bar is not None:
                bar.close()

    async def get(self, job: JobLike) -> Job:
        """Like :meth:`Client.get`."""
        return await self._run(ops.get(job))

    async def list(self, *, state: Optional[str] = None, name: Optional[str] = None, user: Optional[str] = None,
                   labels: Union[Mapping[str, str], Sequence[str], str, None] = None, since: Optional[str] = None,
                   tenant_id: Optional[str] = None, page_size: int = 1000) -> AsyncIterator[Job]:
        """Like :meth:`Client.list`."""
        filters, token = ops.filters_of(state, name, user, labels, since, self._tenant(tenant_id)), ""
        while True:
            jobs, token = await self._run(ops.page(token, page_size, filters))
            for job in jobs:
                yield job
            if not token:
                return

    async def wait(self, job: JobLike, timeout_s: Optional[float] = None, *, check: bool = False) -> Job:
        """Like :meth:`Client.wait`."""
        return await self._run(ops.wait(job, timeout_s, check))

    async def wait_all(self, jobs: Iterable[JobLike], timeout_s: Optional[float] = None, *,
                       check: bool = False) -> List[Job]:
        """Like :meth:`Client.wait_all`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return [await self.wait(job, None if deadline is None else max(0.0, deadline - time.monotonic()), check=check)
                for job in jobs]

    async def cancel(self, job: JobLike) -> Job:
        """Like :meth:`Client.cancel`."""
        return await self._run(ops.act(job, "cancel"))

    async def hold(self, job: JobLike) -> Job:
        """Like :meth:`Client.hold`."""
        return await self._run(ops.act(job, "hold"))

    async def release(self, job: JobLike) -> Job:
        """Like :meth:`Client.release`."""
        return await self._run(ops.act(job, "release"))

    async def requeue(self, job: JobLike) -> Job:
        """Like :meth:`Client.requeue`."""
        return await self._run(ops.act(job, "requeue"))

    async def update(self, job: JobLike, **fields: Any) -> Job:
        """Like :meth:`Client.update`."""
        return await self._run(ops.update(job, fields))

    async def plan(self, command: Union[str, Sequence[str], None] = None, *, tenant_id: Optional[str] = None,
                   **request: Any) -> Dict[str, Any]:
        """Like :meth:`Client.plan`."""
        return await self._run(ops.plan(job_request(command, **request), self._tenant(tenant_id)))

    async def explain(self, job: JobLike) -> Dict[str, Any]:
        """Like :meth:`Client.explain`."""
        return await self._run(ops.about(job, "explain"))

    async def history(self, job: JobLike) -> List[Dict[str, Any]]:
        """Like :meth:`Client.history`."""
        return list((await self._run(ops.about(job, "history")))["lines"])

    async def logs(self, job: JobLike, *, stream: str = "stdout", attempt: Optional[int] = None,
                   member: Optional[int] = None, tail_lines: Optional[int] = None, since: Optional[str] = None,
                   grep: Optional[str] = None, timestamps: bool = False) -> str:
        """Like :meth:`Client.logs`."""
        data = await self._bytes(ops.log_call(job, False, stream=stream, attempt=attempt, member=member,
                                              tail_lines=tail_lines, since=since, grep=grep,
                                              timestamps=timestamps or None))
        return data.decode("utf-8", "replace")

    async def follow(self, job: JobLike, *, stream: str = "stdout", attempt: Optional[int] = None,
                     member: Optional[int] = None, tail_lines: Optional[int] = None, grep: Optional[str] = None,
                     timestamps: bool = False) -> AsyncIterator[str]:
        """Like :meth:`Client.follow`."""
        values = {"stream": stream, "attempt": attempt, "member": member, "tail_lines": tail_lines, "grep": grep,
                  "timestamps": timestamps or None}
        lines = _http.Lines()
        retries = None
        while True:
            try:
                async for data in self._stream(ops.log_call(job, True, offset=lines.offset or None, **values)):
                    retries = None
                    for line in lines.feed(data):
                        yield line
                for line in lines.end():
                    yield line
                return
            except (OutcomeUnknownError, DeadlineError) as error:
                retries = retries or ops.Retries(ops.log_call(job, True), self._retry_s)
                pause = retries.pause_after(error) if _http.can_resume(values) else None
                if pause is None:
                    raise
                await asyncio.sleep(pause)

    async def read_file(self, job: JobLike, path: str, *, attempt: Optional[int] = None) -> bytes:
        """Like :meth:`Client.read_file`."""
        return await self._bytes(ops.file_call(job, path, attempt))

    async def usage(self, **filters: Any) -> Any:
        """Like :meth:`Client.usage`."""
        return _http.table([job.usage_row() async for job in self.list(**filters)])

    def lease(self, gpus: int = 1, *, gpu_model: Optional[str] = None, min_memory_gb: Optional[int] = None,
              minutes: int = 60, cpus: Optional[int] = None, memory_mb: Optional[int] = None,
              name: Optional[str] = None, wait_s: Optional[float] = None) -> "AsyncLeaseContext":
        """Like :meth:`Client.lease`, with ``async with``."""
        return AsyncLeaseContext(self, ops.lease(gpus, gpu_model, min_memory_gb, minutes, cpus, memory_mb, name,
                                                 ops.new_key()), wait_s)

    async def renew_lease(self, lease: Lease, minutes: int = 60) -> Lease:
        """Like :meth:`Client.renew_lease`."""
        return Lease(await self._run(ops.lease_renew(lease.id, minutes)))

    async def create_service(self, name: str, command: Union[str, Sequence[str], None] = None, *,
                             tenant_id: Optional[str] = None, service: Optional[Mapping[str, Any]] = None,
                             **request: Any) -> Dict[str, Any]:
        """Like :meth:`Client.create_service`."""
        return await self._run(ops.create_service(name, job_request(command, **request), self._tenant(tenant_id),
                                                  dict(service or {})))

    async def services(self) -> List[Dict[str, Any]]:
        """Like :meth:`Client.services`."""
        return list((await self._run(ops.call("GET", "/v1/services", {"tenant_id": self._tenant(None)})))["services"])

    async def service(self, name: str) -> Dict[str, Any]:
        """Like :meth:`Client.service`."""
        return await self._run(ops.service(name, "GET", "", self._tenant(None)))

    async def scale_service(self, name: str, replicas: int) -> Dict[str, Any]:
        """Like :meth:`Client.scale_service`."""
        return await self._run(ops.service(name, "POST", "scale", None, {"replicas": replicas}))

    async def delete_service(self, name: str) -> Dict[str, Any]:
        """Like :meth:`Client.delete_service`."""
        return await self._run(ops.service(name, "DELETE"))

    async def cluster(self) -> Dict[str, Any]:
        """Like :meth:`Client.cluster`."""
        return await self._run(ops.call("GET", "/v1/cluster"))

    async def nodes(self) -> List[Dict[str, Any]]:
        """Like :meth:`Client.nodes`."""
        return list((await self._run(ops.call("GET", "/v1/nodes")))["nodes"])

    async def request(self, method: str, path: str, *, params: Optional[Mapping[str, Any]] = None, body: Any = None,
                      idempotency_key: Optional[str] = None) -> Any:
        """Like :meth:`Client.request`."""
        return await self._run(ops.call(method, path, params, body, idempotency_key))

    async def close(self) -> None:
        """Closes the connections."""
        for one in self._clients.values():
            await one.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    # --- How a call is made. ---

    def _tenant(self, tenant_id: Optional[str]) -> Optional[str]:
        return tenant_id or self._settings.tenant_id

    async def _run(self, operation: "ops.Operation[ops.T]") -> ops.T:
        answer: Any = None
        try:
            step = next(operation)
            while True:
                if isinstance(step, ops.Pause):
                    await asyncio.sleep(step.span_s)
                    answer = None
                else:
                    answer = await self._perform(step)
                step = operation.send(answer)
        except StopIteration as stop:
            result: ops.T = stop.value
            return result

    async def _perform(self, call: ops.Call) -> Any:
        return await self._tried(call, lambda: self._once(call))

    async def _tried(self, call: ops.Call, once: Callable[[], Awaitable[Any]]) -> Any:
        retries, failed = ops.Retries(call, self._retry_s), 0
        while True:
            try:
                return await once()
            except GpuSchedulerError as error:
                pause = retries.pause_after(error)
                if pause is None:
                    raise
                failed += 1
                if self._addresses.should_change(error):
                    self._addresses.next()
                    if failed % len(self._addresses.urls):
                        continue  # Another address may answer at once.
                await asyncio.sleep(pause)

    async def _once(self, call: ops.Call) -> Any:
        url, token = self._addresses.url, await self._token()
        try:
            response = await self._clients[url].request(**_http.request_arguments(call, self._timeout_s, token))
        except httpx.HTTPError as error:
            raise ops.transport_error(error, url) from error
        return _http.parse(response)

    async def _token(self) -> Optional[str]:
        if not self._addresses.asks_for_token(self._settings):
            return self._settings.token
        url = self._addresses.url
        if url not in self._tokens:
            try:
                health = (await self._clients[url].get("/health")).json()
            except (httpx.HTTPError, ValueError):
                return None
            self._tokens[url] = local_token(url, health)
        return self._tokens[url]

    async def _stream(self, call: ops.Call) -> AsyncIterator[bytes]:
        response = await self._tried(call, lambda: self._opened(call))
        url = self._addresses.url
        try:
            async for data in response.aiter_bytes():
                yield data
        except httpx.HTTPError as error:
            raise ops.transport_error(error, url) from error
        finally:
            await response.aclose()

    async def _opened(self, call: ops.Call) -> httpx.Response:
        url, token = self._addresses.url, await self._token()
        arguments = _http.request_arguments(call, self._timeout_s, token)
        arguments["timeout"] = httpx.Timeout(None, connect=self._timeout_s)
        try:
            response = await self._clients[url].send(self._clients[url].build_request(**arguments), stream=True)
            if response.status_code // 100 != 2:
                await response.aread()
                _http.parse(response)
            return response
        except httpx.HTTPError as error:
            raise ops.transport_error(error, url) from error

    async def _bytes(self, call: ops.Call) -> bytes:
        async def whole() -> bytes:
            return b"".join([data async for data in self._stream(call)])

        return bytes(await self._tried(call, whole))


class AsyncLeaseContext:
    """What :meth:`AsyncClient.lease` returns: holds the GPUs for the time of an ``async with`` block."""

    def __init__(self, client: AsyncClient, asks: "ops.Operation[Dict[str, Any]]", wait_s: Optional[float]) -> None:
        self._client, self._asks, self._wait_s = client, asks, wait_s
        self._id = ""

    async def __aenter__(self) -> Lease:
        record = await self._client._run(self._asks)
        self._id = record["id"]
        try:
            return Lease(await self._client._run(ops.lease_held(record, self._wait_s)))
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *_: Any) -> None:
        await self._client._run(ops.lease_release(self._id))
