"""What both clients share about HTTP: addresses, headers, answers."""

import codecs
import json
import os
import socket
import ssl
from typing import Any, Dict, List, Optional, Union

import httpx

from . import _operations as ops
from ._settings import UNIX, Settings, is_loopback
from .errors import BadAnswerError, GpuSchedulerError, UnreachableError

_CONNECT_S = 10.0


def ssl_context(verify: Union[bool, str]) -> ssl.SSLContext:
    """Checks against the machine's authorities, a file of certificates, or (False) nothing."""
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def headers(token: Optional[str]) -> Dict[str, str]:
    """Headers of every request: who asks, and with what."""
    try:
        import pwd

        who = pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        who = str(os.geteuid())
    sent = {"User-Agent": "gpu-scheduler-client", "X-Requested-By": "{}@{}".format(who, socket.gethostname())}
    if token:
        sent["Authorization"] = "Bearer " + token
    return sent


def client_arguments(url: str, verify: Union[bool, str], timeout_s: float, transport: Any) -> Dict[str, Any]:
    """Arguments of httpx.Client or AsyncClient for one address; `transport` is the class of its transport."""
    timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
    if url.startswith(UNIX):
        return {"base_url": "http://localhost", "timeout": timeout, "trust_env": False,
                "transport": transport(uds=url[len(UNIX):])}
    checked = ssl_context(verify) if url.startswith("https://") else False
    return {"base_url": url, "timeout": timeout, "trust_env": False, "transport": transport(verify=checked)}


def request_arguments(call: ops.Call, timeout_s: float, token: Optional[str]) -> Dict[str, Any]:
    """Arguments of httpx's `request` or `build_request` for one call."""
    sent = headers(token)
    arguments: Dict[str, Any] = {"method": call.method, "url": call.path, "params": list(call.params), "headers": sent}
    if call.key:
        sent["Idempotency-Key"] = call.key
    if call.body is not None:
        sent["Content-Type"] = "application/json"
        arguments["content"] = json.dumps(call.body).encode()
    arguments["timeout"] = httpx.Timeout(timeout_s + call.extra_s, connect=min(timeout_s, _CONNECT_S))
    return arguments


def parse(response: httpx.Response) -> Any:
    """The answer's JSON, or its refusal as an exception. The body must have been read."""
    try:
        answer = json.loads(response.content) if response.content else {}
    except ValueError:
        answer = None
    if response.status_code // 100 != 2:
        raise ops.refusal(response.status_code, response.headers, answer)
    if answer is None:
        raise BadAnswerError("the server answered with something else than JSON; check the address", "bad_answer")
    return answer


class Addresses:
    """Which of several addresses is used: the last that answered; after an error the next one."""

    def __init__(self, settings: Settings) -> None:
        self.urls = settings.urls
        self._at = 0

    @property
    def url(self) -> str:
        return self.urls[self._at]

    def next(self) -> None:
        self._at = (self._at + 1) % len(self.urls)

    def asks_for_token(self, settings: Settings) -> bool:
        """Whether the scheduler's own token is to be looked for at this address."""
        return settings.finds_token and is_loopback(self.url)

    def should_change(self, error: GpuSchedulerError) -> bool:
        """Whether another address may do better at once."""
        return len(self.urls) > 1 and (isinstance(error, UnreachableError) or error.status in (502, 503))


class Lines:
    """Parts a stream of bytes into lines of text; what is not UTF-8 is replaced."""

    def __init__(self) -> None:
        self.offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> List[str]:
        self.offset += len(data)
        *whole, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        return [line + "\n" for line in whole]

    def end(self) -> List[str]:
        self._rest += self._decoder.decode(b"", final=True)
        return [self._rest] if self._rest else []


def can_resume(values: Dict[str, Any]) -> bool:
    """Whether a log that broke off can be read on from an offset: only as it is kept."""
    return not any(values.get(name) for name in ("tail_lines", "since", "grep", "timestamps"))


def progress_bar(total: int, shown: bool) -> Any:
    """A tqdm bar, or None."""
    if not shown:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="job")


def table(rows: List[Dict[str, Any]]) -> Any:
    """A pandas DataFrame where pandas is installed, else the rows."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)
