"""Requests that programs in between read differently, or that name another host, are 400 and not carried out."""

import contextlib
import json
import re
import socket

import pytest
from harness import PATIENCE_S


@pytest.fixture(scope="module", name="world")
def world_fixture(new_module_world):
    world = new_module_world()
    world.scheduler.start()
    return world


def answers_to(world, sent):
    """All that comes until the server closes or is silent; a `None` at the end says that it closed."""
    with socket.create_connection(("127.0.0.1", world.scheduler.ports["http"]), timeout=PATIENCE_S) as client:
        client.sendall(sent)
        client.settimeout(1)
        data, closed = b"", False
        with contextlib.suppress(TimeoutError):
            while not closed:
                piece = client.recv(65_536)
                closed = not piece
                data += piece
    statuses = [int(word) for word in re.findall(rb"(?:^|\r\n\r\n|\}|\n)HTTP/1\.1 (\d{3}) ", data)]
    return statuses, data, closed


def request(*headers, target="/health", version="1.1", method="GET", body=b""):
    lines = [f"{method} {target} HTTP/{version}".encode(), *(header.encode() for header in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


HOST = "Host: 127.0.0.1"


@pytest.mark.parametrize("headers", [
    ["Transfer-Encoding: identity"], ["Transfer-Encoding: gzip"], ["Transfer-Encoding: gzip, chunked"],
    ["Transfer-Encoding: chunked, gzip"], ["Transfer-Encoding: chunked, chunked"], ["Transfer-Encoding: xchunked"],
    ["Transfer-Encoding: chunked;q=1"], ["Transfer-Encoding: \"chunked\""], ["Transfer-Encoding: chunked,"],
    ["Transfer-Encoding: ,chunked"], ["Transfer-Encoding:"], ["Transfer-Encoding:\r\n chunked"],
    ["Transfer-Encoding: chunked\r\n\t, identity"], ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    ["Transfer-Encoding: identity", "Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
    ["Transfer-Encoding: chunked", "Content-Length: 4"], ["Content-Length: 4", "Transfer-Encoding: chunked"],
    ["Transfer-Encoding: identity", "Content-Length: 4"], ["Transfer-Encoding : chunked"], ["X-Folded: a\r\n b"],
    ["Transfer-Encoding: chun\r\n ked"]], ids=lambda headers: " | ".join(headers).encode("unicode_escape").decode())
def test_a_coding_that_is_not_chunked_alone_is_refused_and_ends_the_connection(world, headers):
    # The rest would be a request of its own for somebody who reads the first one differently.
    smuggled = request(HOST)
    statuses, data, closed = answers_to(world, request(HOST, *headers, target="/api/v1/jobs", method="POST",
                                                       body=b"0\r\n\r\n" + smuggled))
    assert statuses == [400], data
    assert closed and b"Connection: close" in data


def test_chunked_is_read_and_the_next_request_is_answered(world):
    for word in ("chunked", "Chunked", "CHUNKED"):
        body = b"5\r\nhello\r\n0\r\n\r\n"
        first = request(HOST, f"Transfer-Encoding: {word}", method="GET", body=body)
        statuses, data, _ = answers_to(world, first + request(HOST, "Connection: close"))
        assert statuses == [200, 200], data


def test_chunked_in_an_older_version_is_refused(world):
    statuses, data, closed = answers_to(world, request("Transfer-Encoding: chunked", version="1.0", body=b"0\r\n\r\n"))
    assert statuses == [400] and closed, data


def test_fields_behind_a_body_count_for_nothing(world):
    body = b"0\r\nHost: evil.example\r\nAuthorization: Bearer " + world.scheduler.token().encode() + b"\r\n\r\n"
    sent = request(HOST, "Transfer-Encoding: chunked", "Connection: close", target="/metrics", body=body)
    assert answers_to(world, sent)[0] == answers_to(world, request(HOST, "Connection: close", target="/metrics"))[0]
    statuses, data, _ = answers_to(world, request(HOST, "Transfer-Encoding: chunked", "Connection: close", body=body))
    assert statuses == [200], data


@pytest.mark.parametrize("headers", [
    [], ["Host: 127.0.0.1", "Host: 127.0.0.1"], ["Host: 127.0.0.1", "Host: evil.example"], ["Host:"], ["Host: "],
    ["Host: a b"], ["Host: user@127.0.0.1"], ["Host: 127.0.0.1:"], ["Host: 127.0.0.1:x"], ["Host: 127.0.0.1:99999"],
    ["Host: 127.0.0.1:80:80"], ["Host: 127.0.0.1/x"], ["Host: http://127.0.0.1"], ["Host: [::1"], ["Host: ::1"],
    ["Host: 127.0.0.1, evil.example"], ["Host: 127.0.0.1?x"], ["Host: \"localhost\""]],
    ids=lambda headers: " | ".join(headers) or "none")
@pytest.mark.parametrize("with_token", [False, True], ids=["anonymous", "token"])
def test_the_host_is_named_once(world, headers, with_token):
    token = [f"Authorization: Bearer {world.scheduler.token()}"] if with_token else []
    for target in ("/health", "/api/v1/jobs", "/v1/jobs", "/"):
        statuses, data, _ = answers_to(world, request(*headers, *token, "Connection: close", target=target))
        assert statuses == [400], (target, data)
        assert "Host" in json.loads(data.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "localhost", "LocalHost:1", "[::1]", "[::1]:8080"])
def test_names_of_loopback_are_fine(world, host):
    assert answers_to(world, request(f"Host: {host}", "Connection: close", target="/api/v1/jobs"))[0] == [200]


def test_an_older_version_needs_no_host(world):
    assert answers_to(world, request(version="1.0"))[0] == [200]
    assert answers_to(world, request("Host: a", "Host: a", version="1.0"))[0] == [400]


@pytest.mark.parametrize("target", [
    "http://evil.example/health", "http://evil.example:80/health", "https://evil.example/health", "http://127.0.0.2/health",
    "http://127.0.0.1:81/health", "http:///health", "http://user@127.0.0.1/health", "ftp://127.0.0.1/health",
    "http://127.0.0.1.evil.example/health", "HTTP://evil.example/health", "http://evil.example", "http://evil.example?x=1",
    "health", "*", "127.0.0.1:80", "://127.0.0.1/health", "http://[::1]/health", "http:/health", "?x", "file:///etc/passwd"])
@pytest.mark.parametrize("with_token", [False, True], ids=["anonymous", "token"])
def test_a_target_for_another_host_is_refused(world, target, with_token):
    token = [f"Authorization: Bearer {world.scheduler.token()}"] if with_token else []
    statuses, data, _ = answers_to(world, request(HOST, *token, "Connection: close", target=target))
    assert statuses == [400], data


@pytest.mark.parametrize("target,host", [
    ("http://127.0.0.1/health", "127.0.0.1"), ("http://127.0.0.1:80/health", "127.0.0.1"),
    ("http://LOCALHOST:8080/health", "localhost:8080"), ("HTTP://127.0.0.1/health?x=1", "127.0.0.1"),
    ("https://127.0.0.1:443/health", "127.0.0.1"), ("http://[::1]:8080/health", "[::1]:8080")])
def test_a_target_for_the_host_that_is_named_is_answered(world, target, host):
    assert answers_to(world, request(f"Host: {host}", "Connection: close", target=target))[0] == [200]


def test_creating_a_service_is_safe_to_repeat(world):
    api = world.api()
    body = {"name": "web", "job": {"spec": {"command": ["sleep", "1000"]}}}

    def create(key, sent=body):
        return api.call("POST", "/v1/services", sent, {"Idempotency-Key": key} if key else None)

    status, first, _ = create("once")
    assert status in (200, 201), first
    again = create("once")
    assert (again[0], again[1].get("record_id")) == (status, first["record_id"]), again
    assert create("once", {**body, "replicas": 2})[0] == 409
    assert create("other")[0] == 409 and create(None)[0] == 409
    status, refused, _ = create("k" * 129)
    assert status == 400 and "Idempotency-Key" in refused["error"], refused
