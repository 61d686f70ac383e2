"""The end of a job's box: the time that it has, its daemons, and its groups. The rest of the box is test_box.py's.

    time to end                         commands_group_are_told, grace_is, spend_the_grace
    daemons                             daemon_without_environment;
                                        test_hardening_jobs.py, daemons_that_a_job_leaves
    cgroups                             no_group_is_left, belongs_to_no_attempt
"""

import os
import pathlib
import signal
import subprocess

import harness
import pytest
from harness import is_alive, read_bytes, wait_until
from test_box import NEEDS_CGROUPS, boxed_fixture, run, start_world_fixture

__all__ = ["boxed_fixture", "start_world_fixture"]
pytestmark = pytest.mark.shared_world


@pytest.mark.own_world
@NEEDS_CGROUPS
def test_a_daemon_without_environment_dies_with_an_adopted_attempt_whose_shim_and_server_are_killed(boxed):
    world = boxed()
    api, agent = world.api(), world.agents()[0]
    mark = f"600.{os.getpid()}"
    job_id = api.submit(f"(env -i setsid sleep {mark} &); exec sleep 601")
    api.wait_for(job_id, "running")
    words = f"sleep\0{mark}\0".encode()
    daemon = wait_until("the daemon runs", lambda: next(
        (pid for pid in harness.processes() if read_bytes(f"/proc/{pid}/cmdline") == words), None))
    servers = agent.children()
    shim = agent.shim_of(job_id)
    agent.restart()
    for pid in (*servers, shim):
        os.kill(pid, signal.SIGKILL)
    wait_until("the daemon is dead", lambda: not is_alive(daemon))
    api.cancel(job_id)
    world.wait_nothing_runs()
    wait_until("no group is left", lambda: not groups_of_attempts(world))


def groups_of_attempts(world):
    return [group for group in harness.cgroups_of(world.folder)
            if not group.endswith((world.agents()[0].mark(), "/held"))]


@NEEDS_CGROUPS
def test_no_group_is_left_of_ended_jobs(boxed):
    world = boxed()
    for _ in range(3):
        run(world.api(), "true")
    wait_until("no group is left", lambda: not groups_of_attempts(world))


@pytest.mark.own_world
@NEEDS_CGROUPS
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_an_agent_that_ended_leaves_no_group_once_its_jobs_have_ended(boxed, killed):
    world = boxed()
    agent = world.agents()[0]
    job = world.api().submit("sleep 3")
    world.api().wait_for(job, "running")
    if killed:
        agent.kill()
        agent.start()
    agent.stop()
    assert list(harness.cgroups_of(world.folder))
    wait_until("no group is left", lambda: not list(harness.cgroups_of(world.folder)))
    agent.start()
    world.api().wait_for(job, "completed")
    assert run(world.api(), "true") is not None


@pytest.mark.own_world
@NEEDS_CGROUPS
def test_a_group_that_belongs_to_no_attempt_goes_with_all_in_it_when_the_agent_starts(boxed):
    world = boxed()
    agent = world.agents()[0]
    agent.kill()
    stray = subprocess.Popen(["sleep", "600"])
    try:
        for group in [one for one in harness.cgroups_of(world.folder) if one.endswith(agent.mark())]:
            left = pathlib.Path(group) / "7-1-0"
            left.mkdir()
            if "/freezer/" in group or (left / "cgroup.kill").exists():
                (left / "cgroup.procs").write_text(str(stray.pid))
        assert groups_of_attempts(world)
        agent.start()
        assert stray.wait(harness.PATIENCE_S) == -signal.SIGKILL
        agent.restart()
        wait_until("no group is left", lambda: not groups_of_attempts(world))
    finally:
        stray.kill()
        stray.wait()


LATE_AFTER_TERM = "trap told=1 TERM; i=0; while [ $i -lt 80 ]; do sleep 0.1; i=$((i + 1)); [ $told ] || i=0; done; echo late"
LATE = "trap '' TERM; echo up; i=0; while [ $i -lt 80 ]; do sleep 0.1; i=$((i + 1)); [ -e %s ] || i=0; done; echo late"


@pytest.mark.parametrize("scheduler_ms, agent_ms", [(200, 3_600_000), (0, 200)])
def test_the_grace_is_the_schedulers_or_else_the_agents(boxed, scheduler_ms, agent_ms):
    world = boxed("--grace-ms", str(agent_ms), settings={"SCHEDULER_GRACE_MS": scheduler_ms})
    api = world.api()
    stopped = world.folder / "stopped"
    job_id = api.submit(LATE % stopped)
    wait_until("it is up", lambda: api.job(job_id)["state"] == "running" and api.output(job_id) == "up\n")
    stopped.touch()
    api.cancel(job_id)
    world.wait_nothing_runs()
    assert api.output(job_id) == "up\n", "it lived for 8 s after its SIGTERM"


@pytest.mark.parametrize("scheduler_ms, agent_ms", [(200, 3_600_000), (0, 200)])
def test_the_grace_is_the_same_where_only_the_node_is_left_to_end_the_job(boxed, scheduler_ms, agent_ms):
    world = boxed("--grace-ms", str(agent_ms), settings={"SCHEDULER_GRACE_MS": scheduler_ms})
    api = world.api()
    job_id = api.submit(LATE_AFTER_TERM, max_runtime_seconds=3)
    api.wait_for(job_id, "running")
    world.scheduler.kill()
    world.wait_nothing_runs()
    world.scheduler.start()
    assert api.wait_for(job_id)["reason"] == "timeout"
    assert "late" not in api.output(job_id), "it lived for 8 s after its SIGTERM"


# It is told first; who was told with it may take longer, and a daemon is not told.
TOLD = """
me=$$
(trap 'while kill -0 $me 2>/dev/null; do sleep 0.05; done; sleep 0.5; echo child; exit' TERM
 echo up; while :; do sleep 0.05; done) &
setsid sh -c 'trap "echo daemon" TERM; echo up; while :; do sleep 0.05; done' &
trap 'echo command; exit' TERM
echo up; while :; do sleep 0.05; done
"""


def test_all_of_the_commands_group_are_told_to_end_and_have_their_time(boxed):
    world = boxed("--grace-ms", "3600000")
    api = world.api()
    job_id = api.submit(TOLD)
    wait_until("all are up", lambda: api.job(job_id)["state"] == "running" and api.output(job_id) == "up\n" * 3)
    api.cancel(job_id)
    world.wait_nothing_runs()
    assert api.output(job_id) == "up\n" * 3 + "command\nchild\n"


def test_a_daemon_does_not_spend_the_grace_of_a_command_that_ended(boxed):
    world = boxed("--grace-ms", "3600000")
    api = world.api()
    job_id = api.submit("setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo up; exec sleep 600")
    wait_until("it is up", lambda: api.job(job_id)["state"] == "running" and api.output(job_id) == "up\n")
    api.cancel(job_id)
    world.wait_nothing_runs()
