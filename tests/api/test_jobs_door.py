"""The jobs door's REST contract, byte by byte."""

import os
import re

import pytest
from conftest import read_answer

JOB_FIELDS = {"id", "tenant_id", "name", "state", "priority", "gpu_count", "gpu_memory_mb", "cpu_cores", "memory_mb",
              "image", "command", "args", "labels", "submitted_at", "scheduled_at", "started_at", "completed_at",
              "estimated_duration", "preempted_count"}
TENANT_FIELDS = {"id", "name", "email", "organization", "max_gpus", "max_gpu_memory_mb", "max_cpu_cores",
                 "max_memory_mb", "max_concurrent_jobs", "priority_tier", "fair_share_weight", "allow_preemption",
                 "can_preempt_others", "current_gpus", "current_gpu_memory", "current_cpu_cores", "current_memory",
                 "current_jobs", "total_gpu_hours", "total_jobs", "successful_jobs", "failed_jobs", "active",
                 "created_at", "updated_at"}


@pytest.mark.parametrize("path", ["/health", "/api/v1/health"])
def test_health_is_there_with_and_without_prefix(scheduler, path):
    answer = scheduler.call("GET", path)
    assert answer.status == 200
    assert answer.json["status"] == "healthy"
    assert answer.headers["content-type"] == "application/json"


def test_a_submission_is_answered_as_the_contract_says(scheduler):
    answer = scheduler.call("POST", "/api/v1/jobs", {
        "name": "train", "priority": 200, "gpu_count": 2, "gpu_memory_mb": 160_000, "cpu_cores": 4, "memory_mb": 1024,
        "command": ["python", "train.py"], "args": ["--x"], "environment": {"A": "b"}, "gang_scheduling": False,
        "max_runtime_minutes": 5, "labels": {"team": "a"}, "checkpoint_enabled": True, "unknown_field": [1, {"a": 2}]})
    assert answer.status == 201, answer.raw
    body = answer.json
    assert re.fullmatch(r"job-[0-9]+", body["job_id"])
    assert body["status"] == "submitted"
    assert body["message"] == "Job submitted successfully"
    assert isinstance(body["queue_position"], int)
    assert body["ignored"] == ["unknown_field"]
    assert "estimated_wait" not in body  # No forecast knows it yet.

    shown = scheduler.call("GET", f"/api/v1/jobs/{body['job_id']}").json
    assert shown["job_id"] == body["job_id"]
    assert shown["state"] == "pending"
    assert shown["final"] is False
    assert shown["allocated_gpus"] == []
    assert shown["node_name"] == ""
    assert shown["queue_position"] >= 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", shown["submitted_at"])
    assert shown["started_at"] is None and shown["completed_at"] is None and shown["exit_code"] is None
    assert shown["attempts"] == 0
    assert shown["message"]

    listed = scheduler.call("GET", "/api/v1/jobs?limit=1").json["jobs"][0]
    assert JOB_FIELDS <= set(listed)
    assert listed["id"] == body["job_id"]
    assert listed["tenant_id"] == "default"
    assert (listed["priority"], listed["gpu_count"], listed["gpu_memory_mb"]) == (200, 2, 160_000)
    assert (listed["cpu_cores"], listed["memory_mb"]) == (4, 1024)
    assert listed["command"] == ["python", "train.py"] and listed["args"] == ["--x"]
    assert listed["labels"] == {"team": "a"}


def test_defaults_are_priority_100_and_one_core(scheduler):
    shown = scheduler.call("GET", f"/api/v1/jobs/{scheduler.submit()}").json
    assert shown["priority"] == 100
    assert shown["cpu_cores"] == 1
    assert shown["gpu_count"] == 0
    assert scheduler.call("GET", f"/api/v1/jobs/{scheduler.submit(cpu_cores=0)}").json["cpu_cores"] == 0


def test_a_job_is_cancelled_once(scheduler):
    job = scheduler.submit()
    answer = scheduler.call("DELETE", f"/api/v1/jobs/{job}")
    assert answer.status == 200
    assert answer.json == {"message": "Job cancelled successfully"}
    shown = scheduler.call("GET", f"/api/v1/jobs/{job}").json
    assert shown["state"] == "cancelled" and shown["final"] is True and shown["completed_at"]
    again = scheduler.call("DELETE", f"/api/v1/jobs/{job}")
    assert again.status == 409
    assert again.json["code"] == "job_finished"


