"""Sessions in a job and files out of it give nobody more than the job's user has, whatever the job makes of its process."""

import os

import pytest
from harness import read_bytes, wait_until
from security import NEEDS_ROOT, NEEDS_SU, NEEDS_USER_NAMESPACES, root_secret, throw_away_users

# A program of root's that waits for a password, with this user behind it.
BECOME_SU = "mkfifo -m 600 $TMPDIR/in; sleep 1000 > $TMPDIR/in & cd /; exec su < $TMPDIR/in"


@pytest.fixture(name="users")
def users_fixture():
    with throw_away_users() as users:
        yield users


@pytest.fixture(name="rooted")
def rooted_fixture(new_world, users):
    """A world whose agent is root, and whose jobs run as a user that was made for it."""

    def start(*arguments, user=None):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        world.add_agent("n1", allow_root_jobs=False,
                        arguments=["--default-user", user or users.add(), *arguments]).start()
        return world

    return start


def pid_of(world, job):
    """The process that is the job's command."""
    for line in world.agents()[0].log_text().splitlines():
        if '"task_started"' in line and f'"{job}"' in line:
            return int(line.partition('"pid":')[2].split(",")[0].rstrip("}"))
    return None


def running(world, script, what, **fields):
    """The job, once its command is a process whose command line begins with `what`."""
    job = world.api().submit(script, **fields)
    world.api().wait_for(job, "running")

    def there():
        pid = pid_of(world, job)
        return pid and read_bytes(f"/proc/{pid}/cmdline").split(b"\0")[0] == what.encode()

    wait_until(f"{job} is {what}", there)
    return job


@NEEDS_ROOT
@NEEDS_SU
def test_a_session_in_a_job_that_runs_su_is_not_roots(rooted):
    world = rooted("--allow-set-user-id")
    path, content = root_secret(world)
    job = running(world, BECOME_SU, "su")
    done = world.cli("exec", job, "--", "sh", "-c", f"id -u; cat {path}")
    assert "0" not in done.stdout.split() and content not in done.stdout, "a session was root's"
    assert done.returncode == 4 and "runs as another user" in done.stderr, done


@NEEDS_ROOT
@NEEDS_SU
def test_a_copy_out_of_a_job_that_runs_su_is_not_roots(rooted):
    world = rooted("--allow-set-user-id")
    path, content = root_secret(world)
    job = running(world, BECOME_SU, "su")
    for name in (str(path).removeprefix("/"), str(path)):
        done = world.cli("cp", f"{job}:{name}", "-")
        assert content not in done.stdout, "a file of root's was copied"
        assert done.returncode == 4 and "runs as another user" in done.stderr, done


@NEEDS_USER_NAMESPACES
def test_a_session_in_a_user_namespace_of_nobodys_is_not_roots(rooted):
    world = rooted(user="nobody")
    path, content = root_secret(world)
    job = running(world, "exec unshare -Urm sleep 1000", "sleep")
    done = world.cli("exec", job, "--", "sh", "-c", f"cat {path}; echo overwritten > {path}")
    assert content not in done.stdout, "a session read a file of root's"
    assert path.read_text() == content, "a session wrote a file of root's"
    # It is in the job's namespaces nevertheless: as the user that it is there, which is nobody outside.
    assert world.cli("exec", job, "--", "id", "-u", expected=0).stdout == "0\n"
    spaces = world.cli("exec", job, "--", "readlink", "/proc/self/ns/user", "/proc/self/ns/mnt", expected=0).stdout
    assert spaces.split() == [os.readlink(f"/proc/{pid_of(world, job)}/ns/{kind}") for kind in ("user", "mnt")]
    copied = world.cli("cp", f"{job}:{path}", "-")
    assert content not in copied.stdout and copied.returncode == 4, copied


@NEEDS_USER_NAMESPACES
@pytest.mark.parametrize("how", ["exec", "cp"])
def test_a_session_writes_to_no_file_of_the_jobs_choice(rooted, how):
    world = rooted()
    path, content = root_secret(world)
    # What this job sees at /proc leads the file that sets a process's OOM score to a file of root's.
    job = running(world, "exec unshare -Urm sh -c 'mount -t tmpfs none /proc && mkdir -p /proc/self && "
                         f"ln -s {path} /proc/self/oom_score_adj && exec sleep 1000'", "sleep")
    if how == "exec":
        world.cli("exec", job, "--", "true")
    else:
        world.cli("cp", f"{job}:stdout", "-")
    assert path.read_text() == content, "root wrote to a file that the job chose"


@NEEDS_ROOT
def test_a_session_is_the_jobs_user_in_the_jobs_surroundings(rooted, users):
    name = users.add("--groups", "video")
    world = rooted(user=name)
    job = running(world, "touch /dev/shm/inside; umask 027; ulimit -n 321; exec sleep 1000", "sleep")
    look = ["sh", "-c", "id -u; id -Gn; ls /dev/shm; umask; ulimit -n; basename $PWD; echo $USER"]
    seen = world.cli("exec", job, "--", *look, expected=0).stdout.splitlines()
    assert seen[0] == str(users.uid(name)) and set(seen[1].split()) == {name, "video"}
    assert seen[2:] == ["inside", "0027", "321", "work", name]
    # The record of whom it runs as outlives the agent.
    world.agents()[0].restart()
    assert world.cli("exec", job, "--", *look, expected=0).stdout.splitlines() == seen
