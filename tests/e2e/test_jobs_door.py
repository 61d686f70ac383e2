"""The jobs door by clients that its contract makes: gRPC generated from the .proto file, and the WebSocket."""

import base64
import hashlib
import json
import os
import socket
import subprocess
import sys
import urllib.request

import pytest
from harness import PATIENCE_S, ROOT, wait_until

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")
pytestmark = pytest.mark.shared_world


# --- gRPC ---


@pytest.fixture(scope="module", name="contract")
def contract_fixture(session_folder):
    """The generated messages of the package `scheduler`."""
    out = session_folder / "jobs-door"
    out.mkdir()
    done = subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={out}",
                           "scheduler/scheduler.proto"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(out))
    try:
        from scheduler import scheduler_pb2
    finally:
        sys.path.remove(str(out))
    return scheduler_pb2


class Stub:
    """scheduler.SchedulerService as the descriptor has it: a method each, by its name."""

    def __init__(self, scheduler, contract):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{scheduler.ports['grpc']}")
        self.metadata = (("authorization", f"Bearer {scheduler.token()}"),)
        service = contract.DESCRIPTOR.services_by_name["SchedulerService"]
        for method in service.methods:
            setattr(self, method.name, self._method(contract, method))

    def _method(self, contract, method):
        assert not method.client_streaming and not method.server_streaming
        request = getattr(contract, method.input_type.name)
        rpc = self.channel.unary_unary(f"/scheduler.SchedulerService/{method.name}",
                                       request_serializer=request.SerializeToString,
                                       response_deserializer=getattr(contract, method.output_type.name).FromString)
        return lambda **fields: rpc(request(**fields), timeout=PATIENCE_S, wait_for_ready=True,
                                    metadata=self.metadata)


@pytest.fixture(name="stub")
def stub_fixture(world, contract):
    stub = Stub(world.scheduler, contract)
    yield stub
    stub.channel.close()


