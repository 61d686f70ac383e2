"""Real schedulers, agents and command lines for the end-to-end tests: started, stopped, killed, started again.

A World is one scheduler with its agents in one temporary folder. Everything that it starts carries the folder's
name in its environment, so that whatever is left of it can be found and ended. Nothing here measures time: a wait
ends when what is waited for is true, or after a deadline that only a hanging program reaches.
"""

import contextlib
import http.client
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "GPUSCHED_E2E_WORLD"
# The agent's mark on each process of an attempt: KEY@INSTANCE.
ATTEMPT_MARK = "GPU_SCHEDULER_ATTEMPT"
FACTOR = float(os.environ.get("GPUSCHED_TEST_TIMEOUT_FACTOR", "1"))
PATIENCE_S = 60 * max(FACTOR, 1)
FINAL = ("completed", "failed", "cancelled")
A100X4 = "4xA100-SXM4-80GB"
IS_ROOT = os.geteuid() == 0
# What random tests start from: the same on every run. tools/chaos sets others.
SEED = int(os.environ.get("GPUSCHED_SEED") or 1)


def bin_dir():
    for name in ("GPUSCHED_BIN_DIR", "GPUSCHED_BIN"):
        if os.environ.get(name):
            return pathlib.Path(os.environ[name]).resolve()
    return ROOT / "build" / "bin"


NOISE = random.Random(SEED)


def noise(size):
    """Bytes without a pattern, other ones at each call and the same ones in each run."""
    return NOISE.randbytes(size)


def program(name):
    path = bin_dir() / name
    assert path.is_file(), f"{path} is missing: build first (make build), or set GPUSCHED_BIN_DIR"
    return str(path)


def has_consensus():
    """Whether the scheduler was built so that several can be one."""
    done = subprocess.run([program("gpu-scheduler"), "members", "init", "--data-dir", "/nonexistent"],
                          capture_output=True, text=True, check=False)
    return "built without" not in done.stderr


def wait_until(what, predicate, timeout_s=PATIENCE_S):
    """Returns the predicate's first true value; a file that is not there yet is one more reason to wait.
    The deadline is for programs that hang, not a measure."""
    deadline = time.monotonic() + timeout_s
    pause = 0.005
    while True:
        try:
            seen = predicate()
        except FileNotFoundError as missing:
            value, seen = None, missing
        else:
            value = seen
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s in vain: {what}; last seen: {seen!r}"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def processes():
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_alive(pid):
    """Neither gone nor a zombie."""
    stat = read_bytes(f"/proc/{pid}/stat")
    return bool(stat) and stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def describe_process(pid):
    words = read_bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return f"{pid} [{words[:150]}]"


def mark_of(instance):
    """What an agent marks its jobs with, for all to see. Folders of older agents have their instance for it."""
    if len(instance) <= 16:
        return instance
    return hashlib.blake2b(b"gpusched-mark", key=instance.encode(), digest_size=32).hexdigest()[:16]


def processes_of(folder):
    """Processes that were started for `folder`, or by its agents for a job, or that work in it."""
    marks = [f"{MARK}={folder}".encode()]
    for instance in pathlib.Path(folder).rglob("instance"):
        marks.append(b"@" + mark_of(read_bytes(instance).decode().strip()).encode() + b"\0")
    found = []
    for pid in processes():
        if pid == os.getpid():
            continue
        environment = read_bytes(f"/proc/{pid}/environ") + b"\0"
        marked = any(mark in environment for mark in marks)
        if not marked:
            with contextlib.suppress(OSError):
                marked = (os.readlink(f"/proc/{pid}/cwd") + "/").startswith(f"{folder}/")
        if marked and is_alive(pid):
            found.append(pid)
    return found


