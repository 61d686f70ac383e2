"""External nodes and jobs: a program that speaks the node protocol starts what the scheduler plans."""

import hashlib
import os
import queue
import re
import subprocess
import sys
import threading

import pytest
from harness import PATIENCE_S, ROOT, wait_until

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")


@pytest.fixture(scope="module", name="protocol")
def protocol_fixture(session_folder):
    """The generated modules of types.proto and node.proto."""
    out = session_folder / "proto"
    out.mkdir(exist_ok=True)  # Another module of this run may have made it.
    names = [f"gpusched/v1/{name}.proto" for name in ("types", "node")]
    done = subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={out}", *names],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(out))
    try:
        from gpusched.v1 import node_pb2, types_pb2
    finally:
        sys.path.remove(str(out))
    return node_pb2, types_pb2


class ExternalNode:
    """One external node of a program that starts jobs: it answers what it is told by the test, and keeps all orders."""

    def __init__(self, world, protocol, name, attempts=()):
        self.node_pb2, self.types_pb2 = protocol
        self.scheduler, self.name = world.scheduler, name
        self.known = list(attempts)
        self.orders, self.acknowledged, self.reports = [], set(), 0
        self.outgoing = queue.Queue()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.scheduler.ports['grpc']}")
        connect = self.channel.stream_stream("/gpusched.v1.NodeProtocol/Connect",
                                             request_serializer=self.node_pb2.AgentMessage.SerializeToString,
                                             response_deserializer=self.node_pb2.SchedulerMessage.FromString)
        self.answers = connect(iter(self.outgoing.get, None))
        self.nonce = os.urandom(32)
        self.send(hello=self.node_pb2.Hello(node_name=name, nonce=self.nonce, version="0.1.0", handshake=2))
        self.prove(next(self.answers).challenge.nonce)
        self.register()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def send(self, **body):
        self.outgoing.put(self.node_pb2.AgentMessage(**body))

    def proof(self, label, nonces):
        key = self.scheduler.token().encode()
        if len(key) > 64:
            key = hashlib.blake2b(key).digest()
        return hashlib.blake2b(label + nonces, key=key, digest_size=32).digest()

    def prove(self, nonce):
        nonces = self.nonce + nonce
        self.send(prove=self.node_pb2.Prove(proof=self.proof(b"gpusched-agent-2", nonces)))
        assert next(self.answers).proven.proof == self.proof(b"gpusched-scheduler-2", nonces)

    def register(self):
        device = self.node_pb2.Device(uuid=f"GPU-{self.name}", model="NVIDIA A100-SXM4-80GB", memory_mb=81920,
                                      condition=self.types_pb2.DEVICE_CONDITION_OK)
        self.send(register=self.node_pb2.Register(
            node_name=self.name, instance=f"cluster-of-{self.name}", boot_id=f"boot-of-{self.name}", version="0.1.0",
            cpu_milli=64_000, memory_mb=512_000, devices=[device], attempts=self.known, features=["external"],
            process=int.from_bytes(os.urandom(7), "big")))
        answer = next(self.answers)
        assert answer.HasField("registered"), answer
        self.heartbeat_s = answer.registered.heartbeat_ms / 1000
        self.closed = threading.Event()
        threading.Thread(target=self.beat, daemon=True).start()

    def beat(self):
        sequence = 0
        while not self.closed.wait(self.heartbeat_s):
            sequence += 1
            self.send(heartbeat=self.node_pb2.Heartbeat(sequence=sequence))

    def read(self):
        try:
            for message in self.answers:
                if message.HasField("ack"):
                    self.acknowledged.update(message.ack.report_ids)
                else:
                    self.orders.append(message)
        except grpc.RpcError:
            pass  # The stream is over.

    def ordered(self, kind, job_id):
        """The first order of that kind about the job's newest attempt here, once it is there."""
        number = int(job_id.removeprefix("job-"))

        def look():
            found = [getattr(one, kind) for one in self.orders if one.HasField(kind)]
            return next((one for one in reversed(found) if one.key.job == number), None)

        return wait_until(f"{self.name} is ordered to {kind} {job_id}", look)

    def report(self, **what):
        self.reports += 1
        number = self.reports
        self.send(report=self.node_pb2.Report(id=number, **what))
        wait_until(f"{self.name}'s report is acknowledged", lambda: number in self.acknowledged)

    def started(self, order):
        self.report(started=self.node_pb2.Started(key=order.key, placed_at_ns=order.placed_at_ns, started_unix_ns=1))

    def ended(self, order, **outcome):
        self.report(ended=self.node_pb2.Ended(key=order.key, placed_at_ns=order.placed_at_ns,
                                              outcome=self.types_pb2.Outcome(**outcome)))
        for device in order.devices:
            self.report(released=self.node_pb2.Released(index=device.index, generation=device.generation))

    def not_started(self, order, why):
        self.ended(order, cause=self.types_pb2.Outcome.NOT_STARTED, detail=why)

    def knows(self, order):
        return self.node_pb2.AttemptOnNode(key=order.key, devices=order.devices, placed_at_ns=order.placed_at_ns)

    def close(self):
        self.closed.set()
        self.outgoing.put(None)
        self.channel.close()
        self.reader.join(PATIENCE_S)


