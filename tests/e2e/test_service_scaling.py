"""Services that follow a queue: more replicas while jobs with a label wait, fewer some time after; by nobody's hand,
and on from the same number whatever is killed."""

import time

import pytest
from harness import wait_until

FOREVER = ("--", "sleep", "1000")
NOWHERE = 64  # GPUs that no node has: who wants them waits.


@pytest.fixture(name="world")
def world_fixture(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200)
    world.scheduler.start()
    world.add_agent("n1").start()
    return world


def create(world, down_after, *words):
    world.cli("service", "create", "llm", "--ready-after", "1s", "--scale-queue", "kind=llm", "--min", "1", "--max", "4",
              "--scale-per-replica", "2", "--scale-down-after", down_after, *words, *FOREVER, expected=0)


def get(world):
    return world.cli_json("service", "get", "llm")


def wait_for(world, what, holds):
    return wait_until(f"llm {what}", lambda: (lambda service: service if holds(service) else None)(get(world)))


def wait_replicas(world, count):
    return wait_for(world, f"has {count}", lambda s: s["state"] == "ready" and s["replicas"] == s["ready"] == count
                    == len(s["jobs"]))


def enqueue(world, count, kind="llm"):
    return [world.api().submit(["true"], gpu_count=NOWHERE, labels={"kind": kind}) for _ in range(count)]


def test_replicas_follow_the_jobs_that_wait(world):
    create(world, "3s")
    enqueue(world, 4, kind="other")
    first = wait_replicas(world, 1)
    assert first["scale_waiting"] == 0 and first["scale_wanted"] == 1, first
    jobs = enqueue(world, 3)
    two = wait_replicas(world, 2)
    assert (two["scale_queue"], two["scale_waiting"], two["scale_wanted"]) == ("kind=llm", 3, 2)
    assert "3 jobs with kind=llm wait" in two["scale_message"]
    jobs += enqueue(world, 9)
    wait_replicas(world, 4)  # Six are wanted: more than there may be.
    shown = world.cli("service", "get", "llm", expected=0).stdout
    assert "kind=llm" in shown and "4 of 1-4" in shown, shown
    assert "4 of 1-4" in world.cli("service", "list", expected=0).stdout

    # Held ones wait for somebody's word, not for a replica.
    world.cli("hold", *jobs[3:], expected=0)
    assert wait_for(world, "counts no held ones", lambda s: s["scale_waiting"] == 3)["replicas"] == 4
    wait_replicas(world, 2)
    since = time.monotonic()
    for job in jobs:
        world.api().cancel(job)
    gone = wait_for(world, "counts none", lambda s: s["scale_waiting"] == 0)
    assert gone["replicas"] == 2 and gone["scale_wanted"] == 1, gone
    one = wait_replicas(world, 1)
    assert time.monotonic() - since >= 3
    assert one["jobs"][0]["job_id"] == first["jobs"][0]["job_id"]


def test_a_killed_scheduler_goes_on_with_the_same_number(world):
    create(world, "5s")
    jobs = enqueue(world, 8)
    before = wait_replicas(world, 4)
    world.scheduler.kill()
    world.scheduler.start()
    after = wait_replicas(world, 4)
    assert [one["job_id"] for one in after["jobs"]] == [one["job_id"] for one in before["jobs"]]
    assert after["scale_waiting"] == 8, after
    for job in jobs:
        world.api().cancel(job)
    wait_for(world, "counts none", lambda s: s["scale_waiting"] == 0)
    world.scheduler.kill()
    world.scheduler.start()
    assert get(world)["replicas"] == 4  # Fewer must be enough for so long, seen by one scheduler.
    wait_replicas(world, 1)


def test_by_hand_only_when_it_follows_no_queue(world):
    create(world, "1s")
    wait_replicas(world, 1)
    for words in (("scale", "llm", "3"), ("rollout", "llm", "--replicas", "3", *FOREVER)):
        refused = world.cli("service", *words)
        assert refused.returncode != 0 and "--no-scale" in refused.stderr, (words, refused.stderr)
    world.cli("service", "scale", "llm", "--min", "2", expected=0)
    two = wait_replicas(world, 2)
    assert (two["scale_min"], two["scale_max"], two["scale_per_replica"]) == (2, 4, 2)
    world.cli("service", "rollout", "llm", "--", "sleep", "2000", expected=0)
    assert get(world)["scale_queue"] == "kind=llm"
    world.cli("service", "scale", "llm", "3", "--no-scale", expected=0)
    assert not wait_replicas(world, 3).get("scale_queue")
    enqueue(world, 8)
    time.sleep(1)
    assert get(world)["replicas"] == 3
    world.cli("service", "scale", "llm", "--scale-queue", "kind", "--max", "4", expected=0)
    wait_replicas(world, 4)


def test_wrong_bounds_are_refused_in_the_callers_words(world):
    queue = ("--scale-queue", "kind=llm")
    for words, sentence in (((*queue, "--min", "3", "--max", "1"), "--max must be at least --min, which is 3"),
                            (queue, "--max must be given with --scale-queue"),
                            (("--max", "3"), "--scale-queue must be given with --max")):
        refused = world.cli("service", "create", "wrong", *words, *FOREVER)
        assert refused.returncode != 0 and sentence in refused.stderr and "gpusched." not in refused.stderr, refused
    create(world, "5s")
    refused = world.cli("service", "scale", "llm", "--min", "9")
    assert "--max must be at least --min, which is 9" in refused.stderr, refused.stderr
    refused = world.cli("service", "rollout", "llm", "--min", "9", *FOREVER)
    assert "--max must be at least --min, which is 9" in refused.stderr, refused.stderr


def test_over_the_native_interface(world):
    api = world.api()
    body = {"name": "llm", "scale_queue": "kind=llm", "scale_max": 3, "scale_down_after_ms": 0, "ready_after_ms": 500,
            "job": {"spec": {"command": ["sleep", "1000"]}}}
    status, answer, _ = api.call("POST", "/v1/services", {**body, "scale_max": 0})
    assert status in (400, 422), answer
    status, made, _ = api.call("POST", "/v1/services", body)
    assert (status, made["scale_min"], made["scale_max"]) == (201, 1, 3), made
    jobs = enqueue(world, 2)
    wait_replicas(world, 2)
    status, answer, _ = api.call("POST", "/v1/services/llm/scale", {"replicas": 3})
    assert (status, answer["code"]) == (409, "conflict"), answer
    status, answer, _ = api.call("POST", "/v1/services/llm/scale", {})
    assert (status, answer["code"]) == (400, "invalid_argument"), answer
    status, answer, _ = api.call("POST", "/v1/services/llm/scale", {"scale_min": 0})
    assert (status, answer["scale_min"], answer["scale_max"]) == (200, 0, 3), answer
    for job in jobs:
        api.cancel(job)
    wait_for(world, "has none", lambda s: s["replicas"] == 0 and not s["jobs"])
    enqueue(world, 1)
    wait_replicas(world, 1)


def test_a_span_of_nothing_takes_replicas_away_at_once(world):
    create(world, "0")
    jobs = enqueue(world, 3)
    wait_replicas(world, 2)
    world.cli("cancel", "--yes", *jobs, expected=0)
    assert wait_replicas(world, 1)["scale_down_after_ms"] == 0
    shown = world.cli("service", "scale", "llm", "--scale-down-after", "0s", "--scale-queue", "kind=llm", "--min", "1",
                      "--max", "4", "--scale-per-replica", "2")
    assert shown.returncode == 0, shown.stderr
