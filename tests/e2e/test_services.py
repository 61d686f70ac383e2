"""Services: jobs that are kept running, scaled, rolled out and deleted; whatever is killed meanwhile, no replica is made
twice and none is lost."""

import collections
import time

import pytest
from harness import wait_until

FINAL = ("completed", "failed", "cancelled")
FOREVER = ("--", "sleep", "1000")


@pytest.fixture(name="world")
def world_fixture(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200)
    world.scheduler.start()
    world.add_agent("n1").start()
    return world


def create(world, name, *words, command=FOREVER):
    world.cli("service", "create", name, "--ready-after", "1s", *words, *command, expected=0)


def get(world, name):
    return world.cli_json("service", "get", name)


def wait_for(world, name, what, holds):
    return wait_until(f"{name} {what}", lambda: (lambda service: service if holds(service) else None)(get(world, name)))


def wait_ready(world, name, replicas, generation=1):
    return wait_for(world, name, f"has {replicas} ready of generation {generation}",
                    lambda s: s["state"] == "ready" and s["ready"] == replicas == len(s["jobs"])
                    and all(one["generation"] == generation for one in s["jobs"]))


def replicas_of(world):
    """All jobs that ever were replicas."""
    status, answer, _ = world.api().call("GET", "/v1/jobs?label=gpusched.replica&page_size=1000")
    assert status == 200, answer
    return answer["jobs"]


def assert_none_was_made_twice(world):
    made = collections.Counter(
        (labels["gpusched.service"], labels["gpusched.replica"], labels["gpusched.service-generation"],
         labels["gpusched.replica-restarts"]) for labels in (job["spec"]["labels"] for job in replicas_of(world)))
    assert made and set(made.values()) == {1}, made


def live(world):
    return [job for job in replicas_of(world) if job["state"] not in FINAL]


def test_a_service_from_its_creation_to_its_end(world):
    create(world, "web", "--replicas", "2", "--gpus", "1")
    service = wait_ready(world, "web", 2)
    assert (service["generation"], service["replicas"], service["restart"]) == (1, 2, "always")
    assert [one["index"] for one in service["jobs"]] == [0, 1]
    listed = world.cli("service", "list", expected=0).stdout
    assert "web" in listed and "2/2" in listed
    shown = world.cli("service", "get", "web", expected=0).stdout
    assert service["jobs"][1]["job_id"] in shown and "n1" in shown
    # What has the name of its record is the same one, which starts by nobody's word.
    record = service["record_id"]
    assert get(world, record)["name"] == "web"
    refused = world.cli("release", record)
    assert refused.returncode != 0 and "record of a service" in refused.stderr
    again = world.cli("service", "create", "web", *FOREVER)
    assert again.returncode != 0 and "exists" in again.stderr

    world.cli("service", "scale", "web", "3", expected=0)
    wait_ready(world, "web", 3)
    world.cli("service", "scale", "web", "1", expected=0)
    service = wait_for(world, "web", "has one replica", lambda s: len(live(world)) == 1)
    assert service["jobs"][0]["index"] == 0
    world.cli("service", "delete", "web", expected=0)
    wait_until("it is gone", lambda: world.cli("service", "get", "web").returncode != 0)
    assert not live(world)
    assert world.api().job(record)["state"] == "cancelled"
    assert_none_was_made_twice(world)


def test_what_ends_is_started_again_later_each_time(world):
    create(world, "flaky", command=("--", "false"))
    service = wait_for(world, "flaky", "has ended three times", lambda s: s["jobs"] and s["jobs"][0]["restarts"] >= 3)
    waits = wait_for(world, "flaky", "backs off", lambda s: s["jobs"][0]["state"] == "pending")
    assert service["state"] == waits["state"] == "starting"
    assert waits["jobs"][0]["starts_at"]
    by_restart = sorted(replicas_of(world), key=lambda job: int(job["spec"]["labels"]["gpusched.replica-restarts"]))
    assert all(job["exit_code"] == 1 for job in by_restart[:3])
    assert_none_was_made_twice(world)
    # One that ends well is done where its policy says so.
    create(world, "once", "--restart", "on_failure", command=("--", "true"))
    wait_for(world, "once", "is finished", lambda s: s["state"] == "finished")
    assert get(world, "once")["jobs"][0]["restarts"] == 0


