"""Requests and paths of the API, once for both clients.

An operation is a generator: it yields a :class:`Call` and is sent the parsed answer, or yields a :class:`Pause` and is
resumed after it; what it returns is the operation's result. A client drives it, blocking or awaiting.
"""

import random
import time
import uuid
from typing import Any, Dict, Generator, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union
from urllib.parse import quote

from .errors import (BadAnswerError, DeadlineError, GpuSchedulerError, JobFailedError, OutcomeUnknownError,
                     QuotaExceededError, RateLimitedError, UnavailableError, UnreachableError, WaitTimeoutError,
                     error_of)
from .jobs import Job, id_of, job_request

ALLOCATIONS = "/api/gpuscheduler/v1"
_WAIT_MAX_S = 30.0
_JOBS_MAX = 1000
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.1, 2.0
_POLL_MIN_S, _POLL_MAX_S = 0.05, 1.0
_LEASE_HELD, _LEASE_OVER = ("AVAILABLE", "BUSY"), ("DEPROVISIONING", "DEPROVISIONED", "ERROR")


class Call(NamedTuple):
    """One request. `repeatable`: to carry it out twice is to carry it out once."""

    method: str
    path: str
    params: Sequence[Tuple[str, str]] = ()
    body: Any = None
    key: Optional[str] = None  # Of a POST that the scheduler carries out once.
    extra_s: float = 0.0       # It may take longer than others by so much.
    changes: bool = True       # Of a POST: False where it only asks.

    @property
    def repeatable(self) -> bool:
        return self.method in ("GET", "HEAD") or self.key is not None or not self.changes


class Pause(NamedTuple):
    """A wait of some seconds."""

    span_s: float


T = TypeVar("T")
Operation = Generator[Union[Call, Pause], Any, T]


class Retries:
    """Decides about repetitions of one call: which error passes, and after how long to try again.

    The pause is 0.1 s and doubles up to 2 s, each time with jitter: a random part of its upper half is left out. A
    Retry-After is waited for. A request whose outcome is not known is repeated only if that is safe.
    """

    def __init__(self, call: Call, retry_s: float) -> None:
        self._call = call
        self._ends = time.monotonic() + retry_s
        self._next = _PAUSE_MIN_S

    def pause_after(self, error: GpuSchedulerError) -> Optional[float]:
        """Seconds to wait before the next try; None: the error stands."""
        if error.code == "certificate_refused":
            return None
        unsure = isinstance(error, (OutcomeUnknownError, DeadlineError))
        if unsure and not self._call.repeatable:
            return None
        if not unsure and not isinstance(error, (RateLimitedError, UnavailableError)):
            return None
        pause = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, _PAUSE_MAX_S)
        pause = max(pause, error.retry_after_s or 0.0)
        return pause if time.monotonic() + pause <= self._ends else None


def refusal(status: int, headers: Mapping[str, str], answer: Any) -> GpuSchedulerError:
    """The exception for an answer outside 2xx: of the API, or of its allocation door."""
    after = headers.get("retry-after", "")
    retry_after_s = float(after) if after.isdigit() else None
    known = answer if isinstance(answer, dict) else {}
    if isinstance(known.get("error"), str):
        return error_of(str(known.get("code") or "http_{}".format(status)), known["error"],
                        str(known.get("field") or ""), status, retry_after_s)
    detail = known.get("detail")
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        field = ".".join(map(str, detail[0].get("loc", ())))
        return error_of("invalid_argument", str(detail[0].get("msg")), field, status)
    if isinstance(detail, str) and status == 429 and retry_after_s is None:
        return QuotaExceededError(detail, "quota_exceeded", status=status)
    if isinstance(detail, str):
        return error_of("http_{}".format(status), detail, "", status, retry_after_s)
    if status in (502, 503, 504):
        return UnavailableError("something before the scheduler answered with HTTP status {}".format(status),
                                "http_{}".format(status), status=status, retry_after_s=retry_after_s)
    return BadAnswerError("the server answered with HTTP status {}, but not as a scheduler does; check the "
                          "address".format(status), "bad_answer", status=status)


def new_key() -> str:
    """A key that makes one request of all its repetitions."""
    return uuid.uuid4().hex


def _path(*words: Any) -> str:
    return "/v1/" + "/".join(quote(str(word), safe="") for word in words)


