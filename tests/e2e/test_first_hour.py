"""A researcher's first hour and an operator's night, typed into a terminal of 80 columns and 24 rows.

What the terminal shows is the page docs/first-hour.md. The test types everything again, on a fresh data folder, and
compares; GPUSCHED_WRITE_TRANSCRIPT=1 writes the page anew. Times, sizes and process numbers may differ, nothing else.
"""

import contextlib
import getpass
import os
import re
import signal
import socket

from harness import ROOT, bin_dir, processes_of, wait_until
from typed_shell import COLUMNS, TypedShell

PAGE = ROOT / "docs" / "first-hour.md"
HEAD = """\
# The first hour and three in the morning

What a researcher sees in the first hour with a cluster, and an operator in a bad night, on a terminal of 80 columns.
`tests/e2e/test_first_hour.py` types all of it into a shell and compares what the terminal shows with this page, which
it has written: edit the test, then run it with `GPUSCHED_WRITE_TRANSCRIPT=1`. The GPUs are simulated, everything else
is real.
"""
TRAIN = """\
#!/bin/sh
#SBATCH --job-name=train
#SBATCH --gres=gpu:2
#SBATCH --time=10
echo "training on $CUDA_VISIBLE_DEVICES"
echo "warning: no checkpoint found" >&2
"""
# What differs from run to run, and what stands for it in a comparison, where blanks count nothing: lines wrap elsewhere.
VARIES = [(re.compile(pattern), stands) for pattern, stands in (
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\d\d:\d\d(:\d\d)?", "TIME"),
    (r"(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s)|(\d+d)?(\d+h)?\d+m(?!\w)", "SPAN"),
    (r"\d+(\.\d+)?[KMGT](i?B)?(?![A-Za-z])", "SIZE"),
    (r"\d+bytes", "SIZE"),
    (r"pid\d+", "PID"),
    (r"\d+(\.\d+)?%", "SHARE"),
    (r"evaluatecompletedSPANn\d", "evaluatecompletedSPANNODE"),  # On the one that was free first.
    # Two streams, which come as they come.
    (r"(warning:nocheckpointfound)(trainingonGPU-sim-n1-0,GPU-sim-n1-1)", r"\2\1"),
)]


JOB = re.compile(r"\bjob-(\d+)((?:_\d+|\[[^\]]*\])?) *")


class Story:
    """The page as it grows: prose, and what the terminal showed."""

    def __init__(self, world):
        self.world = world
        (world.folder / "home").mkdir()
        self.shell = TypedShell({**world.cli_environment(), "HOME": str(world.folder / "home"),
                                 "PATH": f"{bin_dir()}:{os.environ['PATH']}", "TZ": "UTC"}, world.folder / "home")
        self.parts = [HEAD]
        self.jobs = {}

    def say(self, text):
        self.parts.append(f"\n{text}\n")

    def show(self, lines):
        assert max(map(len, lines)) <= COLUMNS
        text = "\n".join(lines).rstrip()
        hidden = ((f"{getpass.getuser()}@{socket.gethostname()}", "ada@login"), (str(self.world.folder), "/srv"))
        for ours, shown in hidden:
            text = text.replace(ours, shown)
        text = JOB.sub(self.numbered, text).replace(getpass.getuser(), " " * len(getpass.getuser()))
        self.parts.append(f"\n```text\n{text}\n```\n")

    def numbered(self, found):
        """Jobs have the numbers of their commands in the journal; the page counts them."""
        number = self.jobs.setdefault(found[1], len(self.jobs) + 1)
        shown = f"job-{number}{found[2]}"
        return shown.ljust(len(found[0])) if found[0].endswith("  ") else shown + " " * found[0].endswith(" ")

    def submit(self, command, *expected):
        """Types a command that prints the new job's id: that id."""
        return JOB.search("".join(self.type(command, *expected)[1:]))[0].strip()

    def type(self, command, *expected, status=0):
        """Types a command, whose output has what is expected of it."""
        ended, lines = self.shell.type(command)
        self.check(command, ended, lines, expected, status)
        return lines

    @contextlib.contextmanager
    def typing(self, command, *expected):
        """Types a command and leaves what happens while it runs to the caller; it ends with 0."""
        before, number = len(self.shell.lines()), self.shell.prompts()
        self.shell.keys(command + "\n")
        yield
        ended = self.shell.wait_prompt(number + 1)
        self.check(command, ended, self.shell.lines()[before - 1:-1], expected, 0)

    def check(self, command, ended, lines, expected, status):
        text = "\n".join(lines)
        assert ended == status, (command, ended, text)
        for part in expected:
            assert without_blanks(part) in without_blanks("".join(lines[1:])), (command, part, text)
        self.show(lines)

    def text(self):
        return "".join(self.parts)


