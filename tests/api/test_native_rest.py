"""The native API over HTTP: its document, its reference's examples, its lists, watches and streams."""

import json
import os
import pathlib
import random
import re
import subprocess
import threading

import pytest
from conftest import BIN, ROOT, Answer, read_all

REFERENCE = ROOT / "docs" / "reference" / "native-rest.md"


def call(scheduler, method, path, body=b"", status=200, headers=None):
    answer = scheduler.call(method, path, body, headers)
    assert answer.status == status, answer.raw
    return answer


def get(scheduler, path, status=200):
    return call(scheduler, "GET", path, status=status).json


def submit(scheduler, **spec):
    body = {"spec": {"script": "true", **spec}}
    return call(scheduler, "POST", "/v1/jobs", body, status=201).json["job_ids"][0]


def unchunked(body):
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        data += body[:length]
        body = body[length + 2:]
        if length == 0:
            break
    return data


def stream(scheduler, data):
    head = f"POST /v1/jobs:stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    with scheduler.connect() as connection:
        writer = threading.Thread(target=connection.sendall, args=(head.encode() + data,))
        writer.start()
        answer = Answer(read_all(connection))
        writer.join()
    assert answer.status == 200, answer.raw[:1000]
    return [json.loads(line) for line in unchunked(answer.body).splitlines()]


# --- The reference's examples ---


def examples():
    """(command, expected output) of the console blocks."""
    out = []
    for block in re.findall(r"```console\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.S):
        for part in block.split("$ ")[1:]:
            lines = part.rstrip("\n").split("\n")
            end = 1
            while part_open(lines[:end]):
                end += 1
            out.append(("\n".join(lines[:end]), "\n".join(lines[end:])))
    return out


def part_open(lines):
    """Whether a quoted text goes on in the next line."""
    return "\n".join(lines).count("'") % 2 == 1


def test_the_examples_of_the_reference_do_what_it_says(start):
    scheduler = start()
    real = {}  # The page's ids and this scheduler's.
    found = examples()
    assert len(found) >= 8
    for command, expected in found:
        for page, here in real.items():
            command = re.sub(re.escape(page) + r"\b", here, command)
        command = command.replace("localhost:8080", f"127.0.0.1:{scheduler.ports['http']}")
        output = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=True).stdout
        for page, here in zip(re.findall(r"job-\d+", expected), re.findall(r"job-\d+", output)):
            real.setdefault(page, here)
        for page, here in real.items():
            expected = re.sub(re.escape(page) + r"\b", here, expected)
        assert output.strip() == expected.strip(), command


# --- The document ---


def checker(document):
    """A checker of values against the document's schemas, by the rules that it uses."""

    def check(value, schema, place):
        if "$ref" in schema:
            node = document
            for key in schema["$ref"].removeprefix("#/").split("/"):
                node = node[key]
            return check(value, node, place)
        if "anyOf" in schema:
            return None if value is None else check(value, schema["anyOf"][0], place)
        kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
        kind = schema.get("type")
        if isinstance(kind, list):
            if value is None and "null" in kind:
                return None
            kind = kind[0]
        if kind is None:
            return None
        assert isinstance(value, kinds[kind]) and (kind == "boolean" or not isinstance(value, bool)), (place, value)
        if "enum" in schema:
            assert value in schema["enum"], (place, value)
        if kind == "array":
            for item in value:
                check(item, schema["items"], place + "[]")
        if kind == "object":
            for name in schema.get("required", []):
                assert name in value, (place, name)
            more = schema.get("additionalProperties", True)
            for name, item in value.items():
                if name in schema.get("properties", {}):
                    check(item, schema["properties"][name], f"{place}.{name}")
                else:
                    assert more is not False, f"{place}.{name} is not in the document"
                    if isinstance(more, dict):
                        check(item, more, f"{place}.{name}")

    return check


def response_schema(operation, status):
    answers = operation["responses"]
    answer = answers.get(str(status), answers["default"])
    return answer.get("content", {}).get("application/json", {}).get("schema")


