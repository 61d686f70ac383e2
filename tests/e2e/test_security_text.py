"""Bytes that are no text: every door refuses them with a sentence, and nobody else notices."""

import json
import socket

import pytest
from harness import PATIENCE_S

NOT_UTF8 = [b"\xff", b"\xc0\x80", b"\xc1\xbf", b"\xe2\x82", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"]


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(new_module_world):
    world = new_module_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    world.add_agent("n1").start()
    return world


@pytest.fixture(scope="module", name="job")
def job_fixture(cluster):
    job = cluster.api().submit("echo said; exec sleep 1000")
    cluster.api().wait_for(job, "running")
    return job


def exchange(world, request):
    """The status and the body of the answer to bytes as they are."""
    with socket.create_connection(("127.0.0.1", world.scheduler.ports["http"]), timeout=PATIENCE_S) as client:
        client.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < length_of(answer):
            piece = client.recv(65_536)
            if not piece:
                break
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def length_of(answer):
    for line in answer.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def request(method, target, *headers, body=b"", token=None):
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: 127.0.0.1", *headers]
    if token:
        lines.append(b"Authorization: Bearer " + token.encode())
    if body:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def percent(data):
    return b"".join(b"%%%02X" % byte for byte in data)


def is_refused(world, sent):
    status, body = exchange(world, sent)
    assert status == 400, (status, body)
    assert "UTF-8" in json.loads(body)["error"], body


def the_node_serves_on(world, job):
    assert world.api().wait_node("n1", timeout_s=5)
    assert world.api().output(job) == "said\n"


@pytest.mark.parametrize("bad", NOT_UTF8, ids=lambda bad: bad.hex())
@pytest.mark.parametrize("encode", [percent, bytes], ids=["escaped", "raw"])
def test_a_query_that_is_no_text_reaches_no_node(cluster, job, encode, bad):
    job_id = job.encode()
    for target in (b"/v1/jobs/" + job_id + b"/files?path=", b"/v1/jobs/" + job_id + b"/log?grep=",
                   b"/api/v1/jobs/" + job_id + b"/logs?grep=", b"/api/v1/jobs?tenant_id=", b"/v1/jobs?state=",
                   b"/api/v1/nodes?x", b"/api/v1/tasks?status="):
        is_refused(cluster, request(b"GET", target + b"a" + encode(bad) + b"z", token=cluster.scheduler.token()))
    the_node_serves_on(cluster, job)


@pytest.mark.parametrize("bad", NOT_UTF8, ids=lambda bad: bad.hex())
def test_a_path_that_is_no_text_is_refused(cluster, job, bad):
    for method, target in ((b"GET", b"/api/v1/jobs/"), (b"DELETE", b"/v1/node-identities/"), (b"GET", b"/v1/nodes/"),
                           (b"POST", b"/v1/jobs/"), (b"GET", b"/"), (b"GET", b"/api/gpuscheduler/v1/gpu/")):
        for token in (None, cluster.scheduler.token()):
            status, body = exchange(cluster, request(method, target + percent(bad), token=token))
            assert b"UTF-8" in body, (method, target, status, body)
            assert status == (422 if b"gpuscheduler" in target else 400), (method, target, status, body)
    the_node_serves_on(cluster, job)


@pytest.mark.parametrize("bad", NOT_UTF8, ids=lambda bad: bad.hex())
def test_a_header_that_is_no_text_is_refused_and_leaves_nothing(cluster, job, bad):
    for name in (b"X-Requested-By", b"Idempotency-Key", b"X-Request-Id", b"traceparent", b"Last-Event-ID", b"Origin",
                 b"Content-Type"):
        is_refused(cluster, request(b"POST", b"/v1/jobs/" + job.encode() + b"/hold", name + b": me" + bad,
                                    token=cluster.scheduler.token()))
    is_refused(cluster, request(b"GET", b"/api/v1/jobs", b"Authorization: Bearer " + bad))
    the_node_serves_on(cluster, job)


@pytest.mark.parametrize("bad", [*NOT_UTF8, b"\\ud800", b"\\udfff\\ud800"], ids=lambda bad: bad.hex())
def test_a_body_that_is_no_text_is_refused(cluster, job, bad):
    text = b'"a' + bad + b'z"'
    for method, target, body in (
            (b"POST", b"/api/v1/jobs", b'{"script":"true","name":' + text + b"}"),
            (b"POST", b"/api/v1/jobs", b'{"script":"true","labels":{"a":' + text + b"}}"),
            (b"POST", b"/v1/jobs", b'{"jobs":[{"spec":{"script":' + text + b"}}]}"),
            (b"POST", b"/api/v1/tasks", b'{"priority":"high","gpu_count":1,"command":' + text + b"}"),
            (b"POST", b"/api/v1/tenants", b'{"name":' + text + b"}"),
            (b"POST", b"/api/v1/nodes/n1:drain", b'{"reason":' + text + b"}")):
        status, answer = exchange(cluster, request(method, target, body=body, token=cluster.scheduler.token()))
        assert status in (400, 404, 422), (target, body, status, answer)
        assert status != 404 or b"drain" in target, (target, status, answer)
    the_node_serves_on(cluster, job)


@pytest.mark.parametrize("bad", NOT_UTF8, ids=lambda bad: bad.hex())
def test_a_grpc_message_that_is_no_text_is_refused(cluster, job, bad):
    grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")

    def field(number, value):
        return bytes([number << 3 | 2, len(value)]) + value

    text = b"a" + bad + b"z"
    with grpc.insecure_channel(f"127.0.0.1:{cluster.scheduler.ports['grpc']}") as channel:
        for method, message in (
                ("scheduler.SchedulerService/SubmitJob", field(2, text) + field(8, b"true")),
                ("scheduler.SchedulerService/GetJobStatus", field(1, text)),
                ("gpusched.v1.Scheduler/SubmitJobs", field(1, text)),
                ("gpusched.v1.Scheduler/GetJob", field(1, text)),
                ("gpusched.v1.Services/CreateService", field(1, text)),
                ("algogpu.GPUScheduler/SubmitTask", field(1, text))):
            call = channel.unary_unary(f"/{method}", request_serializer=bytes, response_deserializer=bytes)
            with pytest.raises(grpc.RpcError) as refused:
                call(message, timeout=PATIENCE_S, metadata=(("authorization", f"Bearer {cluster.scheduler.token()}"),))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, (method, refused.value)
    the_node_serves_on(cluster, job)


@pytest.mark.parametrize("bad", NOT_UTF8, ids=lambda bad: bad.hex())
def test_a_text_message_of_a_websocket_that_is_no_text_ends_it(cluster, job, bad):
    watch = pytest.importorskip("test_jobs_door").Watch(cluster.scheduler)
    assert watch.status == 101, watch.head
    payload = b"a" + bad + b"z"
    # A mask of zeros leaves the bytes as they are.
    watch.socket.sendall(bytes([0x81, 0x80 | len(payload)]) + bytes(4) + payload)
    opcode, data = watch.frame()
    while opcode != 8:
        opcode, data = watch.frame()
    assert int.from_bytes(data[:2], "big") == 1007, data
    watch.close()
    the_node_serves_on(cluster, job)


def test_text_of_every_plane_passes(cluster, job):
    for word in ("ä", "€", "漢", "😀", "\U0010ffff"):
        raw = word.encode()
        status, body = exchange(cluster, request(b"GET", b"/api/v1/jobs/" + job.encode() + b"/logs?grep=" + percent(raw),
                                                 b"X-Requested-By: " + raw, token=cluster.scheduler.token()))
        assert status == 200, (word, status, body)
    the_node_serves_on(cluster, job)
