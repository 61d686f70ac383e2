"""Requests drawn from the whole schema of each door, against a running scheduler.

Whatever is asked, within the schema or at its edges, there is an answer that is no fault of the scheduler's; it lives,
and a start on its folder, after a kill -9 too, finds everything that was acknowledged. GPUSCHED_SEED=N draws others,
GPUSCHED_SCHEMA_REQUESTS sets how many requests each door gets.
"""

import hashlib
import json
import os
import queue
import random
import threading

import pytest
from conftest import SEED
from draw import LIMITS, Draw

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")

import draw_json  # pylint: disable=wrong-import-position
import draw_proto  # pylint: disable=wrong-import-position
from restarted import TIMEOUT_S, Server, check_and_restart  # pylint: disable=wrong-import-position

REQUESTS = int(os.environ.get("GPUSCHED_SCHEMA_REQUESTS", "300"))
MESSAGE_MAX = 8 << 20
# Bodies that are accepted but for what is drawn into them.
PLAUSIBLE = {"/v1/jobs": {"jobs": [{"spec": {"script": "true"}}]}, "/v1/jobs:plan": {"jobs": [{"spec": {"script": "true"}}]},
             "/v1/tenants": {"name": "somebody"},
             "/v1/cluster:edit": {"tenants": [{"name": "edited", "max_gpus": 3}, {"name": "below", "parent_id": "edited"}]}}
# What says that something is wrong with us, not with the request.
FAULTS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DATA_LOSS,
          grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.ABORTED)


@pytest.fixture(scope="module", name="pool")
def pool_fixture():
    return draw_proto.load()


@pytest.fixture(name="server")
def server_fixture():
    running = Server()
    yield running
    running.stop()


class Asked:
    """The last requests, for whoever has to find out which one it was."""

    def __init__(self, drawn):
        self.drawn, self.last = drawn, []

    def note(self, what):
        self.last = [*self.last[-9:], str(what)[:2000]]

    def __str__(self):
        return f"GPUSCHED_SEED={self.drawn}; the last requests: " + "\n".join(self.last)