def error_schema(document, operation):
    """Of what the door answers to whoever it refuses."""
    answer = operation["responses"]["default"]
    if "$ref" in answer:
        name = answer["$ref"]
        answer = document
        for key in name.removeprefix("#/").split("/"):
            answer = answer[key]
    return answer["content"]["application/json"]["schema"]


def test_answers_are_as_the_document_says(scheduler):
    document = get(scheduler, "/v1/openapi.json")
    check = checker(document)
    job = submit(scheduler, name="shown", labels={"a": "b"}, limits={"core": 0}, umask=18)
    call(scheduler, "POST", "/v1/tenants", {"name": "shown", "max_gpus": 3}, status=201)
    known = {"job_id": job, "tenant_id": "shown", "node_name": "none", "index": "0",
             "service": "shown", "task_id": "none", "gpu_id": "none", "key_id": "key-1", "name": "none", "reservation": "none"}
    asked = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation["responses"][min(operation["responses"])].get("content", {})
            if method != "get" or "application/json" not in content:
                continue
            answer = scheduler.call("GET", re.sub(r"{(\w+)}", lambda m: known[m[1]], path))
            schema = response_schema(operation, answer.status) if answer.status < 400 else error_schema(document, operation)
            check(answer.json, schema if "$ref" in schema or schema.get("type") == "array" else {"type": "object"}, path)
            asked += 1
    assert asked >= 8


WORDS = ["", "a", "job-1", "job-99999999999999999999", "default", "-1", "0", "1e400", "\u0000", "é" * 300, "%", "../..", "true", "null", "2025-01-31T09:00:00Z"]


def arbitrary(rng, document, schema, depth=0):
    """A value that mostly fits the schema, and sometimes not."""
    if rng.random() < 0.08 or depth > 6:
        return rng.choice([None, True, -1, 2**70, 1.5, "x", [], {}, [[]], {"x": {}}])
    if "anyOf" in schema:
        return arbitrary(rng, document, rng.choice([one for one in schema["anyOf"] if one != {"type": "null"}]), depth)
    if "$ref" in schema:
        node = document
        for key in schema["$ref"].removeprefix("#/").split("/"):
            node = node[key]
        return arbitrary(rng, document, node, depth)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        out = {name: arbitrary(rng, document, inner, depth + 1) for name, inner in schema.get("properties", {}).items() if rng.random() < 0.4}
        if isinstance(schema.get("additionalProperties"), dict):
            out = {rng.choice(WORDS): arbitrary(rng, document, schema["additionalProperties"], depth + 1) for _ in range(rng.randrange(3))}
        if rng.random() < 0.05:
            out["no_such_field"] = 1
        return out
    if kind == "array":
        return [arbitrary(rng, document, schema["items"], depth + 1) for _ in range(rng.randrange(3))]
    if kind == "string":
        return rng.choice(schema.get("enum", WORDS) + WORDS)
    if kind == "boolean":
        return rng.random() < 0.5
    return rng.choice([0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 1.0, 0.5, 1e20])


def test_whatever_the_document_lets_one_say_gets_an_answer_of_its_shape(start):
    scheduler = start()
    document = get(scheduler, "/v1/openapi.json")
    check = checker(document)
    rng = random.Random(20260101)
    for _ in range(12):
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                content = operation["responses"][min(operation["responses"])].get("content", {})
                if "application/json" not in content:
                    continue
                target = re.sub(r"{\w+}", lambda _: rng.choice(["job-1", "default", "n1", "0", "x", "%2F", "%C3%A9"]), path)
                query = [p["name"] + "=" + rng.choice(["1", "x", "true", "pending", "2h", "job_id", "%00", ""])
                         for p in operation["parameters"] if p["in"] == "query" and p["name"] != "wait" and rng.random() < 0.3]
                body = b""
                if "requestBody" in operation:
                    schema = operation["requestBody"]["content"]["application/json"]["schema"]
                    body = json.dumps(arbitrary(rng, document, schema)).encode()
                answer = scheduler.call(method.upper(), target + "?" + "&".join(query), body)
                assert 200 <= answer.status < 500, (method, target, query, body, answer.raw)
                if answer.status >= 400:
                    check(answer.json, error_schema(document, operation), path)
                else:
                    schema = response_schema(operation, answer.status)
                    assert schema is not None, (method, path, answer.status)
                    check(answer.json, schema, path)
    assert scheduler.process.poll() is None


