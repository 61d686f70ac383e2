"""What a server must withstand: each gets its answer, and the next client is served."""

import json
import socket

import pytest
from conftest import Answer, read_all, read_answer


def post(scheduler, body):
    return scheduler.call("POST", "/api/v1/jobs", body)


@pytest.fixture(autouse=True)
def service_goes_on(scheduler):
    yield
    assert scheduler.process.poll() is None
    assert scheduler.call("GET", "/health").status == 200


def test_a_command_that_is_a_string_is_told_to_be_an_array(scheduler):
    answer = post(scheduler, {"command": "python train.py"})
    assert answer.status == 400
    assert answer.json["field"] == "command"
    assert "command must be an array of strings" in answer.json["error"]


@pytest.mark.parametrize("field", ["gpu_count", "gpu_memory_mb", "cpu_cores", "memory_mb", "max_runtime_minutes", "retries"])
@pytest.mark.parametrize("value", [-1, -(2**63), 10**30, "1", [1], {"a": 1}, True])
def test_wrong_numbers_name_their_field(scheduler, field, value):
    answer = post(scheduler, {"script": "true", field: value})
    assert answer.status == 400, answer.raw
    assert answer.json["field"] == field
    assert answer.json["code"] == "invalid_argument"


@pytest.mark.parametrize("field", ["name", "script", "image", "tenant_id", "gpu_model", "working_directory"])
@pytest.mark.parametrize("value", [1, ["a"], {"a": "b"}, False])
def test_what_is_no_string_names_its_field(scheduler, field, value):
    answer = post(scheduler, {"script": "true", field: value})
    assert answer.status == 400
    assert answer.json["field"] == field


@pytest.mark.parametrize("field", ["environment", "labels"])
@pytest.mark.parametrize("value", ["A=B", ["A=B"], {"A": 1}, {"A": {"B": "C"}}, 1])
def test_what_is_no_map_of_strings_names_its_field(scheduler, field, value):
    answer = post(scheduler, {"script": "true", field: value})
    assert answer.status == 400
    assert answer.json["field"] == field


@pytest.mark.parametrize("tenant", ["tenant-999999999", "nobody", "tenant-", "tenant-0", "tenant-01", "TENANT-1", "x" * 200])
def test_an_unknown_tenant_is_404(scheduler, tenant):
    answer = post(scheduler, {"script": "true", "tenant_id": tenant})
    assert answer.status == 404
    assert answer.json["code"] == "tenant_not_found"
    assert answer.json["field"] == "tenant_id"


@pytest.mark.parametrize("body", [{"script": "a", "command": ["b"]}, {"name": "x"}, {}, {"command": [], "script": ""}])
def test_senseless_jobs_are_422(scheduler, body):
    assert post(scheduler, body).status == 422


def test_an_image_where_no_node_runs_containers_is_422_for_who_requires_a_node(scheduler):
    answer = post(scheduler, {"image": "ubuntu:22.04", "require_feasible": True})
    assert answer.status == 422
    assert answer.json["code"] == "image_unsupported" and answer.json["field"] == "image"


@pytest.mark.parametrize("body", [
    b"", b" ", b"{", b"}", b"[]", b"null", b"7", b'"x"', b'{"script":"x"', b'{"script":"x"}x', b'{"script":"x",}',
    b"{'script':'x'}", b'{"script":"\xff"}', b'{"script":"\xc0\x80"}', b'{"script":"\xed\xa0\x80"}', b'{"script":"\\ud800"}',
    b'{"script":"a\nb"}', b'{"a":NaN}', b"\x00", b"\xff\xfe{}", b'{"a":1}' * 2])
def test_what_is_no_json_object_is_malformed(scheduler, body):
    answer = post(scheduler, body)
    assert answer.status == 400
    assert answer.json["code"] == "malformed_json"


