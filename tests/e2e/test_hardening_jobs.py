"""Hardening: jobs that misbehave. Each ends, and its node goes on."""

import os
import shutil
import subprocess

import pytest
from harness import IS_ROOT, is_alive, wait_until

FILES = int(os.environ.get("GPUSCHED_HARDENING_FILES", "1000000"))


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(new_module_world):
    world = new_module_world()
    world.scheduler.start()
    world.add_agent("n1", cpus=16, arguments=["--keep-finished", "2", "--grace-ms", "500"]).start()
    return world


@pytest.fixture(name="api")
def api_fixture(cluster):
    yield cluster.api()
    cluster.cancel_everything()
    cluster.wait_nothing_runs()


def pids_in(path, count):
    wait_until(f"{count} processes have written their pids to {path}",
               lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(pid) for pid in path.read_text().split()]


def node_goes_on(api):
    job_id = api.submit("echo fine")
    assert api.wait_for(job_id)["state"] == "completed"
    return job_id


# Many names of few files: a name costs what a file does when the folder goes, and less to make.
MAKE_FILES = """
import os, sys
count, per_file = int(sys.argv[1]), 50_000
for number in range(count):
    if number % per_file == 0:
        base = f"base-{number}"
        open(base, "w").close()
    else:
        os.link(base, f"name-{number}")
"""


def test_a_million_files_in_a_jobs_folder_do_not_hold_up_its_node(cluster, api):
    agent = cluster.agents()[0]
    job_id = api.submit(["python3", "-c", MAKE_FILES, str(FILES)])
    assert api.wait_for(job_id, timeout_s=600)["state"] == "completed", api.output(job_id, "stderr")
    attempts, trash = agent.data_dir / "attempts", agent.data_dir / "trash"
    folder = attempts / f"{job_id.removeprefix('job-')}-1-0"
    assert folder.exists()
    # Only two ended attempts are kept: the folder goes while others run.
    for _ in range(4):
        node_goes_on(api)
    wait_until("the folder is out of the way", lambda: not folder.exists())
    removed = lambda: not any(trash.iterdir())
    if not removed():
        node_goes_on(api)
    # An agent that ends meanwhile does not wait for the rest of it; the next one goes on.
    assert agent.stop() == 0
    agent.start()
    node_goes_on(api)
    wait_until("everything is removed", removed, 600)


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(cluster, api):
    pids = cluster.folder / "stubborn"
    job_id = api.submit(f"trap '' TERM HUP INT; echo $$ >> {pids}; while :; do sleep 0.1; done")
    (pid,) = pids_in(pids, 1)
    api.cancel(job_id)
    assert api.wait_for(job_id)["state"] == "cancelled"
    assert not is_alive(pid)


def test_daemons_that_a_job_leaves_end_with_it(cluster, api):
    pids = cluster.folder / "daemons"
    script = f"""
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.environ.clear()
            os.closerange(0, 3)
            with open({str(pids)!r}, "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            time.sleep(600)
        os._exit(0)
os.wait(); os.wait(); os.wait()
while len(open({str(pids)!r}).read().split()) < 3:
    time.sleep(0.01)
"""
    pids.touch()
    job_id = api.submit(["python3", "-c", script])
    assert api.wait_for(job_id)["state"] == "completed", api.output(job_id, "stderr")
    for pid in pids_in(pids, 3):
        assert not is_alive(pid)


def test_a_job_that_kills_its_parent_takes_nothing_else_with_it(cluster, api):
    pids = cluster.folder / "orphans"
    other = api.submit("sleep 600")
    api.wait_for(other, "running")
    job_id = api.submit(f"[ -s {pids} ] && exit 0; (setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &) ; "
                        f"while [ ! -s {pids} ]; do sleep 0.01; done; kill -9 $PPID; sleep 600")
    (orphan,) = pids_in(pids, 1)
    # Its shim is lost, and what it left is killed before another attempt begins.
    job = api.wait_for(job_id)
    assert (job["state"], job["attempts"]) == ("completed", 2)
    assert not is_alive(orphan)
    assert api.job(other)["state"] == "running"
    node_goes_on(api)


