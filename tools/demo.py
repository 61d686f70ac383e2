"""The demonstration behind `make demo`; see tools/demo.sh.

Starts gpu-scheduler and gpu-agent (four simulated GPUs, or the real ones when there are at least two), submits
five jobs with gpu-cli, shows them until all have ended, judges each, and removes every process and file it made.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("GPUSCHED_BIN", ROOT / "build" / "bin")).resolve()
SIM_GPUS = "4xA100-SXM4-80GB"
START_LIMIT_S = 15
TOTAL_LIMIT_S = 50
POLL_S = 0.25
FINAL = ("completed", "failed", "cancelled")
PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass
class Demo:
    """One job of the demonstration and what is known of it."""
    name: str
    what: str           # For people.
    arguments: list     # Of gpu-cli submit.
    state_wanted: str
    exit_wanted: object  # None when the exit status does not matter.
    output_check: object = None
    job: str = ""
    state: str = "submitting"
    exit_code: object = None
    gpus: int = 0
    note: str = ""
    waited: bool = False
    verdict: str = ""
    shown: tuple = ()


class DemoFailed(Exception):
    """The demonstration cannot go on; the text says why."""


def two_devices(output):
    devices = [line.partition("=")[2].split(",") for line in output.splitlines()
               if line.startswith("CUDA_VISIBLE_DEVICES=")]
    return len(devices) == 1 and len(devices[0]) == 2 and all(devices[0]) and devices[0][0] != devices[0][1]


def demo_jobs():
    train = "for step in 1 2 3 4 5; do echo \"step $step of 5\"; sleep 1; done; echo trained"
    pair = "echo CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES; sleep 4"
    return [
        Demo("train", "a script with output", ["--gpus", "1", "--script", train], "completed", 0,
             lambda output: output.splitlines()[-1:] == ["trained"] and "step 3 of 5" in output),
        Demo("pair", "two GPUs, prints which", ["--gpus", "2", "--script", pair], "completed", 0, two_devices),
        Demo("forever", "is cancelled while it runs", ["--gpus", "1", "--", "sleep", "600"], "cancelled", None),
        Demo("broken", "fails with exit code 3", ["--script", "echo no such model; exit 3"], "failed", 3),
        Demo("patient", "waits for two GPUs, then runs",
             ["--gpus", "2", "--script", "echo it was worth the wait; sleep 2"], "completed", 0,
             lambda output: "it was worth the wait" in output),
    ]


def real_gpu_count():
    """NVIDIA devices that this machine has; the demonstration uses them when it can show everything on them."""
    return len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()])


def descendants():
    """Process ids of every process below this one."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry)] = int(fields[1])
    found, frontier = set(), {os.getpid()}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