@pytest.mark.parametrize("levels", [32, 1_000, 1_000_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_deep_json_is_refused(scheduler, levels, brackets):
    begin = b"[" if brackets == "[]" else b'{"a":'
    answer = post(scheduler, b'{"script":"x","deep":' + begin * (levels if brackets == "[]" else levels // 2))
    assert answer.status == 400
    assert answer.json["code"] == "malformed_json"


def test_nul_characters_are_refused(scheduler):
    for body in ({"script": "a\0b"}, {"command": ["a\0"]}, {"script": "a", "environment": {"A": "\0"}},
                 {"script": "a", "environment": {"A\0B": "x"}}, {"script": "a", "name": "\0"}):
        answer = post(scheduler, body)
        assert answer.status == 400, body
        assert "NUL" in answer.json["error"]


def test_long_things_have_limits(scheduler):
    assert post(scheduler, {"script": "x", "name": "n" * 254}).json["field"] == "name"
    assert post(scheduler, {"command": ["x"] * 4097}).json["field"] == "command"
    assert post(scheduler, {"script": "x", "environment": {f"V{i}": "" for i in range(1025)}}).json["field"] == "environment"
    assert post(scheduler, {"script": "x", "labels": {f"l{i}": "" for i in range(65)}}).json["field"] == "labels"
    assert post(scheduler, {"script": "s" * (1 << 20)}).status == 413
    assert post(scheduler, {"script": "#!/bin/sh\n" + "s" * 1_000_000}).status == 201
    # No program starts with a longer argument or variable: the node would fail three times.
    longest = 128 * 1024 - 1
    assert post(scheduler, {"script": "s" * longest}).status == 201
    assert post(scheduler, {"script": "s" * (longest + 1)}).json["field"] == "script"
    assert post(scheduler, {"command": ["x", "y" * (longest + 1)]}).json["field"] == "command"
    assert post(scheduler, {"script": "x", "args": ["y" * (longest + 1)]}).json["field"] == "args"
    assert post(scheduler, {"script": "x", "environment": {"V": "y" * (longest - 1)}}).json["field"] == "environment"
    assert scheduler.call("POST", "/api/v1/jobs", {"script": "x"}, {"Idempotency-Key": "k" * 129}).status == 400


def test_a_body_of_100_mb_is_refused_without_reading_it_all(scheduler):
    with scheduler.connect() as connection:
        connection.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n")
        sent = 0
        try:
            while sent < 100:
                connection.sendall(b"x" * (1 << 20))
                sent += 1
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = Answer(read_all(connection))
    assert sent < 100
    assert answer.status == 413
    assert answer.json["code"] == "too_large"


def test_a_client_that_asks_before_a_huge_body_is_told_at_once(scheduler):
    with scheduler.connect() as connection:
        connection.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n"
                           b"Expect: 100-continue\r\n\r\n")
        assert Answer(read_all(connection)).status == 413


def test_long_headers_are_refused(scheduler):
    assert scheduler.call("GET", "/health", b"", {"X-Long": "x" * 20_000}).status == 431
    assert scheduler.call("GET", "/health?" + "x" * 20_000).status == 431


def test_a_thousand_slow_connections_do_not_stop_service(scheduler):
    slow = []
    try:
        for i in range(1_000):
            connection = socket.create_connection(("127.0.0.1", scheduler.ports["http"]), timeout=60)
            slow.append(connection)
            connection.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{" if i % 2 else b"GET /he")
        for _ in range(10):
            scheduler.submit()
        # One of them goes on, and is served.
        slow[0].sendall(b"alth HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(slow[0]).status == 200
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.parametrize("method,path,allowed", [
    ("PUT", "/api/v1/jobs", "GET"), ("DELETE", "/api/v1/jobs", "POST"), ("POST", "/api/v1/jobs/job-1", "DELETE"),
    ("PATCH", "/api/v1/tenants/tenant-1", "PUT"), ("POST", "/health", "GET"), ("DELETE", "/api/v1/cluster/status", "GET"),
    ("BREW", "/api/v1/jobs", "GET")])
def test_a_wrong_method_is_405_and_says_which_are_right(scheduler, method, path, allowed):
    answer = scheduler.call(method, path)
    assert answer.status == 405
    assert allowed in answer.headers["allow"].split(", ")
    assert answer.json["code"] == "method_not_allowed"


def test_head_is_get_without_a_body(scheduler):
    get = scheduler.call("GET", "/api/v1/tenants")
    head = scheduler.call("HEAD", "/api/v1/tenants")
    assert head.status == 200 and head.body == b""
    assert head.headers["content-length"] == get.headers["content-length"]


def test_options_name_the_methods(scheduler):
    answer = scheduler.call("OPTIONS", "/api/v1/jobs")
    assert answer.status == 204 and answer.body == b""
    assert {"GET", "HEAD", "POST", "OPTIONS"} <= set(answer.headers["allow"].split(", "))


@pytest.mark.parametrize("path", ["/ui", "/ui/nothing", "/api", "/api/v1", "/api/v2/jobs", "/api/v1/nothing", "/api/v1/jobs/job-1/nothing",
                                  "//api/v1/jobs", "/api/v1/../v1/jobs", "/API/v1/jobs", "/api/v1/jobs%2f"])
def test_unknown_paths_are_404(scheduler, path):
    answer = scheduler.call("GET", path)
    assert answer.status == 404
    assert answer.json["code"] in ("not_found", "job_not_found")


@pytest.mark.parametrize("job", ["job-0", "job-01", "job-99999999999999999999", "1", "job-1x", "%00", "%", "job-%zz", "job--1"])
def test_what_is_no_job_is_404_or_400(scheduler, job):
    answer = scheduler.call("GET", f"/api/v1/jobs/{job}")
    assert answer.status in (400, 404)
    assert answer.json["error"]


@pytest.mark.parametrize("query", ["limit=-1", "limit=x", "offset=-1", "state=nonsense", "limit=1%", "offset=99999999999999999999"])
def test_wrong_parameters_are_400(scheduler, query):
    assert scheduler.call("GET", f"/api/v1/jobs?{query}").status == 400


def test_wrong_waits_are_400(scheduler):
    job = scheduler.submit()
    for wait in ("x", "-1s", "1y", "1.5s", "601s", "1h"):
        for path in ("/api/v1", "/v1"):
            assert scheduler.call("GET", f"{path}/jobs/{job}?wait={wait}").json["field"] == "wait", wait


@pytest.mark.parametrize("data", [
    b"\r\n\r\n\r\nhello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header: y\r\n\r\n",
    b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /api/v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"])
def test_what_is_no_http_is_refused_and_closed(scheduler, data):
    answer = scheduler.raw(data)
    assert answer.status == 400
    assert answer.headers["connection"] == "close"


def test_half_a_request_and_gone_harms_nobody(scheduler):
    for data in (b"", b"G", b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 50\r\n\r\n{\"script\":"):
        with scheduler.connect() as connection:
            connection.sendall(data)


def test_a_chunked_body_is_read(scheduler):
    body = json.dumps({"script": "true", "name": "chunked"}).encode()
    data = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    for i in range(0, len(body), 7):
        piece = body[i:i + 7]
        data += f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    assert scheduler.raw(data + b"0\r\n\r\n").status == 201


def test_many_keys_cost_no_more_than_their_length(scheduler):
    body = b'{"script":"true",' + b",".join(b'"k%d":%d' % (i, i) for i in range(200_000)) + b"}"
    assert post(scheduler, body).status == 201