def test_lists_page_filter_and_count_all_that_match(scheduler):
    tenant = scheduler.call("POST", "/api/v1/tenants", {"name": "lists"}).json["id"]
    jobs = [scheduler.submit(tenant_id=tenant, name=f"n{i}") for i in range(5)]
    scheduler.call("DELETE", f"/api/v1/jobs/{jobs[2]}")
    everything = scheduler.call("GET", f"/api/v1/jobs?tenant_id={tenant}").json
    assert everything["total"] == 5
    assert [job["id"] for job in everything["jobs"]] == jobs[::-1]
    page = scheduler.call("GET", f"/api/v1/jobs?tenant_id={tenant}&limit=2&offset=1").json
    assert page["total"] == 5
    assert [job["id"] for job in page["jobs"]] == [jobs[3], jobs[2]]
    pending = scheduler.call("GET", f"/api/v1/jobs?tenant_id={tenant}&state=pending&limit=3").json
    assert pending["total"] == 4
    assert [job["id"] for job in pending["jobs"]] == [jobs[4], jobs[3], jobs[1]]
    cancelled = scheduler.call("GET", f"/api/v1/jobs?tenant_id={tenant}&state=cancelled").json
    assert [job["id"] for job in cancelled["jobs"]] == [jobs[2]]
    beyond = scheduler.call("GET", f"/api/v1/jobs?tenant_id={tenant}&offset=99").json
    assert beyond == {"jobs": [], "total": 5}


def test_a_tenant_has_all_fields_and_no_limit_where_none_is_given(scheduler):
    answer = scheduler.call("POST", "/api/v1/tenants", {"name": "full", "max_gpus": 4, "organization": "o"})
    assert answer.status == 201
    tenant = answer.json
    assert TENANT_FIELDS <= set(tenant)
    assert re.fullmatch(r"tenant-[0-9]+", tenant["id"])
    assert tenant["max_gpus"] == 4 and tenant["max_memory_mb"] is None
    assert tenant["priority_tier"] == "medium" and tenant["fair_share_weight"] == 1
    assert tenant["active"] is True and tenant["current_gpus"] == 0

    same = scheduler.call("GET", f"/api/v1/tenants/{tenant['id']}").json
    assert same == tenant
    assert scheduler.call("GET", "/api/v1/tenants/full").json["id"] == tenant["id"]
    listed = scheduler.call("GET", "/api/v1/tenants").json
    assert listed["total"] == len(listed["tenants"])
    assert {"default", tenant["id"]} <= {one["id"] for one in listed["tenants"]}

    updated = scheduler.call("PUT", f"/api/v1/tenants/{tenant['id']}", {"max_gpus": None, "max_memory_mb": 5,
                                                                       "priority_tier": "low"}).json
    assert updated["max_gpus"] is None and updated["max_memory_mb"] == 5 and updated["priority_tier"] == "low"
    assert updated["organization"] == "o"
    assert scheduler.call("DELETE", f"/api/v1/tenants/{tenant['id']}").status == 200
    assert scheduler.call("GET", f"/api/v1/tenants/{tenant['id']}").status == 404
    assert scheduler.call("POST", "/api/v1/jobs", {"script": "x", "tenant_id": tenant["id"]}).status == 404


def test_a_tenants_name_is_taken_once_where_the_caller_or_the_native_api_asks(scheduler):
    assert scheduler.call("POST", "/api/v1/tenants", {"name": "once"}).status == 201
    for path in ("/api/v1/tenants?unique_name=true", "/v1/tenants"):
        again = scheduler.call("POST", path, {"name": "once"}, scheduler.credential())
        assert again.status == 409, path
        assert again.json["code"] == "tenant_exists"


