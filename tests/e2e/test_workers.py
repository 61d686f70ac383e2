"""Persistent workers: one process for many tasks; killed, stopped, out of time: no task runs twice, nothing is left."""

import base64
import os
import signal
import sys

import pytest
from harness import ROOT, is_alive, wait_until

# Writes down each task it gets, and does as the payload says: "wait NAME" until that file is there, "exit N".
WORKER = """
import json, os, struct, sys, time
log = open(os.path.join(sys.argv[1], "ran"), "a", buffering=1)
print("a worker begins", flush=True)
frames = os.fdopen(int(os.environ["GPU_SCHEDULER_WORKER_FD"]), "r+b", buffering=0)
while head := frames.read(4):
    size, body = struct.unpack("<I", head)[0], b""
    while len(body) < size:
        body += frames.read(size - len(body))
    line, _, payload = body.partition(b"\\n")
    task = json.loads(line)
    log.write(f"{task['id']} {os.getpid()}\\n")
    word, _, rest = payload.decode().partition(" ")
    while word == "wait" and not os.path.exists(os.path.join(sys.argv[1], rest)):
        time.sleep(0.02)
    code = int(rest) if word == "exit" else 0
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    answer = f"{task['id']} {code}\\n{os.getpid()} {gpu} {task['environment'].get('NAME', '')}".encode()
    frames.write(struct.pack("<I", len(answer)) + answer)
"""


class Tasks:
    """Tasks of one worker's command, as the jobs that they are."""

    def __init__(self, world, idle_ms=1_500):
        self.world, self.api, self.idle_ms = world, world.api(), idle_ms
        (world.folder / "worker.py").write_text(WORKER)
        self.command = f"exec {sys.executable} {world.folder}/worker.py {world.folder}"

    def submit(self, payload="", **fields):
        environment = {"GPU_SCHEDULER_WORKER": self.command, "GPU_SCHEDULER_WORKER_IDLE_MS": str(self.idle_ms),
                       "TASK_PAYLOAD_BASE64": base64.b64encode(payload.encode()).decode(),
                       **fields.pop("environment", {})}
        return self.api.submit("echo no worker took this; exit 9", environment=environment, **{"gpu_count": 1, **fields})

    def pid_of(self, job):
        """The worker's that answered."""
        return int(self.api.output(job).split()[0])

    def ran(self):
        """(attempt, pid) of each task that a worker got."""
        path = self.world.folder / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    def running_pid(self, job):
        number = job.removeprefix("job-")
        return wait_until(f"a worker has {job}",
                          lambda: [pid for key, pid in self.ran() if key.split("-")[0] == number])[-1]


