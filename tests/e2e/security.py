"""What the exploits of test_security_*.py share: throw-away users, their processes, and secrets of root's.

Each of these tests carries out an attack with real processes, as root and as users made for it, and demands that it
achieves nothing. What this machine cannot do is skipped by name.
"""

import contextlib
import os
import pathlib
import secrets
import shutil
import subprocess
import sys

import harness
import pytest
from harness import IS_ROOT

NEEDS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="needs root: makes users and runs an agent of root's")
NEEDS_SU = pytest.mark.skipif(shutil.which("su") is None, reason="needs su, a set-user-id program")


def has_user_namespaces():
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Urm", "true"],
                          capture_output=True, check=False)
    return done.returncode == 0


NEEDS_USER_NAMESPACES = pytest.mark.skipif(
    not IS_ROOT or shutil.which("setpriv") is None or shutil.which("unshare") is None or not has_user_namespaces(),
    reason="needs user namespaces for users")


class Users:
    """Throw-away users. Whatever they left running ends with them."""

    def __init__(self):
        self.names = []

    def add(self, *options):
        name = f"gps{secrets.token_hex(4)}"
        subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", *options, name], check=True,
                       capture_output=True)
        self.names.append(name)
        return name

    def uid(self, name):
        return int(subprocess.check_output(["id", "-u", name], text=True))

    def end(self):
        for name in self.names:
            uid = self.uid(name)
            for pid in list(harness.processes()):
                with contextlib.suppress(OSError):
                    if os.stat(f"/proc/{pid}").st_uid == uid:
                        os.kill(pid, 9)
            subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
            subprocess.run(["groupdel", name], check=False, capture_output=True)


@contextlib.contextmanager
def throw_away_users():
    users = Users()
    try:
        yield users
    finally:
        users.end()


def as_user(name, *words):
    """A command line that runs as the user, with its groups."""
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups", *words]


def link_or_copy(source, target):
    """A second name is enough for a program, which is large and stays as it is."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def copy_programs(target):
    """All programs once more, in a new folder, for users that cannot look where the checkout stands."""
    return shutil.copytree(harness.bin_dir(), target, copy_function=link_or_copy)


@contextlib.contextmanager
def public_programs(monkeypatch):
    """The checkout may stand where another user cannot look."""
    folder = pathlib.Path(subprocess.check_output(["mktemp", "-d", "/var/tmp/gpusched-bin-XXXXXX"], text=True).strip())
    folder.chmod(0o755)
    monkeypatch.setenv("GPUSCHED_BIN_DIR", str(copy_programs(folder / "bin")))
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def root_secret(world):
    """A file that only root can read or reach, and its content."""
    folder = pathlib.Path(world.folder) / "of-root"
    folder.mkdir(mode=0o700)
    content = f"secret-{secrets.token_hex(8)}\n"
    path = folder / "secret"
    path.write_text(content)
    path.chmod(0o600)
    return path, content


# A process's command line is what it wants it to be: the words behind the first, in the place of its arguments.
IMPOSTOR = """
import ctypes, sys, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[45]), int(fields[46])
name = b"".join(word.encode() + bytes(1) for word in sys.argv[2:])
assert len(name) < end - start
ctypes.memmove(start, name + bytes(end - start - len(name)), end - start)
time.sleep(1000)
"""


def impostor(world, user, *words):
    """A process of the user's that calls itself so, once it does."""
    padding = "-" * (sum(map(len, words)) + 100)
    process = subprocess.Popen(as_user(user, sys.executable, "-c", IMPOSTOR, padding, *words), cwd="/",
                               env=world.environment(), stdin=subprocess.DEVNULL)
    name = b"\0".join(word.encode() for word in words)
    harness.wait_until(f"a process is called {words}",
                       lambda: harness.read_bytes(f"/proc/{process.pid}/cmdline").rstrip(b"\0") == name)
    return process


def cli_as(world, user, *words):
    """gpu-cli as that user, who has no token but what it finds: its CompletedProcess."""
    return subprocess.run(as_user(user, harness.program("gpu-cli"), *words), capture_output=True, text=True,
                          timeout=harness.PATIENCE_S, env=world.cli_environment(), check=False, cwd="/")


def agent_as(world, user, node, *arguments, folder=None):
    """An agent that is a stranger's: its Agent, launched and perhaps never registered."""
    folder = pathlib.Path(folder or world.folder / f"of-{user}")
    folder.mkdir(exist_ok=True)
    shutil.chown(folder, user)
    agent = world.add_agent(node, name=f"{node}-of-{user}", data_dir=folder, prefix=as_user(user),
                            allow_root_jobs=False, arguments=list(arguments))
    agent.launch()
    return agent