def learn(draw, server, answer):
    """Names in an answer's JSON that later requests can mean."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "job_ids" and isinstance(value, list):
                server.acknowledged += value
                draw.known["job"] = (draw.known["job"] + value)[-50:]
            elif isinstance(value, str) and value and name == "id" and value.startswith("tenant-"):
                draw.known["tenant"] = (draw.known["tenant"] + [value])[-20:]
            else:
                learn(draw, server, value)


# --- The native API over HTTP ---


def test_the_native_rest_api_answers_whatever_its_document_allows(server):
    drawn = SEED
    draw = Draw(random.Random(drawn))
    source = draw_json.JsonDraw(draw, server.call("GET", "/v1/openapi.json").json)
    asked = Asked(drawn)
    assert len(source.calls) > 30
    for path, body in PLAUSIBLE.items():
        answer = server.call("POST", path, body, server.credential())
        assert answer.status in (200, 201), answer.raw
        learn(draw, server, answer.json)
    for _ in range(REQUESTS):
        draw.begin()
        method, path, headers, body = source.request(PLAUSIBLE)
        if any(word in path for word in ("watch", ":stream", "/session", "follow=", "wait=")):
            continue  # These do not end by themselves.
        asked.note((method, path, headers, body))
        # Most callers have the token: others are refused what operators do.
        answer = server.call(method, path, body, headers if draw.chance(100) else {**server.credential(), **(headers or {})})
        expect_answer(server, answer, path, asked)
        if answer.status in (200, 201):
            learn(draw, server, json.loads(answer.body) if answer.body[:1] == b"{" else None)
    check_and_restart(server)


def expect_answer(server, answer, path, asked):
    assert answer.status != 0, f"no answer\n{asked}"
    if answer.status < 500:
        return
    # An agent that is not there is said so, and is no fault of ours.
    code = json.loads(answer.body).get("code")
    assert code == "unavailable" and any(word in path for word in ("/log", "/file", "/session", "/reboot")), \
        f"{answer.status} {answer.body[:500]}\n{asked}"
    assert server.process.poll() is None, str(asked)


# --- The jobs door over HTTP: its fields are those of its gRPC messages, and what its reference names besides ---


def test_the_jobs_door_answers_whatever_its_fields_hold(server, pool):
    drawn = SEED
    draw = Draw(random.Random(drawn + 1))
    fields = {field.name: field for field in pool.FindMessageTypeByName("scheduler.SubmitJobRequest").fields}
    types = {"script": "string", "command": ["string"], "args": ["string"], "environment": {}, "labels": {}}
    source = draw_json.JsonDraw(draw, {"paths": {}, "components": {"schemas": {}}})
    asked = Asked(drawn)
    names = sorted(fields) + ["max_runtime_minutes", "gpu_model", "gpu_share", "nodes", "nodes_max", "gpus_per_node", "working_directory",
                              "require_feasible", "hold", "retries", "user", "deadline", "begin", "dependencies", "array"]
    for index in range(REQUESTS):
        draw.begin(4 << 20)
        body = {"script": "true"} if draw.chance(500) else {"command": ["true"]}
        for name in names:
            if draw.chance(150):
                field = fields.get(name)
                kind = {"type": "string"}
                if name in types:
                    kind = {"type": "array", "items": {"type": "string"}} if isinstance(types[name], list) else \
                        {"type": "object", "additionalProperties": {"type": "string"}} if types[name] == {} else kind
                elif field is not None and field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
                    kind = {"type": "integer"}
                elif field is not None and field.cpp_type == field.CPPTYPE_BOOL:
                    kind = {"type": "boolean"}
                elif field is None and draw.chance(500):
                    kind = {"type": draw.random.choice(["integer", "number", "boolean", "array", "object"])}
                body[name] = source.value(kind, name)
        method, path = "POST", "/api/v1/jobs"
        if index % 4 == 1:
            method, path, body = "POST", "/api/v1/tenants", {"name": draw.text("name"), **source.object(
                {"properties": {name: {"type": "integer"} for name in (
                    "max_gpus", "max_gpu_memory_mb", "max_cpu_cores", "max_memory_mb", "max_concurrent_jobs", "priority_tier",
                    "max_waiting_jobs", "soft_waiting_jobs", "max_gpu_hours")}}, 0)}
        elif index % 4 == 2:
            method = draw.random.choice(["GET", "DELETE", "PUT"])
            path = "/api/v1/" + draw.random.choice(["jobs/", "tenants/", "nodes/"]) + draw_json.urllib.parse.quote(draw.text("job"), safe="")
        elif index % 4 == 3:
            method, body = "GET", b""
            path += f"?limit={draw.integer(-2**63, 2**64)}&offset={draw.integer(-2**63, 2**64)}&state=" + draw_json.urllib.parse.quote(draw.text())
        asked.note((method, path, body))
        answer = server.call(method, path, body)
        expect_answer(server, answer, path, asked)
        if answer.status == 201 and path == "/api/v1/jobs":
            server.acknowledged.append(answer.json["job_id"])
            draw.known["job"] = (draw.known["job"] + [answer.json["job_id"]])[-50:]
    check_and_restart(server)


# --- gRPC ---


def methods_of(pool, service):
    return list(pool.FindServiceByName(service).methods)


def plausible(draw, message, kind):
    """A request that is accepted but for what is drawn into it."""
    if kind == "gpusched.v1.SubmitJobsRequest" and draw.chance(800):
        for _ in range(draw.random.choice([1, 1, 1, 2, 5])):
            message.jobs.add().spec.script = "true"
    if kind == "scheduler.SubmitJobRequest" and draw.chance(800):
        message.script = "true"
    if kind == "gpusched.v1.Tenant" and draw.chance(800):
        message.name = "tenant " + str(draw.random.randrange(50))
    if kind in ("gpusched.v1.CreateServiceRequest", "gpusched.v1.RollOutServiceRequest") and draw.chance(800):
        message.job.spec.script = "true"
        setattr(message, "name" if "Create" in kind else "service", "service-" + str(draw.random.randrange(20)))
    if kind in ("gpusched.v1.ServiceRequest", "gpusched.v1.ScaleServiceRequest") and draw.chance(800):
        message.service = "service-" + str(draw.random.randrange(20))
    if hasattr(message, "job_id") and draw.known["job"] and draw.chance(800):
        message.job_id = draw.random.choice(draw.known["job"])


def fill(draw, source, message):
    """The plausible one, with a few drawn fields of every depth over it."""
    kind = message.DESCRIPTOR.full_name
    if draw.chance(700):
        plausible(draw, message, kind)
        source.fill(message, 120)
        for job in getattr(message, "jobs", []) if kind == "gpusched.v1.SubmitJobsRequest" else []:
            source.fill(job, draw.random.choice([20, 60, 150]))
    else:
        source.fill(message, draw.random.choice([100, 400, 900]))


def call_of(channel, service, method, pool, token=()):
    """How to call one method with one message; its answers as a list."""
    path = f"/{service}/{method.name}"
    reply = draw_proto.message_class(pool, method.output_type).FromString
    as_is = bytes
    if method.client_streaming and method.server_streaming:
        rpc = channel.stream_stream(path, request_serializer=as_is, response_deserializer=reply)
        return lambda data: list(rpc(iter([data, data]), timeout=TIMEOUT_S, metadata=token))
    if method.server_streaming:
        rpc = channel.unary_stream(path, request_serializer=as_is, response_deserializer=reply)

        def first(data):
            stream = rpc(data, timeout=1, metadata=token)
            try:
                return [next(stream)]
            except StopIteration:
                return []
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    return []  # It waits for what may come.
                raise
            finally:
                stream.cancel()
        return first
    rpc = channel.unary_unary(path, request_serializer=as_is, response_deserializer=reply)
    return lambda data: [rpc(data, timeout=TIMEOUT_S, metadata=token)]


def metadata_of(server):
    return tuple((name.lower(), value) for name, value in server.credential().items())


@pytest.mark.parametrize("service", ["gpusched.v1.Scheduler", "gpusched.v1.Services", "scheduler.SchedulerService"])
def test_a_grpc_service_answers_whatever_its_messages_hold(server, pool, service):
    drawn = SEED
    draw = Draw(random.Random(drawn + 2))
    source = draw_proto.ProtoDraw(draw)
    asked = Asked(drawn)
    channel = server.channel()
    methods = methods_of(pool, service)
    # Those that write more often, and each at least sometimes.
    weighted = methods + [method for method in methods if method.name.startswith(("Submit", "Update", "Create"))] * 4
    calls = {method.name: call_of(channel, service, method, pool, metadata_of(server)) for method in methods}
    agent = FakeAgent(server, pool, "n1")
    for index in range(REQUESTS):
        draw.begin(MESSAGE_MAX)
        method = methods[index] if index < len(methods) else draw.random.choice(weighted)
        message = draw_proto.message_class(pool, method.input_type)()
        fill(draw, source, message)
        data = message.SerializeToString()
        if draw.chance(30) and data:
            at = draw.random.randrange(len(data))  # Bytes that no client of ours sends.
            data = data[:at] + bytes([draw.random.randrange(256)]) + data[at + 1:]
        if len(data) > MESSAGE_MAX:
            continue
        asked.note((method.name, message))
        try:
            answers = calls[method.name](data)
        except grpc.RpcError as error:
            expect_refusal(error, method.name, asked)
            continue
        for answer in answers:
            for job in getattr(answer, "job_ids", []) or ([answer.job_id] if "Submit" in method.name and hasattr(answer, "job_id") else []):
                if job:
                    server.acknowledged.append(job)
                    draw.known["job"] = (draw.known["job"] + [job])[-50:]
            if "Tenant" in method.name and getattr(answer, "id", ""):
                draw.known["tenant"] = (draw.known["tenant"] + [answer.id])[-20:]
    agent.stop()
    channel.close()
    check_and_restart(server)


@pytest.mark.parametrize("service", ["gpusched.v1.Scheduler", "gpusched.v1.Services", "scheduler.SchedulerService"])
def test_bytes_that_are_no_message_are_the_clients_fault(server, pool, service):
    with server.channel() as channel:
        for method in methods_of(pool, service):
            if method.client_streaming:
                continue
            with pytest.raises(grpc.RpcError) as refused:
                call_of(channel, service, method, pool, metadata_of(server))(b"\xff\xff\xff")
            codes = dict(refused.value.trailing_metadata() or ())
            assert (refused.value.code(), codes.get("gpusched-code")) == (
                grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument"), method.name


def expect_refusal(error, name, asked):
    codes = dict(error.trailing_metadata() or ())
    if error.code() == grpc.StatusCode.UNAVAILABLE and codes.get("gpusched-code") == "unavailable" and name in ("ReadLog", "RebootNode"):
        return  # No agent is there to answer.
    assert error.code() not in FAULTS, f"{name}: {error.code()} {error.details()}\n{asked}"


# --- The node protocol ---


def proof_of(server, hello, challenge):
    """What proves that an agent has the scheduler's token: see src/node/link/trust.h."""
    token = server.credential()["Authorization"].split()[1].encode()
    return hashlib.blake2b(b"gpusched-agent-2" + hello.nonce + challenge.nonce, key=token, digest_size=32).digest()