def test_the_same_name_again_is_another_tenant_and_then_ids_are_asked_for(scheduler):
    """Clients run their set-up twice."""
    first, second = (scheduler.call("POST", "/api/v1/tenants", {"name": "twice", "max_gpus": limit}) for limit in (2, 3))
    assert (first.status, second.status) == (201, 201)
    ids = [first.json["id"], second.json["id"]]
    assert ids[0] != ids[1] and (first.json["name"], second.json["name"]) == ("twice", "twice")
    token = scheduler.credential()
    asks = [("GET", "/api/v1/tenants/twice", b""), ("PUT", "/api/v1/tenants/twice", {"max_gpus": 1}),
            ("DELETE", "/api/v1/tenants/twice", b""), ("POST", "/api/v1/jobs", {"script": "x", "tenant_id": "twice"}),
            ("GET", "/api/v1/jobs?tenant_id=twice", b""), ("POST", "/api/v1/jobs:plan", {"script": "x", "tenant_id": "twice"}),
            ("GET", "/v1/tenants/twice", b""), ("PATCH", "/v1/tenants/twice", {"max_gpus": 1}),
            ("POST", "/v1/jobs", {"tenant_id": "twice", "jobs": [{"spec": {"script": "x"}}]}),
            ("GET", "/v1/jobs?tenant_id=twice", b""), ("GET", "/v1/quality?tenant_id=twice", b""),
            ("POST", "/v1/cluster:edit", {"tenants": [{"name": "twice", "max_gpus": 1}]}),
            ("POST", "/v1/cluster:edit", {"tenants": [{"name": "below-twice", "parent_id": "twice"}]}),
            ("POST", "/v1/reservations", {"name": "r", "tenant_id": "twice", "node_names": ["n1"], "duration_ms": 60_000})]
    for method, path, body in asks:
        for headers in (token, {}) if path.startswith("/api/") else (token,):
            answer = scheduler.call(method, path, body, headers)
            assert (answer.status, answer.json["code"]) == (409, "tenant_ambiguous"), (method, path, answer.raw)
            assert f"{ids[0]}, {ids[1]}" in answer.json["error"]
    # A child of it, by name or id.
    for headers in (token, {}):
        child = scheduler.call("POST", "/api/v1/tenants", {"name": "child", "parent_id": "twice"}, headers)
        assert child.status == 409 and child.json["field"] == "parent_id" and ids[1] in child.json["error"]
    # By its id each is as before, and keeps its name.
    job = scheduler.submit(tenant_id=ids[1])
    assert scheduler.call("GET", f"/api/v1/jobs/{job}").json["tenant_id"] == ids[1]
    assert scheduler.call("GET", f"/api/v1/jobs/{job}?tenant_id=twice").status == 409
    changed = scheduler.call("PUT", f"/api/v1/tenants/{ids[1]}", {**second.json, "max_gpus": 5}, token)
    assert (changed.status, changed.json["max_gpus"], changed.json["name"]) == (200, 5, "twice")
    # Once it is one again its name will do.
    assert scheduler.call("DELETE", f"/api/v1/tenants/{ids[0]}").status == 200
    assert scheduler.call("GET", "/api/v1/tenants/twice").json["id"] == ids[1]
    # The same key is the same tenant.
    key = {"Idempotency-Key": "set-up-of-a-client"}
    again = [scheduler.call("POST", "/api/v1/tenants", {"name": "keyed"}, key).json["id"] for _ in range(2)]
    assert again[0] == again[1]


def test_a_tenant_keeps_its_parent(scheduler):
    token = scheduler.credential()
    above, other = (scheduler.call("POST", "/api/v1/tenants", {"name": name}, token).json for name in ("above", "other"))
    below = scheduler.call("POST", "/api/v1/tenants", {"name": "below", "parent_id": "above"}, token).json
    assert below["parent_id"] == above["id"]
    changes = [("PUT", "/api/v1/tenants/below"), ("PATCH", "/v1/tenants/below")]
    for method, path in changes:
        for parent in (other["id"], "other", "nobody", ""):
            refused = scheduler.call(method, path, {"name": "below", "parent_id": parent}, token)
            assert (refused.status, refused.json["field"]) == (422, "parent_id"), (method, parent, refused.raw)
            assert "cannot be changed" in refused.json["error"]
    # What was read may be sent back.
    for limit, (method, path) in enumerate(changes, start=3):
        read = scheduler.call("GET", "/api/v1/tenants/below", headers=token).json
        kept = scheduler.call(method, path, {"name": "below", "parent_id": read["parent_id"], "max_gpus": limit}, token)
        assert (kept.status, kept.json["max_gpus"], kept.json["parent_id"]) == (200, limit, above["id"]), kept.raw


