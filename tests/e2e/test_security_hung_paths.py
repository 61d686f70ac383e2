"""A job that names a path on a file system that does not answer holds up itself alone."""

import contextlib

import containers
import hung_folder
import pytest
from harness import wait_until
from test_containers import IMAGE, add_agent, podman_fixture

__all__ = ["IMAGE", "podman_fixture"]

pytestmark = pytest.mark.skipif(hung_folder.why_not() is not None, reason=str(hung_folder.why_not()))
# No order runs out of the agent's patience meanwhile: what ends a job in time is its own shim.
PATIENT = ["--order-patience-s", "600"]


@pytest.fixture(name="stuck")
def stuck_fixture(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    with hung_folder.hung(world.folder / "hung") as mounted:
        if not mounted:
            pytest.skip("file systems may not be mounted here")
        world.hung = world.folder / "hung"
        yield world
    with contextlib.suppress(AssertionError):
        world.wait_nothing_runs()


def others_run(world):
    job = world.api().submit("echo fine")
    assert world.api().wait_for(job)["state"] == "completed"
    assert world.api().node("n1")["state"] == "ready"


@pytest.mark.parametrize("fields", [{"working_directory": "{hung}/folder"}, {"stdout_path": "{hung}/out"},
                                    {"stdin_path": "{hung}/in"}, {"command": ["{hung}/program"]}], ids=lambda f: next(iter(f)))
def test_a_job_that_hangs_before_its_command_can_be_cancelled(stuck, fields):
    world = stuck
    world.add_agent("n1", arguments=PATIENT).start()
    named = {name: [value[0].format(hung=world.hung)] if name == "command" else value.format(hung=world.hung)
             for name, value in fields.items()}
    job = world.api().submit(**{"command": ["true"], **named})
    wait_until("it is on its way", lambda: world.api().job(job)["state"] in ("scheduled", "running"))
    others_run(world)
    world.api().cancel(job)
    assert world.api().wait_for(job)["state"] == "cancelled"
    others_run(world)


@pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not()))
def test_a_mount_that_hangs_is_refused_and_holds_up_nobody(stuck, podman):
    world = stuck
    add_agent(world, podman, more=[*PATIENT, "--container-mount", str(world.folder)]).start()
    jobs = [world.api().submit("true", image=IMAGE, mounts=[f"{world.hung}/{name}:/in"]) for name in "aab"]
    for job in jobs:
        found = world.api().wait_for(job)
        assert (found["state"], found["exit_code"]) == ("failed", 125), found
        assert "its file system does not answer on this node" in world.api().output(job, "stderr")
    others_run(world)


def test_output_on_a_file_system_that_no_longer_answers_does_not_hang_the_agent(new_world):
    """The agent looks at how large it is, to see whether the job still does something."""
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    agent = world.add_agent("n1", arguments=PATIENT)
    agent.start()
    place = world.folder / "hung"
    place.mkdir()
    job = world.api().submit("while [ ! -e $TMPDIR/go ]; do sleep 0.1; done", stdout_path=str(place / "out"), gpu_count=1)
    world.api().wait_for(job, "running")
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
    with hung_folder.hung(place) as mounted:
        if not mounted:
            pytest.skip("file systems may not be mounted here")
        others_run(world)
        agent.kill()  # Another agent finds the job, and looks at its output first.
        agent.start()
        others_run(world)
        assert world.api().job(job)["state"] == "running"
        world.api().cancel(job)
        assert world.api().wait_for(job)["state"] == "cancelled"
