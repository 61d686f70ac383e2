"""Jobs that are ended for others: the victim's grace, its way back, and what it says of its work."""

import pytest
from harness import wait_until

# It saves its work when it is told to end.
PATIENT = "trap 'echo saved; exit 143' TERM; echo up; while :; do sleep 0.1; done"


@pytest.fixture(name="tenants")
def tenants_fixture(new_world):
    """A world whose tenant batch may be preempted by tenant urgent, without protection."""
    world = new_world(SCHEDULER_PREEMPTION_PROTECTION_SECONDS=0, SCHEDULER_PREEMPTION_WAIT_SECONDS=0)
    world.scheduler.start()
    world.add_agent("n1").start()
    world.api().wait_node("n1")
    world.api().post("/tenants", {"name": "batch", "allow_preemption": True, "priority_tier": "low"}, 201)
    world.api().post("/tenants", {"name": "urgent", "can_preempt_others": True, "priority_tier": "critical"}, 201)
    return world


def run(api, tenant, gpus, script, **fields):
    job = api.submit(None, tenant_id=tenant, gpu_count=gpus, script=script, **fields)
    api.wait_for(job, ("running",))
    return job


def test_a_victim_has_its_grace_and_comes_back_behind_its_preemptor(tenants):
    api = tenants.api()
    low = run(api, "batch", 4, PATIENT)
    wait_until("the job is up", lambda: "up" in api.output(low))
    high = api.submit(None, tenant_id="urgent", gpu_count=2, script="sleep 1")
    assert api.wait_for(high)["state"] == "completed"
    shown = api.wait_for(low, ("running",))
    assert (shown["preempted_count"], shown["attempts"]) == (1, 2)
    assert "saved" in api.output(low, attempt=1)
    api.cancel(low)
    assert api.wait_for(low)["state"] == "cancelled"


def test_a_victim_that_asks_for_it_is_cancelled(tenants):
    api = tenants.api()
    low = run(api, "batch", 4, "exec sleep 600", preemption_mode="cancel")
    high = api.submit(None, tenant_id="urgent", gpu_count=1, script="true")
    assert api.wait_for(low)["state"] == "cancelled"
    assert "higher priority" in api.explain(low)["message"]
    assert api.wait_for(high)["state"] == "completed"


def test_who_saved_its_work_loses_less(tenants):
    api = tenants.api()
    first = run(api, "batch", 2, "sleep 3; touch \"$GPU_CHECKPOINT_FILE\"; exec sleep 600")
    second = run(api, "batch", 2, "exec sleep 600")

    def saved():
        status, job, _ = api.call("GET", f"/v1/jobs/{first}")
        return status == 200 and job.get("checkpointed_at")

    wait_until("the scheduler knows what the job saved", saved)
    high = api.submit(None, tenant_id="urgent", gpu_count=2, script="true")
    assert api.wait_for(high)["state"] == "completed"
    assert api.job(first)["preempted_count"] == 1
    assert api.job(second)["preempted_count"] == 0
    for job in (first, second):
        api.cancel(job)
        api.wait_for(job)


def test_an_unknown_mode_is_refused(tenants):
    refused = tenants.api().post("/jobs", {"command": ["true"], "preemption_mode": "suspend"}, 400)
    assert refused["field"] == "preemption_mode"
