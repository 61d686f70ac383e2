"""The load of the kill tests: jobs of known outcome, clients that repeat until they are told, and a judge.

Each job leaves lines in a file of its own: `start ATTEMPT CLOCK DEVICES`, `end ATTEMPT CLOCK CODE`. It also holds
a lock per granted GPU, by a descriptor that all its processes inherit: a GPU that two live jobs hold shows as a
`conflict` line at once, whichever way the first one ends.
"""

import collections
import dataclasses
import http.client
import random
import threading
import time
import uuid

from harness import FINAL, PATIENCE_S

# Arguments: folder, token, seconds, exit code, mode.
WORKER = r"""#!/bin/sh
book=$1/book/$2
now() { read -r clock rest < /proc/uptime; }
case $5 in *stubborn*) trap '' TERM ;; esac
descriptor=4
for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
  eval "exec $descriptor>>$1/locks/$gpu"
  flock -n $descriptor || echo "conflict $GPU_SCHEDULER_ATTEMPT $gpu" >> "$book"
  descriptor=$((descriptor + 1))
done
now
echo "start $GPU_SCHEDULER_ATTEMPT $clock $CUDA_VISIBLE_DEVICES" >> "$book"
echo "out $2"
echo "err $2" >&2
case $5 in *daemon*) setsid sh -c 'sleep 600 & sleep 600 & exit 0' ;; esac
sleep "$3"
code=$4
case $5 in *retry*) [ "$(grep -c ^start "$book")" -gt 1 ] && code=0 ;; esac
now
echo "end $GPU_SCHEDULER_ATTEMPT $clock $code" >> "$book"
case $5 in *segv*) kill -SEGV $$ ;; esac
exit "$code"
"""


@dataclasses.dataclass
class Task:
    """What a client wants done, and what it was told."""

    token: str
    mode: str
    seconds: float
    code: int
    gpus: int
    gives_up: bool
    cancel_after: float = -1.0
    job_id: str = ""
    cancel_answer: int = 0
    breaks: int = 0

    def body(self, folder, padding):
        words = ["/bin/sh", f"{folder}/worker.sh", str(folder), self.token, f"{self.seconds:.2f}", str(self.code), self.mode]
        return {"name": self.token, "command": words, "gpu_count": self.gpus, "cpu_cores": 1, "memory_mb": 16,
                "retries": 1 if "retry" in self.mode else 0, "environment": {"PADDING": padding}}


def draw_task(rng, number):
    mode = rng.choices(["plain", "stubborn", "daemon", "segv", "retry", "cancel", "cancel stubborn"],
                       [60, 6, 8, 6, 8, 11, 1])[0]
    seconds = rng.choice([0, rng.uniform(0, 0.2), rng.uniform(0.2, 1.0), rng.uniform(0.2, 1.0), rng.uniform(1, 2)])
    code = rng.choice([0, 0, 0, 1, 3, 7, 42, 255])
    if "retry" in mode:
        code = 1
    cancel_after = -1.0
    if "cancel" in mode:
        seconds, code, cancel_after = 30, 0, rng.uniform(0, 1.0)
    return Task(token=f"t{number}", mode=mode, seconds=seconds, code=code, gpus=rng.choice([0, 0, 1, 1, 2]),
                gives_up=rng.random() < 0.05, cancel_after=cancel_after)


