"""Writes to one thing at the same time: what was answered with 200 is there afterwards."""

import concurrent.futures
import itertools
import random

import pytest
from harness import SEED, wait_until

ROUNDS = 30
LEASES = "/api/gpuscheduler/v1"


@pytest.fixture(name="world")
def world_fixture(new_world):
    world = new_world()
    world.scheduler.start()
    return world


@pytest.fixture(name="at_once")
def at_once_fixture():
    """Runs calls at the same time; what each returns."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        yield lambda calls: [each.result() for each in [pool.submit(call) for call in calls]]


def patch(api, path, body):
    def send():
        status, answer, _ = api.call("PATCH", path, body)
        return status, answer

    return send


def allocated(api):
    lease = api.call("POST", f"{LEASES}/allocate", {"count": 1, "lease_minutes": 5})[1]["gpu_id"]
    wait_until("it is given", lambda: api.call("GET", f"{LEASES}/gpu/{lease}")[1]["status"] == "AVAILABLE")
    return lease


def lost(before, wanted, answers, after):
    """What was acknowledged and is not there."""
    assert any(status == 200 for status, _ in answers), (before, answers)
    accepted = [body for body, (status, _) in zip(wanted, answers) if status == 200]
    return [body for body in accepted for name, value in body.items() if after.get(name) != value]


def test_changes_of_different_fields_of_a_job_are_all_kept(world, at_once):
    api = world.api()
    job = api.submit(["true"], gpu_count=1, held=True)
    gone = []
    for number in range(ROUNDS):
        wanted = [{"name": f"name {number}"}, {"comment": f"comment {number}"}, {"priority": number},
                  {"gpu_count": 1 + number % 4}, {"cpu_milli": 1000 + number}, {"memory_mb": 1000 + number}]
        answers = at_once(patch(api, f"/v1/jobs/{job}", body) for body in wanted)
        assert {status for status, _ in answers} == {200}, answers
        shown = api.call("GET", f"/v1/jobs/{job}")[1]
        after = {**shown["spec"], **shown["resources"], "priority": shown["priority"]}
        gone += lost(shown, wanted, answers, after)
    assert not gone, f"{len(gone)} acknowledged changes are lost: {gone[:5]}"


def test_changes_of_an_array_and_of_its_element_are_all_kept(world, at_once):
    api = world.api()
    array = api.submit(["true"], gpu_count=1, held=True, array="0-3")
    gone = []
    for number in range(ROUNDS):
        wanted = [{"comment": f"comment {number}"}, {"name": f"name {number}"}]
        answers = at_once([patch(api, f"/v1/jobs/{array}", wanted[0]), patch(api, f"/v1/jobs/{array}%5B2%5D", wanted[1])])
        assert {status for status, _ in answers} == {200}, answers
        whole, element = (api.call("GET", f"/v1/jobs/{name}")[1]["spec"] for name in (array, f"{array}%5B2%5D"))
        # Whichever came last: the array's change goes to all its elements, the element's own stays beside it.
        assert whole["comment"] == wanted[0]["comment"]
        gone += [] if element["comment"] == wanted[0]["comment"] else [(number, element)]
    assert not gone, f"{len(gone)} acknowledged changes are lost: {gone[:5]}"


def test_a_renewal_never_shortens_what_another_one_was_told(world, at_once):
    world.add_agent("n1").start()
    api = world.api()
    pick = random.Random(SEED)
    shorter = []
    lease = allocated(api)
    end = ""
    for number in range(ROUNDS):
        lengths = [10 + 10 * number, 11 + 10 * number, 19 + 10 * number, 15 + 10 * number]
        pick.shuffle(lengths)
        answers = at_once([lambda minutes=minutes: api.call("POST", f"{LEASES}/gpu/{lease}/renew",
                                                            {"lease_minutes": minutes})[:2] for minutes in lengths])
        assert {status for status, _ in answers} == {200}, answers
        told = max([end] + [answer["lease_expires_at"] for _, answer in answers])
        end = api.call("GET", f"{LEASES}/gpu/{lease}")[1]["lease_expires_at"]
        shorter += [] if end >= told else [(number, told, end)]
    assert not shorter, f"{len(shorter)} of {ROUNDS} times a lease ends before a renewal was told: {shorter[:5]}"


def test_a_renewal_takes_no_longer_limit_back(world, at_once):
    world.add_agent("n1").start()
    api = world.api()
    lease = allocated(api)
    job = world.cli("list", "--label", "gpusched.lease", "-o", "name", expected=0).stdout.strip()
    short = []
    for number in range(ROUNDS):
        limit = (20 + number) * 60_000
        answers = at_once([patch(api, f"/v1/jobs/{job}", {"max_runtime_ms": limit}),
                           lambda: api.call("POST", f"{LEASES}/gpu/{lease}/renew", {"lease_minutes": 2})[:2]])
        assert {status for status, _ in answers} == {200}, answers
        shown = int(api.call("GET", f"/v1/jobs/{job}")[1]["max_runtime_ms"])
        short += [] if shown >= limit else [(number, limit, shown)]
    assert not short, f"{len(short)} of {ROUNDS} limits that were set are shorter: {short[:5]}"


def test_changes_of_different_fields_of_a_tenant_are_all_kept(world, at_once):
    api = world.api()
    api.post("/tenants", {"name": "lab"}, 201)
    gone = []
    for number in range(1, ROUNDS):
        wanted = [{"max_gpus": number}, {"max_waiting_jobs": 1000 + number}, {"organization": f"org {number}"},
                  {"fair_share_weight": float(number)}, {"allow_preemption": number % 2 == 0},
                  {"email": f"lab{number}@example.org"}]
        answers = at_once(patch(api, "/v1/tenants/lab", body) for body in wanted)
        gone += lost("lab", wanted, answers, api.call("GET", "/v1/tenants/lab")[1])
        refused = [answer for status, answer in answers if status != 200]
        assert not refused, refused
    assert not gone, f"{len(gone)} acknowledged changes are lost: {gone[:5]}"


def test_changes_of_different_labels_and_roles_are_all_kept(world, at_once):
    world.add_agent("n1").start()
    api = world.api()
    key = world.cli_json("key", "create", "ci", "--role", "user")["key_id"]
    roles = itertools.cycle(["viewer", "user"])
    for number in range(ROUNDS):
        labels = {f"label-{each}": f"value {number}" for each in range(4)}
        calls = [lambda name=name, value=value: api.call("POST", "/v1/nodes/n1/label", {"set": {name: value}})[:2]
                 for name, value in labels.items()]
        role, taken = next(roles), number % 4 < 2
        calls.append(lambda: api.call("POST", f"/v1/keys/{key}/bind", {"role": role, "taken": taken})[:2])
        answers = at_once(calls)
        assert {status for status, _ in answers} == {200}, answers
        shown = api.call("GET", "/v1/nodes/n1")[1]["labels"]
        assert {name: shown.get(name) for name in labels} == labels
        held = {each["role"] for each in answers[-1][1].get("roles", [])}
        assert (role in held) != taken