def test_names_of_tenants_are_unique_in_whatever_case_of_any_script(scheduler):
    token = scheduler.credential()
    assert scheduler.call("POST", "/v1/tenants", {"name": "\u00c4pfel"}, token).status in (200, 201)
    for name in ("\u00e4PFEL", "\u00e4pfel"):
        again = scheduler.call("POST", "/v1/tenants", {"name": name}, token)
        assert (again.status, again.json["code"]) == (409, "tenant_exists"), name
    wide = scheduler.call("POST", "/v1/tenants", {"name": "\uff4c\uff41\uff42"}, token)
    assert (wide.status, wide.json["field"]) == (400, "name") and "write it as lab" in wide.json["error"]


def test_an_anonymous_caller_takes_no_name_of_a_tenant_that_is_not_its_own(scheduler):
    assert scheduler.call("POST", "/api/v1/tenants", {"name": "theirs"}, scheduler.credential()).status == 201
    again = scheduler.call("POST", "/api/v1/tenants", {"name": "theirs"})
    assert (again.status, again.json["code"]) == (409, "tenant_exists")
    # Nor is it told of one that it may not use.
    assert scheduler.call("POST", "/api/v1/tenants", {"name": "both"}).status == 201
    assert scheduler.call("POST", "/api/v1/tenants", {"name": "both"}, scheduler.credential()).status == 201
    assert scheduler.call("GET", "/api/v1/tenants/both").status == 200
    assert scheduler.call("GET", "/api/v1/tenants/both", headers=scheduler.credential()).status == 409


def test_typed_clients_can_decode_every_answer(scheduler):
    made = scheduler.call("POST", "/api/v1/tenants", {"name": "typed", "priority_tier": "", "fair_share_weight": 0}).json
    assert (made["priority_tier"], made["fair_share_weight"]) == ("medium", 1)
    trusted = scheduler.credential()
    for given, shown in (("low", "low"), (1000, "high"), ("critical", "critical"), (700, "700"), ("701", "701")):
        path = f"/api/v1/tenants/{made['id']}"
        assert scheduler.call("PUT", path, {"priority_tier": given}, trusted).json["priority_tier"] == shown
    # Zeros of a typed client change nothing in an update.
    kept = scheduler.call("PUT", path, {"priority_tier": "", "fair_share_weight": 0}, trusted).json
    assert (kept["priority_tier"], kept["fair_share_weight"]) == ("701", 1)
    job = scheduler.submit(tenant_id=made["id"], max_runtime_minutes=2)
    for shown in (scheduler.call("GET", f"/api/v1/jobs/{job}").json,
                  scheduler.call("GET", f"/api/v1/jobs?tenant_id={made['id']}").json["jobs"][0]):
        assert shown["estimated_duration"] == 120_000_000_000 and isinstance(shown["estimated_duration"], int)
        assert shown["status"] == shown["state"] == "pending"
        # There has been no forecast of it yet.
        assert "estimated_wait" not in shown or shown["estimated_wait"].endswith("s")


def test_the_list_of_an_unknown_tenant_is_empty(scheduler):
    for tenant in ("nobody", "tenant-99999999"):
        answer = scheduler.call("GET", f"/api/v1/jobs?tenant_id={tenant}")
        assert (answer.status, answer.json) == (200, {"jobs": [], "total": 0})


def test_an_image_waits_for_a_node_that_can_run_it(scheduler):
    job = scheduler.submit(image="nvidia/cuda:12.0-base", gpu_count=1)
    explained = scheduler.until(lambda: scheduler.call("GET", f"/api/v1/jobs/{job}").json,
                                lambda answer: answer["reason"] != "queued")
    assert explained["state"] == "pending" and explained["message"]


