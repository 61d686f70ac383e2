"""What every door answers, byte for byte: each field of a job's request, taken and refused, and each field of its view.

The answers are compared with the files in golden/. GPUSCHED_RECORD_GOLDEN=1 writes the files anew; what changed in them
is then for the commit to explain.
"""

import datetime
import getpass
import json
import os
import pathlib
import re
import socket
import subprocess

import openapi_lines
import pytest
from conftest import BIN, Scheduler
from golden_requests import (DOOR, DOOR_MESSAGES, DOOR_REFUSED, DOOR_TAKEN, NATIVE, NATIVE_REFUSED, NATIVE_TAKEN, NATIVE_UNREADABLE,
                             UPDATES)

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
RECORD = os.environ.get("GPUSCHED_RECORD_GOLDEN") == "1"
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
STAMP = re.compile(r"seconds: (\d{9,})(\s+nanos: \d+)?")
NEAR = datetime.timedelta(days=400)
AGO = re.compile(r"\d+s ago \(TIME\)")
SHOWN_MAX = 400  # Characters of a request that a transcript repeats.


def plain(text):
    """Without what differs from run to run: moments of about now."""
    now = datetime.datetime.now(datetime.timezone.utc)

    def instant(found):
        moment = datetime.datetime.fromisoformat(found[0][:19] + "+00:00")
        return "TIME" if abs(moment - now) < NEAR else found[0]

    def stamp(found):
        return "TIME" if abs(int(found[1]) - now.timestamp()) < NEAR.total_seconds() else found[0]

    return AGO.sub("now (TIME)", STAMP.sub(stamp, INSTANT.sub(instant, text)))


class Transcript:
    """Requests and answers, to be compared with a file."""

    def __init__(self, name):
        self.path, self.lines = GOLDEN / name, []

    def about(self, what):
        self.lines += ["", f"# {what}"]

    def add(self, asked, answered):
        asked = asked if len(asked) <= SHOWN_MAX else f"{asked[:SHOWN_MAX]}... ({len(asked)} characters)"
        self.lines += [f"> {asked}", *plain(answered).rstrip("\n").split("\n")]

    def check(self):
        text = "\n".join(self.lines) + "\n"
        if RECORD:
            self.path.write_text(text, encoding="utf-8")
        wanted = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        if text == wanted:
            return
        differ = [f"line {number}:\n  was {old}\n  is  {new}"
                  for number, (old, new) in enumerate(zip(wanted.split("\n"), text.split("\n")), 1) if old != new]
        pytest.fail(f"{self.path.name} is not what it was; record it again with GPUSCHED_RECORD_GOLDEN=1 if it should differ\n"
                    + "\n".join(differ[:10] or ["one of them is longer"]))


class Rest:
    """Calls with the credential, written down."""

    def __init__(self, scheduler, transcript):
        self.scheduler, self.transcript = scheduler, transcript

    def call(self, method, path, body=None, shown=None):
        data = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        answer = self.scheduler.call(method, path, data, self.scheduler.credential())
        asked = f"{method} {path}" + ("" if body is None else " " + json.dumps(shown if shown is not None else body, ensure_ascii=False))
        self.transcript.add(asked, f"{answer.status} {answer.body.decode()}")
        return answer


@pytest.fixture(name="server")
def server_fixture():
    """One scheduler a test: its ids begin at 1."""
    running = Scheduler(environment={"GPU_SCHEDULER_SCHEDULER_PREEMPT_GRACE_MAX_SECONDS": "300"})
    for tenant in ({"name": "lab"}, {"name": "full", "max_gpus": 1}):
        assert running.call("POST", "/v1/tenants", tenant, running.credential()).status == 201
    yield running
    running.stop()


def first_jobs(rest):
    """Two jobs that others wait for."""
    for name in ("first", "second"):
        rest.call("POST", "/v1/jobs", {"spec": {"name": name, "script": "true"}, "held": True})


def settled(server, path):
    """An answer about a job that waits, once the planner has looked at it."""
    return server.until(lambda: server.call("GET", path, headers=server.credential()),
                        lambda answer: answer.json["reason"] not in ("queued", "none"))


def nested(fields):
    """{"a.b": c} as {"a": {"b": c}}; None leaves a field out."""
    out = {}
    for path, value in fields.items():
        into = out
        *outer, last = path.split(".")
        for name in outer:
            into = into.setdefault(name, {})
        if value is not None:
            into[last] = value
    return out


