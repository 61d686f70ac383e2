"""Plans and estimates on the wire: what a scheduler without nodes says, in every door's words."""

import pytest


def plan(scheduler, body, path="/v1/jobs:plan", status=200):
    answer = scheduler.call("POST", path, body)
    assert answer.status == status, answer.raw
    return answer.json


JOB = {"spec": {"script": "true"}, "resources": {"gpu_count": 1}, "max_runtime_ms": 60_000}


def test_a_plan_submits_nothing(scheduler):
    before = scheduler.call("GET", "/v1/cluster").json["sequence"]
    for body in (JOB, {"jobs": [JOB]}):
        planned = plan(scheduler, body)
        assert planned["starts_now"] is False and planned["tenant_id"] == "default"
        assert planned["reason"] == "no_node" and planned["lifted_by"] == ["NodeAdded"]
        assert planned["estimate"]["stuck"] is True and "p50" not in planned["estimate"]
        assert planned["gpu_seconds_reserved"] == 60 >= planned.get("gpu_seconds_expected", 0)
        assert planned["changes"] == [] and planned["displaces"] == [] and planned["quota"] == []
    assert scheduler.call("GET", "/v1/cluster").json["sequence"] == before


def test_both_doors_say_the_same(scheduler):
    native = plan(scheduler, JOB)
    door = plan(scheduler, {"script": "true", "gpu_count": 1, "max_runtime_seconds": 60}, "/api/v1/jobs:plan")
    for answer in (native, door):
        answer["estimate"].pop("made_at")
        answer["estimate"].pop("later_than", None)
    assert native == door


def test_quota_after_it_is_shown(scheduler):
    tenant = scheduler.call("POST", "/v1/tenants", {"name": "lab", "max_gpus": 4, "max_concurrent_jobs": 9}).json
    planned = plan(scheduler, {**JOB, "tenant_id": "lab"})
    rows = {row["resource"]: row for row in planned["quota"]}
    assert rows["gpus"] == {"tenant_id": tenant["tenant_id"], "resource": "gpus", "used_after": 1, "limit": 4}
    assert rows["jobs"]["limit"] == 9
    refused = plan(scheduler, {**JOB, "resources": {"gpu_count": 5}, "tenant_id": "lab"}, status=403)
    assert refused["code"] == "quota_exceeded"


@pytest.mark.parametrize("path", ["/v1/jobs:plan", "/api/v1/jobs:plan"])
def test_bad_bodies_are_refused_as_submissions_are(scheduler, path):
    for body in (b"", b"{", b"[]", {"script": 1}, {"tenant_id": "x" * 300, "script": "true"}, {"nothing": 1}):
        planned = scheduler.call("POST", path, body)
        submitted = scheduler.call("POST", path.removesuffix(":plan"), body)
        assert (planned.status, planned.json) == (submitted.status, submitted.json), body
        assert planned.status >= 400
    assert scheduler.call("GET", path).status == 405
    assert plan(scheduler, {"jobs": [JOB, JOB]}, status=400)["field"] == "jobs"


def test_a_waiting_jobs_explanation_has_an_estimate(scheduler):
    job = scheduler.submit(gpu_count=1)
    for path in (f"/api/v1/jobs/{job}/explain", f"/v1/jobs/{job}/explain"):
        shown = scheduler.until(lambda p=path: scheduler.call("GET", p).json, lambda e: e["reason"] == "no_node")
        assert shown["estimate"]["stuck"] is True and shown["estimate"]["runs"] >= 1
        assert shown["changes"] == []


def test_quality_is_counted_and_is_in_the_metrics(scheduler):
    quality = scheduler.call("GET", "/v1/quality", headers=scheduler.credential()).json
    assert quality["run_times"][0]["tenant_id"] == "" and quality["starts"][0]["count"] == 0
    assert scheduler.call("GET", "/v1/quality?tenant_id=default").json["starts"] == []
    assert scheduler.call("GET", "/v1/quality?tenant_id=nobody").status == 404
    text = scheduler.call("GET", "/metrics", port="metrics").body.decode()
    for name in ("run_times_covered_total", "starts_predicted_total", "start_error_seconds_bucket{le=\"+Inf\"} 0",
                 "forecasts_total"):
        assert f"gpu_scheduler_{name}" in text