def _query(**values: Any) -> List[Tuple[str, str]]:
    out: List[Tuple[str, str]] = []
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, (list, tuple)):
            out += [(name, str(one)) for one in value]
        else:
            out.append((name, "true" if value is True else "false" if value is False else str(value)))
    return out


def call(method: str, path: str, params: Optional[Mapping[str, Any]] = None, body: Any = None,
         key: Optional[str] = None) -> Operation[Any]:
    """Any call of the API."""
    return (yield Call(method, path, _query(**dict(params or {})), body, key))


def submit_many(requests: Iterable[Mapping[str, Any]], tenant_id: Optional[str],
                key: Optional[str]) -> Operation[List[str]]:
    """Ids of the jobs; at most 1,000 in one call, of which all are accepted or none."""
    ids: List[str] = []
    left = list(requests)
    if key is not None and len(left) > _JOBS_MAX:
        raise ValueError("with an idempotency_key at most {} jobs can be submitted at once".format(_JOBS_MAX))
    while left:
        batch, left = left[:_JOBS_MAX], left[_JOBS_MAX:]
        answer = yield Call("POST", "/v1/jobs", (), _of_tenant({"jobs": batch}, tenant_id), key or new_key())
        ids += answer["job_ids"]
    return ids


def submit(request: Mapping[str, Any], tenant_id: Optional[str], key: Optional[str]) -> Operation[Job]:
    """The submitted job."""
    answer = yield Call("POST", "/v1/jobs", (), _of_tenant(request, tenant_id), key or new_key())
    return (yield from get(answer["job_ids"][0]))


def plan(request: Mapping[str, Any], tenant_id: Optional[str]) -> Operation[Dict[str, Any]]:
    """What would become of the submission; nothing changes."""
    return (yield Call("POST", "/v1/jobs:plan", (), _of_tenant(request, tenant_id), changes=False))


def _of_tenant(request: Mapping[str, Any], tenant_id: Optional[str]) -> Dict[str, Any]:
    return dict(request, tenant_id=tenant_id) if tenant_id else dict(request)


def get(job: Any) -> Operation[Job]:
    """The job."""
    return Job((yield Call("GET", _path("jobs", id_of(job)))))


def page(token: str, page_size: int, filters: Mapping[str, Any]) -> Operation[Tuple[List[Job], str]]:
    """One page of a list: its jobs, and the token of the next one."""
    query = _query(page_size=page_size, page_token=token or None, **filters)
    answer = yield Call("GET", "/v1/jobs", query)
    return [Job(raw) for raw in answer["jobs"]], answer.get("next_page_token") or ""


def filters_of(state: Optional[str], name: Optional[str], user: Optional[str], labels: Any, since: Optional[str],
               tenant_id: Optional[str]) -> Dict[str, Any]:
    """Parameters of a list. Labels: a mapping, or words as the API takes them."""
    if isinstance(labels, Mapping):
        labels = [key + "=" + value for key, value in labels.items()]
    return {"state": state, "name": name, "user": user, "label": [labels] if isinstance(labels, str) else labels,
            "since": since, "tenant_id": tenant_id}


def wait(job: Any, timeout_s: Optional[float], check: bool) -> Operation[Job]:
    """The job once it has ended."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        span = _WAIT_MAX_S if deadline is None else max(0.0, min(_WAIT_MAX_S, deadline - time.monotonic()))
        raw = yield Call("GET", _path("jobs", id_of(job)), [("wait", "{}ms".format(int(span * 1000)))] if span else (),
                         None, None, span)
        seen = Job(raw)
        if seen.is_final:
            if check and not seen.succeeded:
                raise JobFailedError("{} {}: {}".format(seen.id, seen.state, seen.message), seen)
            return seen
        if deadline is not None and time.monotonic() >= deadline:
            raise WaitTimeoutError("{} is still {} after {} s".format(seen.id, seen.state, timeout_s), "wait_timeout")


def act(job: Any, verb: str) -> Operation[Job]:
    """The job after cancel, hold, release or requeue."""
    return Job((yield Call("POST", _path("jobs", id_of(job), verb))))


def update(job: Any, fields: Mapping[str, Any]) -> Operation[Job]:
    """The job after a change of what is given."""
    return Job((yield Call("PATCH", _path("jobs", id_of(job)), (), dict(fields))))


def about(job: Any, what: str) -> Operation[Dict[str, Any]]:
    """The job's explanation or history."""
    return (yield Call("GET", _path("jobs", id_of(job), what)))