class Load:
    """Clients, each a thread, that submit what the rounds allow, and one that looks on."""

    def __init__(self, world, seed, clients=4):
        self.world = world
        self.folder = world.folder
        for name in ("book", "locks"):
            (self.folder / name).mkdir()
        (self.folder / "worker.sh").write_text(WORKER)
        self.tasks = []
        self.rng = random.Random(seed)
        self.padding = [random.Random(seed + i).randbytes(1500).hex() for i in range(4)]
        self.queue = collections.deque()
        self.condition = threading.Condition()
        self.closed = False
        self.complaints = []
        self.final_seen = {}
        self.threads = [threading.Thread(target=self.run_client, args=(seed * 100 + i,)) for i in range(clients)]
        self.watcher = threading.Thread(target=self.watch)
        for thread in [*self.threads, self.watcher]:
            thread.start()

    def allow(self, count):
        with self.condition:
            for _ in range(count):
                task = draw_task(self.rng, len(self.tasks))
                self.tasks.append(task)
                self.queue.append(task)
            self.condition.notify_all()

    def close(self):
        """Returns when every client has its last answer."""
        with self.condition:
            self.closed = True
            self.condition.notify_all()
        for thread in [*self.threads, self.watcher]:
            thread.join(3 * PATIENCE_S)
            assert not thread.is_alive(), "a client hangs"

    def abandon(self):
        """After a failure: whoever still repeats stops."""
        with self.condition:
            self.queue.clear()
            self.closed = True
            self.complaints.append("abandoned")
            self.condition.notify_all()

    def run_client(self, seed):
        rng = random.Random(seed)
        while True:
            with self.condition:
                while not self.queue and not self.closed:
                    self.condition.wait()
                if not self.queue:
                    return
                task = self.queue.popleft()
            time.sleep(rng.uniform(0, 0.1))
            try:
                self.carry_out(task, rng)
            except Exception as error:  # A thread's failure must reach the test.
                self.complaints.append(f"{task}: {error!r}")

    def carry_out(self, task, rng):
        body = task.body(self.folder, rng.choice(self.padding)[: rng.randrange(3000)])
        key = str(uuid.UUID(int=rng.getrandbits(128)))
        answer = self.repeat("POST", "/api/v1/jobs", task, body, key)
        if answer is None:
            return
        status, body, _ = answer
        if status != 201:
            self.complaints.append(f"{task}: {status} {body}")
            return
        task.job_id = body["job_id"]
        if task.cancel_after >= 0:
            time.sleep(task.cancel_after)
            task.gives_up = False
            status, body, _ = self.repeat("DELETE", f"/api/v1/jobs/{task.job_id}", task)
            task.cancel_answer = status
            if status not in (200, 409):
                self.complaints.append(f"{task}: cancel: {status} {body}")

    def repeat(self, method, path, task, body=None, key=None):
        """Until there is a whole answer that is not "not now"; None when the client gives up."""
        headers = {"Idempotency-Key": key} if key else {}
        while "abandoned" not in self.complaints:
            try:
                answer = self.world.api().call(method, path, body, headers, timeout_s=10)
                if answer[0] not in (503, 504):
                    return answer
            except (OSError, http.client.HTTPException):
                pass
            task.breaks += 1
            if task.gives_up:
                return None
            time.sleep(0.02)
        return 0, "abandoned", {}

    def watch(self):
        """A job that was acknowledged is always there, and one that ended stays as it ended."""
        rng = random.Random(1)
        while not self.closed:
            time.sleep(0.05)
            told = [task.job_id for task in self.tasks if task.job_id]
            if not told:
                continue
            job_id = rng.choice(told)
            try:
                status, body, _ = self.world.api().call("GET", f"/api/v1/jobs/{job_id}", timeout_s=10)
            except (OSError, http.client.HTTPException):
                continue
            if status not in (200, 503):
                self.complaints.append(f"{job_id} was acknowledged and reads {status} {body}")
            if status == 200 and body["state"] in FINAL:
                seen = self.final_seen.setdefault(job_id, essence(body))
                if seen != essence(body):
                    self.complaints.append(f"{job_id} ended twice: {seen}, {essence(body)}")


def essence(job):
    """What must never change once a job has ended."""
    return {name: job[name] for name in ("state", "exit_code", "signal", "attempts", "started_at", "completed_at", "reason")}


