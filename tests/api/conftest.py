"""A running gpu-scheduler on a temporary folder, and a client that speaks bytes."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("GPUSCHED_BIN_DIR", ROOT / "build" / "bin"))
PATIENCE_S = 60
# What random tests start from: the same on every run. tools/chaos sets others.
SEED = int(os.environ.get("GPUSCHED_SEED") or 1)


class Answer:
    """One HTTP answer: `headers` by lower-case name."""

    def __init__(self, raw):
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.raw = raw
        self.status = int(lines[0].split(" ")[1]) if lines[0].startswith("HTTP/1.1 ") else 0
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()

    @property
    def json(self):
        return json.loads(self.body)


class Scheduler:
    """A scheduler process with its ports."""

    def __init__(self, arguments=(), environment=None):
        self.folder = tempfile.mkdtemp(prefix="gpusched-api-")
        self.log = open(os.path.join(self.folder, "stderr"), "wb")
        ports = {f"GPU_SCHEDULER_{key}": "0" for key in ("API_HTTP_PORT", "API_GRPC_PORT", "METRICS_PORT")}
        self.process = subprocess.Popen(
            [str(BIN / "gpu-scheduler"), "--data-dir", os.path.join(self.folder, "data"), *arguments],
            env={**os.environ, **ports, **(environment or {})}, stdout=self.log, stderr=self.log)
        self.ports = self._wait_for_ports()

    def _wait_for_ports(self):
        path = os.path.join(self.folder, "data", "ports.json")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with open(path, encoding="utf-8") as file:
                    return json.load(file)
            except (FileNotFoundError, json.JSONDecodeError):
                time.sleep(0.02)
        raise AssertionError("the scheduler does not serve: " + self.log_text())

    def log_text(self):
        with open(os.path.join(self.folder, "stderr"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, port="http"):
        connection = socket.create_connection(("127.0.0.1", self.ports[port]), timeout=PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def raw(self, data, port="http"):
        """Sends bytes and reads until the server closes."""
        with self.connect(port) as connection:
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # It has answered before it had all; the answer is still there.
            return Answer(read_all(connection))

    def call(self, method, path, body=b"", headers=None, port="http"):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body, port)

    @staticmethod
    def until(ask, good):
        """The first good answer, or the last of many."""
        deadline = time.monotonic() + PATIENCE_S
        while not good(answer := ask()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return answer

    def credential(self):
        """Headers of a caller with the token; calls without them are anonymous."""
        path = os.path.join(self.folder, "data", "token")
        with open(path, encoding="utf-8") as file:
            return {"Authorization": "Bearer " + file.read().strip()}

    def submit(self, **job):
        answer = self.call("POST", "/api/v1/jobs", {"script": "true", **job})
        assert answer.status == 201, answer.raw
        return answer.json["job_id"]


def read_all(connection):
    data = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def read_answer(connection):
    """Reads one answer with a Content-Length from a connection that stays open."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    answer = Answer(data)
    while len(answer.body) < int(answer.headers["content-length"]):
        answer.body += connection.recv(65536)
    return answer


@pytest.fixture(scope="module")
def scheduler():
    running = Scheduler()
    yield running
    running.stop()


@pytest.fixture
def start():
    """Starts further schedulers with settings of their own."""
    running = []

    def begin(*arguments, **environment):
        running.append(Scheduler(arguments, environment))
        return running[-1]

    yield begin
    for one in running:
        one.stop()
