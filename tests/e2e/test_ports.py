"""Ports that somebody else has: a start says who and which setting, `dev` takes others, and SIGTERM ends all."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess

import harness
import pytest

SETTINGS = {"api.http_port": "GPU_SCHEDULER_API_HTTP_PORT", "api.grpc_port": "GPU_SCHEDULER_API_GRPC_PORT",
            "metrics.port": "GPU_SCHEDULER_METRICS_PORT"}
ROUNDS = int(os.environ.get("GPUSCHED_PORT_ROUNDS", "5"))
DEV_ROUNDS = int(os.environ.get("GPUSCHED_PORT_ROUNDS", "1"))


@contextlib.contextmanager
def listener(port=0):
    with contextlib.closing(socket.socket()) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        held.listen()
        yield held.getsockname()[1]


def environment(folder, ports):
    return {**os.environ, harness.MARK: str(folder), **{SETTINGS[name]: str(port) for name, port in ports.items()}}


@pytest.mark.parametrize("setting", sorted(SETTINGS))
def test_a_taken_port_is_a_sentence_with_its_holder_and_the_setting(tmp_path, setting):
    for _ in range(ROUNDS):
        with listener() as port:
            ports = {name: port if name == setting else 0 for name in SETTINGS}
            ended = subprocess.run([harness.program("gpu-scheduler"), "--data-dir", str(tmp_path / "data")],
                                   env=environment(tmp_path, ports), capture_output=True, text=True,
                                   timeout=harness.PATIENCE_S)
        assert ended.returncode == 1, ended
        assert f":{port}" in ended.stderr
        assert f"(process {os.getpid()})" in ended.stderr
        assert setting in ended.stderr and SETTINGS[setting] in ended.stderr


@pytest.fixture(name="default_ports")
def default_ports_fixture():
    """Holds all three default ports, unless somebody else does already."""
    with contextlib.ExitStack() as stack:
        for port in (8080, 9090, 9091):
            with contextlib.suppress(OSError):
                stack.enter_context(listener(port))
        yield


def test_dev_takes_free_ports_instead_of_taken_ones_and_says_which(tmp_path, default_ports):
    for number in range(DEV_ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        dev_beside_taken_ports(folder)


def dev_beside_taken_ports(folder):
    log = open(folder / "out", "w+b")
    # No setting names a port: `dev` may choose.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SCHEDULER_")}
    dev = subprocess.Popen([harness.program("gpu-scheduler"), "dev", "--data-dir", str(folder / "dev")],
                           env={**env, harness.MARK: str(folder)}, stdout=log, stderr=log)
    try:
        said = harness.wait_until("dev is up", lambda: "Ctrl-C ends it" in (text := read(folder / "out")) and text)
        for port, setting in ((8080, "api.http_port"), (9090, "api.grpc_port"), (9091, "metrics.port")):
            assert re.search(rf"port {port} \({setting}\) is in use by .+; using a free port instead", said), said
        ports = json.loads((folder / "dev/scheduler/ports.json").read_text())
        assert f"127.0.0.1:{ports['http']}" in said
        assert len({ports["http"], ports["grpc"], ports["metrics"], 8080, 9090, 9091}) == 6
    finally:
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(harness.PATIENCE_S) == 0
        harness.kill_processes_of(str(folder))


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")


def test_the_agent_of_a_dev_that_was_killed_holds_none_of_its_ports(tmp_path):
    """It lives on, and would take connections that nobody answers."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SCHEDULER_")}
    with open(tmp_path / "out", "w+b") as log:
        dev = subprocess.Popen([harness.program("gpu-scheduler"), "dev", "--data-dir", str(tmp_path / "dev")],
                               env={**env, harness.MARK: str(tmp_path)}, stdout=log, stderr=log)
    try:
        harness.wait_until("dev is up", lambda: "Ctrl-C ends it" in read(tmp_path / "out"))
        ports = json.loads((tmp_path / "dev/scheduler/ports.json").read_text())
        dev.kill()
        dev.wait(harness.PATIENCE_S)
        for name in ("http", "grpc", "metrics"):
            with contextlib.closing(socket.socket()) as client, pytest.raises(ConnectionRefusedError):
                client.connect(("127.0.0.1", ports[name]))
    finally:
        harness.kill_processes_of(str(tmp_path))
