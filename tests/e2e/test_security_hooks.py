"""Hooks of an agent of root's run as root: nobody else decides what they do."""

import subprocess

import pytest
from harness import program, wait_until
from security import NEEDS_ROOT, throw_away_users


@pytest.fixture(name="users")
def users_fixture():
    with throw_away_users() as users:
        yield users


def hook_of(path, mark):
    path.write_text(f"#!/bin/sh\ntouch {mark}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(name="hooked")
def hooked_fixture(new_world, users):
    """A world and a folder in it that is a user's."""
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.folder.chmod(0o755)
    folder = world.folder / "of-a-user"
    folder.mkdir(mode=0o755)
    subprocess.run(["chown", users.add(), folder], check=True)
    world.scheduler.start()
    return world, folder


@NEEDS_ROOT
@pytest.mark.parametrize("kind", ["prolog", "epilog", "health-script"])
def test_a_hook_that_a_user_can_replace_is_not_run(hooked, kind):
    world, folder = hooked
    mark = world.folder / "a-user-was-root"
    hook = hook_of(folder / "hook", mark)  # The file is root's; its folder is not.
    agent = world.add_agent("n1", arguments=[f"--{kind}", str(hook), "--check-every-s", "1"])
    agent.launch()
    sentence = f"the hook {hook} is not run as root, because other users can change what it does: {folder} belongs to user"
    wait_until("the node says why it takes no work", lambda: sentence in world.cli("nodes", "--json").stdout)
    job = world.api().submit("true")
    doctor = subprocess.run([program("gpu-agent"), "doctor", "--data-dir", str(world.folder / "none"), f"--{kind}",
                             str(hook)], capture_output=True, text=True, check=False)
    assert sentence in doctor.stdout, doctor.stdout
    assert world.api().job(job)["state"] == "pending" and not mark.exists()
    # Mended, the node takes work again.
    subprocess.run(["chown", "root", folder], check=True)
    assert world.api().wait_for(job)["state"] == "completed"
    wait_until("the hook ran", mark.exists)


@NEEDS_ROOT
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_hook_that_others_may_write_is_not_run(hooked, mode):
    world, _ = hooked
    mark = world.folder / "a-user-was-root"
    hook = hook_of(world.folder / "hook", mark)
    hook.chmod(mode)
    world.add_agent("n1", arguments=["--prolog", str(hook)]).launch()
    wait_until("the node says why it takes no work", lambda: "can be changed by" in world.cli("nodes", "--json").stdout)
    assert not mark.exists()
