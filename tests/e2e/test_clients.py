"""The documented examples of the four systems whose clients exist, on `gpu-scheduler dev` as it is: each client on its
own ports, without any setting; and from another machine, where one setting lets them in."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import uuid

import pytest
from cable import NEEDS_NAMESPACES, Cable, can_lay_cables, cannot, run_ip
from harness import MARK, PATIENCE_S, kill_processes_of, program, wait_until

pytest.importorskip("grpc", reason="python3-grpcio is not installed")
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")

SYSTEMS = ("jobs", "agent-tasks", "tasks", "allocations")
CLIENTS = pathlib.Path(__file__).with_name("documented_clients.py")
PORTS = {"http": 8080, "grpc": 9090, "metrics": 9091, "tasks_grpc": 50051, "tasks_http": 8081, "allocation": 8000}


class Dev:
    """`gpu-scheduler dev` with a folder of its own, where `prefix` puts it."""

    def __init__(self, folder, prefix=(), **settings):
        self.folder, self.prefix = folder, list(prefix)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SCHEDULER_")}
        # A runtime folder of its own: its Unix sockets are not this machine's usual ones.
        self.environment = {**kept, MARK: str(folder), "RUNTIME_DIRECTORY": str(folder), **{
            f"GPU_SCHEDULER_{name}": value for name, value in settings.items()}}
        self.process = None

    def start(self):
        with open(self.folder / "out", "wb") as out:
            self.process = subprocess.Popen(
                [*self.prefix, program("gpu-scheduler"), "dev", "--data-dir", str(self.folder / "dev"), "--sim-gpus",
                 "4xA100-SXM4-80GB"], env=self.environment, stdout=out, stderr=out)
        wait_until("dev is up", lambda: "Ctrl-C ends it" in self.said() or self.process.poll() is not None)
        assert self.process.poll() is None, self.said()
        return self

    def said(self):
        return (self.folder / "out").read_text()

    def ports(self):
        return json.loads((self.folder / "dev/scheduler/ports.json").read_text())

    def run(self, *words):
        return subprocess.run([*self.prefix, *words], env=self.environment, capture_output=True, text=True, check=False,
                              timeout=3 * PATIENCE_S)

    def key(self):
        """A key for the client that has a place for one."""
        done = self.run(program("gpu-cli"), "--api-url", "http://127.0.0.1:8080", "--token-file",
                        str(self.folder / "dev/scheduler/token"), "key", "create", f"client-{uuid.uuid4().hex[:8]}", "--tenant", "default", "--role",
                        "user")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S)
        kill_processes_of(str(self.folder))


@pytest.fixture(scope="module", name="folder")
def folder_fixture(session_folder):
    folder = session_folder / "clients"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module", name="dev")
def dev_fixture(folder, session_folder):
    """Alone on its machine: with root in a network of its own, where all ports are free."""
    home = folder / "loopback"
    home.mkdir(mode=0o755)
    name = "gs-c-" + session_folder.name.rpartition("-")[2]
    has_own = can_lay_cables() and run_ip("netns", "add", name).returncode == 0
    if has_own:
        assert run_ip("-n", name, "link", "set", "lo", "up").returncode == 0
    dev = Dev(home, ["ip", "netns", "exec", name] if has_own else [])
    try:
        dev.start()
        if "is in use by" in dev.said():
            cannot("a port of the clients is taken on this machine: " + dev.said().split("\n")[0])
        yield dev
    finally:
        dev.end()
        if has_own:
            run_ip("netns", "del", name)


def run_client(system, host, dev, prefix):
    done = subprocess.run([*prefix, sys.executable, "-B", str(CLIENTS), system, host, dev.key()], capture_output=True,
                          text=True, check=False, timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr[-6000:] + dev.said()


@pytest.mark.parametrize("system", SYSTEMS)
def test_its_examples_run_on_loopback_without_a_setting(dev, system):
    assert {name: dev.ports().get(name) for name in PORTS} == PORTS
    run_client(system, "127.0.0.1", dev, dev.prefix)


def test_dev_says_where_its_doors_are(dev):
    for port in ("50051", "8081", "8000"):
        assert port in dev.said(), dev.said()


@pytest.fixture(scope="module", name="far")
def far_fixture(folder, session_folder):
    """`dev` on an address that another machine reaches, and that machine."""
    if not can_lay_cables():
        cannot(NEEDS_NAMESPACES)
    home = folder / "far"
    home.mkdir(mode=0o755)
    cable = Cable("c" + session_folder.name.rpartition("-")[2])
    dev = Dev(home, cable.inside(0), API_ADDRESS="0.0.0.0", API_ANONYMOUS_NETWORKS="10.77.0.0/24")
    try:
        cable.lay()
        yield dev.start(), cable
    finally:
        dev.end()
        cable.take_away()


@pytest.mark.parametrize("system", SYSTEMS)
def test_its_examples_run_from_another_machine_of_a_network_that_is_let_in(far, system):
    dev, cable = far
    run_client(system, cable.addresses[0], dev, cable.inside(1))


def test_a_second_dev_says_which_ports_are_taken_and_goes_on(dev, folder):
    home = folder / "second"
    home.mkdir(mode=0o755)
    second = Dev(home, dev.prefix)
    try:
        second.start()
        said = second.said()
        for port, setting in ((50051, "tasks.grpc_port"), (8081, "tasks.http_port"), (8000, "doors.allocation_port")):
            assert f"port {port} ({setting}) is in use by" in said and "its clients are not served there" in said, said
        ports = second.ports()
        assert not {"tasks_grpc", "tasks_http", "allocation"} & set(ports) and ports["http"] not in PORTS.values()
    finally:
        second.end()
