"""Reservations: nodes that are kept for somebody, or for their maintenance, at a time agreed before."""

import json

from harness import wait_until


def reservations(world):
    return json.loads(world.cli("reservation", "list", "--json").stdout)["reservations"]


def test_a_tenants_reservation_takes_its_jobs_and_no_others(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    api.post("/tenants", {"name": "lab"}, 201)
    world.cli("reservation", "create", "class", "--nodes", "n*", "--duration", "2h", "--tenant", "lab",
              "--reason", "course", expected=0)
    wait_until("it is on", lambda: reservations(world)[0]["active"])
    other = api.submit(["true"], gpu_count=1)
    wait_until("it says why it waits", lambda: api.explain(other).get("reason") == "reserved_for_others" or
               "reserved" in json.dumps(api.explain(other)))
    mine = api.submit(["true"], gpu_count=1, tenant_id="lab", reservation="class")
    assert api.wait_for(mine)["state"] == "completed"
    status, body, _ = api.call("POST", "/api/v1/jobs", {"command": ["true"], "reservation": "class"})
    assert (status, body["code"]) == (403, "reservation_denied")
    # What was agreed survives a restart, and a cancelled one gives its nodes back.
    world.scheduler.restart()
    assert [one["name"] for one in reservations(world)] == ["class"]
    assert api.job(other)["state"] == "pending"
    table = world.cli("reservation", "list").stdout
    assert "class" in table and "lab" in table and "n1" in table
    assert reservations(world)[0]["reason"] == "course"
    world.cli("reservation", "cancel", "class")
    assert api.wait_for(other)["state"] == "completed"
    assert reservations(world) == []


def test_before_a_maintenance_only_short_jobs_start_and_what_runs_goes_on(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    going = api.submit(["sleep", "600"], gpu_count=1)
    api.wait_for(going, "running")
    world.cli("reservation", "create", "repair", "--nodes", "n1", "--begin", "+1h", "--duration", "1h", expected=0)
    long = api.submit(["true"], gpu_count=1, max_runtime_minutes=180)
    short = api.submit(["true"], gpu_count=1, max_runtime_minutes=10)
    assert api.wait_for(short)["state"] == "completed"
    assert api.job(long)["state"] == "pending"
    assert api.job(going)["state"] == "running"
    api.cancel(going)
    api.cancel(long)


def test_what_cannot_be_reserved_is_said_in_a_sentence(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    wait_until("the node is there", lambda: api.get("/nodes")["nodes"])

    def refused(*words):
        result = world.cli("reservation", "create", *words)
        assert result.returncode != 0
        return result.stderr

    assert "no such node: n9" in refused("a", "--nodes", "n9", "--duration", "1h")
    assert "no such tenant" in refused("a", "--nodes", "n1", "--duration", "1h", "--tenant", "nobody")
    assert "--duration" in refused("a", "--nodes", "n1", "--duration", "long")
    world.cli("reservation", "create", "a", "--nodes", "n1", "--duration", "1h", expected=0)
    assert "exists" in refused("a", "--nodes", "n1", "--begin", "+5h", "--duration", "1h")
    assert "has one of these nodes" in refused("b", "--nodes", "n1", "--begin", "+30m", "--duration", "1h")
    status, body, _ = api.call("DELETE", "/v1/reservations/none")
    assert (status, body["code"]) == (404, "reservation_not_found")