def without_blanks(text):
    return "".join(text.split())


def comparable(text):
    """One line for each part of the page, without what varies."""
    parts = []
    for part in re.split(r"^```(?:text)?$", text, flags=re.MULTILINE):
        part = without_blanks(part)
        for pattern, stands in VARIES:
            part = pattern.sub(stands, part)
        parts.append(part)
    return parts


def job_runs(world, job_id):
    wait_until(f"{job_id} runs", lambda: world.api().job(job_id)["state"] == "running")


def the_researchers_hour(story):
    world = story.world
    story.say("## A researcher's first hour")
    story.say("What is there to run on?")
    story.type("gpu-cli status", "2 of 2 online", "Nothing is wrong.")
    story.say("A first command on a GPU. Its output appears here, and its exit code is that of `gpu-cli`.")
    story.type("gpu-cli run --gpus 1 -- sh -c 'echo got $CUDA_VISIBLE_DEVICES; exit 3'", "got GPU-sim-n1-", status=3)
    story.say("A batch script written for Slurm runs as it is.")
    script = world.folder / "home" / "train.sh"
    script.write_text(TRAIN)
    script.chmod(0o755)
    story.type("cat train.sh", "--gres=gpu:2")
    story.type("gpu-cli submit --wait --logs train.sh", "training on GPU-sim-n1-0,GPU-sim-n1-1", "no checkpoint found")
    story.say("Who knows Slurm is told what its commands are called here.")
    story.type("gpu-cli squeue", "gpu-cli list", status=2)
    story.say("What can never run is said at once. It waits all the same: a node that could run it may come.")
    job = story.submit("gpu-cli submit --gpus 16 -- ./train.sh", "warning:", "no registered node can ever run this job")
    story.type("gpu-cli list", "pending (never)")
    story.type(f"gpu-cli cancel {job}")

    story.say("When the cluster is full, a job waits, and everybody may ask why and until when.")
    job_runs(world, story.submit("gpu-cli submit --nodes 2 --gpus 8 --time 1h --name pretrain -- sleep 600"))
    job = story.submit("gpu-cli submit --gpus 1 --time 10m --name evaluate -- echo loss 0.25")
    wait_until("it knows why", lambda: "requests 1 GPU" in world.cli("get", job).stdout)
    story.type(f"gpu-cli explain {job}", "requests 1 GPU on one node")
    story.type("gpu-cli cancel --name pretrain --yes")
    story.type(f"gpu-cli wait {job}")
    story.type(f"gpu-cli logs {job}", "loss 0.25")

    story.say("A sweep is one line in the list, however many elements it has.")
    sweep = story.submit("gpu-cli submit --array 0-19%2 --gpus 1 --name sweep -- sleep 600")
    wait_until("two run", lambda: "2 run, 18 wait" in world.cli("list").stdout)
    story.type("gpu-cli list", "2 run, 18 wait")
    story.type(f"gpu-cli cancel '{sweep}[10-19]'")
    story.type("gpu-cli cancel --name sweep --yes")
    wait_until("all of it has ended", lambda: not world.cli("list", "--state", "active", "-o", "name").stdout)

    story.say("A job that fails says why, where one looks first.")
    story.type("gpu-cli submit --wait -- no-such-command", "no-such-command is not installed", status=127)
    failed = world.cli("list", "--state", "failed", "--limit", "1", "-o", "name", expected=0).stdout.strip()
    story.type(f"gpu-cli logs {failed}", "no-such-command")
    story.type(f"gpu-cli history {failed}", "submitted", "finished")

    story.say("A shell with a GPU, for an hour at most. Leaving the shell gives the GPU back.")
    with story.typing("gpu-cli run -it --gpus 1 --time 1h --name shell bash --norc", "GPU-sim-n1-0"):
        story.shell.wait_for("bash-5")
        story.shell.keys("echo $CUDA_VISIBLE_DEVICES\n")
        story.shell.wait_for("GPU-sim-n1-0")
        story.shell.keys("exit\n")