SCHEMATHESIS = pathlib.Path(os.environ.get("GPUSCHED_SCHEMATHESIS", ROOT / "build" / "python" / "bin" / "schemathesis"))


def schemathesis_finds_nothing(scheduler, *words):
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(pathlib.Path(__file__).parent)}
    credential = scheduler.credential()["Authorization"]
    run = subprocess.run(
        [SCHEMATHESIS, "run", f"http://127.0.0.1:{scheduler.ports['http']}/v1/openapi.json", "-H", f"Authorization: {credential}",
         "--exclude-path-regex", "watch|stream|logs?$|/ws$|/session$", "--phases", "coverage,fuzzing", "--seed", "1", "--generation-deterministic", *words],
        capture_output=True, text=True, timeout=600, check=False, env=environment, cwd=scheduler.folder)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]


@pytest.mark.skipif(not SCHEMATHESIS.exists() and os.environ.get("CI") != "true",
                    reason="schemathesis is not installed: tools/install-python")
def test_the_document_and_the_server_agree(start):
    """With a tool of others: what the document allows is not refused as malformed, and answers are as it says."""
    schemathesis_finds_nothing(
        start(), "--max-examples", "15", "--checks",
        "not_a_server_error,status_code_conformance,response_schema_conformance,content_type_conformance,allowed_is_not_malformed")


@pytest.mark.skipif(not SCHEMATHESIS.exists() and os.environ.get("CI") != "true",
                    reason="schemathesis is not installed: tools/install-python")
def test_bodies_that_the_document_forbids_are_refused(start):
    # The other doors ignore fields that they do not know: their clients send more.
    schemathesis_finds_nothing(start(), "--max-examples", "15", "--include-path-regex", "^/v1/", "--include-method", "POST",
                               "--include-method", "PATCH", "--mode", "negative", "--checks", "not_a_server_error,negative_data_rejection")


# --- Lists ---


def test_pages_give_every_job_once(start):
    scheduler = start()
    batch = {"jobs": [{"spec": {"script": "true", "name": f"j{i % 7}"}} for i in range(1000)]}
    ids = [job for _ in range(3) for job in call(scheduler, "POST", "/v1/jobs", batch, status=201).json["job_ids"]]
    whole = get(scheduler, "/v1/jobs?page_size=10000&fields=job_id")
    assert [job["job_id"] for job in whole["jobs"]] == list(reversed(ids))
    assert whole["total"] == 3000 and "next_page_token" not in whole
    for query, wanted in [("", 3000), ("&name=j3", 429)]:
        seen, token = [], ""
        while True:
            page = get(scheduler, f"/v1/jobs?page_size=700&fields=job_id,spec.name{query}&page_token={token}")
            seen += [job["job_id"] for job in page["jobs"]]
            token = page.get("next_page_token")
            if not token:
                break
        assert len(seen) == len(set(seen)) and abs(len(seen) - wanted) <= 3
        assert ("total" in page) == (query == "")


# --- Streams ---


def test_a_stream_answers_every_line_in_order(start):
    scheduler = start()
    lines = []
    for i in range(5000):
        spec = {"name": f"s{i}"} if i % 10 == 3 else {"name": f"s{i}", "script": "true"}
        lines.append(json.dumps({"spec": spec}).encode())
    answers = stream(scheduler, b"\n".join(lines) + b"\n")
    assert len(answers) == 5000
    for i, answer in enumerate(answers):
        if i % 10 == 3:
            assert answer["code"] == "unprocessable" and answer["field"] == "spec.command"
    ids = [answer["job_ids"][0] for answer in answers if "job_ids" in answer]
    assert ids == sorted(ids, key=lambda job: int(job[4:])) and len(set(ids)) == 4500
    assert get(scheduler, f"/v1/jobs/{ids[-1]}?fields=spec.name") == {"spec": {"name": "s4999"}}