class Book:
    """What a job's own lines say."""

    def __init__(self, folder, token):
        path = folder / "book" / token
        self.starts, self.ends, self.conflicts = [], [], []
        for line in path.read_text().splitlines() if path.exists() else []:
            words = line.split(" ")
            if words[0] == "conflict":
                self.conflicts.append(line)
                continue
            entry = (words[1], float(words[2]), words[3] if len(words) > 3 else "")
            (self.starts if words[0] == "start" else self.ends).append(entry)


def judge(load, jobs):
    """Every promise about `jobs`, which is all that the scheduler lists at the end. Returns what was broken."""
    wrong = list(load.complaints)
    by_name = collections.defaultdict(list)
    for job in jobs:
        by_name[job["name"]].append(job)
    known = {task.token for task in load.tasks}
    wrong += [f"nobody submitted {name}" for name in by_name if name not in known]
    holds = collections.defaultdict(list)
    for task in load.tasks:
        found = by_name[task.token]
        if not task.job_id:
            if not task.gives_up:
                wrong.append(f"{task} was never acknowledged")
            if len(found) > 1:
                wrong.append(f"{task}: {len(found)} jobs")
        elif [job["id"] for job in found] != [task.job_id]:
            wrong.append(f"{task}: acknowledged, and there are {[job['id'] for job in found]}")
        for job in found:
            book = Book(load.folder, task.token)
            wrong += [f"{task}: {problem}; {job} {book.starts} {book.ends}" for problem in judge_job(task, job, book)]
            wrong += book.conflicts
            seen = load.final_seen.get(job["id"])
            if seen and seen != essence(job):
                wrong.append(f"{task}: was {seen}, is {essence(job)}")
            ends = {attempt: clock for attempt, clock, _ in book.ends}
            for attempt, clock, devices in book.starts:
                for device in filter(None, devices.split(",")):
                    holds[device].append((clock, ends.get(attempt, clock), attempt))
    for device, spans in holds.items():
        spans.sort()
        for first, second in zip(spans, spans[1:]):
            if second[0] < first[1]:
                wrong.append(f"{device} was held twice: {first} and {second}")
    return wrong


def judge_job(task, job, book):
    """What is wrong with one job, as sentences."""
    started = [attempt for attempt, _, _ in book.starts]
    ended = [attempt for attempt, _, _ in book.ends]
    numbers = [int(attempt.split("-")[1]) for attempt in started]
    if job["state"] not in FINAL:
        yield f"did not end: {job['state']}"
        return
    if len(set(started)) != len(started):
        yield "an attempt ran twice"
    if len(set(ended)) != len(ended):
        yield "an attempt ended twice"
    if any(attempt.split("-")[0] != job["id"].removeprefix("job-") for attempt in started):
        yield "ran under another job's name"
    if any(number > job["attempts"] for number in numbers):
        yield "ran an attempt that is not counted"
    if any(len(list(filter(None, devices.split(",")))) != task.gpus for _, _, devices in book.starts):
        yield "saw another number of GPUs than it asked for"
    runs = 2 if "retry" in task.mode else 1
    if "cancel" in task.mode:
        if len(started) > 1:
            yield "a cancelled job ran twice"
        if job["state"] != "cancelled" and not (job["state"] == "completed" and started == ended):
            yield f"cancelled, and ended as {job['state']}"
        return
    if len(started) != runs:
        yield f"ran {len(started)} times instead of {runs}"
    if started != ended:
        yield "was started and did not come to its end"
    if numbers and numbers[-1] != job["attempts"]:
        yield "its last run is not its last attempt"
    if "segv" in task.mode:
        if (job["state"], job["signal"], job["reason"]) != ("failed", 11, "signal"):
            yield f"ended by signal 11, and shows {job['state']} {job['signal']} {job['reason']}"
        return
    code = 0 if "retry" in task.mode else task.code
    expected = "completed" if code == 0 else "failed"
    if job["state"] != expected or job["exit_code"] != code:
        yield f"exited with {code}, and shows {job['state']} {job['exit_code']}"