def kill_processes_of(folder):
    """Kills until none is left; they may be starting others meanwhile."""
    clean = 0
    while clean < 2:
        pids = processes_of(folder)
        clean = 0 if pids else clean + 1
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def cgroups_of(folder):
    """Groups of the attempts of agents in `folder`, the deepest first."""
    for instance in pathlib.Path(folder).rglob("instance"):
        name = "gpusched-" + mark_of(read_bytes(instance).decode().strip())
        for base, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
            if name in base.split("/"):
                yield base


def remove_cgroups_of(folder):
    """What killed agents could not remove."""
    for group in cgroups_of(folder):
        for pid in read_bytes(f"{group}/cgroup.procs").split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                os.rmdir(group)
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)


class Api:
    """REST over a new connection for each request, so that nothing outlives a killed scheduler."""

    def __init__(self, port, host="127.0.0.1", token=None):
        self.port, self.host, self.token = port, host, token

    def connection(self, timeout_s):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)

    def call(self, method, path, body=None, headers=None, timeout_s=PATIENCE_S):
        """(status, parsed body, headers). Raises OSError or HTTPException when there is no whole answer."""
        connection = self.connection(timeout_s)
        try:
            sent = dict(headers or {})
            if self.token:
                sent["Authorization"] = f"Bearer {self.token}"
            data = None
            if body is not None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                sent["Content-Type"] = "application/json"
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            text = response.read()
            is_json = "application/json" in (response.getheader("Content-Type") or "")
            return response.status, json.loads(text) if is_json else text, dict(response.getheaders())
        finally:
            connection.close()

    def get(self, path):
        status, body, _ = self.call("GET", f"/api/v1{path}")
        assert status == 200, (path, status, body)
        return body

    def post(self, path, body, expected=200, key=None):
        status, answer, _ = self.call("POST", f"/api/v1{path}", body, {"Idempotency-Key": key} if key else None)
        assert status == expected, (path, body, status, answer)
        return answer

    def submit(self, command=None, key=None, **fields):
        """The job's id. `command` is a list of words, or a line for a shell."""
        if isinstance(command, str):
            fields["script"] = command
        elif command is not None:
            fields["command"] = command
        return self.post("/jobs", fields, 201, key)["job_id"]

    def job(self, job_id):
        return self.get(f"/jobs/{job_id}")

    def cancel(self, job_id, expected=200):
        status, body, _ = self.call("DELETE", f"/api/v1/jobs/{job_id}")
        assert status == expected, (job_id, status, body)
        return body

    def explain(self, job_id):
        return self.get(f"/jobs/{job_id}/explain")

    def wait_for(self, job_id, states=FINAL, timeout_s=PATIENCE_S):
        states = (states,) if isinstance(states, str) else states

        def look():
            job = self.job(job_id)
            assert job["state"] in states or job["state"] not in FINAL, f"{job_id} ended: {job}"
            return job if job["state"] in states else None

        return wait_until(f"{job_id} is {' or '.join(states)}", look, timeout_s)

    def jobs(self):
        """Every job, over all pages."""
        found, total = [], None
        while total is None or len(found) < total:
            page = self.get(f"/jobs?limit=1000&offset={len(found)}")
            found += page["jobs"]
            total = page["total"]
            if not page["jobs"]:
                break
        return found

    def output(self, job_id, stream="stdout", attempt=0):
        query = f"stream={stream}" + (f"&attempt={attempt}" if attempt else "")
        status, text, _ = self.call("GET", f"/api/v1/jobs/{job_id}/logs?{query}")
        assert status == 200, (job_id, status, text)
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else text

    def node(self, name):
        for node in self.get("/nodes")["nodes"]:
            if node["name"] == name:
                return node
        return None

    def gpu(self, node, index):
        found = self.node(node)
        return found["gpus"][index] if found and index < len(found["gpus"]) else None

    def wait_node(self, name, state="ready", timeout_s=PATIENCE_S):
        def look():
            node = self.node(name)
            return node if node and state in (node["state"], node["contact"]) else None

        return wait_until(f"node {name} is {state}", look, timeout_s)