def test_what_a_stream_was_told_is_durable(start):
    scheduler = start()
    data = b"".join(b'{"spec":{"script":"true","name":"k%d"},"request_key":"k%d"}\n' % (i, i) for i in range(300))
    first = stream(scheduler, data)
    assert stream(scheduler, data) == first  # The keys make it safe to repeat.
    assert get(scheduler, "/v1/jobs")["total"] == 300


def test_a_client_that_does_not_read_stops_the_stream(start):
    """Answers that are not read fill a bounded space: the server stops reading then."""
    scheduler = start()
    line = b'{"spec":{"script":"true","labels":{"pad":"' + b"p" * 200 + b'"}}}\n'
    with scheduler.connect() as connection:
        connection.sendall(b"POST /v1/jobs:stream HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.settimeout(5)
        sent = 0
        block = line * 2000
        chunk = b"%x\r\n" % len(block) + block + b"\r\n"
        try:
            while sent < 600_000_000:
                connection.sendall(chunk)
                sent += len(chunk)
        except TimeoutError:
            pass
        resident = int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{scheduler.process.pid}/status").read_text())[1]) // 1024
        waiting = get(scheduler, "/v1/jobs?fields=job_id&page_size=1")["total"]
    assert sent < 600_000_000, "it was read without end"
    # What is accepted is kept, what is on its way is bounded.
    assert resident < 200 + waiting * 2 // 1000, (resident, waiting)
    assert call(scheduler, "GET", "/health").status == 200


def test_the_command_line_submits_lines(start):
    scheduler = start()
    lines = "".join(json.dumps({"spec": {"script": "true", "name": f"c{i}"}}) + "\n" for i in range(2500))
    command = [str(BIN / "gpu-cli"), "--api-url", f"http://127.0.0.1:{scheduler.ports['http']}", "submit", "--stream", "-"]
    run = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    ids = run.stdout.split()
    assert len(ids) == len(set(ids)) == 2500
    # Where root tests, gpu-cli has the token.
    shown = scheduler.call("GET", f"/v1/jobs/{ids[1234]}?fields=spec.name", headers=scheduler.credential())
    assert shown.json == {"spec": {"name": "c1234"}}
    mixed = '{"spec":{"script":"true"}}\n\n{"spec":{}}\n{"spec":{"script":"true"},"request_key":"mine"}\n'
    for _ in range(2):
        run = subprocess.run(command, input=mixed, capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 4 and len(run.stdout.split()) == 2
        assert "line 3: the job has nothing to run" in run.stderr
    # Its own key makes the last line one job, the first line is two.
    assert get(scheduler, "/v1/jobs")["total"] == 2503


# --- Watches ---


def test_a_watch_tells_of_changes_by_every_door(start):
    scheduler = start()
    with scheduler.connect() as connection:
        connection.sendall(b"GET /v1/watch?fields=job_id,state HTTP/1.1\r\nHost: localhost\r\n\r\n")
        seen = b""
        while b"event: begin" not in seen:
            seen += connection.recv(65536)
        job = scheduler.submit()
        scheduler.call("DELETE", "/api/v1/jobs/" + job)
        while f'{{"job_id":"{job}","state":"cancelled"}}'.encode() not in seen:
            piece = connection.recv(65536)
            assert piece, seen
            seen += piece


def test_a_watch_that_is_left_costs_nothing_more(start):
    scheduler = start()
    for _ in range(50):
        connection = scheduler.connect()
        connection.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in connection.recv(4096)
        connection.close()
    for _ in range(20):
        submit(scheduler)
    assert get(scheduler, "/v1/jobs")["total"] == 20
