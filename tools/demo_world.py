"""Parts that the demonstrations of tools/ share: what they print, free ports, and a scheduler with a pool of machines in a
folder that is removed. GPUSCHED_BIN: another folder of programs."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("GPUSCHED_BIN") or ROOT / "build" / "bin")
NAME = pathlib.Path(sys.argv[0]).name
PATIENCE_S = 60
BEGUN = time.monotonic()


def free_ports(count):
    """Ports that nobody has now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def wait_until(what, look):
    """The first true value of `look`; without one in time the demonstration has failed."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"{NAME}: {what}: not within {PATIENCE_S} s")


def say(text):
    print(f"{time.monotonic() - BEGUN:6.2f} s  {text}", flush=True)


def environment(settings):
    """The caller's, with these settings of the scheduler in place of the caller's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_")}
    return {**kept, **{f"GPU_SCHEDULER_{name}": str(value) for name, value in settings.items()}}


def processes_below(folder):
    """Ids of processes that name the folder on their command line or in their environment, or work in it; zombies and this
    process are none."""
    found, mark = [], os.fsencode(str(folder))
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        if int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            texts = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            if mark in texts or os.fsencode(os.readlink(place / "cwd")).startswith(mark):
                found.append(int(place.name))
    return found


class World:
    """A scheduler without a node, whose pool `burst` gives machines of this computer: agents with simulated GPUs."""

    def __init__(self, folder, **pool):
        self.folder, self.data_dir, self.log = folder, folder / "scheduler", folder / "scheduler.log"
        self.machines_folder = folder / "machines"
        http, grpc, metrics = free_ports(3)
        self.url = f"http://127.0.0.1:{http}"
        # An agent of root needs a user for the jobs that name none.
        options = ["--default-user", "nobody"] if os.geteuid() == 0 else []
        shape = {"gpus": 4, "gpu_model": "A100-SXM4-80GB", "gpu_memory_mb": 81920, "cpu_cores": 16, "memory_mb": 65536}
        pools = folder / "pools.yaml"
        pools.write_text(json.dumps({"every_ms": 100, "pools": [
            {"name": "burst", "driver": "local", "folder": str(self.machines_folder), "agent_options": options,
             "machine": shape, "poll_seconds": 1, "calls_per_minute": 6000, **pool}]}), encoding="utf-8")
        pools.chmod(0o644)
        self.settings = {"API_HTTP_PORT": http, "API_GRPC_PORT": grpc, "METRICS_PORT": metrics, "API_ADDRESS": "127.0.0.1",
                         "API_UNIX_SOCKET": "", "AGENT_UNIX_SOCKET": "", "SCHEDULER_NODE_LEASE_MS": 1500,
                         "AGENT_HEARTBEAT_INTERVAL_MS": 200, "MACHINES_POOLS_FILE": pools}
        self.scheduler = None

    def start(self):
        """Returns when it serves."""
        with open(self.log, "ab") as log:
            self.scheduler = subprocess.Popen([BIN / "gpu-scheduler", "--data-dir", self.data_dir], stdout=log, stderr=log,
                                              env=environment(self.settings))

        def serves():
            if self.scheduler.poll() is not None:
                raise SystemExit(f"{NAME}: the scheduler ended: {self.log.read_text(encoding='utf-8')}")
            with contextlib.suppress(OSError, ValueError):
                ports = json.loads((self.data_dir / "ports.json").read_text(encoding="utf-8"))
                return ports["pid"] == self.scheduler.pid
            return False

        wait_until("the scheduler serves", serves)

    def kill(self):
        """kill -9."""
        self.scheduler.kill()
        self.scheduler.wait()

    def known(self):
        """The environment of a command that speaks to it."""
        return environment({"URL": self.url, "TOKEN_FILE": self.data_dir / "token"})

    def cli(self, *words):
        done = subprocess.run([BIN / "gpu-cli", *words], env=self.known(), capture_output=True, text=True, cwd=self.folder,
                              check=False)
        if done.returncode != 0:
            raise SystemExit(f"{NAME}: gpu-cli {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def json(self, *words):
        return json.loads(self.cli("--json", *words))

    def machines(self):
        """Names of the machines that are there, or coming, or going."""
        return [one["name"] for one in self.json("machines").get("machines", [])]

    def pool(self):
        return self.json("machines")["pools"][0]

    def left_of_machines(self):
        """What is left of machines: processes and folders."""
        if not self.machines_folder.exists():
            return []
        return [*processes_below(self.machines_folder), *self.machines_folder.iterdir()]

    def end(self):
        """Ends everything, whatever state it is in."""
        if self.scheduler is not None and self.scheduler.poll() is None:
            self.scheduler.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.scheduler.wait(10)
            self.scheduler.kill()
            self.scheduler.wait()
        for _ in range(100):  # A process that is ended may have just started another one.
            left = processes_below(self.folder)
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


@contextlib.contextmanager
def world(**pool):
    """A World in a folder of its own, and neither it nor the folder afterwards."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"gpusched-{NAME}-"))
    folder.chmod(0o755)  # Jobs of another user pass it.
    made = World(folder, **pool)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)
