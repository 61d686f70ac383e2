"""Machines that come when jobs wait and go when they are idle, with real agents: whoever is killed, and when, none is
left over and none is started twice."""

import json
import os
import random
import signal
import time

import harness
import pytest
from harness import wait_until

POOL = {"name": "burst", "driver": "local", "maximum": 2, "price_per_hour": 3.6, "boot_seconds": 200,
        "idle_seconds": 1, "poll_seconds": 1, "sweep_seconds": 1, "calls_per_minute": 6000, "delay_ms": 300,
        "machine": {"gpus": 2, "gpu_model": "A100-SXM4-80GB", "gpu_memory_mb": 81920, "cpu_cores": 8,
                    "memory_mb": 8192}}


@pytest.fixture(name="site")
def site_fixture(new_world):
    """A world whose scheduler has one pool of machines on this computer."""

    def make(**changes):
        world = new_world(SCHEDULER_NODE_LEASE_MS=1500)
        pool = {**POOL, **({"agent_options": ["--allow-root-jobs"]} if harness.IS_ROOT else {}), **changes}
        file = world.folder / "pools.yaml"
        file.write_text(json.dumps({"every_ms": 100, "pause_seconds": 1, "pools": [pool]}))
        file.chmod(0o644)
        world.scheduler.settings["MACHINES_POOLS_FILE"] = file
        return world

    return make


def agents_of_machines(world):
    """Names of machines by the agents that run for them; a name twice is a machine that was started twice."""
    agents = {}
    for pid in world.left():
        words = harness.read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
        if words[0].endswith(b"gpu-agent") and b"--node" in words:
            agents[pid] = words[words.index(b"--node") + 1].decode()
    children = {child for pid in agents for child in harness.children_of(pid)}
    return [name for pid, name in agents.items() if name.startswith("burst-") and pid not in children]


def native(world, path):
    status, body, _ = world.api().call("GET", path)
    assert status == 200, (path, status, body)
    return body


def machines(world):
    return native(world, "/v1/machines")


def wait_no_machines(world):
    wait_until("all machines are gone", lambda: not machines(world).get("machines"))
    wait_until("no process of a machine is left", lambda: not agents_of_machines(world))
    assert not list((world.scheduler.data_dir / "machines").iterdir())
    assert not [node for node in native(world, "/v1/nodes").get("nodes", []) if node["name"].startswith("burst-")]


def gated(world, **fields):
    gate = world.folder / f"gate-{random.getrandbits(32)}"
    return gate, world.api().submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3", gpu_count=2, **fields)


def test_a_job_that_fits_nowhere_brings_a_machine_which_goes_back_when_it_is_idle(site):
    world = site()
    world.scheduler.start()
    api = world.api()
    assert machines(world)["pools"][0]["maximum"] == 2
    gate, job = gated(world)
    told = wait_until("explain tells of the machine", lambda: (
        lambda found: found if "pool burst" in found["message"] else None)(api.explain(job)))
    assert "a machine of pool burst is being started, about 3 min" in told["message"], told
    assert 0 < told["evidence"]["machine_ready_in_seconds"] <= 200
    api.wait_for(job, "running")
    assert native(world, "/v1/nodes/burst-1")["labels"]["pool"] == "burst"
    shown = wait_until("the machine is busy", lambda: [one for one in machines(world)["machines"]
                                                        if one["state"] == "busy"])
    assert [one["name"] for one in shown] == ["burst-1"] and agents_of_machines(world) == ["burst-1"]
    assert "burst-1" in world.cli("machines", expected=0).stdout
    assert world.cli_json("machines")["machines"][0]["node_name"] == "burst-1"
    time.sleep(2)  # Longer than it may be idle: a machine with work stays.
    assert api.job(job)["state"] == "running" and machines(world)["machines"][0]["state"] == "busy"
    gate.touch()
    assert api.wait_for(job)["exit_code"] == 3
    wait_no_machines(world)
    pool = machines(world)["pools"][0]
    assert pool["requested_total"] == 1 and pool["gone_total"] == 1 and pool["cost"] > 0
    assert 0 < pool["boot_seconds"] < 200  # Learned.


def test_machines_are_as_many_as_the_jobs_need_and_never_more_than_the_maximum(site):
    world = site()
    world.scheduler.start()
    gates = [gated(world) for _ in range(3)]
    api = world.api()
    for _, job in gates[:2]:
        api.wait_for(job, "running")
    wait_until("the third one knows why it waits", lambda: "has all the machines" in
               api.explain(gates[2][1])["message"])
    assert sorted(agents_of_machines(world)) == ["burst-1", "burst-2"]
    for gate, job in gates:
        gate.touch()
        assert api.wait_for(job)["exit_code"] == 3
    wait_no_machines(world)
    assert machines(world)["pools"][0]["requested_total"] == 2


