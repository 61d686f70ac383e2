"""What a tenant is guaranteed, through the doors: lent, taken back, shown and refused."""

from harness import wait_until


def test_a_guarantee_is_lent_and_taken_back(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    api.wait_node("n1")
    owner = api.post("/tenants", {"name": "owner", "guaranteed_gpus": 2, "priority_tier": "low"}, 201)
    assert (owner["guaranteed_gpus"], owner["reclaims"], owner["max_gpu_hours"]) == (2, 0, None)
    api.post("/tenants", {"name": "other", "priority_tier": "critical"}, 201)
    lent = api.submit(None, tenant_id="other", gpu_count=4, script="sleep 600")
    api.wait_for(lent, ("running",))
    mine = api.submit(None, tenant_id="owner", gpu_count=2, script="sleep 1")
    assert api.wait_for(mine)["state"] == "completed"
    shown = api.get("/tenants/owner")
    assert shown["reclaims"] == 1
    assert shown["reclaim_seconds_max"] > 0
    api.wait_for(lent, ("running",))
    api.cancel(lent)


def test_what_cannot_be_guaranteed_is_refused_and_the_old_stays(new_world):
    world = new_world()
    world.scheduler.start()
    api = world.api()
    api.post("/tenants", {"name": "group", "guaranteed_gpus": 4}, 201)
    api.post("/tenants", {"name": "team", "parent_id": "group", "guaranteed_gpus": 3}, 201)
    refused = api.post("/tenants", {"name": "more", "parent_id": "group", "guaranteed_gpus": 2}, 422)
    assert "in total" in str(refused)
    assert api.get("/tenants/team")["guaranteed_gpus"] == 3


def test_gpu_hours_that_are_used_up_make_a_job_wait(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    api.wait_node("n1")
    api.post("/tenants", {"name": "a", "max_gpu_hours": 0, "gpu_hours_window_seconds": 86400}, 201)
    job = api.submit(None, tenant_id="a", gpu_count=1, script="true")
    wait_until("the reason is known", lambda: api.get(f"/jobs/{job}/explain")["reason"] == "gpu_hours")
    api.cancel(job)