def test_fields_that_mean_nothing_are_named(scheduler):
    answer = scheduler.call("POST", "/api/v1/jobs", {"script": "true", "gpus": 8, "Name": "x"})
    assert answer.status == 201 and answer.json["ignored"] == ["gpus", "Name"]
    answer = scheduler.call("POST", "/api/v1/jobs", {"script": "true", "gpu_count": 8})
    assert answer.status == 201 and "ignored" not in answer.json and "estimated_wait" not in answer.json


def test_what_alone_exceeds_the_quota_is_403_in_these_words(scheduler):
    tenant = scheduler.call("POST", "/api/v1/tenants", {"name": "small", "max_gpus": 4}).json["id"]
    answer = scheduler.call("POST", "/api/v1/jobs", {"script": "x", "gpu_count": 8, "tenant_id": tenant})
    assert answer.status == 403
    assert answer.json == {"error": f"quota exceeded for tenant {tenant}: GPUs requested=8, quota=4, current=0",
                           "code": "quota_exceeded", "field": "gpu_count"}


def test_more_than_any_node_has_waits_and_says_so(scheduler):
    job = scheduler.submit(gpu_count=64, gpu_model="H9000")
    # Until the planner has looked at it, it only waits for its turn.
    explained = scheduler.until(lambda: scheduler.call("GET", f"/api/v1/jobs/{job}/explain").json,
                                lambda answer: answer["reason"] != "queued")
    assert explained["job_id"] == job and explained["state"] == "pending"
    assert explained["reason"] in ("no_node", "no_matching_gpu")
    assert explained["message"] and "NodeAdded" in explained["lifted_by"]
    refused = scheduler.call("POST", "/api/v1/jobs", {"script": "x", "gpu_count": 64, "require_feasible": True})
    assert refused.status == 422
    assert refused.json["code"] == "infeasible"


def test_a_repeated_key_is_one_job_and_another_body_a_conflict(scheduler):
    key = {"Idempotency-Key": "9b2e6f0a-key"}
    first = scheduler.call("POST", "/api/v1/jobs", {"script": "true", "labels": {"a": "1", "b": "2"}}, key)
    again = scheduler.call("POST", "/api/v1/jobs", {"labels": {"b": "2", "a": "1"}, "script": "true"}, key)
    assert (first.status, again.status) == (201, 201)
    assert first.json["job_id"] == again.json["job_id"]
    other = scheduler.call("POST", "/api/v1/jobs", {"script": "false"}, key)
    assert other.status == 409
    assert other.json["code"] == "request_key_conflict"


def test_the_cluster_without_nodes(scheduler):
    cluster = scheduler.call("GET", "/api/v1/cluster/status").json
    assert {"total_nodes", "online_nodes", "total_gpus", "available_gpus", "total_jobs", "running_jobs",
            "pending_jobs"} <= set(cluster)
    assert cluster["total_nodes"] == 0
    assert scheduler.call("GET", "/api/v1/nodes").json == {"nodes": [], "total": 0}