class FakeAgent:
    """An agent that registers, runs what it is told to run in no time, and reports it."""

    def __init__(self, server, pool, name):
        self.agent_message = draw_proto.message_class(pool, pool.FindMessageTypeByName("gpusched.v1.AgentMessage"))
        scheduler_message = draw_proto.message_class(pool, pool.FindMessageTypeByName("gpusched.v1.SchedulerMessage"))
        self.channel = server.channel()
        self.queue, self.wake, self.over = [], threading.Condition(), False
        rpc = self.channel.stream_stream("/gpusched.v1.NodeProtocol/Connect", request_serializer=self.agent_message.SerializeToString,
                                         response_deserializer=scheduler_message.FromString)
        self.registered = threading.Event()
        self.reports = 0
        hello = self.agent_message()
        hello.hello.node_name, hello.hello.nonce, hello.hello.handshake = name, bytes(32), 2
        self.server, self.hello = server, hello.hello
        self.put(hello)
        self.stream = rpc(self.messages())
        self.name = name
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()
        assert self.registered.wait(TIMEOUT_S)

    def put(self, message):
        with self.wake:
            self.queue.append(message)
            self.wake.notify()

    def messages(self):
        while True:
            with self.wake:
                self.wake.wait_for(lambda: self.queue or self.over)
                if not self.queue:
                    return
                message = self.queue.pop(0)
            yield message

    def register(self):
        message = self.agent_message()
        out = message.register
        out.node_name, out.instance, out.boot_id, out.version = self.name, "folder-" + self.name, "boot", "test"
        out.cpu_milli, out.memory_mb = 64_000, 512_000
        for index in range(4):
            device = out.devices.add()
            device.uuid, device.model, device.memory_mb = f"GPU-{self.name}-{index}", "NVIDIA A100-SXM4-80GB", 81_920
        return message

    def listen(self):
        try:
            for order in self.stream:
                kind = order.WhichOneof("body")
                if kind == "challenge":
                    proof = self.agent_message()
                    proof.prove.proof = proof_of(self.server, self.hello, order.challenge)
                    self.put(proof)
                elif kind == "proven":
                    self.put(self.register())
                elif kind == "registered":
                    self.registered.set()
                elif kind == "start":
                    self.run(order.start)
                elif kind == "start_members":
                    for one in order.start_members.members:
                        whole = type(one)()
                        whole.CopyFrom(order.start_members.common)
                        whole.MergeFrom(one)
                        self.run(whole)
                elif kind == "go":
                    self.tell("ended", order.go.key, order.go.placed_at_ns)
        except grpc.RpcError:
            pass

    def run(self, start):
        if start.HasField("gang"):
            return self.tell("prepared", start.key, start.placed_at_ns)
        self.tell("started", start.key, start.placed_at_ns)
        self.tell("ended", start.key, start.placed_at_ns)
        for device in start.devices:
            self.reports += 1
            message = self.agent_message()
            message.report.id = self.reports
            message.report.released.index, message.report.released.generation = device.index, device.generation
            if device.share_milli:
                message.report.released.share_of.CopyFrom(start.key)
            self.put(message)
        return None

    def tell(self, what, key, placed_at_ns):
        self.reports += 1
        message = self.agent_message()
        message.report.id = self.reports
        said = getattr(message.report, what)
        said.key.CopyFrom(key)
        said.placed_at_ns = placed_at_ns
        if what == "ended":
            said.outcome.cause = 1
        self.put(message)

    def stop(self):
        with self.wake:
            self.over = True
            self.wake.notify()
        self.thread.join(TIMEOUT_S)
        self.channel.close()