def refusal(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def test_the_service_has_the_seven_calls_of_its_contract(contract):
    service = contract.DESCRIPTOR.services_by_name["SchedulerService"]
    assert {method.name for method in service.methods} == {
        "SubmitJob", "CancelJob", "GetJobStatus", "ListJobs", "UpdateTenantQuota", "GetMetrics", "GetClusterStatus"}


def test_a_job_by_grpc_from_its_submission_to_its_end(world, stub):
    submitted = stub.SubmitJob(name="train", command=["sh", "-c", "exit 3"], gpu_count=1, environment={"A": "b"},
                               labels={"team": "vision"}, priority=200)
    assert (submitted.status, submitted.message) == ("submitted", "Job submitted successfully")
    world.api().wait_for(submitted.job_id, "failed")
    status = stub.GetJobStatus(job_id=submitted.job_id)
    assert (status.job_id, status.state) == (submitted.job_id, "failed")
    assert status.allocated_gpus and status.node_name == "n1"
    assert status.submitted_at.seconds <= status.started_at.seconds <= status.completed_at.seconds
    listed = stub.ListJobs(state="failed", limit=10)
    (info,) = [job for job in listed.jobs if job.job_id == submitted.job_id]
    assert (info.name, info.state, info.gpu_count, info.priority) == ("train", "failed", 1, 200)
    assert listed.total == len(listed.jobs)
    assert refusal(lambda: stub.CancelJob(job_id=submitted.job_id))[0] == grpc.StatusCode.FAILED_PRECONDITION
    assert refusal(lambda: stub.GetJobStatus(job_id="job-999999"))[0] == grpc.StatusCode.NOT_FOUND
    assert refusal(lambda: stub.SubmitJob(gpu_count=-1, script="true"))[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_a_job_of_rest_is_cancelled_by_grpc(world, stub):
    job = world.api().submit("sleep 1000")
    world.api().wait_for(job, "running")
    assert stub.CancelJob(job_id=job).success
    world.api().wait_for(job, "cancelled")


def test_a_quota_by_grpc_holds_for_rest(world, stub):
    tenant = world.api().call("POST", "/api/v1/tenants", {"name": "lab", "max_gpus": 4, "max_cpu_cores": 64})[1]
    answer = stub.UpdateTenantQuota(tenant_id=tenant["id"], max_gpus=1, max_concurrent_jobs=7)
    assert answer.success and answer.message == "Tenant quota updated successfully"
    shown = world.api().call("GET", f"/api/v1/tenants/{tenant['id']}")[1]
    # A zero is not given: what stands there stays.
    assert (shown["max_gpus"], shown["max_concurrent_jobs"], shown["max_cpu_cores"]) == (1, 7, 64)
    code, details = refusal(lambda: stub.SubmitJob(tenant_id=tenant["id"], gpu_count=2, script="true"))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "quota exceeded" in details
    assert refusal(lambda: stub.UpdateTenantQuota(max_gpus=1))[0] == grpc.StatusCode.INVALID_ARGUMENT
    assert refusal(lambda: stub.UpdateTenantQuota(tenant_id="no-such", max_gpus=1))[0] == grpc.StatusCode.NOT_FOUND


def test_metrics_by_grpc_tell_what_runs_now(world, stub):
    api = world.api()
    before = stub.GetMetrics().metrics
    jobs = [api.submit("sleep 1000") for _ in range(3)]
    for job in jobs:
        api.wait_for(job, "running")
    during = stub.GetMetrics().metrics
    assert during["jobs_running"] == before["jobs_running"] + 3
    for job in jobs:
        api.cancel(job)
        api.wait_for(job, "cancelled")
    after = stub.GetMetrics()
    assert after.metrics["jobs_running"] == before["jobs_running"]
    assert after.metrics["jobs_cancelled"] == before["jobs_cancelled"] + 3
    assert after.timestamp.seconds > 0
    assert set(stub.GetMetrics(metric_type="jobs_").metrics) == {
        name for name in after.metrics if "jobs_" in name}


def test_the_cluster_by_grpc(world, stub):
    job = world.api().submit("sleep 1000", gpu_count=1)
    world.api().wait_for(job, "running")
    cluster = stub.GetClusterStatus()
    (node,) = cluster.nodes
    assert (node.name, node.online, node.total_gpus, node.available_gpus) == ("n1", True, 4, 3)
    assert (cluster.total_gpus, cluster.available_gpus, cluster.total_nodes, cluster.online_nodes) == (4, 3, 1, 1)
    assert cluster.running_jobs == world.api().call("GET", "/api/v1/cluster/status")[1]["running_jobs"] > 0


# --- The WebSocket ---


class Watch:
    """GET /api/v1/ws: what it sends, a dictionary each."""

    def __init__(self, scheduler, query="", token=None, headers=()):
        self.socket = socket.create_connection(("127.0.0.1", scheduler.ports["http"]), timeout=PATIENCE_S)
        key = base64.b64encode(os.urandom(16)).decode()
        head = [f"GET /api/v1/ws{query} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket",
                "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}",
                f"Authorization: Bearer {token or scheduler.token()}", *headers]
        self.socket.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
        self.bytes = b""
        self.head = self._until(b"\r\n\r\n").decode()
        self.status = int(self.head.split(" ")[1])
        if self.status == 101:
            accept = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            assert base64.b64encode(accept).decode() in self.head

    def close(self):
        self.socket.close()

    def _more(self):
        piece = self.socket.recv(65536)
        assert piece, "the connection has ended"
        self.bytes += piece

    def _until(self, end):
        while end not in self.bytes:
            self._more()
        head, _, self.bytes = self.bytes.partition(end)
        return head

    def _take(self, count):
        while len(self.bytes) < count:
            self._more()
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken

    def frame(self):
        first, length = self._take(2)
        if length == 126:
            length = int.from_bytes(self._take(2), "big")
        elif length == 127:
            length = int.from_bytes(self._take(8), "big")
        return first & 15, self._take(length)

    def message(self):
        while True:
            opcode, data = self.frame()
            if opcode == 9:
                continue
            assert opcode == 1, (opcode, data)
            return json.loads(data)

    def until(self, wanted):
        """Messages up to the first that is wanted."""
        seen = []
        while not seen or not wanted(seen[-1]):
            seen.append(self.message())
        return seen


@pytest.fixture(name="watch")
def watch_fixture(world):
    opened = []

    def open_one(query="", **more):
        opened.append(Watch(world.scheduler, query, **more))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def state_of(message, job):
    return message["job"]["state"] if message["type"] == "job" and message["job"]["id"] == job else None


def test_a_watch_tells_of_each_job_that_changes(world, watch):
    sight = watch()
    begin = sight.message()
    assert begin["type"] == "begin" and begin["sequence"] > 0
    job = world.api().submit("sleep 1000", gpu_count=1)
    sight.until(lambda message: state_of(message, job) == "running")
    shown = world.api().job(job)
    world.api().cancel(job)
    last = sight.until(lambda message: state_of(message, job) == "cancelled")[-1]
    # The same members as in lists.
    (listed,) = [one for one in world.api().jobs() if one["id"] == job]
    assert set(last["job"]) >= set(listed) - {"warnings"}
    assert shown["state"] == "running"


def test_a_watch_of_a_state_says_when_a_job_left_it(world, watch):
    sight = watch("?state=running&nodes=false")
    assert sight.message()["type"] == "begin"
    job = world.api().submit("sleep 1000")
    sight.until(lambda message: state_of(message, job) == "running")
    world.api().cancel(job)
    seen = sight.until(lambda message: message["type"] == "left" and message["job_id"] == job
                       and message["state"] == "cancelled")
    assert {message["type"] for message in seen} <= {"job", "left"}


def test_a_watch_tells_of_nodes(world, watch):
    sight = watch()
    world.cli("node", "drain", "n1", "--reason", "a new driver", expected=0)
    drained = sight.until(lambda message: message["type"] == "node" and message["node"]["state"] == "drained")[-1]
    assert drained["node"]["name"] == "n1"
    world.cli("node", "resume", "n1", expected=0)
    sight.until(lambda message: message["type"] == "node" and message["node"]["state"] == "ready")


def newest_sequence(messages):
    return [message["sequence"] for message in messages if "sequence" in message][-1]


def test_a_watch_is_resumed_without_gap_or_repetition(world, watch):
    api = world.api()
    sight = watch("?nodes=false")
    begin = sight.message()
    old = api.submit("true")
    api.wait_for(old, "completed")
    told = [begin, *sight.until(lambda message: state_of(message, old) == "completed" and "sequence" in message)]
    after = newest_sequence(told)
    sight.close()
    missed = [api.submit("true") for _ in range(20)]
    for job in missed:
        api.wait_for(job, "completed")
    resumed = watch(f"?nodes=false&after_sequence={after}")
    assert resumed.message() == {"type": "begin", "sequence": after}
    last = api.submit("sleep 1000")
    seen = resumed.until(lambda message: state_of(message, last) == "running")
    ends = [message["job"]["id"] for message in seen if message["job"]["state"] == "completed"]
    assert sorted(ends) == sorted(missed), "each that was missed once, and none that was told"


@pytest.mark.own_world
def test_a_watch_that_cannot_be_resumed_says_so(world, watch):
    sight = watch("?nodes=false")
    before = sight.message()["sequence"]
    world.api().wait_for(world.api().submit("true"), "completed")
    world.scheduler.kill()
    world.scheduler.start()
    resumed = watch(f"?nodes=false&after_sequence={before}")
    begin = resumed.message()
    assert begin["type"] == "begin" and begin["sequence"] > before
    assert resumed.message() == {"type": "resync"}
    job = world.api().submit("true")
    resumed.until(lambda message: state_of(message, job) == "completed")


def test_a_watch_tells_nothing_of_other_tenants(world, watch):
    api = world.api()
    ours = api.call("POST", "/api/v1/tenants", {"name": "ours"})[1]["id"]
    theirs = api.call("POST", "/api/v1/tenants", {"name": "theirs"})[1]["id"]
    key = json.loads(world.cli("--json", "key", "create", "viewer-of-ours", "--role", "viewer", "--tenant", "ours",
                               expected=0).stdout)
    sight = watch(token=key["secret"])
    assert sight.message()["type"] == "begin"
    hidden = api.submit("true", tenant_id=theirs)
    api.wait_for(hidden, "completed")
    seen = api.submit("true", tenant_id=ours)
    told = sight.until(lambda message: state_of(message, seen) == "completed")
    assert hidden not in json.dumps(told)
    # The key ends, and with it the watch; the reason is said first.
    world.cli("key", "revoke", key["key"]["key_id"] if "key" in key else key["key_id"], expected=0)
    last = sight.until(lambda message: message["type"] == "ended")[-1]
    assert last["code"] and last["error"]
    assert sight.frame()[0] == 8


def test_what_is_no_websocket_is_refused_with_a_sentence(world, watch):
    status, answer, _ = world.api().call("GET", "/api/v1/ws")
    assert (status, answer["code"]) == (400, "invalid_argument") and "Sec-WebSocket-Key" in answer["error"]
    assert watch("?state=sleeping").status == 400
    assert watch("?tenant_id=tenant-424242").status == 404
    assert watch(token="wrong-token-of-nobody").status == 401


@pytest.mark.own_world
def test_a_watch_ends_with_the_scheduler_and_not_before(world, watch):
    sight = watch()
    assert sight.message()["type"] == "begin"
    world.scheduler.restart()
    with pytest.raises((AssertionError, ConnectionError)):
        while True:
            sight.frame()
    again = watch()
    job = world.api().submit("true")
    again.until(lambda message: state_of(message, job) == "completed")


def test_fifty_watches_that_are_left_leave_nothing_open(world, watch):
    def calls_open():
        with urllib.request.urlopen(f"http://127.0.0.1:{world.scheduler.ports['metrics']}/metrics") as answer:
            text = answer.read().decode()
        (line,) = [line for line in text.splitlines() if line.startswith('gpu_scheduler_calls_open{server="http"}')]
        return int(line.split()[-1])

    first = watch()
    assert first.message()["type"] == "begin"
    before = calls_open()
    assert before >= 1
    for _ in range(50):
        sight = watch()
        assert sight.status == 101
        sight.close()
    wait_until("all are gone", lambda: calls_open() <= before)
