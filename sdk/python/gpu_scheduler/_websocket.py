"""Files into a running job: a session (docs/reference/sessions.md) over a WebSocket, as gpu-cli cp opens one."""

import base64
import hashlib
import json
import os
import socket
import ssl
import struct
from typing import Any, Dict, Optional, Tuple, Union
from urllib.parse import quote, urlsplit

from ._settings import UNIX
from .errors import BadAnswerError, InternalError, OutcomeUnknownError, UnreachableError, error_of

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CREDIT = 256 * 1024
_PIECE = 64 * 1024
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
# Written beside its name, and renamed once it is whole and the client said so: a copy that is cut short leaves nothing
# that is looked for, and a job that ends as soon as it has its file ends no copy of which the client knows too little.
_SCRIPT = ("trap 'rm -f \"$1.part\"' EXIT; head -c \"$2\" > \"$1.part\" && [ \"$(wc -c < \"$1.part\")\" -eq \"$2\" ] "
           "&& echo whole && head -c 1 > /dev/null && mv \"$1.part\" \"$1\"")
_WHOLE = b"whole\n"


class _Socket:
    """A client's end of one WebSocket."""

    def __init__(self, url: str, verify: Union[bool, str], timeout_s: float) -> None:
        try:
            if url.startswith(UNIX):
                self.host = "localhost"
                self._end: socket.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._end.settimeout(timeout_s)
                self._end.connect(url[len(UNIX):])
            else:
                parts = urlsplit(url)
                self.host = parts.hostname or ""
                port = parts.port or (443 if parts.scheme == "https" else 80)
                self._end = socket.create_connection((self.host, port), timeout=timeout_s)
                if parts.scheme == "https":
                    from ._http import ssl_context

                    self._end = ssl_context(verify).wrap_socket(self._end, server_hostname=self.host)
        except ssl.SSLError as error:
            raise UnreachableError("nothing was sent to {}: {}".format(url, error), "certificate_refused") from error
        except OSError as error:
            raise UnreachableError("no scheduler answers at {}: {}".format(url, error), "unreachable") from error
        self._in = b""

    def close(self) -> None:
        self._end.close()

    def open(self, path: str, headers: Dict[str, str]) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["GET {} HTTP/1.1".format(path), "Host: " + self.host, "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + key]
        lines += ["{}: {}".format(name, value) for name, value in headers.items()]
        self._end.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        while b"\r\n\r\n" not in self._in:
            self._in += self._received()
        head, _, self._in = self._in.partition(b"\r\n\r\n")
        rows = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (row.partition(":") for row in rows[1:])}
        status = int(rows[0].split(" ")[1])
        if status != 101:
            length = int(fields.get("content-length", "0"))
            while len(self._in) < length:
                self._in += self._received()
            from ._operations import refusal

            try:
                answer = json.loads(self._in[:length])
            except ValueError:
                answer = None
            raise refusal(status, fields, answer)
        expected = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
        if fields.get("sec-websocket-accept") != expected:
            raise BadAnswerError("the server does not speak WebSocket", "bad_answer")

    def send(self, kind: int, data: bytes) -> None:
        size = len(data)
        head = bytes([0x80 | kind])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", size)
        mask = os.urandom(4)
        pad = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(size, "big")
        self._end.sendall(head + mask + masked)

    def receive(self) -> Tuple[int, bytes]:
        """The next message; of one in several frames all of it."""
        kind, whole = 0, b""
        while True:
            first, second = self._take(2)
            size = second & 127
            if size == 126:
                size = struct.unpack(">H", self._take(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self._take(8))[0]
            data = self._take(size)
            opcode = first & 15
            if opcode == _PING:
                self.send(_PONG, data)
                continue
            if opcode == _PONG:
                continue
            kind, whole = opcode or kind, whole + data
            if first & 0x80:
                return kind, whole

    def _take(self, size: int) -> bytes:
        while len(self._in) < size:
            self._in += self._received()
        taken, self._in = self._in[:size], self._in[size:]
        return taken

    def _received(self) -> bytes:
        piece = self._end.recv(65536)
        if not piece:
            raise ConnectionError("it was closed")
        return piece


def upload(url: str, verify: Union[bool, str], headers: Dict[str, str], job_id: str, path: str, data: bytes,
           timeout_s: float) -> None:
    """Writes a file into a running job. Raises what the scheduler refuses; InternalError where it cannot be written."""
    end = _Socket(url, verify, timeout_s)
    try:
        end.open("/v1/jobs/{}/session".format(quote(job_id, safe="")), headers)
        command = ["sh", "-c", _SCRIPT, "sh", path, str(len(data))]
        end.send(_TEXT, json.dumps({"type": "open", "command": command}).encode())
        _copy(end, data, job_id, path)
    except OSError as error:
        raise OutcomeUnknownError("the session in {} broke: {}".format(job_id, error), "session_lost") from error
    finally:
        end.close()


def _copy(end: _Socket, data: bytes, job_id: str, path: str) -> None:
    sent, credit, out, errors, is_open, confirmed = 0, _CREDIT, b"", b"", False, False
    while True:
        while is_open and sent < len(data) and credit:
            piece = data[sent:sent + min(credit, _PIECE)]
            end.send(_BINARY, piece)
            sent, credit = sent + len(piece), credit - len(piece)
        if out == _WHOLE and not confirmed:
            end.send(_BINARY, b"!")
            confirmed = True
        kind, message = end.receive()
        if kind == _BINARY and message[:1] == b"\x01":
            out += message[1:]
        elif kind == _BINARY:
            errors += message[1:]
        elif kind == _CLOSE:
            raise OutcomeUnknownError("the session in {} was closed: {}".format(
                job_id, message[2:].decode("utf-8", "replace")), "session_lost")
        elif kind == _TEXT:
            told: Dict[str, Any] = json.loads(message)
            is_open = is_open or told["type"] == "opened"
            credit += told.get("bytes", 0) if told["type"] == "credit" else 0
            if told["type"] == "ended":
                _check_end(told, errors, path, confirmed)
                return


def _check_end(told: Dict[str, Any], errors: bytes, path: str, confirmed: bool) -> None:
    if told.get("error"):
        if confirmed:
            return  # The job had its file, and ended.
        raise error_of(str(told.get("code", "")), str(told["error"]))
    code: Optional[int] = told.get("exit_code")
    if code != 0 and not (confirmed and code is None):
        why = errors.decode("utf-8", "replace").strip() or told.get("message") or "exit code {}".format(code)
        raise InternalError("{} cannot be written: {}".format(path, why), "session_failed")