def test_the_node_protocol_bears_whatever_agents_say(server, pool):
    drawn = SEED
    draw = Draw(random.Random(drawn + 3))
    source = draw_proto.ProtoDraw(draw)
    asked = Asked(drawn)
    for index in range(20):
        submitted = server.submit(name=f"job {index}", gpu_count=index % 3)
        server.acknowledged.append(submitted)
        draw.known["job"].append(submitted)
    left = REQUESTS
    while left > 0:
        agent = FakeAgent(server, pool, f"n{left % 4}")
        for _ in range(30):
            draw.begin(MESSAGE_MAX)
            message = agent.agent_message()
            body = draw.random.choice(message.DESCRIPTOR.fields)
            inner = getattr(message, body.name)
            inner.SetInParent()
            if body.name == "register":
                inner.CopyFrom(agent.register().register)
            source.fill(inner, draw.random.choice([100, 300, 900]))
            # Attempts and devices that exist, now and then.
            if body.name == "report":
                inner.id = draw.random.randrange(1, 100)
            left -= 1
            if message.ByteSize() <= MESSAGE_MAX:
                asked.note(message)
                agent.put(message)
        agent.stop()
        assert server.process.poll() is None, f"{asked}\n{server.log_text()[-2000:]}"
        assert server.lives(), str(asked)
    # Registrations that are not the first, from the whole schema.
    for index in range(max(REQUESTS // 10, 10)):
        draw.begin(MESSAGE_MAX)
        asked.note(strange_registration(server, pool, draw, source, index))
        assert server.process.poll() is None, f"{asked}\n{server.log_text()[-2000:]}"
    check_and_restart(server)


def strange_registration(server, pool, draw, source, index):
    """A stream whose Register is drawn; what it is answered does not matter."""
    agent_message = draw_proto.message_class(pool, pool.FindMessageTypeByName("gpusched.v1.AgentMessage"))
    scheduler_message = draw_proto.message_class(pool, pool.FindMessageTypeByName("gpusched.v1.SchedulerMessage"))
    hello, proof, register = agent_message(), agent_message(), agent_message()
    hello.hello.node_name, hello.hello.nonce, hello.hello.handshake = "strange", bytes(32), 2
    out = register.register
    out.node_name, out.instance, out.boot_id = f"strange-{index % 6}", "folder", f"boot-{index % 3}"
    for device in range(draw.random.choice([0, 1, 8, LIMITS["kDevicesPerNodeMax"], LIMITS["kDevicesPerNodeMax"] + 1])):
        out.devices.add().uuid = f"GPU-{device}"
    if draw.chance(100):
        for job in range(draw.random.choice([4096, LIMITS["kAttemptsPerRegistration"], LIMITS["kAttemptsPerRegistration"] + 1])):
            out.attempts.add().key.job = job + 1
    source.fill(out, draw.random.choice([50, 200, 500]))
    if index == 0:
        out.version = "v" * (2 << 20)  # More than is read of an agent before the host has dealt with some of it.
    out.proof = b""
    channel = server.channel()
    rpc = channel.stream_stream("/gpusched.v1.NodeProtocol/Connect", request_serializer=agent_message.SerializeToString,
                                response_deserializer=scheduler_message.FromString)
    beat = agent_message()
    beat.heartbeat.sequence = 1
    challenged = queue.SimpleQueue()

    def messages():
        yield hello
        if challenged.get():
            yield from (proof, register, beat)

    try:
        for answer in rpc(messages(), timeout=TIMEOUT_S):
            if answer.WhichOneof("body") == "challenge":
                proof.prove.proof = proof_of(server, hello.hello, answer.challenge)
                challenged.put(True)
    except (grpc.RpcError, ValueError):
        pass
    challenged.put(False)
    channel.close()
    return str(register)[:2000]



# --- The largest requests ---


def labelled_jobs(messages, count, labels):
    request = messages()
    for index in range(count):
        job = request.jobs.add()
        job.spec.script = "true"
        for label in range(labels):
            job.resources.node_labels.append(f"{index:04d}{label:02d}" + "k" * 200 + "=" + "v" * 250)
    return request


def test_the_largest_requests_are_answered_and_end_nothing(server, pool):
    """Each alone is legal, or a little more than that."""
    kind = draw_proto.message_class(pool, pool.FindMessageTypeByName("gpusched.v1.SubmitJobsRequest"))
    submit = call_of(server.channel(), "gpusched.v1.Scheduler",
                     next(method for method in methods_of(pool, "gpusched.v1.Scheduler") if method.name == "SubmitJobs"), pool,
                     metadata_of(server))
    requests = []
    if "node_labels" in pool.FindMessageTypeByName("gpusched.v1.Resources").fields_by_name:
        for count in (200, 500, 541, 560):
            requests.append(labelled_jobs(kind, count, LIMITS["kLabelTermsMax"]))
    for size in (MESSAGE_MAX - 4096, MESSAGE_MAX - 65_536, MESSAGE_MAX // 2):
        request = kind()
        for _ in range(LIMITS["kBatchJobsMax"]):
            request.jobs.add().spec.script = "x" * (size // LIMITS["kBatchJobsMax"] - 12)
        requests.append(request)
    request = kind()
    for _ in range(8):
        request.jobs.add().spec.script = "x" * (LIMITS["kSpecBytesMax"] - 4096)
    requests.append(request)
    for request in requests * 2:
        try:
            server.acknowledged += submit(request.SerializeToString())[0].job_ids
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT), error
            assert error.details()
        assert server.lives()
    assert server.acknowledged
    check_and_restart(server)