def test_a_job_for_a_region_brings_a_machine_of_that_region(site):
    world = site(region="north")
    file = world.scheduler.settings["MACHINES_POOLS_FILE"]
    pools = json.loads(file.read_text())
    pools["pools"].append({**pools["pools"][0], "name": "far", "region": "south", "price_per_hour": 7.2})
    file.write_text(json.dumps(pools))
    world.scheduler.start()
    gate, job = gated(world, node_labels=["region=south"])
    world.api().wait_for(job, "running")
    assert [one["name"] for one in machines(world)["machines"]] == ["far-1"], "the cheaper pool is elsewhere"
    assert native(world, "/v1/nodes/far-1")["labels"]["region"] == "south"
    assert {pool["name"]: pool["region"] for pool in machines(world)["pools"]} == {"burst": "north", "far": "south"}
    assert "south" in world.cli("machines", expected=0).stdout
    gate.touch()
    assert world.api().wait_for(job)["exit_code"] == 3
    wait_no_machines(world)


def test_a_drained_machine_is_returned_and_one_that_is_kept_is_not(site):
    world = site(minimum=1, idle_seconds=2)
    world.scheduler.start()
    api = world.api()
    api.wait_node("burst-1")
    world.cli("node", "label", "burst-1", "machine.keep=yes", expected=0)
    world.cli("node", "drain", "burst-1", expected=0)
    api.wait_node("burst-2")  # The minimum, without the drained one.
    time.sleep(3)
    assert sorted(agents_of_machines(world)) == ["burst-1", "burst-2"]
    world.cli("node", "label", "burst-1", "machine.keep-", expected=0)
    wait_until("the first is gone", lambda: [one["name"] for one in machines(world)["machines"]] == ["burst-2"])
    world.strict = False


def test_a_provider_that_has_none_is_asked_again_later(site):
    world = site()
    world.scheduler.start()
    folder = world.scheduler.data_dir / "machines"
    folder.mkdir(exist_ok=True)
    (folder / "fail").write_text("quota\n")
    gate, job = gated(world)
    api = world.api()
    wait_until("explain says so", lambda: "gives no machine at present" in api.explain(job)["message"])
    assert "quota is used up" in machines(world)["pools"][0]["trouble"]
    (folder / "fail").unlink()
    gate.touch()
    assert api.wait_for(job)["exit_code"] == 3
    wait_no_machines(world)


def test_a_machine_whose_agent_was_killed_is_replaced(site):
    world = site(idle_seconds=600, minimum=1)
    world.scheduler.start()
    world.api().wait_node("burst-1")
    for pid in world.left():
        if b"burst-1" in harness.read_bytes(f"/proc/{pid}/cmdline"):
            os.kill(pid, signal.SIGKILL)
    world.api().wait_node("burst-2")
    wait_until("the first is gone", lambda: [one["name"] for one in machines(world)["machines"]] == ["burst-2"])
    world.strict = False


@pytest.mark.parametrize("seed", [harness.SEED, harness.SEED + 1])
def test_a_scheduler_that_is_killed_at_any_moment_leaks_no_machine_and_starts_none_twice(site, seed):
    world = site()
    chance = random.Random(seed)
    world.scheduler.start()
    gate, job = gated(world)

    def kill_some(times, longest_s):
        for _ in range(times):
            time.sleep(chance.uniform(0, longest_s))
            world.scheduler.restart()
            names = agents_of_machines(world)
            assert len(names) == len(set(names)) <= 1, names

    kill_some(5, 0.4)   # While the machine is asked for and boots.
    world.api().wait_for(job, "running")
    kill_some(2, 0.3)   # While the job runs.
    gate.touch()
    assert world.api().wait_for(job)["exit_code"] == 3
    kill_some(5, 1.8)   # While it is idle, drained and ended.
    wait_no_machines(world)
    pool = machines(world)["pools"][0]
    assert (pool["requested_total"], pool["gone_total"]) == (1, 1)
    assert not pool.get("orphans")


def test_what_the_record_does_not_have_is_reported_and_left_alone(site):
    world = site(minimum=1)
    world.scheduler.start()
    world.api().wait_node("burst-1")
    world.scheduler.kill()
    (world.scheduler.data_dir / "machines.json").unlink()  # As after a restore of an old backup.
    world.scheduler.start()
    wait_until("it is reported", lambda: machines(world)["pools"][0].get("orphans") == ["burst-1"])
    wait_until("another one keeps the minimum", lambda: "burst-2" in agents_of_machines(world))
    assert "burst-1" in agents_of_machines(world)
    assert "1 machine that nobody here knows: burst-1" in " ".join(world.cli("machines", expected=0).stdout.split())
    world.strict = False


def test_pools_that_others_may_change_or_that_are_wrong_are_refused_at_the_start(site):
    world = site()
    file = world.scheduler.settings["MACHINES_POOLS_FILE"]
    for change, words in ((lambda: file.chmod(0o666), "machines.pools_file"),
                          (lambda: (file.chmod(0o644), file.write_text("pools: [{name: A}]")), "pools.yaml:1: ")):
        change()
        world.scheduler.launch()
        wait_until("it ends", lambda: not world.scheduler.alive())
        assert words in world.scheduler.log_text()
    world.strict = False