class Daemon:
    """One of our programs in the background. Only the main thread starts and ends it."""

    def __init__(self, world, name, prefix=()):
        self.world, self.name, self.prefix = world, name, list(prefix)
        self.log = world.folder / f"{name}.log"
        self.process = None
        self.environment = {}

    def command(self):
        raise NotImplementedError

    def launch(self):
        assert not self.alive(), f"{self.name} runs already"
        with open(self.log, "ab") as sink:
            sink.write(f"--- {self.name} starts\n".encode())
            sink.flush()
            self.process = subprocess.Popen(
                self.prefix + self.command(), stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                cwd="/", env=self.world.environment(self.environment), start_new_session=True)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def pid(self):
        return self.process.pid

    def kill(self):
        """kill -9, and gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """SIGTERM; its exit status."""
        self.process.terminate()
        return self.ended()

    def ended(self):
        """Waits for its own end; its exit status."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end") from None

    def log_text(self):
        return read_bytes(self.log).decode("utf-8", "replace")

    def log_since_start(self):
        return self.log_text().rpartition(f"--- {self.name} starts\n")[2]

    def events(self, name):
        """Its log's lines about that since the start. A line that is being written is none yet."""
        return [json.loads(line) for line in self.log_since_start().split("\n")[:-1] if f'"{name}"' in line]

    def wait_event(self, name):
        """The first such line, once it is there: lines are written behind what they tell of."""
        return wait_until(f"{self.name} logs {name}", lambda: self.events(name))[0]

    def wait_log(self, words, count=1):
        """The log since the start, once it has the words so often: lines are written behind what they tell of."""
        wait_until(f"{self.name} logs {words}", lambda: self.log_since_start().count(words) >= count)
        return self.log_since_start()


class Scheduler(Daemon):
    def __init__(self, world, settings, data_dir=None, name="scheduler", prefix=(), address="127.0.0.1", ports=None):
        super().__init__(world, name, prefix)
        self.data_dir = pathlib.Path(data_dir) if data_dir else world.folder / name
        self.address = address
        self.ports = ports or {kind: free_port() for kind in ("http", "grpc", "metrics")}
        self.settings = dict(settings)

    def command(self):
        values = {"API_HTTP_PORT": self.ports["http"], "API_GRPC_PORT": self.ports["grpc"],
                  "METRICS_PORT": self.ports["metrics"], "API_ADDRESS": self.address, **self.settings}
        self.environment = {f"GPU_SCHEDULER_{name}": str(value) for name, value in values.items()}
        return [program("gpu-scheduler"), "--data-dir", str(self.data_dir)]

    def start(self):
        self.launch()
        return self.wait_serving()

    def restart(self):
        self.kill()
        return self.start()

    def served_ports(self):
        """What ports.json says, once it is this process's; None before."""
        with contextlib.suppress(OSError, ValueError):
            ports = json.loads((self.data_dir / "ports.json").read_text())
            if ports["pid"] == self.pid():
                return ports
        return None

    def wait_serving(self):
        def look():
            assert self.alive(), f"{self.name} ended with {self.process.returncode}: {self.log_since_start()}"
            return self.served_ports()

        found = wait_until(f"{self.name} serves", look)
        self.ports = {kind: found[kind] for kind in ("http", "grpc", "metrics")}
        return self

    def token(self):
        return (self.data_dir / "token").read_text().strip()

    def api(self, token=None, anonymous=False):
        """As whoever has the token, its own if none is given; or as a caller without one."""
        return Api(self.ports["http"], self.address, None if anonymous else token or self.token())

    def journal(self, *arguments):
        """gpu-scheduler journal ...: a finished process."""
        return subprocess.run([program("gpu-scheduler"), "journal", *arguments], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False, env=self.world.environment())