@pytest.fixture(name="world")
def world_fixture(new_world):
    world = new_world()
    world.scheduler.start()
    return world


@pytest.fixture(name="join")
def join_fixture(world, protocol):
    nodes = []

    def join(name, attempts=()):
        nodes.append(ExternalNode(world, protocol, name, attempts))
        return nodes[-1]

    yield join
    for node in nodes:
        node.close()


def submit(world, **spec):
    body = {"spec": {"name": "pod", "executor": "external", **spec}, "resources": {"gpu_count": 1}}
    status, answer, _ = world.api().call("POST", "/v1/jobs", body)
    assert status in (200, 201), answer
    return answer["job_ids"][0] if "job_ids" in answer else answer["jobs"][0]["job_id"]


def test_an_external_job_is_ordered_started_and_ended_by_its_node(world, join):
    node = join("k1")
    job = submit(world, labels={"pod": "lab/train-0"})
    order = node.ordered("start", job)
    spec = node.types_pb2.JobSpec.FromString(order.spec)
    assert spec.executor == "external" and spec.labels["pod"] == "lab/train-0"
    assert [(one.index, one.uuid) for one in order.devices] == [(0, "GPU-k1")]
    node.started(order)
    assert world.api().wait_for(job, "running")
    shown = world.api().call("GET", f"/v1/jobs/{job}")[1]
    assert shown["spec"]["executor"] == "external"
    node.ended(order, cause=node.types_pb2.Outcome.EXITED, exit_code=0)
    assert world.api().wait_for(job, "completed")["exit_code"] == 0
    # Its GPU is free again.
    assert node.ordered("start", submit(world))
    listed = next(one for one in world.api().call("GET", "/v1/nodes")[1]["nodes"] if one["name"] == "k1")
    assert listed["features"] == ["external"]
    assert "external" in world.cli("node", "show", "k1", expected=0).stdout


def test_a_cancelled_external_job_is_ended_by_order(world, join):
    node = join("k1")
    job = submit(world)
    node.started(node.ordered("start", job))
    world.api().wait_for(job, "running")
    world.api().cancel(job)
    order = node.ordered("stop", job)
    node.report(ended=node.node_pb2.Ended(key=order.key, placed_at_ns=order.placed_at_ns, outcome=node.types_pb2.Outcome(
        cause=node.types_pb2.Outcome.SIGNALED, signal=15)))
    world.api().wait_for(job, "cancelled")


