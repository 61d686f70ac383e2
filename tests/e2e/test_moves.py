"""Free GPUs that are scattered over nodes: what could move so that a large job starts, and moving it."""

import json

import pytest
from harness import wait_until

# It saves its work when it is told to end.
PATIENT = "trap 'echo saved; exit 143' TERM; echo up; while :; do sleep 0.1; done"


def scattered(new_world, **settings):
    """Two nodes of four GPUs, each with a job on one of them that may be ended, and three free."""
    world = new_world(SCHEDULER_PREEMPTION_PROTECTION_SECONDS=0, SCHEDULER_MOVES_REST_SECONDS=0, **settings)
    world.scheduler.start()
    api = world.api()
    api.post("/tenants", {"name": "batch", "allow_preemption": True}, 201)
    api.post("/tenants", {"name": "lab"}, 201)
    world.small = []
    for name in ("n1", "n2"):
        world.add_agent(name).start()
        api.wait_node(name)
        filler = api.submit(None, tenant_id="lab", gpu_count=3, script="exec sleep 600")
        api.wait_for(filler, ("running",))
        small = api.submit(None, tenant_id="batch", gpu_count=1, script=PATIENT)
        api.wait_for(small, ("running",))
        wait_until("the job is up", lambda job=small: "up" in api.output(job))
        world.small.append((small, filler))
    for _, filler in world.small:
        api.cancel(filler)
        api.wait_for(filler)

    def all_free():
        nodes = api.call("GET", "/v1/nodes")[1]["nodes"]
        return all(sum(d["state"] == "free" for d in node["devices"]) == 3 for node in nodes)

    wait_until("what the others had is free", all_free)
    return world


@pytest.fixture(name="world")
def world_fixture(new_world):
    return scattered(new_world)


def moves(api, **query):
    text = "&".join(f"{name}={value}" for name, value in query.items())
    status, answer, _ = api.call("GET", "/v1/moves" + (f"?{text}" if text else ""))
    assert status == 200, answer
    return answer


def waiting_big(api):
    big = api.submit(None, tenant_id="lab", gpu_count=4, script="exec sleep 600")
    wait_until("it waits for GPUs", lambda: api.explain(big)["reason"] == "gpus_busy")
    return big


def test_a_proposal_is_shown_and_carried_out(world):
    api = world.api()
    assert moves(api)["proposals"] == []
    big = waiting_big(api)
    shown = moves(api)
    assert shown["mode"] == "propose" and shown["gpus_free"] == 6
    (proposal,) = shown["proposals"]
    assert proposal["job_id"] == big and proposal["starts"] == [big] and proposal["gpus_started"] == 4
    (move,) = proposal["moves"]
    small = move["job_id"]
    assert small in [job for job, _ in world.small]
    assert move["from_node"] == proposal["node_name"] != move["to_node"]
    assert move["lost_gpu_seconds"] > 0 and move["saved"] is False and move["ended_before"] == 0
    assert api.job(small)["state"] == "running", "asking changes nothing"

    status, applied, _ = api.call("POST", "/v1/moves",
                                  {"id": proposal["id"], "by": "ana", "reason": "the run is urgent"})
    assert status == 200, applied
    assert api.wait_for(big, ("running",))["state"] == "running"
    again = api.wait_for(small, ("running",))
    assert (again["preempted_count"], again["attempts"]) == (1, 2)
    assert "saved" in api.output(small, attempt=1), "it had its grace"
    native = api.call("GET", f"/v1/jobs/{small}")[1]
    assert native["node_name"] == move["to_node"] and native["allocated_gpus"] == move["to_gpus"]
    assert native["moved"] == (f"moved from node {move['from_node']} to node {move['to_node']} so that {big} "
                               "can start, by ana: the run is urgent")
    assert "moved away" in api.call("GET", f"/v1/jobs/{big}")[1]["moved"]
    # Carried out once.
    status, refused, _ = api.call("POST", "/v1/moves", {"id": proposal["id"]})
    assert (status, refused["code"]) == (409, "move_stale")


