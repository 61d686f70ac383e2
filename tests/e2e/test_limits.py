"""Limits by caller: one that asks for too much is refused, and everybody else, the operator first, goes on."""

import contextlib
import http.client
import itertools
import json
import re
import socket
import threading
import urllib.request

import pytest
from harness import wait_until


@pytest.fixture(name="world_of")
def world_of_fixture(new_world):
    def start(files=None, **settings):
        world = new_world(**settings)
        if files:
            world.scheduler.prefix = ["prlimit", f"--nofile={files}"]
        world.scheduler.start()
        return world

    return start


def make_key(world, name):
    """A client with a new key of the cluster, which may submit jobs and end its own."""
    done = world.cli("key", "create", name, "--role", "user", expected=0)
    return world.scheduler.api(token=done.stdout.strip())


def refusals(world, reason):
    url = f"http://127.0.0.1:{world.scheduler.ports['metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    return int(re.search(rf'^gpu_scheduler_calls_refused_total\{{reason="{reason}"\}} (\d+)$', text, re.M)[1])


def assert_everybody_else_goes_on(world, other):
    """Another caller submits and reads; health, metrics and the operator's verbs are answered."""
    job = other.submit("true")
    assert other.call("GET", f"/v1/jobs/{job}")[0] == 200
    assert world.scheduler.api(anonymous=True).call("GET", "/health")[0] == 200
    assert world.scheduler.api(anonymous=True).call("GET", "/api/v1/health")[0] == 200
    assert refusals(world, "streams") >= 0
    world.cli("pause", expected=0)
    world.cli("resume", expected=0)
    world.cli("cancel", job, expected=0)


class Flood:
    """Sends one request over and over on connections of its own until the end of a block."""

    def __init__(self, world, path, authorizations, connections=4):
        self.port, self.path, self.authorizations = world.scheduler.ports["http"], path, authorizations
        self.answers, self.ended = {}, threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(connections)]

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.ended.is_set():
            connection.request("GET", self.path, headers={"Authorization": f"Bearer {next(self.authorizations)}"})
            answer = connection.getresponse()
            kind = answer.status, json.loads(answer.read()).get("code"), answer.getheader("Retry-After") is not None
            with self.lock:
                self.answers[kind] = self.answers.get(kind, 0) + 1
        connection.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def wait_for(self, kind, count):
        wait_until(f"{count} answers {kind}, among {self.answers}", lambda: self.answers.get(kind, 0) >= count)


class WrongKeys:
    """Keys of the right form that nobody has, another one each time."""

    def __init__(self):
        self.numbers, self.lock = itertools.count(), threading.Lock()

    def __next__(self):
        with self.lock:
            return f"gsk_zzzzzzzzzzzz.{next(self.numbers):064}"


def test_a_flood_by_one_key_is_held_to_its_rate_and_to_nobody_elses(world_of):
    world = world_of(API_CALLER_RATE_LIMIT_RPS="100", API_CALLER_RATE_BURST="200")
    flooding, other = make_key(world, "flood"), make_key(world, "other")
    with Flood(world, "/v1/jobs", itertools.repeat(flooding.token)) as flood:
        flood.wait_for((429, "rate_limited", True), 1_000)
        assert_everybody_else_goes_on(world, other)
    assert flood.answers[200, None, False] >= 200
    assert set(flood.answers) == {(200, None, False), (429, "rate_limited", True)}
    assert refusals(world, "caller_rate") >= 1_000
    status, body, headers = flooding.call("GET", "/v1/jobs")
    if status == 429:
        assert int(headers["Retry-After"]) >= 1 and "api.caller_rate_limit_rps" in body["error"]


def test_wrong_credentials_without_end_lock_out_none_of_their_address(world_of):
    world = world_of(API_FAILED_CREDENTIALS_RPS="1", API_FAILED_CREDENTIALS_BURST="20")
    known = make_key(world, "known")
    with Flood(world, "/v1/jobs", WrongKeys()) as flood:
        flood.wait_for((429, "rate_limited", True), 2_000)
        assert_everybody_else_goes_on(world, known)
        # A key that nobody has shown yet is found by its prefix.
        assert make_key(world, "fresh").call("GET", "/v1/jobs")[0] == 200
    assert set(flood.answers) == {(401, "unauthenticated", False), (429, "rate_limited", True)}
    assert 20 <= flood.answers[401, "unauthenticated", False] < 200
    assert refusals(world, "failed_credentials") >= 2_000


def test_wrong_credentials_over_rest_count_over_grpc_too(world_of):
    grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
    world = world_of(API_FAILED_CREDENTIALS_RPS="0.001", API_FAILED_CREDENTIALS_BURST="5")
    good = make_key(world, "good")
    wrong = world.scheduler.api(token="wrong")
    assert [wrong.call("GET", "/v1/jobs")[0] for _ in range(7)] == [401] * 5 + [429] * 2
    with grpc.insecure_channel(f"127.0.0.1:{world.scheduler.ports['grpc']}") as channel:
        get_cluster = channel.unary_unary("/gpusched.v1.Scheduler/GetCluster")
        get_cluster(b"", metadata=[("authorization", f"Bearer {good.token}")], timeout=60, wait_for_ready=True)
        with pytest.raises(grpc.RpcError) as refused:
            get_cluster(b"", metadata=[("authorization", "Bearer another")], timeout=60)
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    trailers = dict(refused.value.trailing_metadata())
    assert trailers["gpusched-code"] == "rate_limited" and int(trailers["grpc-retry-pushback-ms"]) >= 1_000


