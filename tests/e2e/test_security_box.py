"""What a job leaves to others, and what root's cleaning does to others: nothing."""

import os
import pathlib
import secrets
import shutil
import subprocess
import sys

import pytest
from harness import wait_until
from security import NEEDS_ROOT, throw_away_users

# Joins a session keyring of its own, as pam_keyinit or systemd do for a service, and becomes the program.
WITH_KEYRING = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(250, 1, None) < 0:
    sys.exit("no session keyring")
os.execvp(sys.argv[1], sys.argv[1:])
"""
# Puts a key into the session's keyring, or looks for it there.
PUT_KEY = ("import ctypes,sys; libc=ctypes.CDLL(None, use_errno=True); "
           "print('put' if libc.syscall(248, b'user', sys.argv[1].encode(), b'secret', 6, -3) > 0 else 'not put')")
FIND_KEY = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
key = libc.syscall(250, 10, -3, b"user", sys.argv[1].encode(), 0)
text = ctypes.create_string_buffer(64)
print("found" if key > 0 and libc.syscall(250, 11, key, text, 64) == 6 else "not found")
"""


def has_keyrings():
    done = subprocess.run([sys.executable, "-c", WITH_KEYRING, "true"], capture_output=True, check=False)
    return os.uname().machine == "x86_64" and done.returncode == 0


@pytest.fixture(name="users")
def users_fixture():
    with throw_away_users() as users:
        yield users


@pytest.fixture(name="rooted")
def rooted_fixture(new_world):
    def start(**options):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        world.add_agent("n1", allow_root_jobs=False, **options).start()
        return world

    return start


def run_as(world, user, *command):
    job = world.api().submit(user=user, command=list(command))
    assert world.api().wait_for(job)["state"] == "completed", world.api().output(job, "stderr")
    return world.api().output(job).strip()


@NEEDS_ROOT
@pytest.mark.skipif(not has_keyrings(), reason="needs the kernel's keyrings")
def test_a_key_of_one_job_is_no_other_jobs(rooted, users):
    one, other = users.add(), users.add()
    world = rooted(prefix=[sys.executable, "-c", WITH_KEYRING])
    name = secrets.token_hex(8)
    assert run_as(world, one, "/usr/bin/python3", "-c", PUT_KEY, name) == "put"
    assert run_as(world, other, "/usr/bin/python3", "-c", FIND_KEY, name) == "not found"
    assert run_as(world, one, "/usr/bin/python3", "-c", FIND_KEY, name) == "not found"


@NEEDS_ROOT
@pytest.mark.skipif(shutil.which("ipcmk") is None, reason="needs ipcmk")
def test_shared_memory_ends_with_its_job(rooted, users):
    def objects():
        return {kind: subprocess.check_output(["ipcs", kind], text=True).split() for kind in ("-m", "-q", "-s")}

    before = objects()
    run_as(rooted(), users.add(), "ipcmk", "-M", "4096", "-Q", "-S", "1", "-p", "0666")
    try:
        assert objects() == before
    finally:
        for kind, words in objects().items():
            for word in set(words) - set(before[kind]):
                if word.isdigit():
                    subprocess.run(["ipcrm", kind, word], check=False, capture_output=True)


@NEEDS_ROOT
@pytest.mark.skipif(not pathlib.Path("/proc/self/loginuid").exists(), reason="needs a kernel with audit")
def test_the_audit_knows_whose_a_job_is(rooted, users):
    user = users.add()
    assert run_as(rooted(), user, "cat", "/proc/self/loginuid") == str(users.uid(user))


@NEEDS_ROOT
def test_what_is_mounted_in_a_jobs_folder_is_not_removed(rooted, users):
    world = rooted()
    user = users.add()
    kept = world.folder / "kept"
    kept.mkdir()
    (kept / "file").write_text("of somebody else")
    job = world.api().submit("mkdir $TMPDIR/place; echo $TMPDIR; while [ ! -e go ]; do sleep 0.1; done", user=user)
    world.api().wait_for(job, "running")
    wait_until("it made its folder", lambda: world.api().output(job).strip())
    folder = pathlib.Path(world.api().output(job).strip())
    place = folder / "place"
    subprocess.run(["mount", "--bind", kept, place], check=True)
    try:
        (folder.parent / "work" / "go").touch()
        assert world.api().wait_for(job)["state"] == "completed"
        world.wait_nothing_runs()
        assert (kept / "file").read_text() == "of somebody else"
    finally:
        subprocess.run(["umount", "-l", place], check=False)