class Agent(Daemon):
    def __init__(self, world, node, scheduler="", data_dir=None, sim_gpus=A100X4, cpus=64, prefix=(), name=None,
                 arguments=(), allow_root_jobs=IS_ROOT):
        super().__init__(world, name or node, prefix)
        self.node, self.scheduler = node, scheduler
        self.data_dir = pathlib.Path(data_dir) if data_dir else world.folder / self.name
        self.sim_gpus, self.cpus, self.arguments = sim_gpus, cpus, list(arguments)
        self.allow_root_jobs = allow_root_jobs

    def command(self):
        at = self.scheduler or f"127.0.0.1:{self.world.scheduler.ports['grpc']}"
        words = [program("gpu-agent"), "--scheduler", at, "--node", self.node, "--data-dir", str(self.data_dir)]
        words += ["--cpus", str(self.cpus)]
        if self.allow_root_jobs:
            words += ["--allow-root-jobs"]
        if self.sim_gpus:
            words += ["--sim-gpus", self.sim_gpus]
        return words + self.arguments

    def start(self):
        """Started and registered; validated, too, if that comes soon: with checks that fail it never does."""
        self.launch()
        self.wait_registered()
        with contextlib.suppress(AssertionError, OSError, TypeError, KeyError):
            wait_until("it is validated", lambda: self.world.api().node(self.node)["state"] != "validating", 10)
        return self

    def restart(self):
        self.kill()
        return self.start()

    def wait_registered(self):
        def look():
            assert self.alive(), f"{self.name} ended with {self.process.returncode}: {self.log_since_start()}"
            return '"registered"' in self.log_since_start()

        wait_until(f"{self.name} is registered", look)
        return self

    def instance(self):
        return (self.data_dir / "instance").read_text().strip()

    def mark(self):
        """What its jobs' processes, control groups and containers are marked with."""
        return mark_of(self.instance())

    def set_gpus(self, devices):
        """The simulated driver's control file: {index: {temperature_celsius, memory_used_mb, processes, condition...}}."""
        fresh = self.data_dir / "sim-gpus.json.new"
        fresh.write_text(json.dumps({"devices": {str(index): facts for index, facts in devices.items()}}))
        fresh.rename(self.data_dir / "sim-gpus.json")

    def children(self):
        """Pids of the agent's own children: the server of shims."""
        listed = read_bytes(f"/proc/{self.pid()}/task/{self.pid()}/children")
        return [int(pid) for pid in listed.split()]

    def shim_of(self, job_id):
        """Pid of the shim that owns the job's running attempt."""
        number = job_id.removeprefix("job-")
        for pid in processes():
            words = read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
            if words[0] != b"gpu-shim" or len(words) < 2 or not is_alive(pid):
                continue
            key, _, mark = words[1].decode().partition("@")
            if mark == self.mark() and key.split("-")[0] == number:
                return pid
        return None


class Client(subprocess.Popen):
    """A program in the background. A test that fails in its `with` block does not wait for what may never end."""

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, trace)


