"""Hardening: clients that connect and do not behave. The server sheds them by its limits and goes on serving others."""

import contextlib
import resource
import selectors
import socket
import time

import pytest
from harness import wait_until

CONNECTIONS = 10_000


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(new_module_world):
    world = new_module_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    return world


@pytest.fixture(name="files")
def files_fixture():
    """As many descriptors as the system gives; where ten thousand connections need more, fewer are made."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(CONNECTIONS, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect_many(port, count, first_bytes=b""):
    """Open connections, each of which sent `first_bytes`. Those that the server closed already are among them."""
    made = []
    for _ in range(count):
        client = socket.socket()
        client.settimeout(30)
        client.connect(("127.0.0.1", port))
        if first_bytes:
            with contextlib.suppress(OSError):
                client.sendall(first_bytes)
        made.append(client)
    return made


def closed_by_server(clients):
    """How many the server has ended."""
    ended = 0
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        for key, _ in selector.select(timeout=0):
            with contextlib.suppress(BlockingIOError):
                key.fileobj.setblocking(False)
                try:
                    ended += key.fileobj.recv(65_536) == b""
                except ConnectionError:
                    ended += 1
    return ended


def close_all(clients):
    for client in clients:
        client.close()


def service_goes_on(world):
    api = world.api()
    assert api.call("GET", "/health")[0] == 200
    job_id = api.submit("echo served")
    assert api.wait_for(job_id)["state"] == "completed"
    assert api.output(job_id) == "served\n"


@pytest.mark.parametrize("name,first_bytes", [
    ("silent", b""),
    ("half a header", b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Slow: "),
    ("half a body", b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20000\r\n\r\n{"),
])
def test_ten_thousand_connections_that_never_finish_keep_nobody_out(cluster, files, name, first_bytes):
    clients = []
    try:
        for begin in range(0, files, 1_000):
            clients += connect_many(cluster.scheduler.ports["http"], min(1_000, files - begin), first_bytes)
            service_goes_on(cluster)
        # Beyond the limit the ones that waited longest make room; the others go when their time is over.
        extra = connect_many(cluster.scheduler.ports["http"], 300, first_bytes)
        clients += extra
        service_goes_on(cluster)
        wait_until(f"connections with {name} are shed", lambda: closed_by_server(clients) > 0)
    finally:
        close_all(clients)
    service_goes_on(cluster)


def test_ten_thousand_half_open_connections_to_the_grpc_port_keep_nobody_out(cluster, files):
    clients = []
    try:
        clients = connect_many(cluster.scheduler.ports["grpc"], files)
        service_goes_on(cluster)
        # gRPC's own handshake limit ends them.
        wait_until("they are shed", lambda: closed_by_server(clients) > 0)
        service_goes_on(cluster)
    finally:
        close_all(clients)
    service_goes_on(cluster)


def test_a_reader_that_does_not_read_holds_nothing_up(cluster):
    api = cluster.api()
    job_id = api.submit("head -c 50000000 /dev/zero")
    api.wait_for(job_id)
    slow = []
    for _ in range(50):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", cluster.scheduler.ports["http"]))
        client.sendall(f"GET /api/v1/jobs/{job_id}/logs HTTP/1.1\r\nHost: localhost\r\n"
                       f"Authorization: Bearer {cluster.scheduler.token()}\r\n\r\n".encode())
        slow.append(client)
    service_goes_on(cluster)
    close_all(slow)


@pytest.mark.parametrize("name,request_bytes,statuses", [
    ("a header without end", b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: y\r\n" * 100_000, (431,)),
    ("one endless line", b"GET /" + b"a" * 1_000_000, (400, 414, 431)),
    ("an endless body in chunks", b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
     + b"10000\r\n" + b"x" * 65_536 + b"\r\n" + b"".join([b"10000\r\n" + b"x" * 65_536 + b"\r\n"] * 100), (413,)),
    ("a length that lies", b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9223372036854775807\r\n\r\n", (400, 413)),
    ("two lengths", b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", (400,)),
    ("a length and chunks", b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    ("a chunk of a wrong size", b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", (400, 413)),
    ("bytes that are no request", bytes(range(256)) * 100, (400,)),
    ("a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500, (400,)),
])
def test_abuse_of_header_and_body_is_refused(cluster, name, request_bytes, statuses):
    with socket.create_connection(("127.0.0.1", cluster.scheduler.ports["http"]), timeout=60) as client:
        with contextlib.suppress(OSError):  # It may be refused before all is sent.
            client.sendall(request_bytes)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while b"\r\n" not in answer:
                got = client.recv(65_536)
                if not got:
                    break
                answer += got
    if answer:  # A reset may overtake the answer; service goes on either way.
        assert int(answer.split()[1]) in statuses, (name, answer[:200])
    assert cluster.api().call("GET", "/health")[0] == 200


def test_a_flood_of_pipelined_requests_is_answered_in_order_or_ended(cluster):
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", cluster.scheduler.ports["http"]), timeout=60) as client:
        client.sendall(request * 2_000)
        answers = b""
        deadline = time.monotonic() + 60
        while answers.count(b"HTTP/1.1 200") < 2_000 and time.monotonic() < deadline:
            got = client.recv(1 << 20)
            if not got:
                break
            answers += got
    assert answers.count(b"HTTP/1.1 200") == 2_000
    service_goes_on(cluster)