@pytest.fixture(name="tasks")
def tasks_fixture(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent(sim_gpus="1xA100-SXM4-80GB", cpus=8).start()
    return Tasks(world)


def gone(pid):
    wait_until(f"process {pid} is gone", lambda: not is_alive(pid))


def test_one_worker_answers_one_task_after_the_other(tasks):
    api = tasks.api
    first = tasks.submit("", environment={"NAME": "a"})
    assert api.wait_for(first, "completed")["exit_code"] == 0
    second = tasks.submit("", environment={"NAME": "b"})
    api.wait_for(second, "completed")
    assert tasks.pid_of(first) == tasks.pid_of(second)
    assert api.output(second).split()[1:] == [api.gpu("n1", 0)["uuid"], "b"]
    failed = tasks.submit("exit 7")
    assert api.wait_for(failed, "failed")["exit_code"] == 7
    assert tasks.pid_of(failed) == tasks.pid_of(first)
    gone(tasks.pid_of(first))  # It had nothing to do.
    fresh = tasks.submit()
    api.wait_for(fresh, "completed")
    assert tasks.pid_of(fresh) != tasks.pid_of(first)


def test_a_worker_is_gone_before_another_job_has_its_gpu(tasks):
    tasks.idle_ms = 600_000
    first = tasks.submit()
    tasks.api.wait_for(first, "completed")
    worker = tasks.pid_of(first)
    assert is_alive(worker)
    job = tasks.api.submit(f"if [ -e /proc/{worker} ]; then echo there; else echo gone; fi", gpu_count=1)
    tasks.api.wait_for(job, "completed")
    assert tasks.api.output(job) == "gone\n"
    other = Tasks(tasks.world)
    other.command += " # another one"
    second = other.submit()
    tasks.api.wait_for(second, "completed")
    assert other.pid_of(second) != worker
    gone(other.pid_of(second))


def test_a_worker_has_no_cores_of_its_own(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent(sim_gpus="1xA100-SXM4-80GB", cpus=2).start()  # So few that attempts get their own.
    tasks = Tasks(world)
    jobs = [tasks.submit("", gpu_count=0, cpu_cores=1) for _ in range(4)]
    for job in jobs:
        tasks.api.wait_for(job, "completed")


@pytest.mark.parametrize("who", ["agent", "scheduler"])
def test_who_is_killed_finds_the_task_again(tasks, who):
    world = tasks.world
    job = tasks.submit("wait gate")
    pid = tasks.running_pid(job)
    if who == "agent":
        world.agents()[0].kill()
    else:
        world.scheduler.kill()
    (world.folder / "gate").touch()  # It ends while nobody is there.
    attempt = f"{job.removeprefix('job-')}-1-0"
    outcome = world.agents()[0].data_dir / "attempts" / attempt / "outcome"
    wait_until("its outcome is written", outcome.read_text)
    if who == "agent":
        world.agents()[0].start()
    else:
        world.scheduler.restart()
        world.scheduler.wait_serving()
    api = world.api()
    assert api.wait_for(job, "completed")["attempts"] == 1
    assert tasks.ran() == [(attempt, pid)]
    gone(pid)


def test_a_new_agent_keeps_a_task_that_runs(tasks):
    job = tasks.submit("wait gate")
    pid = tasks.running_pid(job)
    tasks.world.agents()[0].restart()
    assert is_alive(pid)
    (tasks.world.folder / "gate").touch()
    tasks.api.wait_for(job, "completed")
    assert tasks.pid_of(job) == pid
    assert len(tasks.ran()) == 1
    gone(pid)  # The new agent does not know what it matches.
    after = tasks.submit()
    tasks.api.wait_for(after, "completed")
    assert tasks.pid_of(after) != pid


def test_a_worker_that_dies_fails_its_task_which_is_tried_again(tasks):
    job = tasks.submit("wait gate", retries=1)
    pid = tasks.running_pid(job)
    os.kill(pid, signal.SIGKILL)
    again = wait_until("another worker has it", lambda: len(tasks.ran()) == 2 and tasks.ran()[1][1])
    assert again != pid
    (tasks.world.folder / "gate").touch()
    assert tasks.api.wait_for(job, "completed")["attempts"] == 2


def test_a_shim_that_dies_takes_its_worker_along(tasks):
    job = tasks.submit("wait never")
    pid = tasks.running_pid(job)
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        shim = int(stat.read().rsplit(")", 1)[1].split()[1])
    os.kill(shim, signal.SIGKILL)
    gone(pid)
    wait_until("the attempt is over", lambda: tasks.api.job(job)["state"] != "running" or len(tasks.ran()) > 1)
    tasks.api.cancel(job)


def test_a_task_out_of_time_or_cancelled_ends_its_worker(tasks):
    late = tasks.submit("wait never", max_runtime_seconds=1, environment={"NAME": "late"})
    pid = tasks.running_pid(late)
    tasks.api.wait_for(late, "failed")
    gone(pid)
    job = tasks.submit("wait never")
    pid = tasks.running_pid(job)
    tasks.api.cancel(job)
    tasks.api.wait_for(job, "cancelled")
    gone(pid)


def test_a_worker_that_cannot_begin_fails_its_task(tasks):
    tasks.command = "echo no model >&2; exit 3"
    job = tasks.submit()
    assert tasks.api.wait_for(job, "failed")["exit_code"] == 3


def test_the_example_worker_answers(tasks):
    tasks.command = f"exec {sys.executable} {ROOT}/examples/worker.py"
    job = tasks.submit("payload", environment={"TASK_USER_ID": "agent-7"})
    tasks.api.wait_for(job, "completed")
    assert tasks.api.output(job) == "7 bytes for agent-7\n"
