"""gpu-cli port-forward: programs here talk to a server inside a job, through the scheduler."""

import concurrent.futures
import contextlib
import hashlib
import http.client
import pathlib
import re
import signal
import socket
import subprocess
import sys
import textwrap

import pytest
from harness import PATIENCE_S, noise, program, read_bytes, wait_until
from ports import free_port

pytestmark = pytest.mark.shared_world
BIG = 100 * 1024 * 1024
WEB = textwrap.dedent("""
    import hashlib, http.server, sys
    piece = open("piece", "rb").read()
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def do_GET(self):
            count = int(self.path[1:])
            self.send_response(200)
            self.send_header("Content-Length", str(count * len(piece)))
            self.end_headers()
            for _ in range(count):
                self.wfile.write(piece)
        def do_POST(self):
            digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
            while left:
                data = self.rfile.read(min(left, 65536))
                digest.update(data)
                left -= len(data)
            body = digest.hexdigest().encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def log_message(self, *_):
            pass
    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 64
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
""")
# Reads to the end of what comes, and answers how much it was: a client that cannot half-close hears nothing.
COUNTER = textwrap.dedent("""
    import contextlib, socket, sys
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    while True:
        peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(b"ready ")
            size = 0
            while data := peer.recv(65536):
                size += len(data)
            peer.sendall(b"%d bytes" % size)
""")


class Server:
    """A job that serves on a port of its node's loopback."""

    def __init__(self, world, text, gate=None):
        self.world, self.port = world, free_port()
        path = world.folder / f"server-{self.port}.py"
        path.write_text(text)
        (world.folder / "piece").write_bytes(noise(1 << 20))
        wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; " if gate else ""
        self.job = world.api().submit(f"cd {world.folder}; {wait}exec {sys.executable} {path} {self.port}")
        world.api().wait_for(self.job, "running")
        if gate is None:
            wait_until("it serves", self.serves)

    def serves(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class Forward:
    """A running gpu-cli port-forward."""

    def __init__(self, world, server, *words):
        self.process = subprocess.Popen([program("gpu-cli"), "port-forward", server.job, *(words or [f":{server.port}"])],
                                        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                        text=True, env=world.cli_environment())
        line = self.process.stderr.readline()
        found = re.fullmatch(rf"gpu-cli: 127\.0\.0\.1:(\d+) is port {server.port} of {server.job}; Ctrl-C ends it\n", line)
        assert found, line
        self.port = int(found[1])

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def get(self, path, method="GET", body=None):
        """A request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, body)
        return connection.getresponse()

    def end(self, by=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(by)
        _, rest = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, rest


@pytest.fixture(name="forward")
def forward_fixture(world):
    started = []

    def start(server, *words):
        started.append(Forward(world, server, *words))
        return started[-1]

    yield start
    for one in started:
        one.end(signal.SIGKILL)


def test_a_hundred_megabytes_come_and_go_whole(world, forward):
    server = Server(world, WEB)
    here = forward(server)
    digest, wanted, size = hashlib.sha256(), hashlib.sha256(), 0
    answer = here.get("/100")
    while data := answer.read(1 << 20):
        digest.update(data)
        size += len(data)
    piece = (pathlib.Path(world.folder) / "piece").read_bytes()
    for _ in range(100):
        wanted.update(piece)
    assert (size, digest.hexdigest()) == (BIG, wanted.hexdigest())
    up = noise(20 << 20)
    assert here.get("/", "POST", up).read().decode() == hashlib.sha256(up).hexdigest()
    assert here.end() == (0, f"\ngpu-cli: the forward has ended; {server.job} continues\n")
    assert world.api().job(server.job)["state"] == "running"


def test_many_connections_at_once_and_only_on_loopback(world, forward):
    server = Server(world, WEB)
    here = forward(server)
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        sizes = list(pool.map(lambda _: len(here.get("/1").read()), range(48)))
    assert sizes == [1 << 20] * 48
    listening = [line.split()[1] for line in read_bytes("/proc/net/tcp").decode().splitlines()[1:] if line.split()[3] == "0A"]
    assert [one for one in listening if one.endswith(f":{here.port:04X}")] == [f"0100007F:{here.port:04X}"]
    other = [line for line in read_bytes("/proc/net/tcp6").decode().splitlines()[1:] if f":{here.port:04X} 0" in line]
    assert not [line for line in other if line.split()[3] == "0A"]


def test_each_end_can_say_that_it_sends_no_more(world, forward):
    server = Server(world, COUNTER)
    with forward(server).connect() as client:
        assert client.recv(6) == b"ready "  # It comes before we have sent anything, and not when a buffer is full.
        client.sendall(b"x" * 1_000_000)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while data := client.recv(100):
            answer += data
    assert answer == b"1000000 bytes"


def test_a_port_where_nothing_listens_yet_breaks_the_connection_and_says_so_once(world, forward):
    gate = world.folder / "gate"
    server = Server(world, WEB, gate)
    here = forward(server)
    for _ in range(2):
        with here.connect() as client, pytest.raises(ConnectionResetError):
            client.recv(1)
    gate.touch()
    wait_until("it serves", server.serves)
    assert here.get("/1").status == 200
    _, rest = here.end()
    said = f"gpu-cli: nothing answers on port {server.port} inside the job: Connection refused\n"
    assert rest == f"{said}\ngpu-cli: the forward has ended; {server.job} continues\n"


def test_the_forward_ends_with_its_job_and_tells_how_that_ended(world, forward):
    server = Server(world, COUNTER)
    here = forward(server)
    with here.connect() as client:
        assert client.recv(6) == b"ready "
        world.api().cancel(server.job)
        with contextlib.suppress(ConnectionResetError):  # Its server closes it as it ends, or it breaks.
            while client.recv(100):
                pass
    code, rest = here.process.wait(PATIENCE_S), here.end()[1]
    assert code == 0 and re.search(rf"gpu-cli: {server.job} was cancelled.*, and the forward with it\n$", rest), rest
    # Afterwards there is nothing to forward to.
    done = world.cli("port-forward", server.job, "80", expected=4)
    assert "cancelled" in done.stderr and "a forward needs a running job" in done.stderr


def test_what_is_no_port_is_refused_before_anything_is_asked(world):
    for words, said in ((["x"], "'x' names no port"), (["80:"], "'80:' names no port"), (["70000"], "'70000' names no port"),
                        (["0"], "'0' names no port")):
        assert said in world.cli("port-forward", "job-1", *words, expected=2).stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = world.cli("port-forward", "job-1", f"{port}:80", expected=4)
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr


def test_only_who_may_enter_the_job_reaches_its_ports(world, forward):
    server = Server(world, WEB)
    api = world.api()
    api.post("/tenants", {"name": "other", "max_gpus": 4}, 201)
    key = world.folder / "other.key"
    world.cli("key", "create", "reader", "--tenant", "other", "--role", "user", "--out", str(key), expected=0)
    done = world.cli("--token-file", str(key), "port-forward", server.job, str(free_port()), expected=4)
    assert server.job in done.stderr and "127.0.0.1:" not in done.stderr
    assert forward(server).get("/1").status == 200
