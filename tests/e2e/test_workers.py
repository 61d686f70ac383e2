"""Persistent workers: one process for many tasks; killed, stopped, out of time: no task runs twice, nothing is left."""

import http.server
import os
import signal
import sys
import threading
import uuid

import pytest
from harness import IS_ROOT, is_alive, wait_until

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

    def __init__(self, world, connect, task_type, secret=None):
        self.world, self.api, self.task_type = world, world.api(), task_type
        self.client = connect(world, secret)

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

    def make(idle_s=2, command=None, cpus=8, at_once=1, ready=None, arguments=()):
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
        world.add_agent(sim_gpus="1xA100-SXM4-80GB", cpus=cpus, arguments=arguments).start()
        return Tasks(world, connect, OTHER)

    return make


@pytest.fixture(name="tasks")
def tasks_fixture(make):
    return make()


def gone(pid):
    wait_until(f"process {pid} is gone", lambda: not is_alive(pid))


@pytest.mark.skipif(not IS_ROOT, reason="needs root: jobs run as another user")
@pytest.mark.parametrize("at_once", [1, 8], ids=["one task at a time", "eight at a time"])
def test_a_worker_has_tasks_of_one_owner_alone(make, connect, at_once):
    world = make(idle_s=60, at_once=at_once, ready="ready 8" if at_once > 1 else None,
                 arguments=["--default-user", "nobody"]).world
    world.folder.chmod(0o777)  # The worker writes down there what it ran.
    world.api().post("/tenants", {"name": "lab"}, 201)
    owners = {}
    for name, tenant in (("ana", "default"), ("bob", "default"), ("ana", "lab")):
        done = world.cli("key", "create", name, "--tenant", tenant, "--role", "user", expected=0)
        owners[name, tenant] = Tasks(world, connect, OTHER, done.stdout.strip())
    workers = {}
    for number in range(2):
        for owner, tasks in owners.items():
            job = tasks.submit("exit 0", name=f"{owner[0]}-{number}")
            assert tasks.api.wait_for(job)["exit_code"] == 0
            workers.setdefault(owner, []).append(tasks.running_pid(job))
    # One of each owner, which another owner's task ends when it needs the GPU; never one for two.
    served = [set(pids) for pids in workers.values()]
    assert not served[0] & served[1] and not served[0] & served[2] and not served[1] & served[2], workers


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


