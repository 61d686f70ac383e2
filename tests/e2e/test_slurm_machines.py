"""Machines by programs of Slurm's convention, here scripts that start and end a real agent each."""

import json

import harness
import pytest
from harness import program, wait_until
from test_machines import POOL, agents_of_machines, gated, machines, native

# Gets a host list, as ResumeProgram does. What it starts outlives it.
RESUME = """#!/bin/sh -e
echo "$1" >>{folder}/resumed
cp "$SLURM_RESUME_FILE" {folder}/resume-file.json
if [ -e {folder}/lose ]; then exit 0; fi
if [ -e {folder}/refuse ]; then echo 'no capacity in this zone' >&2; exit 1; fi
setsid {agent} --scheduler 127.0.0.1:{port} --node "$1" --data-dir {folder}/agent-"$1" {root} --cpus 8 --memory-mb 8192 \\
    --sim-gpus 2xA100-SXM4-80GB --label pool=burst >>{folder}/agents.log 2>&1 </dev/null &
echo $! >{folder}/pid-"$1"
"""
SUSPEND = """#!/bin/sh
echo "$1" >>{folder}/suspended
if [ -e {folder}/pid-"$1" ]; then kill "$(cat {folder}/pid-"$1")"; rm -f {folder}/pid-"$1"; fi
exit 0
"""
FAIL = """#!/bin/sh
echo "$1" >>{folder}/failed
"""


@pytest.fixture(name="site")
def site_fixture(new_world):
    """A world whose pool has scripts in the folder that is given beside it."""

    def make(**changes):
        world = new_world(SCHEDULER_NODE_LEASE_MS=1500)
        folder = world.folder / "slurm"
        folder.mkdir()
        pool = {name: value for name, value in POOL.items() if name != "delay_ms"}
        pool |= {"driver": "slurm", "timeout_seconds": 30, "suspend_seconds": 1, **changes}
        for key in ("resume", "suspend", "resume_fail"):
            pool[key] = [str(folder / key)]
        file = world.folder / "pools.yaml"
        file.write_text(json.dumps({"every_ms": 100, "pause_seconds": 1, "pools": [pool]}))
        file.chmod(0o644)
        world.scheduler.settings["MACHINES_POOLS_FILE"] = file
        world.scheduler.start()
        for key, text in (("resume", RESUME), ("suspend", SUSPEND), ("resume_fail", FAIL)):
            script = folder / key
            script.write_text(text.format(folder=folder, agent=program("gpu-agent"), port=world.scheduler.ports["grpc"],
                                          root="--allow-root-jobs" if harness.IS_ROOT else ""))
            script.chmod(0o755)
        return world, folder

    return make


def lines(path):
    return path.read_text().split() if path.exists() else []


def wait_gone(world):
    wait_until("all machines are gone", lambda: not machines(world).get("machines"))
    wait_until("no process of a machine is left", lambda: not agents_of_machines(world))
    assert not native(world, "/v1/nodes").get("nodes")
    assert not list((world.scheduler.data_dir / "machines-slurm").iterdir())


def test_a_job_that_fits_nowhere_resumes_a_machine_which_is_suspended_when_it_is_idle(site):
    world, folder = site()
    gate, job = gated(world)
    world.api().wait_for(job, "running")
    assert lines(folder / "resumed") == ["burst-1"]
    assert json.loads((folder / "resume-file.json").read_text()) == {"all_nodes_resume": "burst-1", "jobs": []}
    world.scheduler.restart()
    gate.touch()
    assert world.api().wait_for(job)["exit_code"] == 3
    wait_gone(world)
    assert lines(folder / "resumed") == lines(folder / "suspended") == ["burst-1"] and lines(folder / "failed") == []


def test_a_machine_whose_node_does_not_come_is_told_as_failed_and_another_one_comes(site):
    world, folder = site(boot_limit_seconds=3)
    (folder / "lose").touch()
    gate, job = gated(world)
    wait_until("the first failed", lambda: lines(folder / "failed") == ["burst-1"])
    (folder / "lose").unlink()
    wait_until("the first was suspended", lambda: "burst-1" in lines(folder / "suspended"))
    gate.touch()
    assert world.api().wait_for(job)["exit_code"] == 3
    wait_gone(world)
    assert lines(folder / "failed")[0] == "burst-1" and set(lines(folder / "suspended")) == set(lines(folder / "resumed"))


def test_a_program_that_fails_is_run_again_and_told(site):
    world, folder = site()
    (folder / "refuse").touch()
    gate, job = gated(world)
    wait_until("its words are shown", lambda: "no capacity in this zone" in json.dumps(machines(world)))
    (folder / "refuse").unlink()
    gate.touch()
    assert world.api().wait_for(job)["exit_code"] == 3
    wait_gone(world)