def test_a_proposal_that_no_longer_holds_is_refused(world):
    api = world.api()
    big = waiting_big(api)
    (proposal,) = moves(api, job_id=big)["proposals"]
    api.cancel(big)
    api.wait_for(big)
    status, refused, _ = api.call("POST", "/v1/moves", {"id": proposal["id"]})
    assert (status, refused["code"]) == (409, "move_stale")
    assert "request new proposals" in refused["error"]
    for small, _ in world.small:
        assert api.job(small)["state"] == "running"


def test_where_no_move_helps_it_says_why(world):
    api = world.api()
    status, _, _ = api.call("PATCH", "/v1/tenants/batch", {"allow_preemption": False})
    assert status == 200
    big = waiting_big(api)
    shown = moves(api, job_id=big)
    assert shown["proposals"] == []
    assert "6 suitable GPUs are free, but" in shown["message"]
    assert "is not preemptible" in shown["message"]


def test_moves_are_for_operators(world):
    api = world.api()
    status, refused, _ = api.call("GET", "/v1/moves?tenant_id=lab")
    assert (status, refused["code"]) == (403, "permission_denied")
    status, refused, _ = api.call("GET", "/v1/moves?job_id=job-99999")
    assert (status, refused["code"]) == (404, "job_not_found")
    status, refused, _ = api.call("GET", "/v1/moves?moves_max=17")
    assert (status, refused["field"]) == (400, "moves_max")


def test_the_command_line_shows_and_carries_out(world):
    api = world.api()
    big = waiting_big(api)
    shown = world.cli("moves")
    assert shown.returncode == 0 and big in shown.stdout and "gpu-cli move apply" in shown.stdout
    (proposal,) = json.loads(world.cli("moves", "--for", big, "--json").stdout)["proposals"]
    done = world.cli("move", "apply", proposal["id"], "--reason", "because")
    assert done.returncode == 0 and f"{big} starts on" in done.stdout
    api.wait_for(big, ("running",))
    assert "because" in api.call("GET", f"/v1/jobs/{big}")[1]["moved"]
    stale = world.cli("move", "apply", proposal["id"])
    assert stale.returncode != 0 and "request new proposals" in stale.stderr


def test_switched_off_it_answers_so(new_world):
    world = scattered(new_world, SCHEDULER_MOVES="off")
    status, refused, _ = world.api().call("GET", "/v1/moves")
    assert (status, refused["code"]) == (403, "permission_denied") and "scheduler.moves" in refused["error"]


def test_a_restarted_scheduler_knows_where_the_job_goes_on(world):
    api = world.api()
    big = waiting_big(api)
    (proposal,) = moves(api)["proposals"]
    (move,) = proposal["moves"]
    assert api.call("POST", "/v1/moves", {"id": proposal["id"], "by": "ana"})[0] == 200
    world.scheduler.kill()
    world.scheduler.start()
    api.wait_for(big, ("running",))
    api.wait_for(move["job_id"], ("running",))
    native = api.call("GET", f"/v1/jobs/{move['job_id']}")[1]
    assert native["node_name"] == move["to_node"] and native["preempt_count"] == 1


def test_told_to_it_moves_by_itself(new_world):
    world = scattered(new_world, SCHEDULER_MOVES="act", SCHEDULER_MOVES_PRICE_MAX=100000,
                      SCHEDULER_PREEMPTION_WAIT_SECONDS=0)
    api = world.api()
    big = api.submit(None, tenant_id="lab", gpu_count=4, script="exec sleep 600")
    api.wait_for(big, ("running",))
    moved = [small for small, _ in world.small if api.call("GET", f"/v1/jobs/{small}")[1]["moved"]]
    assert len(moved) == 1
    again = api.wait_for(moved[0], ("running",))
    assert (again["preempted_count"], again["attempts"]) == (1, 2)
    assert ", by scheduler: " in api.call("GET", f"/v1/jobs/{big}")[1]["moved"]