class Endpoint:
    """An HTTP server as on a node. Bodies say what it does: "hang", "flaky", "large", "missing", or nothing special."""

    def __init__(self):
        self.requests, self.open, self.most, self.closed = [], 0, 0, 0
        self.healthy, self.gate, self.lock = True, threading.Event(), threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, status, body=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer(200 if self.path == "/health" and outer.healthy else 503)

            def do_POST(self):
                outer.take(self, self.rfile.read(int(self.headers["Content-Length"])).decode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/run"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, handler, body):
        with self.lock:
            assert handler.headers["Content-Type"] == "application/json"
            before = self.requests.count(body)
            self.requests.append(body)
            self.open += 1
            self.most = max(self.most, self.open)
        if body == "hang":
            handler.connection.recv(1)  # Until it is closed.
            self.closed += 1
        elif body.startswith("wait"):
            self.gate.wait(60)
        with self.lock:
            self.open -= 1
        if body == "flaky" and before == 0:
            handler.answer(500)
        elif body == "missing":
            handler.answer(404, b"no such model")
        elif body == "large":
            handler.send_response(200)
            handler.send_header("Content-Length", str(1 << 30))
            handler.end_headers()
        elif body != "hang":
            handler.answer(200, f"result of {body}".encode())

    def end(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(name="endpoint")
def endpoint_fixture():
    endpoint = Endpoint()
    yield endpoint
    endpoint.end()


@pytest.fixture(name="sent")
def sent_fixture(new_world, connect, endpoint):
    """Tasks of type other that are sent to the endpoint."""

    def make(at_once=4, cpus=8, **settings):
        world = new_world()
        world.scheduler.settings |= {"TASKS_OTHER_ENDPOINT": endpoint.url, "TASKS_OTHER_WORKER_TASKS": at_once,
                                     "TASKS_ENDPOINT_RETRIES": 1, "TASKS_WORKER_IDLE_SECONDS": 2, **settings}
        world.scheduler.start()
        world.add_agent(sim_gpus="1xA100-SXM4-80GB", cpus=cpus).start()
        return Tasks(world, connect, OTHER)

    return make


def test_a_task_is_sent_to_its_endpoint_and_what_it_answers_is_the_result(sent, endpoint):
    tasks = sent()
    good = tasks.submit('{"prompt": "hi"}')
    tasks.api.wait_for(good, "completed")
    assert tasks.api.output(good) == 'result of {"prompt": "hi"}'
    flaky = tasks.submit("flaky")
    tasks.api.wait_for(flaky, "completed")
    assert endpoint.requests.count("flaky") == 2
    missing = tasks.submit("missing")
    job = tasks.api.wait_for(missing, "failed")
    assert job["exit_code"] == 1 and "the endpoint answered 404 Not Found" in job["message"], job
    assert tasks.api.output(missing) == "no such model"
    large = tasks.submit("large")
    assert "too large" in tasks.api.wait_for(large, "failed")["message"]


def test_a_small_nodes_cores_are_not_what_requests_wait_for(sent, endpoint):
    tasks = sent(at_once=16, cpus=2)
    jobs = [tasks.submit(f"wait {number}") for number in range(16)]
    wait_until("all are sent at once", lambda: endpoint.open == 16)
    endpoint.gate.set()
    assert {tasks.api.wait_for(job, "completed")["attempts"] for job in jobs} == {1}


def test_a_request_that_is_too_slow_is_closed(sent, endpoint):
    tasks = sent(TASKS_ENDPOINT_TIMEOUT_SECONDS=2)
    late = tasks.submit("hang")
    assert "too slow" in tasks.api.wait_for(late, "failed")["message"]
    wait_until("its connection is closed", lambda: endpoint.closed == 1)
    assert endpoint.requests == ["hang"]


def test_a_cancelled_task_closes_its_connection_and_the_others_go_on(sent, endpoint):
    tasks = sent()
    other, job = tasks.submit("wait"), tasks.submit("hang")
    wait_until("both are sent", lambda: endpoint.open == 2)
    tasks.api.cancel(job)
    tasks.api.wait_for(job, "cancelled")
    wait_until("its connection is closed", lambda: endpoint.closed == 1)
    endpoint.gate.set()
    assert tasks.api.wait_for(other, "completed")["attempts"] == 1


def test_an_endpoint_has_so_many_requests_at_once_and_the_others_wait(sent, endpoint):
    tasks = sent(at_once=2)
    first, second = tasks.submit("wait 1"), tasks.submit("wait 2")
    wait_until("two are sent", lambda: endpoint.open == 2)
    # Of another size, so another worker's; they share the endpoint.
    tasks.client.submit("larger", task_type=OTHER, payload=b"wait 3", gpu_memory_required=2_000)
    waits = tasks.submit("wait 4")
    assert tasks.api.job(waits)["state"] != "running"
    tasks.api.cancel(waits)
    tasks.api.wait_for(waits, "cancelled")
    assert endpoint.most == 2
    agent = tasks.world.agents()[0]
    agent.restart()  # It counts the requests that it finds.
    after = tasks.submit("after")
    assert tasks.api.job(after)["state"] != "running" and endpoint.most == 2
    endpoint.gate.set()
    for job in (first, second, after):
        assert tasks.api.wait_for(job, "completed")["attempts"] == 1
    assert endpoint.most == 2 and "wait 4" not in endpoint.requests


def test_tasks_wait_for_an_endpoint_that_is_not_healthy(sent, endpoint):
    tasks = sent(TASKS_ENDPOINT_READY_SECONDS=60)
    endpoint.healthy = False
    job = tasks.submit("early")
    tasks.api.wait_for(job, "running")
    assert not endpoint.requests
    endpoint.healthy = True
    tasks.api.wait_for(job, "completed")


def test_a_task_of_an_endpoint_that_stays_away_fails(sent, endpoint):
    tasks = sent(TASKS_ENDPOINT_READY_SECONDS=1)
    endpoint.healthy = False
    message = tasks.api.wait_for(tasks.submit("never"), "failed")["message"]
    assert "not healthy within 1 s: GET /health: it answered 503" in message
    assert not endpoint.requests