def test_a_job_that_kills_everything_it_finds_ends_nobody_elses(cluster, api):
    """As a job's own user it reaches only what is its own: its group, its children."""
    other = api.submit("sleep 600")
    api.wait_for(other, "running")
    job_id = api.submit("kill -9 0")
    assert api.wait_for(job_id)["state"] == "failed"
    assert api.job(other)["state"] == "running"
    node_goes_on(api)


def test_a_job_that_floods_both_outputs_ends_by_itself_and_is_followed_meanwhile(cluster, api):
    job_id = api.submit("head -c 300000000 /dev/zero & head -c 300000000 /dev/zero >&2; wait; echo the end")
    follower = cluster.cli_start("logs", "-f", "--tail", "1", "--grep", "the end", job_id)
    assert api.wait_for(job_id)["state"] == "completed"
    out, err = follower.communicate(timeout=120)
    assert out.endswith(b"the end\n"), err
    node_goes_on(api)


@pytest.fixture(name="small_disk")
def small_disk_fixture(session_folder):
    """A file system of 32 MB."""
    if not IS_ROOT:
        pytest.skip("only root can mount a small file system")
    folder = session_folder / "small-disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m,mode=0755", "tmpfs", str(folder)], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        folder.rmdir()
        pytest.skip(f"this machine cannot mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def test_a_job_that_fills_its_nodes_disk_ends_and_the_node_goes_on(new_world, small_disk):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1", data_dir=small_disk / "agent", arguments=["--disk-free-mb", "0"]).start()
    api = world.api()
    # It fills the disk with a file of its own, and stays until it is told to end.
    gate = world.folder / "gate"
    filler = api.submit(f"cat /dev/zero > big; echo full >&2; while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
    big = agent.data_dir / "attempts" / f"{filler.removeprefix('job-')}-1-0"
    wait_until("the disk is full", lambda: shutil.disk_usage(small_disk).free == 0)
    # A job that was running before says its end all the same.
    gate.touch()
    job = api.wait_for(filler)
    assert (job["state"], job["exit_code"]) == ("failed", 3)
    assert world.api().node("n1")["state"] == "ready"
    for path in big.rglob("big"):
        path.unlink()
    node_goes_on(api)


def test_a_full_tmp_is_the_jobs_own_trouble(cluster, api):
    job_id = api.submit("head -c 1000000 /dev/zero > /dev/full; echo $?")
    job = api.wait_for(job_id)
    assert job["state"] == "completed"
    assert api.output(job_id) == "1\n"
    assert "No space left" in api.output(job_id, "stderr")
    node_goes_on(api)


def boxed_world(new_world, *arguments):
    """A node that keeps its jobs in cgroups, or none: then the test is skipped."""
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1", cpus=16, arguments=["--grace-ms", "500", *arguments]).start()
    status, answer, _ = world.api().call("GET", "/v1/nodes")
    assert status == 200, answer
    if not any(feature.startswith("cgroup:v") for node in answer["nodes"] for feature in node.get("features", [])):
        pytest.skip("this machine gives the agent no cgroups")
    return world


def test_a_fork_bomb_stays_in_its_box_and_ends(new_world):
    world = boxed_world(new_world, "--processes-max", "64")
    api = world.api()
    # The shell's bomb dies out by chance where a fork is refused; this one never does.
    bomb = api.submit(
        [
            "python3",
            "-c",
            "import os, time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(0.05)",
        ]
    )
    api.wait_for(bomb, "running")
    wait_until("the bomb fills its box", lambda: len(world.attempts_left()) >= 30)
    node_goes_on(api)
    api.cancel(bomb)
    assert api.wait_for(bomb)["state"] == "cancelled"
    world.wait_nothing_runs()
    node_goes_on(api)


def test_a_job_that_eats_memory_is_ended_alone_and_told_so(new_world):
    world = boxed_world(new_world)
    api = world.api()
    other = api.submit("sleep 600")
    api.wait_for(other, "running")
    eater = api.submit(["python3", "-c", "a = []\nwhile True: a.append(bytearray(1 << 20))"], memory_mb=64)
    job = api.wait_for(eater)
    assert (job["state"], job["reason"]) == ("failed", "out_of_memory"), job
    assert api.job(other)["state"] == "running"
    node_goes_on(api)