def test_the_jobs_door_takes_each_field(server):
    transcript = Transcript("jobs-door-taken.txt")
    rest = Rest(server, transcript)
    first_jobs(rest)
    for what, fields in DOOR_TAKEN:
        transcript.about(what)
        answer = rest.call("POST", "/api/v1/jobs", {**DOOR, **fields}, fields)
        if answer.status != 201:
            continue
        job = answer.json["job_id"]
        settled(server, f"/v1/jobs/{job}")
        rest.call("GET", f"/api/v1/jobs/{job}")
        rest.call("GET", f"/v1/jobs/{job}")
        if not fields.get("held", True):
            rest.call("DELETE", f"/api/v1/jobs/{job}")
            rest.call("GET", f"/api/v1/jobs/{job}")
    transcript.about("a list")
    rest.call("GET", "/api/v1/jobs?limit=3")
    transcript.check()


def test_the_jobs_door_refuses_each_field(server):
    transcript = Transcript("jobs-door-refused.txt")
    rest = Rest(server, transcript)
    first_jobs(rest)
    for what, cases in DOOR_REFUSED:
        transcript.about(what)
        for fields in cases:
            rest.call("POST", "/api/v1/jobs", {**DOOR, **fields}, fields)
    transcript.check()


def test_the_native_api_takes_each_field(server):
    transcript = Transcript("native-taken.txt")
    rest = Rest(server, transcript)
    first_jobs(rest)
    for what, fields in NATIVE_TAKEN:
        transcript.about(what)
        answer = rest.call("POST", "/v1/jobs", nested({**NATIVE, **fields}), fields)
        if answer.status != 201:
            continue
        job = answer.json["job_ids"][0]
        settled(server, f"/v1/jobs/{job}")
        rest.call("GET", f"/v1/jobs/{job}")
        rest.call("GET", f"/api/v1/jobs/{job}")
    transcript.about("a list")
    rest.call("GET", "/v1/jobs?page_size=3")
    transcript.check()


def test_the_native_api_refuses_each_field(server):
    transcript = Transcript("native-refused.txt")
    rest = Rest(server, transcript)
    first_jobs(rest)
    for what, cases in NATIVE_REFUSED + [("what is no such message", NATIVE_UNREADABLE)]:
        transcript.about(what)
        for fields in cases:
            rest.call("POST", "/v1/jobs", nested({**NATIVE, **fields}), fields)
    transcript.about("several")
    rest.call("POST", "/v1/jobs", {"jobs": [{"spec": {"script": "true"}}, {"spec": {"script": "true"}, "priority": 1_000_001}]})
    transcript.check()


def test_a_mask_chooses_each_field(server):
    transcript = Transcript("native-masks.txt")
    rest = Rest(server, transcript)
    first_jobs(rest)
    job = rest.call("POST", "/v1/jobs", nested({**NATIVE, **NATIVE_TAKEN[-1][1]}), "everything at once").json["job_ids"][0]
    shown = server.call("GET", "/v1/openapi.json", headers=server.credential()).json["components"]["schemas"]
    paths = []
    for name, value in shown["Job"]["properties"].items():
        paths.append(name)
        inner = value.get("anyOf", [{}])[0].get("$ref", "").rpartition("/")[2]
        paths += [f"{name}.{field}" for field in shown[inner]["properties"]] if name in ("spec", "resources", "retry") else []
    for path in [*paths, "job_id,state,spec.name,spec.labels", "resources.gpu_count,resources", "spec.nam", "spcc", "state.x", "warnings.kind", ""]:
        rest.call("GET", f"/v1/jobs/{job}?fields={path}")
    for path in ["spec.name", "spec", "queue_position,job_id", "members,mig_start"]:
        rest.call("GET", f"/v1/jobs?fields={path}&page_size=2")
    transcript.check()


def test_an_update_changes_each_field(server):
    transcript = Transcript("native-updates.txt")
    rest = Rest(server, transcript)
    first_jobs(rest)
    for fields in UPDATES:
        rest.call("PATCH", "/v1/jobs/job-5", fields)
    rest.call("PATCH", "/v1/jobs/job-5", {"nothing": 1})
    rest.call("GET", "/api/v1/jobs/job-5")
    transcript.check()