def test_a_rollout_replaces_one_by_one_and_stops_where_what_is_new_fails(world):
    create(world, "web", "--replicas", "3")
    old = {one["job_id"] for one in wait_ready(world, "web", 3)["jobs"]}
    world.cli("service", "rollout", "web", "--", "false", expected=0)
    broken = wait_for(world, "web", "tries", lambda s: any(one["restarts"] >= 2 for one in s["jobs"]))
    assert broken["state"] == "rolling_out"
    assert old <= {one["job_id"] for one in broken["jobs"]}
    assert {job["job_id"] for job in live(world)} >= old
    fewest = []
    world.cli("service", "rollout", "web", "--", "sleep", "2000", expected=0)

    def done():
        service = get(world, "web")
        fewest.append(service["ready"])
        return service["state"] == "ready" and service["generation"] == 3

    wait_until("it is rolled out", done)
    assert min(fewest) >= 3
    now = wait_ready(world, "web", 3, generation=3)
    assert not old & {one["job_id"] for one in now["jobs"]}
    assert_none_was_made_twice(world)


@pytest.mark.parametrize("pause_s", [0, 0.3, 1.2])
def test_a_killed_scheduler_scales_and_rolls_out_to_the_end(world, pause_s):
    create(world, "web", "--replicas", "2")
    first = {one["job_id"] for one in wait_ready(world, "web", 2)["jobs"]}
    world.cli("service", "scale", "web", "4", expected=0)
    time.sleep(pause_s / 3)  # Wherever it is by then.
    world.scheduler.restart()
    four = wait_ready(world, "web", 4)
    assert first <= {one["job_id"] for one in four["jobs"]}
    assert all(one["restarts"] == 0 for one in four["jobs"])
    world.cli("service", "rollout", "web", "--", "sleep", "2000", expected=0)
    for _ in range(2):
        time.sleep(pause_s)
        world.scheduler.restart()
    wait_ready(world, "web", 4, generation=2)
    assert len(live(world)) == 4
    assert all(one["restarts"] == 0 for one in get(world, "web")["jobs"])
    assert_none_was_made_twice(world)
    world.cli("service", "delete", "web", expected=0)
    world.scheduler.restart()
    wait_until("all are ended", lambda: not live(world))


def test_a_killed_agent_ends_no_replica(world):
    create(world, "web", "--replicas", "2")
    before = wait_ready(world, "web", 2)
    agent = world.agents()[0]
    agent.kill()
    world.cli("service", "scale", "web", "3", expected=0)
    agent.start()
    after = wait_ready(world, "web", 3)
    assert [one["job_id"] for one in after["jobs"][:2]] == [one["job_id"] for one in before["jobs"]]
    assert_none_was_made_twice(world)


def test_a_service_over_the_native_interface(world):
    api = world.api()
    spec = {"command": ["sleep", "1000"]}
    body = {"name": "web", "replicas": 1, "ready_after_ms": 500, "job": {"spec": spec}}
    status, made, _ = api.call("POST", "/v1/services", body)
    assert (status, made["name"], made["generation"]) == (201, "web", 1), made
    wait_ready(world, "web", 1)
    status, listed, _ = api.call("GET", "/v1/services")
    assert (status, [one["name"] for one in listed["services"]]) == (200, ["web"])
    status, scaled, _ = api.call("POST", "/v1/services/web/scale", {"replicas": 2})
    assert (status, scaled["replicas"]) == (200, 2)
    rollout = {"job": {"spec": {"command": ["sleep", "2000"]}}}
    status, rolled, _ = api.call("POST", "/v1/services/web/rollout", rollout)
    assert (status, rolled["generation"], rolled["replicas"]) == (200, 2, 2), rolled
    wait_ready(world, "web", 2, generation=2)
    for bad, code in (({"name": "web", "job": {"spec": spec}}, 409), ({"name": "a b", "job": {"spec": spec}}, 422),
                      ({"name": "x"}, 400), ({"name": "x", "job": {"spec": spec}, "restart": "often"}, 400),
                      ({"name": "x", "job": {"spec": {"command": []}}}, 422)):
        status, answer, _ = api.call("POST", "/v1/services", bad)
        assert status == code, (bad, status, answer)
    status, answer, _ = api.call("GET", "/v1/services/none")
    assert (status, answer["code"]) == (404, "not_found")
    status, deleted, _ = api.call("DELETE", "/v1/services/web")
    assert (status, deleted["state"]) == (200, "deleting")
    wait_until("all are ended", lambda: not live(world))