def the_operators_night(story, first):
    world = story.world
    story.say("## Three in the morning")
    story.say("The scheduler is killed with SIGKILL while work goes on. No job notices. A submission meanwhile waits for the\n"
              "scheduler, which is started again after the first message here.")
    job = story.submit("gpu-cli submit --gpus 1 --name long -- sleep 600")
    job_runs(world, job)
    world.scheduler.kill()
    with story.typing("gpu-cli submit --gpus 1 --name later --wait -- true", "job-"):
        story.shell.wait_for("gpu-cli: ")
        world.scheduler.start()
    story.type("gpu-cli list --name long", "running")

    story.say("Node n1 loses its power.")
    first.kill()
    for pid in processes_of(first.data_dir):
        os.kill(pid, signal.SIGKILL)
    wait_until("it is silent", lambda: "has not reported" in world.cli("status").stdout)
    story.type("gpu-cli status", "it is unknown whether its 1 job still runs", "gpu-cli node confirm-dead n1")
    story.type(f"gpu-cli get {job}", "has not reported")
    story.say("Somebody goes there and looks: it is off.")
    story.type("gpu-cli node confirm-dead n1")
    job_runs(world, job)
    story.type("gpu-cli list --name long", "n2")
    story.type(f"gpu-cli history {job}", "its node restarted or was declared dead")
    story.say("The node is back.")
    first.start()
    wait_until("it is ready", lambda: world.api().node("n1")["state"] == "ready")
    story.type("gpu-cli node list", "n1", "n2")

    story.say("A switch is to be replaced: nothing new starts meanwhile, what runs goes on.")
    story.type("gpu-cli pause --reason 'a switch is replaced'", "1 running job")
    patient = story.submit("gpu-cli submit --gpus 1 --name patient -- true")
    wait_until("why it waits is known", lambda: world.api().job(patient)["reason"] == "paused")
    story.type("gpu-cli status", "a switch is replaced", "gpu-cli resume")
    story.type("gpu-cli resume")
    story.type(f"gpu-cli wait {patient}")

    story.say("A fan rattles: no new job gets that GPU.")
    story.type("gpu-cli device quarantine n1 0 --reason 'fan rattles'", "")
    story.type("gpu-cli device list n1", "quarantined")
    story.type("gpu-cli device release n1 0")
    story.say("Maintenance of n2: its job is not interrupted, and no other starts there.")
    story.type("gpu-cli node drain n2 --reason 'new power supply'", "")
    story.type("gpu-cli status", "new power supply", "gpu-cli node resume n2")
    story.type("gpu-cli node resume n2")
    story.say("Everything that somebody needs who looks into it tomorrow, and an empty cluster.")
    story.type(f"gpu-cli support-bundle {job} --out bundle.tar.gz", "bundle.tar.gz")
    story.type("gpu-cli cancel --all --yes")
    wait_until("all has ended", lambda: not world.cli("list", "--state", "active", "-o", "name").stdout)
    story.type("gpu-cli status", "Nothing is wrong.")


def test_the_page_shows_what_the_terminal_shows(new_world):
    world = new_world(SCHEDULER_NODE_LEASE_MS=1_500, AGENT_HEARTBEAT_INTERVAL_MS=500)
    world.scheduler.start()
    first, _ = (world.add_agent(name).start() for name in ("n1", "n2"))
    story = Story(world)
    try:
        the_researchers_hour(story)
        the_operators_night(story, first)
    finally:
        story.shell.close()
        if os.environ.get("GPUSCHED_WRITE_TRANSCRIPT"):
            PAGE.write_text(story.text())
    shown, told = comparable(PAGE.read_text()), comparable(story.text())
    different = [(page, run) for page, run in zip(shown, told) if page != run]
    assert not different and len(shown) == len(told), different[:3]