class World:
    """One scheduler, its agents, and everything that they run, in one folder."""

    def __init__(self, settings=None, parent=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="world-", dir=parent))
        # Jobs of other users need to be able to go through it.
        self.folder.chmod(0o755)
        self.lock = threading.Lock()
        self.scheduler = Scheduler(self, settings or {})
        self.daemons = [self.scheduler]
        self.strict = True

    def add_agent(self, node="n1", **options):
        agent = Agent(self, node, **options)
        self.daemons.append(agent)
        return agent

    def add_scheduler(self, settings=None, **options):
        scheduler = Scheduler(self, settings or {}, **options)
        self.daemons.append(scheduler)
        return scheduler

    def agents(self):
        return [daemon for daemon in self.daemons if isinstance(daemon, Agent)]

    def environment(self, more=None):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SCHEDULER_")}
        if "HOME" not in (more or {}):
            kept["XDG_CONFIG_HOME"] = str(self.folder / "config")  # Contexts and logins are the world's, not the caller's.
        return {**kept, MARK: str(self.folder), **(more or {})}

    def api(self):
        return self.scheduler.api()

    def cli_environment(self):
        return self.environment({"GPU_SCHEDULER_URL": f"http://{self.scheduler.address}:{self.scheduler.ports['http']}"})

    def cli(self, *words, expected=None, text_in=None, cwd=None):
        """gpu-cli, finished: its CompletedProcess. Jobs run where it is called, which is the world's folder."""
        done = subprocess.run([program("gpu-cli"), *words], capture_output=True, text=True, timeout=PATIENCE_S,
                              input=text_in, env=self.cli_environment(), check=False, cwd=cwd or self.folder)
        if expected is not None:
            assert done.returncode == expected, (words, done.returncode, done.stdout, done.stderr)
        # Ours is text without control characters: nothing of it needs to be replaced.
        assert "\ufffd" not in done.stdout + done.stderr, (words, done.stdout, done.stderr)
        return done

    def cli_start(self, *words):
        """gpu-cli in the background, with pipes."""
        return Client([program("gpu-cli"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE, env=self.cli_environment(), start_new_session=True, cwd=self.folder)

    def cli_json(self, *words):
        return json.loads(self.cli("--json", *words, expected=0).stdout)

    def left(self):
        return processes_of(self.folder)

    def attempts_left(self):
        """Processes of attempts, not of the programs that run them."""
        own = {pid for daemon in self.daemons if daemon.alive() for pid in (daemon.pid(), *children_of(daemon.pid()))}
        return [pid for pid in self.left() if pid not in own]

    def wait_nothing_runs(self):
        wait_until("no process of an attempt is left",
                   lambda: not self.attempts_left() or [describe_process(pid) for pid in self.attempts_left()] == [])

    def end(self):
        """Ends everything in order, when the programs live, and looks that nothing is left. The folder stays."""
        try:
            if self.strict and self.scheduler.alive():
                self.cancel_everything()
            if self.strict:
                for daemon in reversed(self.daemons):
                    if daemon.alive():
                        status = daemon.stop()
                        assert status == 0, f"{daemon.name} ended with {status} after SIGTERM"
                # A shim tells the end before it puts its attempt's groups and folder away.
                with contextlib.suppress(AssertionError):
                    wait_until("all is put away", lambda: not self.left(), 20)
                left = [describe_process(pid) for pid in self.left()]
                assert not left, f"still running after the end: {left}"
        finally:
            for daemon in self.daemons:
                daemon.kill()
            kill_processes_of(self.folder)
            remove_cgroups_of(self.folder)

    def cancel_everything(self):
        api = self.api()
        unfinished = [job for job in api.jobs() if job["state"] not in FINAL]
        for job in unfinished:
            api.call("DELETE", f"/api/v1/jobs/{job['id']}")
        if not any(agent.alive() for agent in self.agents()):
            return
        for job in unfinished:
            api.wait_for(job["id"])

    def remove(self):
        if os.environ.get("GPUSCHED_E2E_KEEP"):
            print(f"kept: {self.folder}")
            return
        shutil.rmtree(self.folder, ignore_errors=True)


def children_of(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        found += [int(child) for child in read_bytes(task / "children").split()]
    return found


def url_quoted(text):
    return urllib.parse.quote(text, safe="")


def run_reaper(folder):
    """Ends whatever a killed test run leaves: its standard input ends with the run."""
    sys.stdin.buffer.read()
    kill_processes_of(folder)
    remove_cgroups_of(folder)
    mounts = read_bytes("/proc/self/mounts").decode().splitlines()
    for mount in reversed(mounts):
        if mount.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", mount.split()[1]], check=False)
    tag = pathlib.Path(folder).name.rpartition("-")[2]
    if IS_ROOT and shutil.which("ip"):
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            if line.split()[0].endswith(tag):
                subprocess.run(["ip", "netns", "del", line.split()[0]], check=False)
    if not os.environ.get("GPUSCHED_E2E_KEEP"):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run_reaper(sys.argv[1])