def test_a_wait_returns_when_the_job_is_final(scheduler):
    job = scheduler.submit()
    with scheduler.connect() as waiting:
        waiting.sendall(f"GET /api/v1/jobs/{job}?wait=50s HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert scheduler.call("DELETE", f"/api/v1/jobs/{job}").status == 200
        assert read_answer(waiting).json["state"] == "cancelled"
    unchanged = scheduler.submit()
    assert scheduler.call("GET", f"/api/v1/jobs/{unchanged}?wait=20ms").json["state"] == "pending"


def test_output_of_a_job_that_has_not_started_is_404(scheduler):
    answer = scheduler.call("GET", f"/api/v1/jobs/{scheduler.submit()}/logs")
    assert answer.status == 404
    assert answer.json["code"] == "log_not_found"


def test_metrics_have_the_contracts_names(scheduler):
    scheduler.submit()
    answer = scheduler.call("GET", "/metrics", port="metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    assert re.search(r'^gpu_scheduler_jobs_total\{state="pending"\} [1-9]', text, re.M)
    assert re.search(r"^gpu_scheduler_queue_size [1-9]", text, re.M)
    assert "# TYPE gpu_scheduler_gpu_utilization gauge" in text
    assert "# TYPE gpu_scheduler_scheduling_latency histogram" in text
    assert "gpu_scheduler_preemptions_total 0" in text


def test_the_command_line_of_one_connection_is_answered_in_order(scheduler):
    jobs = [scheduler.submit() for _ in range(3)]
    with scheduler.connect() as connection:
        connection.sendall("".join(f"GET /api/v1/jobs/{job} HTTP/1.1\r\nHost: localhost\r\n\r\n" for job in jobs).encode())
        data = b""
        while data.count(b'"job_id"') < 3:
            data += connection.recv(65536)
    assert re.findall(rb'"job_id":"(job-[0-9]+)"', data) == [job.encode() for job in jobs]


def test_origins_are_as_configured(start, scheduler):
    origin = {"Origin": "https://ui.example"}
    assert "access-control-allow-origin" not in scheduler.call("GET", "/health").headers
    assert scheduler.call("POST", "/api/v1/jobs", {"script": "x"}, origin).status == 403

    open_one = start(GPU_SCHEDULER_API_CORS_ENABLED="true", GPU_SCHEDULER_API_CORS_ORIGINS="https://ui.example")
    allowed = open_one.call("POST", "/api/v1/jobs", {"script": "x"}, origin)
    assert allowed.status == 201
    assert allowed.headers["access-control-allow-origin"] == "https://ui.example"
    preflight = open_one.call("OPTIONS", "/api/v1/jobs", b"", {**origin, "Access-Control-Request-Method": "POST"})
    assert preflight.status == 204
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert open_one.call("POST", "/api/v1/jobs", {"script": "x"}, {"Origin": "https://no.example"}).status == 403


@pytest.mark.parametrize("origins", ["*", "https://ui.example", "http://localhost:3000"])
def test_a_preflight_is_answered_as_the_call_would_be(start, origins):
    one = start(GPU_SCHEDULER_API_CORS_ENABLED="true", GPU_SCHEDULER_API_CORS_ORIGINS=origins)
    secret = {"Authorization": "Bearer " + open(f"{one.folder}/data/token", encoding="ascii").read().strip()}
    for origin in ("https://ui.example", "https://no.example", "http://localhost:3000", "http://127.0.0.1:9999"):
        for host in ({}, {"Host": "rebound.example"}):
            for method, path, body in (("POST", "/api/v1/jobs", {"script": "x"}), ("GET", "/api/v1/jobs", b"")):
                for credential in ({}, secret):
                    asked = {"Access-Control-Request-Method": method,
                             "Access-Control-Request-Headers": ", ".join(["content-type", *map(str.lower, credential)])}
                    preflight = one.call("OPTIONS", path, b"", {"Origin": origin, **host, **asked})
                    call = one.call(method, path, body, {"Origin": origin, **host, **credential})
                    said = preflight.status == 204 and "access-control-allow-origin" in preflight.headers
                    meant = call.status < 400 and "access-control-allow-origin" in call.headers
                    assert said == meant, (origin, host, method, credential.keys(), preflight, call)
    allowed = one.call("OPTIONS", "/api/v1/jobs", b"", {
        "Origin": "http://localhost:3000" if origins != "https://ui.example" else origins, "Access-Control-Request-Method": "POST"})
    assert "X-Requested-By" in allowed.headers["access-control-allow-headers"]


def test_a_full_queue_is_429_with_a_time(start):
    small = start(GPU_SCHEDULER_SCHEDULER_MAX_QUEUE_SIZE="6")  # Half of it, as nobody else comes.
    for _ in range(3):
        small.submit()
    answer = small.call("POST", "/api/v1/jobs", {"script": "true"})
    assert answer.status == 429
    assert answer.json["code"] == "queue_full"
    assert int(answer.headers["retry-after"]) > 0


def test_specifications_that_find_no_room_are_429_with_what_to_do(start):
    small = start(GPU_SCHEDULER_SCHEDULER_SPECS_MB_MAX="64")
    script = "#!/bin/sh\n" + "#" * 1_000_000
    for _ in range(33):
        small.submit(script=script)
    answer = small.call("POST", "/api/v1/jobs", {"script": script})
    assert answer.status == 429
    assert (answer.json["code"], int(answer.headers["retry-after"])) == ("specs_full", 5)
    assert "the 64 MB that scheduler.specs_mb_max allows" in answer.json["error"]
    assert answer.json["error"].endswith(
        "wait until jobs end, cancel some, or put large scripts and data into files that the jobs read")
    # A small job of the tenant's own fits, and another tenant's large one.
    small.submit(script="true")
    tenant = small.call("POST", "/api/v1/tenants", {"name": "other"}).json["id"]
    assert small.call("POST", "/api/v1/jobs", {"script": script, "tenant_id": tenant}).status == 201


def test_too_many_requests_are_429(start):
    slow = start(GPU_SCHEDULER_API_RATE_LIMIT_RPS="2")
    answers = [slow.call("GET", "/api/v1/cluster/status") for _ in range(30)]
    refused = [answer for answer in answers if answer.status == 429]
    assert answers[0].status == 200
    assert refused and refused[0].json["code"] == "rate_limited" and int(refused[0].headers["retry-after"]) > 0


def test_health_counts_in_no_rate(start):
    slow = start(GPU_SCHEDULER_API_RATE_LIMIT_RPS="2", GPU_SCHEDULER_API_CALLER_RATE_LIMIT_RPS="2")
    for headers in ({}, None):
        answers = {slow.call("GET", path, headers=headers).status for _ in range(15) for path in ("/health",
                                                                                                 "/api/v1/health")}
        assert answers == {200}
    assert slow.call("GET", "/api/v1/cluster/status").status == 200


def test_whoever_tries_tokens_is_slowed_down(start):
    slow = start(GPU_SCHEDULER_API_RATE_LIMIT_RPS="2")
    tried = [slow.call("GET", "/api/v1/jobs", headers={"Authorization": f"Bearer {number:064}"})
             for number in range(30)]
    assert {answer.status for answer in tried} == {401, 429}


def test_another_address_asks_for_the_token(start):
    open_one = start(GPU_SCHEDULER_API_ADDRESS="0.0.0.0")
    refused = open_one.call("GET", "/api/v1/jobs")
    assert refused.status == 401
    assert refused.json["code"] == "unauthenticated"
    assert refused.headers["www-authenticate"] == "Bearer"
    path = f"{open_one.folder}/data/token"

    assert os.stat(path).st_mode & 0o777 == 0o600
    with open(path, encoding="ascii") as file:
        token = file.read().strip()
    assert open_one.call("GET", "/api/v1/jobs", b"", {"Authorization": f"Bearer {token}"}).status == 200
    assert open_one.call("GET", "/metrics", port="metrics").status == 401
    with open(f"{open_one.folder}/stderr", encoding="utf-8", errors="replace") as file:
        assert token not in file.read()


def test_gangs_that_are_switched_off_are_refused_in_all_their_forms(start):
    small = start(GPU_SCHEDULER_SCHEDULER_ENABLE_GANG_SCHEDULING="false")
    for body, field in (({"gpu_count": 16, "gang_scheduling": True}, "gang_scheduling"),
                        ({"gpus_per_node": 2, "nodes": 2}, "nodes")):
        for path in ("/api/v1/jobs", "/api/v1/jobs:plan"):
            answer = small.call("POST", path, {"script": "true", **body})
            assert (answer.json["code"], answer.json["field"]) == ("parts_unsupported", field), (path, answer.json)
    # One GPU is on one node, whatever is asked for.
    small.submit(script="true", gpu_count=1, gang_scheduling=True)


def test_a_plan_takes_elements_of_arrays_as_parents(start):
    small = start()
    array = small.submit(script="true", array="3-6")
    plan = {"script": "true", "dependencies": [f"after_any:{array}[4]"]}
    assert small.call("POST", "/api/v1/jobs:plan", plan).status == 200
    refused = small.call("POST", "/api/v1/jobs:plan", {**plan, "dependencies": [f"after_any:{array}[7]"]})
    assert refused.json["code"] == "dependency_not_found" and f"{array}[7]" in refused.json["error"]
