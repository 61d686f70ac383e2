"""From a line in a log to a machine that goes back: gpu-pilot, the scheduler, a provider and its agent as real
processes, of which any may be killed on the way."""

import json
import subprocess
import time

import harness
import pytest
from harness import program, wait_until
from test_allocation_door import Holder, parsed
from test_machines import POOL, agents_of_machines, machines, native
from test_pilot import TRAINING, Pilot

BOOT_MS = 4000


@pytest.fixture(name="site")
def site_fixture(new_world):
    """A world without a node whose scheduler has one pool, and a pilot beside it."""
    world = new_world(SCHEDULER_NODE_LEASE_MS=1500, AGENT_HEARTBEAT_INTERVAL_MS=200)
    # Whoever holds a key never runs anything as root.
    options = ["--default-user", "nobody"] if harness.IS_ROOT else []
    pool = {**POOL, "delay_ms": BOOT_MS, "folder": str(world.folder / "machines"), "agent_options": options}
    file = world.folder / "pools.yaml"
    file.write_text(json.dumps({"every_ms": 100, "pause_seconds": 1, "pools": [pool]}))
    file.chmod(0o644)
    world.scheduler.settings["MACHINES_POOLS_FILE"] = file
    world.scheduler.start()
    world.tenants = {}
    world.cli("tenant", "create", "--name", "vision", "--max-gpus", "4", expected=0)
    pilot = Pilot(world, Holder(world, "vision"))
    yield world, pilot
    pilot.kill()


def wait_asked(world, pilot):
    """The pilot's lease, which the scheduler knows, and for which a machine boots."""
    wait_until("the scheduler knows the lease", lambda: [one for one in pilot.leases() if one["id"]])
    wait_until("a machine boots", lambda: agents_of_machines(world) or machines(world).get("machines"))
    (lease,) = pilot.leases()
    assert pilot.holder.gpu(lease["id"])["status"] == "PROVISIONING"
    return lease


def wait_gone(world):
    """The machine came once and is gone, and all that was asked for is one lease."""
    wait_until("all machines are gone", lambda: not machines(world).get("machines"))
    wait_until("no process of a machine is left", lambda: not agents_of_machines(world))
    assert not list((world.folder / "machines").iterdir())
    assert not native(world, "/v1/nodes").get("nodes")
    (pool,) = machines(world)["pools"]
    assert (pool["requested_total"], pool["gone_total"]) == (1, 1) and not pool.get("orphans")
    assert len(world.api().jobs()) == 1


def test_a_line_in_a_log_brings_a_machine_and_the_work_begins_without_a_wait(site):
    world, pilot = site
    pilot.start()
    pilot.log_line(TRAINING)
    asked = wait_asked(world, pilot)
    world.scheduler.restart()  # Both are killed while the machine boots.
    pilot.kill()
    pilot.start()
    lease = pilot.wait_lease()
    assert (lease["id"], lease["key"]) == (asked["id"], asked["key"])
    gpu = pilot.holder.gpu(lease["id"])
    assert gpu["status"] == "AVAILABLE" and gpu["hostname"] == "burst-1"
    began = time.monotonic()
    command = [program("gpu-cli"), "--token-file", str(pilot.holder.key_file), "run", "--in-lease", lease["job"], "--",
               "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; sleep 4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=world.cli_environment(), cwd=world.folder) as work:
        assert work.stdout.readline().strip() == "on " + gpu["environment"]["CUDA_VISIBLE_DEVICES"]
        assert time.monotonic() - began < BOOT_MS / 2000, "it waited for a machine"
        pilot.kill()  # While its lease is in use.
        pilot.start()
        assert work.wait() == 0, "the work outlives its pilot"
    wait_until("it is given back", lambda: pilot.decisions("release"))
    world.scheduler.restart()  # While the lease goes back, and its machine.
    pilot.holder.wait_for(lease["id"], "DEPROVISIONED")
    wait_gone(world)
    assert len(pilot.decisions("allocate")) == 1 and pilot.leases() == []
    assert pilot.stop() == 0


def test_a_pilot_that_dies_for_good_leaves_neither_a_lease_nor_a_machine(site):
    world, pilot = site
    pilot.start()
    pilot.log_line(TRAINING)
    asked = wait_asked(world, pilot)
    pilot.kill()
    world.scheduler.restart()
    gpu = pilot.holder.wait_for(asked["id"], "AVAILABLE")
    left_s = parsed(gpu["lease_expires_at"]) - time.time()
    assert left_s < 62, "nobody extends it: its time is over soon"
    # The rest of the minute would pass like its end. So its time ends a little later than now.
    status, answer, _ = world.api().call("PATCH", f"/v1/jobs/{gpu['job_id']}",
                                         {"max_runtime_ms": int((60 - left_s) * 1000) + 4000})
    assert status == 200, (status, answer)
    world.scheduler.restart()
    pilot.holder.wait_for(asked["id"], "DEPROVISIONED")
    wait_gone(world)
