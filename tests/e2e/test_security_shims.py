"""Only an agent's own gpu-shim is taken for one: not whatever calls itself so."""

import pytest
from harness import is_alive, read_bytes, wait_until
from security import NEEDS_ROOT, as_user, impostor, public_programs, throw_away_users


@pytest.fixture(name="users")
def users_fixture():
    with throw_away_users() as users:
        yield users


@NEEDS_ROOT
def test_impostors_of_a_server_keep_no_plain_agent_from_starting_jobs(users, new_world, monkeypatch):
    owner, stranger = users.add(), users.add()
    with public_programs(monkeypatch):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.folder.chmod(0o777)
        world.scheduler.prefix = as_user(owner)
        world.scheduler.start()
        agent = world.add_agent("n1", prefix=as_user(owner), allow_root_jobs=False).start()
        tag = mark_of(world).partition("@")[2]
        agent.kill()
        stranger = impostor(world, stranger, "gpu-shim", "--server", tag, "x")
        agent.start()
        assert world.api().wait_for(world.api().submit("true"))["state"] == "completed"
        assert stranger.poll() is None
        stranger.kill()
        stranger.wait()


def mark_of(world):
    """What each process of a new attempt carries: KEY@TAG. A job sees its own."""
    job = world.api().submit("echo $GPU_SCHEDULER_ATTEMPT")
    world.api().wait_for(job, "completed")
    return world.api().output(job).strip()


@NEEDS_ROOT
def test_an_impostor_of_a_shim_gets_no_signals_and_saves_no_job(new_world, users):
    name = users.add()
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    agent = world.add_agent("n1", allow_root_jobs=False, arguments=["--default-user", name]).start()
    job = world.api().submit("echo $$ $GPU_SCHEDULER_ATTEMPT; exec sleep 1000")
    world.api().wait_for(job, "running")
    wait_until("it says who it is", lambda: world.api().output(job).endswith("\n"))
    pid, mark = world.api().output(job).split()
    # A later process than the shim, with its name.
    false_shim = impostor(world, name, "gpu-shim", mark)
    agent.restart()
    world.api().wait_for(job, "running")
    world.api().cancel(job)
    assert world.api().wait_for(job)["state"] == "cancelled"
    wait_until("the job's process has ended", lambda: not is_alive(int(pid)))
    assert is_alive(false_shim.pid) and read_bytes(f"/proc/{false_shim.pid}/cmdline").startswith(b"gpu-shim")
    false_shim.kill()
    false_shim.wait()


@NEEDS_ROOT
def test_a_name_alone_makes_no_running_job(new_world, users):
    name = users.add()
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    agent = world.add_agent("n1", allow_root_jobs=False, arguments=["--default-user", name]).start()
    key, _, tag = mark_of(world).partition("@")
    numbers = key.split("-")
    later = "-".join([str(int(numbers[0]) + 1000), *numbers[1:]])
    false_shim = impostor(world, name, "gpu-shim", f"{later}@{tag}")
    agent.restart()
    # Jobs start, so the search is over.
    world.api().wait_for(world.api().submit("true"), "completed")
    assert '"attempt_found"' not in agent.log_since_start() and is_alive(false_shim.pid)
    false_shim.kill()
    false_shim.wait()


@NEEDS_ROOT
def test_a_users_job_can_use_a_folder_that_was_a_root_jobs(new_world, users):
    name = users.add()
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    agent = world.add_agent("n1", arguments=["--keep-finished", "1"]).start()
    api = world.api()
    for _ in range(2):
        api.wait_for(api.submit("echo of root", user="root"), "completed")
    wait_until("a folder is spare", lambda: list((agent.data_dir / "spare").iterdir()))
    job = api.submit("id -un; touch $TMPDIR/mine && echo written; touch mine && basename $PWD", user=name)
    api.wait_for(job)
    assert api.output(job) == f"{name}\nwritten\nwork\n", (api.job(job), api.output(job, "stderr"))
