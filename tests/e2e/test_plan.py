"""Plans, explanations and estimates: what a real scheduler promises beforehand, and what then happens."""

import json

import pytest
from harness import wait_until


@pytest.fixture(name="world")
def world_fixture(new_world):
    """One node of four GPUs."""
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    world.api().wait_node("n1")
    return world


def plan(api, expected=200, **fields):
    fields.setdefault("script", "true")
    return api.post("/jobs:plan", fields, expected)


def hold_gpus(api, gpus, **fields):
    job = api.submit("exec sleep 600", gpu_count=gpus, **fields)
    api.wait_for(job, ("running",))
    return job


def flags_of(change):
    """The change's fields, for another submission."""
    fields = {"gpu_count": change["gpu_count"], "memory_mb": change["memory_mb"],
              "cpu_cores": change["cpu_milli"] / 1000}
    for name in ("gpu_model", "gpu_memory_mb"):
        if change[name]:
            fields[name] = change[name]
    if change["max_runtime_ms"]:
        fields["max_runtime_seconds"] = change["max_runtime_ms"] // 1000
    return fields


def test_what_is_planned_to_start_now_starts_there(world):
    api = world.api()
    hold_gpus(api, 1)
    before = len(api.jobs())
    planned = plan(api, gpu_count=3, max_runtime_seconds=100)
    assert planned["starts_now"] and planned["node_name"] == "n1" and len(planned["gpus"]) == 3
    assert planned["gpu_seconds_reserved"] == 300
    assert planned["estimate"]["p50_seconds"] == 0
    # Nothing was submitted by asking.
    assert len(api.jobs()) == before
    job = api.submit("exec sleep 600", gpu_count=3)
    shown = api.wait_for(job, ("running",))
    assert shown["allocated_gpus"] == planned["gpus"]


def test_what_would_wait_says_why_until_when_and_what_would_help(world):
    api = world.api()
    hold_gpus(api, 3, max_runtime_seconds=3600)
    planned = plan(api, gpu_count=2)
    assert not planned["starts_now"]
    assert planned["reason"] == "gpus_busy"
    assert planned["evidence"]["gpus_free_max"] == 1 and planned["evidence"]["gpus_wanted"] == 2
    estimate = planned["estimate"]
    assert 0 < estimate["p50_seconds"] <= estimate["p90_seconds"] <= 3700
    assert estimate["runs"] == 16
    # The smallest change is true: so changed, it starts.
    change = planned["changes"][0]
    assert change["flags"] == "--gpus 1"
    job = api.submit("exec sleep 600", **flags_of(change))
    assert api.wait_for(job, ("running",))["allocated_gpus"] == change["gpus"]


def test_a_waiting_job_is_explained_with_its_estimate_and_its_way_out(world):
    api = world.api()
    first = hold_gpus(api, 4)
    waits = api.submit("true", gpu_count=2)
    behind = api.submit("true", gpu_count=2)

    def blocked():
        shown = api.explain(waits)
        return shown if shown["reason"] == "gpus_busy" else None

    shown = wait_until("the planner has looked at it", blocked)
    assert shown["estimate"]["p50_seconds"] > 0 and shown["estimate"]["place"] == 1
    assert shown["changes"] == []
    assert "JobEnded" in shown["lifted_by"]
    assert api.explain(behind)["estimate"]["place"] <= 2
    api.cancel(first)
    for job in (waits, behind):
        assert api.wait_for(job)["state"] == "completed"

    # What was said of it is scored.
    def scored():
        status, quality, _ = api.call("GET", "/v1/quality")
        assert status == 200
        return quality if quality["starts"][0]["count"] >= 1 else None

    quality = wait_until("the estimate was scored", scored)
    assert quality["starts"][0]["mean_error_seconds"] > 0
    assert quality["forecasts"] >= 1
    assert [row["tenant_id"] for row in quality["starts"]] == ["", "default"]


def test_a_shorter_limit_lets_it_pass_what_is_kept_free(world):
    api = world.api()
    hold_gpus(api, 3, max_runtime_seconds=3600)
    api.submit("exec sleep 600", gpu_count=4, max_runtime_seconds=3600)
    waits = api.submit("exec sleep 600", gpu_count=1, max_runtime_seconds=7200)

    def reserved():
        shown = api.explain(waits)
        return shown if shown["reason"] == "reserved" else None

    shown = wait_until("it is kept back", reserved)
    change = shown["changes"][0]
    assert change["kind"] == "shorter_limit"
    status, _, _ = api.call("PATCH", f"/v1/jobs/{waits}", {"max_runtime_ms": change["max_runtime_ms"]})
    assert status == 200
    api.wait_for(waits, ("running",))


def test_held_and_impossible_jobs_are_stuck(world):
    api = world.api()
    held = api.submit("true", gpu_count=1, held=True)
    assert api.explain(held)["estimate"]["stuck"]
    assert plan(api, gpu_count=64)["estimate"]["stuck"]


