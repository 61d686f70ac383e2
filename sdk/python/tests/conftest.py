"""A real scheduler and agent with simulated GPUs, `gpu-scheduler dev`, for the tests of the Python client.

Packages that the client needs are those of tools/packages-python.txt. Where one is missing the tests that need it are
skipped and say so; in CI they fail.
"""

import importlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "sdk" / "python"
PATIENCE_S = 60
# Before Python 3.10 subprocesses are forked, and gRPC's handlers abort some of them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
if not os.environ.get("GPUSCHED_SDK_INSTALLED"):  # Else the package that this interpreter has is tested.
    sys.path.insert(0, str(PACKAGE))


def need(*modules):
    """Skips the module that calls this where a package is missing, but not in CI."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip("{} is not installed: tools/install-python".format(name), allow_module_level=True)


def bin_folder():
    for name in ("GPUSCHED_BIN_DIR", "GPUSCHED_BIN"):
        if os.environ.get(name):
            return pathlib.Path(os.environ[name]).resolve()
    return ROOT / "build" / "bin"


def wait_until(what, look):
    """The first true value of `look`. The deadline is for programs that hang, not a measure."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = look()
        if value:
            return value
        assert time.monotonic() < deadline, "waited in vain: " + what
        time.sleep(0.02)


class Dev:
    """`gpu-scheduler dev` on free ports; everything of it lies in one folder."""

    def __init__(self, **settings):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpusched-sdk-"))
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.socket = self.folder / "api.sock"
        self.settings = settings
        self.ports = {"http": 0, "grpc": 0, "metrics": 0}
        self.process = None
        try:
            self.start()
        except BaseException:
            self.end()
            raise

    def environment(self, more=()):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SCHEDULER_")}
        return {**kept, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder), **dict(more)}

    def start(self):
        chosen = {"API_HTTP_PORT": self.ports["http"], "API_GRPC_PORT": self.ports["grpc"],
                  "METRICS_PORT": self.ports["metrics"], "API_UNIX_SOCKET": self.socket, **self.settings}
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(bin_folder() / "gpu-scheduler"), "dev", "--data-dir", str(self.data), "--sim-gpus",
                 "4xA100-SXM4-80GB", "--cpus", "64"],
                env=self.environment(("GPU_SCHEDULER_" + name, str(value)) for name, value in chosen.items()),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.ports = wait_until("the scheduler serves", self._serving)
        wait_until("its node is ready", self._node_is_ready)


    def _serving(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            ports = json.loads((self.data / "scheduler" / "ports.json").read_text())
        except (OSError, ValueError):
            return None
        scheduler = pathlib.Path("/proc/{}".format(ports["pid"]))
        return ports if scheduler.exists() and ports["pid"] >= self.process.pid else None

    def _node_is_ready(self):
        done = self.cli("--json", "node", "list")
        return done.returncode == 0 and '"ready"' in done.stdout

    @staticmethod
    def program(name):
        return bin_folder() / name

    def restart_scheduler(self):
        """Stops both and starts them again on the same ports; jobs go on meanwhile."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)
        self.start()

    def cli(self, *words):
        return subprocess.run([str(self.program("gpu-cli")), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=PATIENCE_S, check=False,
                              env=self.environment({"GPU_SCHEDULER_URL": self.url}), cwd=str(self.folder))

    @property
    def url(self):
        return "http://127.0.0.1:{}".format(self.ports["http"])

    @property
    def grpc(self):
        return "127.0.0.1:{}".format(self.ports["grpc"])

    @property
    def token(self):
        return (self.data / "scheduler" / "token").read_text().strip()

    def end(self):
        """Ends it and its jobs; the folder goes, too."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in self._left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(str(self.folder), ignore_errors=True)

    def _left(self):
        """Processes that were started for the folder, its jobs among them: shims outlive their agent."""
        mark = str(self.folder).encode()
        for entry in pathlib.Path("/proc").iterdir():
            if re.fullmatch(r"\d+", entry.name) and int(entry.name) != os.getpid():
                try:
                    about = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                    about += os.readlink(str(entry / "cwd")).encode()
                except OSError:
                    continue
                if mark in about:
                    yield int(entry.name)


@pytest.fixture(scope="session", name="dev")
def dev_fixture():
    running = Dev(TASKS_LLM_COMMAND="cat", TASKS_OTHER_COMMAND="sh", TASKS_TOKENS_DAILY="150")
    yield running
    running.end()


@pytest.fixture(scope="session", name="new_dev")
def new_dev_fixture():
    """Starts another one with settings of its own."""
    started = []

    def begin(**settings):
        started.append(Dev(**settings))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def become_nobody():
    """The user that jobs of `gpu-scheduler dev` run as where root calls it."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


@pytest.fixture(scope="session", name="python")
def python_fixture():
    """An interpreter of the version of these tests that jobs may start, which run as another user."""
    if os.environ.get("GPUSCHED_SDK_JOB_PYTHON"):
        return os.environ["GPUSCHED_SDK_JOB_PYTHON"]
    if os.geteuid() != 0:
        return sys.executable
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            probe = subprocess.run([path, "-c", "import sys; print(sys.version_info[:2])"], stdout=subprocess.PIPE,
                                   universal_newlines=True, check=False, cwd="/", preexec_fn=become_nobody)
        except (OSError, subprocess.SubprocessError):
            continue
        if probe.stdout.strip() == str(tuple(sys.version_info[:2])):
            return path
    why = "no Python {}.{} of this machine can be started by user nobody".format(*sys.version_info[:2])
    assert os.environ.get("CI") != "true", why
    pytest.skip(why)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch, tmp_path):
    """No test sees the settings of whoever runs it."""
    for name in list(os.environ):
        if name.startswith("GPU_SCHEDULER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