def test_the_document_of_the_native_api(server):
    body = server.call("GET", "/v1/openapi.json", headers=server.credential()).body.decode()
    document = json.loads(body)
    assert json.dumps(document, separators=(",", ":"), ensure_ascii=False) == body
    path, found = GOLDEN / "openapi.txt", openapi_lines.lines(document)
    if RECORD:
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    told = openapi_lines.differences(path.read_text(encoding="utf-8").splitlines(), found)
    assert not told, f"{path.name}: record it again with GPUSCHED_RECORD_GOLDEN=1 if it should differ\n" + "\n".join(told)


SMALL = {"openapi": "3.1.0", "components": {"schemas": {
    "Small": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 0}}},
    "Large": {"type": "object", "additionalProperties": False, "properties": {f"f{i}": {"type": "boolean"} for i in range(7)}}}},
    "paths": {"/v1/x": {"post": {
        "operationId": "x", "tags": ["t"], "parameters": [{"name": "q", "in": "query", "schema": {"type": ["string", "null"]}}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Small"}}}},
        "responses": {"200": {"description": "d", "content": {"text/plain": {"schema": {"type": "string"}}}}}}}}}


def test_the_lines_of_a_document_are_read_and_compared():
    lines = openapi_lines.lines(SMALL)
    assert lines[2] == "POST /v1/x x query q string?; < Small > 200 text/plain string #t"
    assert lines[3:5] == ["Large = object{closed}", "Large.f0 boolean"]
    assert lines[-1] == "Small = {a! integer(0..)}"
    other = json.loads(json.dumps(SMALL))
    schemas, operation = other["components"]["schemas"], other["paths"]["/v1/x"]["post"]
    schemas["Large"]["properties"]["f7"] = schemas["Large"]["properties"].pop("f6")
    schemas["Large"]["properties"]["f0"] = {"type": "integer"}
    schemas["Small"].pop("required")
    operation["summary"] = "Sentences are left out."
    operation["parameters"][0]["required"] = True
    assert openapi_lines.differences(lines, openapi_lines.lines(other)) == [
        "removed: Large.f6 boolean", "added: Large.f7 boolean",
        "changed: POST /v1/x x query q string?; < Small > 200 text/plain string #t\n"
        "     to: POST /v1/x x query q! string?; < Small > 200 text/plain string #t",
        "changed: Large.f0 boolean\n     to: Large.f0 integer", "changed: Small = {a! integer(0..)}\n     to: Small = {a integer(0..)}"]


# --- gRPC: messages as text ---


class Grpc:
    """Calls with the credential, written down as text of their messages."""

    def __init__(self, server, transcript, service):
        self.grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
        pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")
        import draw_proto  # pylint: disable=import-outside-toplevel
        from google.protobuf import json_format, text_format  # pylint: disable=import-outside-toplevel
        self.json_format, self.text_format, self.draw = json_format, text_format, draw_proto
        self.pool = draw_proto.load()
        self.service, self.transcript = service, transcript
        self.token = tuple((name.lower(), value) for name, value in server.credential().items())
        self.channel = self.grpc.insecure_channel(f"127.0.0.1:{server.ports['grpc']}")

    def call(self, name, fields, shown=None):
        method = self.pool.FindServiceByName(self.service).FindMethodByName(name)
        message = self.draw.message_class(self.pool, method.input_type)()
        self.json_format.ParseDict(fields, message)
        reply = self.draw.message_class(self.pool, method.output_type)
        call = self.channel.unary_unary(f"/{self.service}/{name}", request_serializer=lambda one: one.SerializeToString(),
                                        response_deserializer=reply.FromString)
        asked = f"{name} {json.dumps(shown if shown is not None else fields, ensure_ascii=False)}"
        try:
            answer = call(message, timeout=60, metadata=self.token)
        except self.grpc.RpcError as error:
            said = {key: value for key, value in error.trailing_metadata() if key in ("gpusched-code", "gpusched-field")}
            self.transcript.add(asked, f"{error.code().name} {said} {error.details()}")
            return None
        self.transcript.add(asked, self.text_format.MessageToString(answer, as_utf8=True))
        return answer


def as_messages(fields):
    """Words of enumerators as protobuf's own JSON has them."""
    return {**fields, "spec.pull": "PULL_POLICY_" + fields["spec.pull"].upper()} if "spec.pull" in fields else fields