class Stage:
    """The temporary folder and the two programs; nothing of it is left after `clear`."""

    def __init__(self):
        # Orphans below us (the shims outlive their agent by design) become our children: none can be missed.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-scheduler-demo-"))
        self.programs = []
        self.api_url = ""

    def start(self, name, *arguments, **environment):
        log = open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen([str(BIN / name), *arguments], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True, cwd=self.folder,
                                   env=dict(os.environ, **environment))
        log.close()
        self.programs.append((name, process))

    def check_alive(self):
        for name, process in self.programs:
            if process.poll() is not None:
                tail = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-8:]
                raise DemoFailed("\n".join([f"{name} ended with exit status {process.returncode}:", *tail]))

    def wait_for(self, what, ready):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            self.check_alive()
            value = ready()
            if value:
                return value
            time.sleep(0.05)
        raise DemoFailed(f"{what} did not come within {START_LIMIT_S} s")

    def ports(self):
        try:
            return json.loads((self.folder / "scheduler" / "ports.json").read_text())
        except (OSError, ValueError):
            return None

    def open(self):
        """Starts both programs; returns a sentence about the GPUs."""
        self.start("gpu-scheduler", "--data-dir", str(self.folder / "scheduler"), GPU_SCHEDULER_API_HTTP_PORT="0",
                   GPU_SCHEDULER_API_GRPC_PORT="0", GPU_SCHEDULER_METRICS_PORT="0")
        ports = self.wait_for("the scheduler's ports.json", self.ports)
        self.api_url = f"http://127.0.0.1:{ports['http']}"
        simulated = real_gpu_count() < 2
        self.start("gpu-agent", "--scheduler", f"127.0.0.1:{ports['grpc']}", "--node", "demo", "--data-dir",
                   str(self.folder / "agent"), "--allow-root-jobs", *(["--sim-gpus", SIM_GPUS] if simulated else []))
        count = self.wait_for("the agent's registration", self.gpu_count)
        return f"{count} {'simulated ' if simulated else ''}GPUs on node demo"

    def gpu_count(self):
        status = self.cli("cluster", "--json", may_fail=True)
        return json.loads(status)["available_gpus"] if status else 0

    def cli(self, *arguments, may_fail=False):
        command = [str(BIN / "gpu-cli"), "--api-url", self.api_url, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=False,
                              stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return done.stdout
        if may_fail:
            return ""
        raise DemoFailed(f"gpu-cli {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")

    def clear(self):
        """Ends everything; returns the command names of processes that had to be killed."""
        for _, process in reversed(self.programs):  # The agent first: its last words reach the scheduler.
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(timeout=8)
            except subprocess.TimeoutExpired:
                pass
        killed = []
        for _ in range(200):
            left = descendants()
            if not left:
                break
            for pid in left:
                try:
                    killed.append(pathlib.Path(f"/proc/{pid}/comm").read_text().strip())
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.02)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)
        return killed


class Screen:
    """A small table, redrawn in place on a terminal; elsewhere one line whenever a job's state changes."""
    COLOURS = {"running": "36", "completed": "32", "failed": "31", "cancelled": "33", "pending": "35"}

    def __init__(self):
        self.live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.drawn = 0
        self.started = time.monotonic()

    def paint(self, text, code):
        return f"\x1b[{code}m{text}\x1b[0m" if self.live and code else text

    def row(self, demo, width):
        marker = {"": " ", "right": "+", "wrong": "!"}[demo.verdict]
        state = self.paint(f"{demo.state:<10}", self.COLOURS.get(demo.state))
        note = (demo.note or demo.what)[:max(10, width - 48)]
        return f" {marker} {demo.job:<10} {demo.name:<8} {demo.gpus:>4}  {state}  {note}"

    def draw(self, demos):
        if not self.live:
            for demo in demos:
                news = (demo.state, demo.note if demo.state == "pending" else "")
                if demo.job and news != demo.shown:
                    demo.shown = news
                    print(f"{time.monotonic() - self.started:5.1f} s {self.row(demo, 200)}", flush=True)
            return
        width = shutil.get_terminal_size().columns
        done = sum(demo.state in FINAL for demo in demos)
        bar = "#" * (done * 4) + "." * ((len(demos) - done) * 4)
        lines = [f"   {'JOB':<10} {'NAME':<8} GPUS  {'STATE':<10}  WHAT IT SAYS", *[self.row(demo, width) for demo in demos],
                 f" [{bar}] {done} of {len(demos)} ended, {time.monotonic() - self.started:.0f} s"]
        back = f"\x1b[{self.drawn}A" if self.drawn else ""
        sys.stdout.write(back + "".join(f"\x1b[2K{line}\n" for line in lines))
        sys.stdout.flush()
        self.drawn = len(lines)


def submit(stage, demo):
    answer = json.loads(stage.cli("--json", "submit", "--name", demo.name, "--cpus", "0.1", *demo.arguments))
    demo.job = answer["job_id"]
    demo.gpus = int(demo.arguments[demo.arguments.index("--gpus") + 1]) if "--gpus" in demo.arguments else 0
    demo.state = "pending"