def test_a_plan_is_refused_as_the_submission_would_be(world):
    api = world.api()
    for body in ({"gpu_count": -1, "script": "true"}, {"script": "true", "command": ["true"]},
                 {"script": "true", "tenant_id": "nobody"},
                 {"script": "true", "gpu_count": 64, "require_feasible": True},
                 {"script": "true", "dependencies": ["after_ok:job-99999"]}):
        planned = api.call("POST", "/api/v1/jobs:plan", body)
        submitted = api.call("POST", "/api/v1/jobs", body)
        assert planned[0] == submitted[0] >= 400, (body, planned, submitted)
        assert planned[1] == submitted[1]
    status, answer, _ = api.call("POST", "/v1/jobs:plan", {"jobs": [{"spec": {"script": "true"}}] * 2})
    assert (status, answer["field"]) == (400, "jobs")


def test_a_plan_after_a_job_that_has_ended(world):
    api = world.api()
    parent = api.submit("true")
    api.wait_for(parent)
    assert plan(api, dependencies=[f"after_ok:{parent}"])["starts_now"]


def test_whom_a_plan_would_displace_is_named_to_its_own_tenant_only(new_world):
    world = new_world(SCHEDULER_PREEMPTION_PROTECTION_SECONDS=0, SCHEDULER_PREEMPTION_WAIT_SECONDS=0)
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    api.wait_node("n1")
    api.post("/tenants", {"name": "batch", "allow_preemption": True, "priority_tier": "low"}, 201)
    api.post("/tenants", {"name": "urgent", "can_preempt_others": True, "priority_tier": "critical"}, 201)
    victim = hold_gpus(api, 4, tenant_id="batch")
    planned = plan(api, tenant_id="urgent", gpu_count=2)
    assert not planned["starts_now"]
    assert planned["displaces"] == [{"job_id": "", "gpu_count": 4}]
    assert planned["reason"] == "preempts" and len(planned["gpus"]) == 2
    assert victim not in json.dumps(planned)
    assert api.job(victim)["state"] == "running"
    # Of one's own and to who asks for no tenant everything is shown.
    own = api.submit("true", tenant_id="batch", gpu_count=1)
    status, shown, _ = api.call("GET", f"/api/v1/jobs/{own}/explain?tenant_id=urgent")
    assert (status, shown["code"]) == (404, "job_not_found")


def test_the_command_line_plans_and_explains(world):
    api = world.api()
    hold_gpus(api, 3, max_runtime_seconds=3600)
    now = world.cli("plan", "--gpus", "1", "--time", "1h", "--", "true")
    assert now.returncode == 0 and "Starts:" in now.stdout and "n1-gpu-3" in now.stdout
    assert "3600 GPU-seconds at most" in now.stdout
    later = world.cli("plan", "--gpus", "2", "--", "true")
    assert "Starts:" in later.stdout and "Starts:    now" not in later.stdout and "--gpus 1 (on n1)" in later.stdout
    parsed = json.loads(world.cli("--json", "plan", "--gpus", "2", "--", "true").stdout)
    assert parsed["changes"][0]["kind"] == "fewer_gpus"
    waits = api.submit("true", gpu_count=2)
    wait_until("it is blocked", lambda: api.explain(waits)["reason"] == "gpus_busy")
    shown = world.cli("explain", waits).stdout
    assert "Starts:" in shown and "Now with:" in shown and "Would help:      a job ends" in shown
    assert json.loads(world.cli("--json", "explain", waits).stdout)["evidence"]["gpus_free_max"] == 1
    refused = world.cli("plan", "--tenant-id", "nobody", "--", "true")
    assert refused.returncode != 0 and "no such tenant" in refused.stderr
    assert "run times" in world.cli("quality").stdout


def test_a_guarantee_that_is_not_used_is_named_to_whom_may_see_its_owner(world):
    api = world.api()
    for name in ("lab", "borrower", "asks"):
        api.post("/tenants", {"name": name, "guaranteed_gpus": 2 if name == "lab" else 0}, 201)
    for _ in range(2):
        hold_gpus(api, 2, tenant_id="borrower")
    job = api.submit("exec sleep 600", gpu_count=2, tenant_id="asks")

    def offered(query=""):
        answer = api.call("GET", f"/v1/jobs/{job}/explain{query}")[1]
        return [change["flags"] for change in answer.get("changes", []) if change["kind"] == "idle_guarantee"]

    wait_until("it is offered", offered)
    assert offered() == ["2 GPUs of the guarantee of tenant lab, which is unused"]
    assert offered("?tenant_id=asks") == ["2 GPUs of an unused guarantee"]
    assert "tenant lab" in world.cli("explain", job, expected=0).stdout
    # Lent for real, it starts.
    api.call("PUT", "/api/v1/tenants/lab", {"guaranteed_gpus": 0})
    api.call("PUT", "/api/v1/tenants/asks", {"guaranteed_gpus": 2})
    api.wait_for(job, ("running",))
