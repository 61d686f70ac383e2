"""Two machines, as far as one can tell: two network namespaces with a virtual cable between them."""

import contextlib
import ctypes
import os
import shutil
import subprocess

import pytest
from harness import IS_ROOT, Api

CLONE_NEWNET = 0x40000000
NEEDS_NAMESPACES = "needs root and iproute2: makes network namespaces"


def can_lay_cables():
    return IS_ROOT and shutil.which("ip") is not None


def run_ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def cannot(reason):
    """A machine without namespaces skips; one that must have them, because it checks for all others, fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Cable:
    """Two namespaces, each with one end of a virtual cable: 10.77.0.1 and 10.77.0.2."""

    def __init__(self, tag):
        self.names = [f"gs-{side}-{tag}" for side in "ab"]
        self.addresses = ["10.77.0.1", "10.77.0.2"]

    def lay(self):
        if not can_lay_cables():
            cannot(NEEDS_NAMESPACES)
        for name in self.names:
            done = run_ip("netns", "add", name)
            if done.returncode != 0:
                cannot(f"network namespaces are not permitted here: {done.stderr.strip()}")
        done = run_ip("link", "add", "veth0", "netns", self.names[0], "type", "veth", "peer", "name", "veth0",
                      "netns", self.names[1])
        if done.returncode != 0:
            cannot(f"virtual cables are not permitted here: {done.stderr.strip()}")
        for name, address in zip(self.names, self.addresses):
            assert run_ip("-n", name, "addr", "add", f"{address}/24", "dev", "veth0").returncode == 0
            assert run_ip("-n", name, "link", "set", "lo", "up").returncode == 0
        self.plug()

    def plug(self):
        for name in self.names:
            assert run_ip("-n", name, "link", "set", "veth0", "up").returncode == 0

    def cut(self):
        assert run_ip("-n", self.names[0], "link", "set", "veth0", "down").returncode == 0

    def take_away(self):
        for name in self.names:
            run_ip("netns", "del", name)

    def inside(self, side):
        return ["ip", "netns", "exec", self.names[side]]


class ApiInside(Api):
    """Speaks from within a namespace: the calling thread goes there and comes back."""

    def __init__(self, namespace, *arguments):
        super().__init__(*arguments)
        self.namespace = namespace

    def call(self, *arguments, **options):
        with entered(self.namespace):
            return super().call(*arguments, **options)


@contextlib.contextmanager
def entered(namespace):
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    away = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        assert libc.setns(away, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        assert libc.setns(home, CLONE_NEWNET) == 0
        os.close(home)
        os.close(away)
