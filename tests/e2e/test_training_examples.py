"""The programs of examples/training as people start them: two ranks, checkpoint and preemption, a sweep."""

import os
import subprocess
import sys

import pytest
from harness import PATIENCE_S, ROOT, bin_dir, wait_until

EXAMPLES = ROOT / "examples" / "training"


@pytest.fixture(name="world")
def world_fixture(new_world):
    world = new_world(SCHEDULER_PREEMPTION_PROTECTION_SECONDS=0, SCHEDULER_PREEMPTION_WAIT_SECONDS=0)
    world.scheduler.start()
    for node in ("n1", "n2"):
        world.add_agent(node, sim_gpus="1xA100-SXM4-80GB", arguments=["--address", "127.0.0.1"]).start()
    return world


def test_two_ranks_on_two_nodes_come_to_the_same_line(world):
    done = world.cli("submit", "--nodes", "2", "--gpus-per-node", "1", "--wait", "--", sys.executable,
                     str(EXAMPLES / "two_ranks.py"))
    job = done.stdout.split()[0]
    assert done.returncode == 0, (done, [path.read_text() for path in world.folder.rglob("stderr")])
    assert {member["node_name"] for member in world.api().call("GET", f"/api/v1/jobs/{job}")[1]["members"]} == {"n1", "n2"}
    for rank in (0, 1):
        out = world.cli("logs", job, "--member", str(rank), expected=0).stdout
        assert out == f"rank {rank} of 2: y = 3.00 x + 1.00\n"


def test_a_preempted_training_saves_its_work_and_goes_on_from_there(world):
    api = world.api()
    api.post("/tenants", {"name": "batch", "allow_preemption": True, "priority_tier": "low"}, 201)
    api.post("/tenants", {"name": "urgent", "can_preempt_others": True, "priority_tier": "critical"}, 201)
    state = world.folder / "state"
    done = world.cli("--tenant-id", "batch", "submit", "--gpus", "1", "--node-label", "node=n1", "--preempt-signal", "USR1",
                     "--preempt-grace", "5m", "--", sys.executable, str(EXAMPLES / "checkpointed.py"), str(state), "100", "0.05",
                     expected=0)
    job = done.stdout.split()[0]
    wait_until("it trains", lambda: api.output(job) == "begins at step 0\n")
    other = api.submit(["true"], tenant_id="urgent", gpu_count=1, node_labels=["node=n1"])
    # Long before the grace of five minutes is over.
    assert api.wait_for(other)["state"] == "completed"
    assert api.wait_for(job)["state"] == "completed"
    begun, saved = api.output(job, attempt=1).splitlines()
    step = saved.removeprefix("saved at step ")
    assert begun == "begins at step 0" and 0 < int(step) < 100
    assert api.output(job, attempt=2).splitlines() == [f"begins at step {step}", "finished 100 steps"]
    assert not state.exists()


def test_a_sweep_finds_the_best_rate(world):
    results = world.folder / "results"
    results.mkdir()
    results.chmod(0o777)
    environment = {**world.cli_environment(), "PATH": f"{bin_dir()}:{os.environ['PATH']}"}
    done = subprocess.run([EXAMPLES / "sweep.sh", results], env=environment, cwd=world.folder, capture_output=True, text=True,
                          check=False, timeout=2 * PATIENCE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0.000000 rate=0.5"
    assert len(list(results.iterdir())) == 8
