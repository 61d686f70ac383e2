"""What a container of root's runtime gets of its node: what was allowed, and nothing that was put in its place."""

import subprocess

import containers
import pytest
import registry
from harness import noise, wait_until
from security import root_secret, throw_away_users
from test_containers import IMAGE, add_agent, finished, podman_fixture

__all__ = ["IMAGE", "podman_fixture"]


@pytest.fixture(name="users")
def users_fixture():
    if containers.why_not():
        pytest.skip(containers.why_not())
    with throw_away_users() as users:
        yield users


@pytest.fixture(name="pulling")
def pulling_fixture(new_world, podman, users):
    """A world whose agent lets jobs mount a user's folder, and a registry that holds its layers back."""
    world = new_world()
    world.folder.chmod(0o755)
    world.user = users.add()
    world.data = world.folder / "data"
    world.data.mkdir()
    subprocess.run(["chown", world.user, world.data], check=True)
    world.scheduler.start()
    add_agent(world, podman, more=["--container-mount", str(world.data)]).start()
    world.registry = podman.new_registry()
    layer = registry.shell_layer(containers.BUSYBOX, {"bin/large": noise(300_000)})
    world.image = world.registry.add("shell", "1", registry.Image([layer]))
    yield world
    world.registry.gate.set()
    world.end()


def test_a_link_put_in_a_mounts_place_during_the_pull_leads_nowhere(pulling):
    world = pulling
    secret, content = root_secret(world)
    secret.chmod(0o644)  # Its folder keeps it from users; a mount of the folder would not.
    secret.parent.chmod(0o755)
    hidden = world.folder / "hidden"
    hidden.mkdir(mode=0o700)
    secret.parent.rename(hidden / "of-root")
    mine = world.data / "mine"
    mine.mkdir()
    subprocess.run(["chown", world.user, mine], check=True)
    world.registry.gate.clear()
    job = world.api().submit("cat /in/secret", image=world.image, user=world.user, mounts=[f"{mine}:/in"])
    wait_until("the pull began", lambda: any("/blobs/" in path for _, path in world.registry.requests))
    mine.rename(world.data / "away")
    mine.symlink_to(hidden / "of-root")
    world.registry.gate.set()
    found, out, err = finished(world, job)
    assert content.strip() not in out
    assert (found["state"], found["exit_code"], out) == ("failed", 125, "")
    assert f"'{mine}' is not mounted: it points elsewhere" in err


def test_a_mount_that_stayed_is_there_after_the_pull(pulling):
    world = pulling
    (world.data / "input").write_text("42")
    job = world.api().submit("cat /in/input; echo done > /in/output", image=world.image, user=world.user,
                             mounts=[f"{world.data}:/in"])
    found, out, err = finished(world, job)
    assert (found["state"], out) == ("completed", "42"), err
    assert (world.data / "output").read_text() == "done\n"


def test_a_job_may_be_cut_off_from_the_network_where_its_node_lets_it(new_world, podman):
    world = new_world()
    world.scheduler.start()
    add_agent(world, podman, more=["--container-network", "none", "--container-job-option=--network=host"]).start()
    for options, cut_off in (([], True), (["--network=host"], False)):
        found, out, err = finished(world, world.api().submit("cat /proc/net/tcp /proc/net/tcp6", image=IMAGE,
                                                             container_arguments=options))
        assert found["state"] == "completed", err
        # The scheduler listens on this machine's loopback, without a password for what anybody may ask.
        assert (f":{world.scheduler.ports['http']:04X} " in out) != cut_off