def log_call(job: Any, follow: bool, **values: Any) -> Call:
    """The request for a job's output."""
    return Call("GET", _path("jobs", id_of(job), "log"), _query(follow=follow or None, **values))


def file_call(job: Any, path: str, attempt: Optional[int]) -> Call:
    """The request for a file of a job."""
    return Call("GET", _path("jobs", id_of(job), "files"), _query(path=path, attempt=attempt))


def lease(gpus: int, gpu_model: Optional[str], min_memory_gb: Optional[int], minutes: int, cpus: Optional[int],
          memory_mb: Optional[int], name: Optional[str], key: str) -> Operation[Dict[str, Any]]:
    """Asks for a lease; its record, which may still wait."""
    body = {"count": gpus, "gpu_model": gpu_model, "min_memory_gb": min_memory_gb, "lease_minutes": minutes,
            "cpu_cores": cpus, "memory_mb": memory_mb, "name": name}
    answer = yield Call("POST", ALLOCATIONS + "/allocate", (), {k: v for k, v in body.items() if v is not None}, key)
    return (yield Call("GET", ALLOCATIONS + "/gpu/" + answer["gpu_id"]))


def lease_held(record: Mapping[str, Any], wait_s: Optional[float]) -> Operation[Dict[str, Any]]:
    """The record once the lease holds its GPUs."""
    deadline = None if wait_s is None else time.monotonic() + wait_s
    pause = _POLL_MIN_S
    seen: Any = record
    while seen["status"] not in _LEASE_HELD:
        if seen["status"] in _LEASE_OVER:
            raise JobFailedError("{} ended before it held its GPUs: {}".format(seen["job_id"], seen["message"]))
        if deadline is not None and time.monotonic() >= deadline:
            raise WaitTimeoutError("{} does not hold its GPUs after {} s: {}".format(
                seen["job_id"], wait_s, seen["message"]), "wait_timeout")
        yield Pause(pause)
        pause = min(pause * 2, _POLL_MAX_S)
        seen = yield Call("GET", ALLOCATIONS + "/gpu/" + seen["id"])
    return seen


def lease_release(lease_id: str) -> Operation[Dict[str, Any]]:
    """Gives the GPUs back; the record. Again: the same, so that it may be repeated."""
    return (yield Call("DELETE", ALLOCATIONS + "/gpu/" + lease_id, key=new_key(), extra_s=15.0))


def lease_renew(lease_id: str, minutes: int) -> Operation[Dict[str, Any]]:
    """The record, which then ends no earlier than so many minutes from now."""
    return (yield Call("POST", ALLOCATIONS + "/gpu/" + lease_id + "/renew", (), {"lease_minutes": minutes}, new_key()))


def create_service(name: str, request: Mapping[str, Any], tenant_id: Optional[str],
                   fields: Mapping[str, Any]) -> Operation[Dict[str, Any]]:
    """The new service."""
    body = {"name": name, "job": request, **fields}
    if tenant_id:
        body["tenant_id"] = tenant_id
    return (yield Call("POST", "/v1/services", (), body))


def service(name: str, method: str, verb: str = "", tenant_id: Optional[str] = None,
            body: Any = None) -> Operation[Dict[str, Any]]:
    """One service, or what became of it."""
    return (yield Call(method, _path("services", name, *([verb] if verb else [])), _query(tenant_id=tenant_id), body))


def requests_of(commands: Iterable[Any], common: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The requests of a `map`."""
    return [job_request(command, **common) for command in commands]


def transport_error(error: Exception, url: str) -> GpuSchedulerError:
    """The exception for what httpx raises when there is no answer."""
    import httpx

    why = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return UnreachableError("nothing was sent to {}: its certificate is not trusted: {}".format(url, why),
                                "certificate_refused")
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return UnreachableError("no scheduler answers at {}: {}; start one with `gpu-scheduler dev`, or give the "
                                "address of yours".format(url, why), "unreachable")
    if isinstance(error, httpx.TimeoutException):
        return DeadlineError("the scheduler at {} did not answer in time".format(url), "timeout")
    if isinstance(error, (httpx.NetworkError, httpx.RemoteProtocolError)):
        return OutcomeUnknownError("the connection to {} broke before the answer: {}".format(url, why),
                                   "outcome_unknown")
    return BadAnswerError("{}: {}".format(url, why), "bad_answer")
