"""Persistent workers: one process for many tasks; killed, stopped, out of time: no task runs twice, nothing is left."""

import os
import signal
import sys
import uuid

import pytest
from harness import is_alive, wait_until

pytest.importorskip("grpc", reason="python3-grpcio is not installed")
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")

from agent_client import LLM, OTHER  # noqa: E402

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
    answer = f"{task['id']} {code}\\n{os.getpid()} {gpu} {task['environment']['TASK_ID']}".encode()
    frames.write(struct.pack("<I", len(answer)) + answer)
"""

# The same with a thread for each task. "wait" ends when the task is cancelled too, where argv[2] says that it can be.
MANY = """
import json, os, socket, struct, sys, threading, time
folder, ready = sys.argv[1], sys.argv[2]
log = open(os.path.join(folder, "ran"), "a", buffering=1)
frames = socket.socket(fileno=int(os.environ["GPU_SCHEDULER_WORKER_FD"]))
lock, cancelled = threading.Lock(), set()

def say(text):
    with lock:
        frames.sendall(struct.pack("<I", len(text)) + text.encode())

def read(size):
    data = b""
    while len(data) < size:
        more = frames.recv(size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data

def run(task, payload):
    log.write(f"{task['id']} {os.getpid()}\\n")
    word, _, rest = payload.partition(" ")
    while word == "wait" and not os.path.exists(os.path.join(folder, rest)) and task["id"] not in cancelled:
        time.sleep(0.02)
    say(f"{task['id']} 0\\n{os.getpid()} {task['environment']['TASK_ID']}")

say(ready)
while True:
    line, _, payload = read(struct.unpack("<I", read(4))[0]).partition(b"\\n")
    task = json.loads(line)
    if "cancel" in task:
        cancelled.add(task["cancel"])
    elif "check" in task:
        say(f"healthy {task['check']}")
    else:
        threading.Thread(target=run, args=(task, payload.decode()), daemon=True).start()
"""


class Tasks:
    """Tasks of one type, by its worker."""

    def __init__(self, world, connect, task_type):
        self.world, self.api, self.task_type = world, world.api(), task_type
        self.client = connect(world)

    def submit(self, payload="", name=None):
        """The job of a task with that id."""
        name = name or f"task-{uuid.uuid4()}"
        return self.client.submit(name, task_type=self.task_type, payload=payload.encode())

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


@pytest.fixture(name="make")
def make_fixture(new_world, connect):
    """A scheduler and one node, and tasks of type other there."""

    def make(idle_s=2, command=None, cpus=8, at_once=1, ready=None):
        world = new_world()
        (world.folder / "worker.py").write_text(MANY if ready else WORKER)
        if ready:
            command = f"exec {sys.executable} {world.folder}/worker.py {world.folder} '{ready}'"
        command = command or f"exec {sys.executable} {world.folder}/worker.py {world.folder}"
        world.scheduler.settings |= {
            "TASKS_OTHER_COMMAND": command, "TASKS_OTHER_WORKER": "persistent",
            "TASKS_LLM_COMMAND": f"{command} # another one", "TASKS_LLM_WORKER": "persistent",
            "TASKS_OTHER_WORKER_TASKS": at_once, "TASKS_WORKER_HEALTH_SECONDS": 1, "TASKS_WORKER_IDLE_SECONDS": idle_s}
        world.scheduler.start()
        world.add_agent(sim_gpus="1xA100-SXM4-80GB", cpus=cpus).start()
        return Tasks(world, connect, OTHER)

    return make


@pytest.fixture(name="tasks")
def tasks_fixture(make):
    return make()


def gone(pid):
    wait_until(f"process {pid} is gone", lambda: not is_alive(pid))


def test_one_worker_answers_one_task_after_the_other(tasks):
    api = tasks.api
    first = tasks.submit(name="a")
    assert api.wait_for(first, "completed")["exit_code"] == 0
    second = tasks.submit(name="b")
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


def test_a_worker_is_gone_before_another_job_has_its_gpu(make, connect):
    tasks = make(idle_s=600)
    first = tasks.submit()
    tasks.api.wait_for(first, "completed")
    worker = tasks.pid_of(first)
    assert is_alive(worker)
    job = tasks.api.submit(f"if [ -e /proc/{worker} ]; then echo there; else echo gone; fi", gpu_count=1)
    tasks.api.wait_for(job, "completed")
    assert tasks.api.output(job) == "gone\n"
    other = tasks.submit()
    tasks.api.wait_for(other, "completed")
    assert tasks.pid_of(other) != worker
    another = Tasks(tasks.world, connect, LLM)  # With a command of its own.
    second = another.submit()
    tasks.api.wait_for(second, "completed")
    assert another.pid_of(second) != tasks.pid_of(other)
    gone(tasks.pid_of(other))
    last = tasks.api.submit("true", gpu_count=1)  # Or the worker would outlive the agent.
    tasks.api.wait_for(last, "completed")
    gone(another.pid_of(second))


def test_a_worker_has_no_cores_of_its_own(make):
    tasks = make(cpus=2)  # So few that attempts get their own.
    jobs = [tasks.submit() for _ in range(4)]
    for job in jobs:
        tasks.api.wait_for(job, "completed")


def test_a_job_cannot_ask_for_a_worker(tasks):
    for name in ("GPU_SCHEDULER_WORKER", "GPU_SCHEDULER_WORKER_IDLE_MS"):
        job = {"script": "true", "environment": {name: "sleep 600"}}
        status, answer, _ = tasks.api.call("POST", "/api/v1/jobs", job)
        assert status == 400 and name in str(answer), answer


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


def test_a_worker_that_dies_fails_its_task_and_the_next_has_another(tasks):
    job = tasks.submit("wait never")
    pid = tasks.running_pid(job)
    os.kill(pid, signal.SIGKILL)
    assert tasks.api.wait_for(job, "failed")["attempts"] == 1
    after = tasks.submit()
    tasks.api.wait_for(after, "completed")
    assert tasks.pid_of(after) != pid
    assert len(tasks.ran()) == 2


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
    late = tasks.submit("wait never")
    pid = tasks.running_pid(late)
    status, answer, _ = tasks.api.call("PATCH", f"/v1/jobs/{late}", {"max_runtime_ms": 1_000})
    assert status == 200, answer
    tasks.api.wait_for(late, "failed")
    gone(pid)
    job = tasks.submit("wait never")
    pid = tasks.running_pid(job)
    tasks.api.cancel(job)
    tasks.api.wait_for(job, "cancelled")
    gone(pid)


def test_a_worker_that_cannot_begin_fails_its_task(make):
    tasks = make(command="echo no model >&2; exit 3")
    job = tasks.submit()
    assert tasks.api.wait_for(job, "failed")["exit_code"] == 3


def run_at_once(tasks, count):
    """So many tasks that run until the file "gate" is there, and their workers."""
    jobs = [tasks.submit("wait gate") for _ in range(count)]
    return jobs, [tasks.running_pid(job) for job in jobs]


def test_a_worker_has_as_many_tasks_at_once_as_it_may(make):
    tasks = make(at_once=3, ready="ready 64")
    jobs, pids = run_at_once(tasks, 4)
    assert sorted(pids.count(pid) for pid in set(pids)) == [1, 3]
    (tasks.world.folder / "gate").touch()
    for job, pid in zip(jobs, pids):
        tasks.api.wait_for(job, "completed")
        assert tasks.pid_of(job) == pid


def test_a_worker_may_take_fewer(make):
    tasks = make(at_once=8, ready="ready 2")
    first = tasks.submit()
    tasks.api.wait_for(first, "completed")
    _, pids = run_at_once(tasks, 3)
    assert pids.count(tasks.pid_of(first)) == 2
    (tasks.world.folder / "gate").touch()


def test_one_task_is_cancelled_and_the_others_go_on(make):
    tasks = make(at_once=4, ready="ready 4 cancel")
    jobs, pids = run_at_once(tasks, 3)
    assert len(set(pids)) == 1
    tasks.api.cancel(jobs[1])
    tasks.api.wait_for(jobs[1], "cancelled")
    (tasks.world.folder / "gate").touch()
    for job in (jobs[0], jobs[2]):
        assert tasks.api.wait_for(job, "completed")["attempts"] == 1
        assert tasks.pid_of(job) == pids[0]


def test_a_task_out_of_time_costs_the_others_a_try_where_it_cannot_be_ended_alone(make):
    tasks = make(at_once=4, ready="ready 4")
    jobs, pids = run_at_once(tasks, 2)
    assert len(set(pids)) == 1
    status, answer, _ = tasks.api.call("PATCH", f"/v1/jobs/{jobs[0]}", {"max_runtime_ms": 1_000})
    assert status == 200, answer
    tasks.api.wait_for(jobs[0], "failed")
    gone(pids[0])
    (tasks.world.folder / "gate").touch()
    assert tasks.api.wait_for(jobs[1], "completed")["attempts"] == 2
    assert tasks.pid_of(jobs[1]) != pids[0]


def test_a_new_agent_finds_all_tasks_of_a_worker(make):
    tasks = make(at_once=4, ready="ready 4 cancel")
    jobs, pids = run_at_once(tasks, 3)
    tasks.world.agents()[0].kill()
    tasks.world.agents()[0].start()
    (tasks.world.folder / "gate").touch()
    for job in jobs:
        assert tasks.api.wait_for(job, "completed")["attempts"] == 1
    assert len(tasks.ran()) == 3
    gone(pids[0])


def test_a_worker_that_dies_fails_its_tasks_alone(make):
    tasks = make(at_once=2, ready="ready 2")
    jobs, pids = run_at_once(tasks, 4)
    first = pids[0]
    os.kill(first, signal.SIGKILL)
    for job, pid in zip(jobs, pids):
        if pid == first:
            tasks.api.wait_for(job, "failed")
    (tasks.world.folder / "gate").touch()
    for job, pid in zip(jobs, pids):
        if pid != first:
            assert tasks.api.wait_for(job, "completed")["attempts"] == 1


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_worker_without_a_task_ends_with_its_agent(make, how):
    tasks = make(idle_s=600)
    job = tasks.submit()
    tasks.api.wait_for(job, "completed")
    worker = tasks.pid_of(job)
    assert is_alive(worker)
    getattr(tasks.world.agents()[0], how)()
    gone(worker)


def test_a_worker_that_hangs_fails_its_tasks_and_one_that_computes_does_not(make):
    tasks = make(at_once=2, ready="ready 2 health")
    jobs, pids = run_at_once(tasks, 3)
    hung = max(set(pids), key=pids.count)
    os.kill(hung, signal.SIGSTOP)
    for job, pid in zip(jobs, pids):
        if pid == hung:
            assert "hangs" in tasks.api.wait_for(job, "failed")["message"]
    gone(hung)
    (tasks.world.folder / "gate").touch()
    for job, pid in zip(jobs, pids):
        if pid != hung:  # It was asked all the while.
            tasks.api.wait_for(job, "completed")
            assert tasks.pid_of(job) == pid