def test_a_job_that_was_not_started_goes_to_another_node_and_says_why(world, join):
    first = join("k1")
    job = submit(world)
    first.not_started(first.ordered("start", job), "the pod does not tolerate the taint gpu:NoSchedule")
    text = wait_until("explain names the node", lambda: next(
        (said for said in [str(world.api().explain(job))] if "node k1 did not start it" in said), None))
    assert "is tried again after" in text
    second = join("k2")
    order = second.ordered("start", job)
    assert order.key.attempt == 2
    second.started(order)
    told = world.cli("history", job).stdout
    assert "the pod does not tolerate the taint gpu:NoSchedule" in told, told
    second.ended(order, cause=second.types_pb2.Outcome.EXITED, exit_code=0)
    assert world.api().wait_for(job, "completed")
    # Another job may have the node that refused this one.
    both = [submit(world), submit(world)]
    wait_until("both run", lambda: all(world.api().job(one)["state"] == "scheduled" for one in both))


def test_ordinary_jobs_never_go_to_an_external_node_and_a_command_is_refused(world, join):
    node = join("k1")
    ordinary = world.api().submit("true", gpu_count=1)
    external = submit(world)
    node.ordered("start", external)
    said = wait_until("the ordinary job says why it waits", lambda: next(
        (one for one in [world.api().explain(ordinary)] if one["reason"] == "no_feature"), None))
    assert "external" in str(said)
    for spec in ({"command": ["true"]}, {"script": "true"}, {"image": "example/train:3"}):
        body = {"spec": {"executor": "external", **spec}, "resources": {"gpu_count": 1}}
        status, answer, _ = world.api().call("POST", "/v1/jobs", body)
        assert status == 422 and "started by another program" in str(answer), answer
    status, answer, _ = world.api().call("POST", "/v1/jobs", {"spec": {"executor": "pod"}, "resources": {}})
    assert status == 400 and "executor must be process or external" in str(answer), (status, answer)
    assert not [one for one in node.orders if one.HasField("start") and one.start.job_name == ordinary]


def test_a_running_external_job_outlives_both_sides_restarts(world, join):
    node = join("k1")
    job = submit(world)
    order = node.ordered("start", job)
    node.started(order)
    world.api().wait_for(job, "running")
    node.close()
    world.scheduler.restart()
    again = join("k1", [node.knows(order)])
    assert world.api().wait_for(job, "running")["attempts"] == 1
    again.ended(order, cause=again.types_pb2.Outcome.EXITED, exit_code=3)
    assert world.api().wait_for(job, "failed")["exit_code"] == 3


def test_a_running_external_job_that_its_node_does_not_list_is_lost_and_tried_again(world, join):
    node = join("k1")
    job = submit(world)
    node.started(node.ordered("start", job))
    world.api().wait_for(job, "running")
    node.close()
    again = join("k1")
    asked = wait_until("the scheduler asks whether the GPU is free", lambda: next(
        (one.check_release for one in again.orders if one.HasField("check_release")), None))
    device = asked.devices[0]
    assert device.uuid == "GPU-k1"
    again.report(released=again.node_pb2.Released(index=device.index, generation=device.generation))
    order = again.ordered("start", job)
    assert order.key.attempt == 2
    told = world.cli("history", job).stdout
    assert "its node knows nothing of this attempt any more" in told, told
    again.started(order)
    world.api().wait_for(job, "running")


def test_a_request_that_is_changed_keeps_what_the_job_avoids(world, join):
    node = join("k1")
    job = submit(world)
    node.not_started(node.ordered("start", job), "a volume is in another zone")
    wait_until("explain names the node", lambda: "node k1 did not start it" in str(world.api().explain(job)))
    status, answer, _ = world.api().call("PATCH", f"/v1/jobs/{job}", {"gpu_memory_mb": 40_000})
    assert status == 200, answer
    wait_until("explain names the node", lambda: "node k1 did not start it" in str(world.api().explain(job)))
    assert len([one for one in node.orders if one.HasField("start")]) == 1


def test_people_see_an_external_job_by_its_name(world, join):
    job = submit(world, name="lab/train-0")
    listed = world.cli("list", "--columns", "id,name,command", expected=0).stdout
    assert "lab/train-0" in listed and "(external)" in listed, listed
    shown = world.cli("get", job, expected=0).stdout
    assert "lab/train-0" in shown and re.search(r"^Executor:? +external$", shown, re.M), shown