def test_native_grpc(server):
    transcript = Transcript("native-grpc.txt")
    door = Grpc(server, transcript, "gpusched.v1.Scheduler")
    for name in ("first", "second"):
        door.call("SubmitJobs", {"jobs": [{"spec": {"name": name, "script": "true"}, "held": True}]})

    def submit(fields):
        beside = {name: fields[name] for name in ("tenant_id", "request_key") if name in fields}
        job = nested(as_messages({**NATIVE, **{name: value for name, value in fields.items() if name not in beside}}))
        return door.call("SubmitJobs", {**beside, "jobs": [job]}, fields)

    for what, fields in NATIVE_TAKEN:
        transcript.about(what)
        answer = submit(fields)
        if answer is None:
            continue
        settled(server, f"/v1/jobs/{answer.job_ids[0]}")
        door.call("GetJob", {"job_id": answer.job_ids[0]})
    for what, cases in NATIVE_REFUSED:
        transcript.about(what)
        for fields in cases:
            submit(fields)
    transcript.about("updates")
    for fields in UPDATES:
        door.call("UpdateJob", {"job_id": "job-5", **fields})
    door.call("ListJobs", {"page_size": 2})
    transcript.check()


def test_the_jobs_doors_grpc(server):
    transcript = Transcript("jobs-door-grpc.txt")
    door = Grpc(server, transcript, "scheduler.SchedulerService")
    for fields in DOOR_MESSAGES:
        answer = door.call("SubmitJob", {"script": "true", **fields}, fields)
        if answer is not None:
            settled(server, f"/v1/jobs/{answer.job_id}")
            door.call("GetJobStatus", {"job_id": answer.job_id})
    door.call("ListJobs", {"limit": 2})
    transcript.check()


# --- gpu-cli ---


def test_gpu_cli_shows_what_it_takes_and_gets(server):
    transcript = Transcript("gpu-cli.txt")
    rest = Rest(server, transcript)
    first_jobs(rest)
    environment = {**os.environ, "GPU_SCHEDULER_URL": f"http://127.0.0.1:{server.ports['http']}",
                   "GPU_SCHEDULER_TOKEN_FILE": os.path.join(server.folder, "data", "token"), "HOME": server.folder, "COLUMNS": "80"}

    caller = f"{getpass.getuser()}@{socket.gethostname()}"

    def cli(*words):
        done = subprocess.run([str(BIN / "gpu-cli"), *words], capture_output=True, text=True, env=environment, check=False, cwd="/")
        shown = f"{done.returncode} {done.stdout}{done.stderr}".replace(caller, "ada@login")
        transcript.add("gpu-cli " + " ".join(words), shown)

    cli("submit", "--help")
    cli("submit", "--hold", "--name", "n", "--comment", "second attempt", "--gpus", "2", "--gpu-model", "A100", "--gpu-memory",
        "80G", "--cpus", "2", "--mem", "4G",
        "--time", "90s", "--priority", "high", "--class", "batch", "--label", "a=b", "--retries", "2", "--retry-on", "exit_code:75",
        "--chdir", "/srv", "--env", "A=1", "--user", "ada", "--umask", "0027", "--limit", "nofile=99", "--begin", "+1h",
        "--deadline", "+2h", "--after", "ok:job-5", "--on-parent-failure", "wait", "--preemption-mode", "cancel", "--preempt-signal",
        "USR1", "--preempt-grace", "10s", "--idle-after", "10m", "--idle-action", "warn", "--hung-after", "20m", "--hung-action",
        "cancel", "--node-label", "zone=eu", "--without-label", "spot", "--exclusive", "--gpu-layout", "spread", "--gpu-bandwidth",
        "100", "--output", "/o", "--error", "/e", "--input", "/i", "--", "python", "train.py")
    cli("submit", "--hold", "--user", "-", "--chdir", "-", "--nodes", "2-4", "--gpus-per-node", "1", "--domain", "rack", "--on-node-loss",
        "continue", "--", "true")
    for job in ("job-7", "job-8"):
        cli("get", "--json", job)
        cli("get", job)
        cli("get", "-o", "yaml", job)
    cli("update", "--comment", "third", "job-8")
    cli("get", "job-8")
    transcript.check()