@contextlib.contextmanager
def held_open(port, request_bytes, count):
    """Connections that have sent a request and wait for its answer."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(request_bytes)
            clients.append(client)
        yield clients


def get(path, token):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def test_who_waits_for_everything_at_once_leaves_room_for_others(world_of):
    world = world_of(files=656)  # Room for 200 connections.
    waiting, other = make_key(world, "waiting"), make_key(world, "other")
    job = waiting.submit("sleep 1000")
    with held_open(world.scheduler.ports["http"], get(f"/api/v1/jobs/{job}?wait=600s", waiting.token), 180) as clients:
        wait_until("some are refused", lambda: refusals(world, "calls") >= 80)
        assert_everybody_else_goes_on(world, other)
        # What ends work is let in where the rest is not: by the operator, of whom no connection is left.
        world.cli("cancel", job, expected=0)
        answers = [client.recv(65_536) for client in clients]
    refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 429 ")]
    assert all(b"\r\nRetry-After: 1\r\n" in answer and b'"code":"caller_limit"' in answer for answer in refused)
    assert sum(answer.startswith(b"HTTP/1.1 200 ") for answer in answers) == len(answers) - len(refused) >= 90
    wait_until("its place is its own again", lambda: waiting.call("GET", f"/v1/jobs/{job}")[0] == 200)


def test_streams_of_one_key_are_bounded_and_given_back(world_of):
    world = world_of(API_CALLER_STREAMS_MAX="3")
    watching, other = make_key(world, "watching"), make_key(world, "other")
    job = watching.submit("sleep 1000")
    watch = get(f"/v1/jobs/{job}/watch", watching.token)

    def heads(clients):
        return [client.recv(4_096).split(b"\r\n")[0].split()[1] for client in clients]

    with held_open(world.scheduler.ports["http"], watch, 3) as clients:
        assert heads(clients) == [b"200"] * 3
        with held_open(world.scheduler.ports["http"], watch, 5) as beyond:
            assert heads(beyond) == [b"429"] * 5
        assert refusals(world, "streams") == 5
        assert watching.call("GET", f"/v1/jobs/{job}")[0] == 200
        assert_everybody_else_goes_on(world, other)

    def opens():
        with held_open(world.scheduler.ports["http"], watch, 1) as again:
            return heads(again) == [b"200"]

    wait_until("a place is free again", opens)


def test_nobody_has_more_jobs_waiting_than_are_left_for_others(world_of):
    world = world_of(SCHEDULER_MAX_QUEUE_SIZE=1000)
    anyone, api = world.scheduler.api(anonymous=True), world.api()
    open_tenants = [anyone.post("/tenants", {"name": f"open-{number}"}, 201)["id"] for number in range(6)]
    lab = api.post("/tenants", {"name": "lab"}, 201)["id"]

    def sweep(who, tenant, count):
        body = {"command": ["true"], "gpu_count": 1, "tenant_id": tenant, "array": f"0-{count - 1}"}
        status, answer, headers = who.call("POST", "/api/v1/jobs", body)
        if status == 201:
            return answer["job_id"]
        assert (status, answer["code"]) == (429, "queue_full"), answer
        assert "left free for others" in answer["error"] or "the queue is full" in answer["error"]
        assert ("Retry-After" in headers) == (count <= 500 or count > 1000)
        return None

    # One without a credential floods, by one tenant and by many.
    for count in (100_000, 999, 501):
        assert sweep(anyone, open_tenants[0], count) is None
    first = sweep(anyone, open_tenants[0], 400)
    assert first and sweep(anyone, open_tenants[1], 101) is None
    assert sweep(anyone, open_tenants[1], 100)
    for tenant in open_tenants:
        assert sweep(anyone, tenant, 1) is None
    # All others still find room, each up to what is left then.
    assert sweep(api, lab, 251) is None
    assert sweep(api, lab, 200) and sweep(api, lab, 50)
    assert sweep(api, "default", 126) is None and sweep(api, "default", 125)
    # A service has no replicas beyond, and says so.
    body = {"name": "web", "replicas": 100, "tenant_id": lab, "job": {"spec": {"command": ["sleep", "600"]},
                                                                     "resources": {"gpu_count": 1}}}
    status, answer, _ = api.call("POST", "/v1/services", body)
    assert status == 429 and answer["code"] == "queue_full", answer
    # Places come back with what ends, also over a restart.
    api.cancel(first)
    world.scheduler.restart()
    assert sweep(anyone, open_tenants[2], 350) is None and sweep(anyone, open_tenants[2], 100)


def test_replicas_of_a_service_wait_within_the_tenants_share(world_of):
    world = world_of(SCHEDULER_MAX_QUEUE_SIZE=100)
    api = world.api()
    lab = api.post("/tenants", {"name": "lab"}, 201)["id"]
    body = {"name": "web", "replicas": 90, "tenant_id": lab, "job": {"spec": {"command": ["sleep", "600"]},
                                                                    "resources": {"gpu_count": 1}}}
    status, answer, _ = api.call("POST", "/v1/services", body)
    assert status == 201, answer

    def stopped():
        service = api.call("GET", f"/v1/services/web?tenant_id={lab}")[1]
        return "left free for others" in service.get("message", "") and service

    wait_until("it says why it gets no more", stopped)
    # Each look of the keeper adds some, until the tenant has its part.
    wait_until("its part waits", lambda: 40 <= int(api.call("GET", f"/v1/tenants/{lab}")[1]["waiting_jobs"]) <= 50)
    assert api.submit(["true"], gpu_count=1)