def refresh(stage, demo):
    """Asks for a job's state, and for what it says: its last line of output, or why it waits."""
    answer = json.loads(stage.cli("--json", "get", demo.job))
    demo.state, demo.exit_code = answer["state"], answer.get("exit_code")
    if demo.state == "pending":
        demo.waited = True
        demo.note = "waits: " + (answer.get("message") or "its turn")
    elif demo.state == "running" or (demo.state in FINAL and not demo.verdict):
        lines = [line for line in stage.cli("logs", demo.job, may_fail=True).splitlines() if line.strip()]
        demo.note = lines[-1] if lines else demo.what
    if demo.state in FINAL and not demo.verdict:
        judge(stage, demo)


def judge(stage, demo):
    right = demo.state == demo.state_wanted and (demo.exit_wanted is None or demo.exit_code == demo.exit_wanted)
    if right and demo.output_check is not None:
        right = bool(demo.output_check(stage.cli("logs", demo.job)))
    demo.verdict = "right" if right else "wrong"
    if demo.state == "failed":
        demo.note = f"exit code {demo.exit_code}: {demo.note}"


def play(stage, screen, demos):
    for demo in demos:
        submit(stage, demo)
        screen.draw(demos)
    by_name = {demo.name: demo for demo in demos}
    cancelled, deadline = False, time.monotonic() + TOTAL_LIMIT_S
    while any(demo.state not in FINAL for demo in demos):
        if time.monotonic() > deadline:
            raise DemoFailed(f"not every job had ended after {TOTAL_LIMIT_S} s")
        stage.check_alive()
        for demo in demos:
            if demo.state not in FINAL:
                refresh(stage, demo)
        screen.draw(demos)
        # Once the broken job has ended, the picture has been seen: the endless one may go.
        if not cancelled and by_name["forever"].state == "running" and by_name["broken"].state in FINAL and \
                time.monotonic() - screen.started > 3:
            stage.cli("cancel", by_name["forever"].job)
            cancelled = True
        time.sleep(POLL_S)
    if not by_name["patient"].waited:
        by_name["patient"].verdict = "wrong"
        by_name["patient"].note = "should have waited for a GPU"
    screen.draw(demos)


def interrupted(*_):
    raise KeyboardInterrupt


def perform(stage, demos, screen):
    """Plays it; returns the exit status."""
    try:
        print(f"A scheduler and an agent on loopback, in {stage.folder}")
        print(f"Ready: {stage.open()}. Five jobs:\n", flush=True)
        screen.started = time.monotonic()
        play(stage, screen, demos)
    except DemoFailed as failure:
        print(f"\ndemo: {failure}", file=sys.stderr)
        return 1
    except (KeyError, ValueError, subprocess.TimeoutExpired) as failure:
        print(f"\ndemo: an answer was not understood: {failure!r}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    wrong = [demo for demo in demos if demo.verdict != "right"]
    for demo in wrong:
        print(f"\n{demo.name} ({demo.what}): ended {demo.state} with exit code {demo.exit_code}; should be "
              f"{demo.state_wanted}{'' if demo.exit_wanted is None else f' with {demo.exit_wanted}'}")
    return 1 if wrong else 0


def main():
    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGHUP, interrupted)
    for name in ("gpu-scheduler", "gpu-agent", "gpu-cli"):
        if not (BIN / name).is_file():
            print(f"demo: {BIN / name} is missing; run make build", file=sys.stderr)
            return 1
    stage, status = Stage(), 1
    try:
        status = perform(stage, demo_jobs(), Screen())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Clearing up is short and must be whole.
        killed = stage.clear()
    if status == 0 and killed:
        print(f"demo: these processes had to be killed: {', '.join(sorted(set(killed)))}", file=sys.stderr)
        status = 1
    if status == 0:
        print("\nEvery job ended as it should; every process and file of this demonstration is gone.\n"
              "What next:\n"
              "  make dev                                                  a scheduler and an agent that stay up\n"
              "  build/bin/gpu-cli submit --gpus 1 --wait --logs -- env    your first job (in another terminal)\n"
              "  build/bin/gpu-cli list                                    what there is\n"
              "  build/bin/gpu-cli --help                                  everything else")
    return status


if __name__ == "__main__":
    sys.exit(main())
