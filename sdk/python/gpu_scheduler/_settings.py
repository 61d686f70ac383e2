"""Where the scheduler is and which credential is sent: arguments, environment, contexts and sockets of gpu-cli."""

import json
import os
import socket
import stat
import struct
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union
from urllib.parse import urlsplit

from ._token import read_token_file
from .errors import GpuSchedulerError, PermissionDeniedError

DEFAULT_URL = "http://127.0.0.1:8080"
SYSTEM_SOCKET = "/run/gpu-scheduler/api.sock"
UNIX = "unix://"
_UID_MIN = 1000
_LISTEN = "0A"


class Settings(NamedTuple):
    """What a client needs to know of its scheduler."""

    urls: Tuple[str, ...]
    token: Optional[str]
    verify: Union[bool, str]
    tenant_id: Optional[str]
    finds_token: bool  # No credential was named: the scheduler's own is looked for on this machine.


def resolve(addresses: Union[str, Sequence[str], None], token: Optional[str], token_file: Optional[str],
            verify: Union[bool, str, None], tenant_id: Optional[str], context: Optional[str],
            environment: Optional[Mapping[str, str]] = None) -> Settings:
    """The settings, in the order in which gpu-cli looks: arguments, environment, context, this machine's socket."""
    known = os.environ if environment is None else environment
    urls = _listed(addresses) if isinstance(addresses, str) else list(addresses or ())
    urls = urls or _listed(known.get("GPU_SCHEDULER_URL", ""))
    name = context or known.get("GPU_SCHEDULER_CONTEXT")
    wants_tls = isinstance(verify, str)
    # A URL that was given is not the context's scheduler: its token is not for that one.
    chosen = _context(name, known) if name or not urls else {}
    urls = urls or _listed(chosen.get("api_url", ""))
    verify = verify if verify is not None else known.get("GPU_SCHEDULER_CA_FILE") or chosen.get("ca_file") or None
    if token is None and token_file is None:
        token = known.get("GPU_SCHEDULER_TOKEN") or None
    if token is None:
        token_file = token_file or known.get("GPU_SCHEDULER_TOKEN_FILE") or chosen.get("token_file") or None
    if not urls and token is None and token_file is None and not isinstance(verify, str):
        urls = [UNIX + path for path in (_find_socket(known),) if path]
    urls = [_checked(url) for url in urls or [DEFAULT_URL]]
    # Whoever names a certificate expects that nothing is sent in the clear.
    for url in urls:
        if wants_tls and not url.startswith("https://"):
            raise GpuSchedulerError("verify needs an address that begins with https://, and not " + url, "usage")
    if token is None and token_file is not None:
        token = read_token_file(token_file)
        for url in urls:
            check_receiver(url, token_file)
    return Settings(tuple(urls), token, True if verify is None else verify,
                    tenant_id or chosen.get("tenant_id") or None, token is None)


def _listed(text: str) -> List[str]:
    """Addresses of schedulers that are one, with commas between them."""
    return [url.strip() for url in text.split(",") if url.strip()]


def _checked(url: str) -> str:
    if "://" not in url:
        url = "http://" + url
    parts = urlsplit(url)
    if not url.startswith(UNIX + "/") and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise GpuSchedulerError("{} is no address; give http://HOST:8080, https://HOST:8080 or "
                                "unix:///PATH".format(url), "usage")
    return url.rstrip("/")


def _context(name: Optional[str], environment: Mapping[str, str]) -> Mapping[str, str]:
    folder = environment.get("XDG_CONFIG_HOME") or ""
    if not folder and environment.get("HOME"):
        folder = environment["HOME"] + "/.config"
    try:
        with open(folder + "/gpu-scheduler/contexts.json", encoding="utf-8") as file:
            contexts = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        contexts = {}
    found = contexts.get("contexts", {}).get(name or contexts.get("current"))
    if name and found is None:
        raise GpuSchedulerError("there is no context {}; gpu-cli context list shows the contexts".format(name), "usage")
    return found or {}


def _sole_writer(folder: str) -> Optional[int]:
    """Who owns a folder in which its owner alone puts files."""
    try:
        facts = os.lstat(folder)
    except OSError:
        return None
    return facts.st_uid if stat.S_ISDIR(facts.st_mode) and not facts.st_mode & 0o022 else None


def _socket_listener(path: str) -> Optional[int]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        end.settimeout(2)
        try:
            end.connect(path)
            facts = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    return int(struct.unpack("3i", facts)[1])


def _is_believed(path: str, listener: int) -> bool:
    folder = os.path.dirname(path)
    owner = _sole_writer(folder)
    if owner is None:
        return False
    if owner in (0, os.geteuid()):
        return owner == 0 or listener in (0, owner)
    return listener == owner and _sole_writer(os.path.dirname(folder)) == 0


def _find_socket(environment: Mapping[str, str]) -> Optional[str]:
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    personal = runtime + "/gpu-scheduler/api.sock" if runtime.startswith("/") else ""
    for path in (SYSTEM_SOCKET, personal):
        listener = _socket_listener(path) if path else None
        if listener is not None and _is_believed(path, listener):
            return path
    return None


def is_loopback(url: str) -> bool:
    """Whether an http or https URL is one of this machine's loopback."""
    host = urlsplit(url).hostname or ""
    return not url.startswith(UNIX) and (host in ("localhost", "::1") or host.startswith("127."))


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def listening_users(port: int) -> List[int]:
    """The users whose processes listen at a TCP port of this machine."""
    users: Set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        users.update(int(row[7]) for row in rows if row[3] == _LISTEN and int(row[1].rsplit(":", 1)[1], 16) == port)
    return sorted(users)


def check_receiver(url: str, token_file: str) -> None:
    """Refuses to send a token to a port of this machine that another person's process has."""
    if not is_loopback(url):
        return
    owner = os.stat(token_file).st_uid
    for user in listening_users(_port(url)):
        if user >= _UID_MIN and user not in (os.geteuid(), owner):
            raise PermissionDeniedError(
                "port {} of this machine belongs to user {}, to whom the token would be disclosed".format(
                    _port(url), user), "usage")


def _read_owned(path: str, owner: int, is_secret: bool) -> str:
    end = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(end, encoding="ascii") as file:
        facts = os.fstat(end)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != owner or (is_secret and facts.st_mode & 0o022):
            raise PermissionError(path)
        return file.read(8192).strip()


def local_token(url: str, health: Any) -> Optional[str]:
    """The shared token of the scheduler at `url`, where that is on this machine and this user may read it.

    `health` is what the scheduler answered to ``GET /health``: it names the file. The file is believed only where the
    one user who listens at the port owns it, and where it lies beside a ports.json of the process that listens.
    """
    path = health.get("token_file", "") if isinstance(health, dict) else ""
    if not is_loopback(url) or not path.startswith("/") or not path.endswith("/token"):
        return None
    users = listening_users(_port(url))
    if len(users) != 1:
        return None
    try:
        ports = json.loads(_read_owned(os.path.dirname(path) + "/ports.json", users[0], False))
        if ports.get("http") != _port(url) or not os.path.exists("/proc/{}".format(int(ports["pid"]))):
            return None
        return _read_owned(path, users[0], True) or None
    except (OSError, ValueError, KeyError):
        return None
