"""Three schedulers that are one: whatever becomes of the leader, nothing that was answered is lost and no job ends."""

import contextlib
import http.client
import itertools
import os
import signal
import subprocess
import threading
import time

import pytest
from harness import PATIENCE_S, Api, has_consensus, is_alive, program, wait_until
from ports import free_port

IDS = (1, 2, 3)
pytestmark = pytest.mark.skipif(not has_consensus(), reason="gpu-scheduler was built without the consensus of replicas")


class Cluster:
    """Three schedulers of one world, and an agent that is told all of them."""

    def __init__(self, world):
        self.world = world
        peers = ",".join(f"{number}=127.0.0.1:{free_port()}" for number in IDS)
        self.members = {}
        for number in IDS:
            settings = {"REPLICA_ID": number, "REPLICA_PEERS": peers}
            self.members[number] = world.add_scheduler(settings, name=f"scheduler-{number}")
        self.make_folders()
        for scheduler in self.members.values():
            scheduler.launch()
        self.leader()
        # The world's end talks to one of them: whichever it is, the leader answers.
        world.scheduler = self.members[1]
        addresses = ",".join(f"127.0.0.1:{member.ports['grpc']}" for member in self.members.values())
        token = str(self.members[1].data_dir / "token")
        self.agent = world.add_agent("n1", scheduler=addresses, arguments=("--token-file", token))
        self.agent.start()

    def members_command(self, number, *words):
        scheduler = self.members[number]
        scheduler.command()
        done = subprocess.run([program("gpu-scheduler"), "members", *words, "--data-dir", str(scheduler.data_dir)],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                              env=self.world.environment(scheduler.environment))
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    def make_folders(self):
        """One scheduler that has served alone becomes the first of three."""
        first = self.members[1]
        alone = {name: value for name, value in first.settings.items() if not name.startswith("REPLICA_")}
        settings, first.settings = first.settings, alone
        first.start()
        self.before = first.api().submit("exit 0", gpu_count=1)
        assert first.stop() == 0
        first.settings = settings
        self.members_command(1, "init")
        for number in IDS[1:]:
            file = self.world.folder / f"replica-{number}.tar"
            self.members_command(1, "export", str(file), "--id", str(number))
            self.members_command(number, "join", str(file))

    def leader(self):
        """The one whose doors are open."""

        def look():
            leading = [member for member in self.members.values() if member.alive() and member.served_ports()]
            for member in self.members.values():
                if member.process is not None and member.process.returncode not in (None, -signal.SIGKILL, 0):
                    raise AssertionError(f"{member.name} ended: {member.log_since_start()}")
            return leading[0] if len(leading) == 1 else None

        return wait_until("one of them leads", look)

    def obeyed_term(self):
        """The term of the leader that the agent obeyed last; it refuses every earlier one."""
        return int((self.agent.data_dir / "scheduler-term").read_text().split()[0])

    def followers(self):
        leader = self.leader()
        return [member for member in self.members.values() if member is not leader]

    def api(self, member):
        return Api(member.ports["http"], token=self.members[1].token())

    def ask(self, ask, member=None):
        """Asks one of them until there is an answer: while nobody leads there is none."""

        def look():
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                return ask(self.api(member or self.members[1]))
            return None

        return wait_until("somebody answers", look)


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(new_module_world):
    world = new_module_world()
    world.daemons.clear()
    return Cluster(world)


class Writer(threading.Thread):
    """Submits jobs, one after the other, by any of the schedulers; repeats each with its key until it is answered."""

    numbers = itertools.count()

    def __init__(self, cluster):
        super().__init__()
        self.cluster = cluster
        self.ending = threading.Event()
        self.answered = {}
        self.times = []

    def run(self):
        members = list(self.cluster.members.values())
        while not self.ending.is_set():
            key = f"key-{next(Writer.numbers)}"
            for turn in itertools.count():
                api = self.cluster.api(members[(turn + len(self.answered)) % len(members)])
                with contextlib.suppress(OSError, http.client.HTTPException):
                    status, body, _ = api.call("POST", "/api/v1/jobs", {"command": ["true"], "gpu_count": 64, "name": key},
                                               {"Idempotency-Key": key}, timeout_s=5)
                    assert status in (201, 503, 429), (status, body)
                    if status == 201:
                        self.answered[key] = body["job_id"]
                        self.times.append(time.monotonic())
                        break
                if self.ending.is_set():
                    return
                time.sleep(0.02)

    def end(self):
        self.ending.set()
        self.join()

    def longest_pause(self):
        return max(after - before for before, after in zip(self.times, self.times[1:]))


@contextlib.contextmanager
def writing(cluster):
    writer = Writer(cluster)
    writer.start()
    try:
        wait_until("some are answered", lambda: len(writer.answered) > 5)
        yield writer
        seen = len(writer.answered)
        wait_until("more are answered", lambda: len(writer.answered) > seen + 5)
    finally:
        writer.end()


def check_nothing_lost(cluster, writer):
    jobs = cluster.ask(lambda api: api.jobs())
    by_name = {}
    for job in jobs:
        by_name.setdefault(job["name"], []).append(job["id"])
    for key, job_id in writer.answered.items():
        assert by_name.get(key) == [job_id], (key, job_id, by_name.get(key))
    assert cluster.before in {job["id"] for job in jobs}
    for key in writer.answered:
        cluster.ask(lambda api, job_id=writer.answered[key]: api.cancel(job_id))


@contextlib.contextmanager
def running_job(cluster):
    """A job on every GPU that must live through it all: its one attempt, its processes, then its exit code."""
    gate = cluster.world.folder / f"gate-{time.monotonic_ns()}"
    job_id = cluster.ask(lambda api: api.submit(f"echo $$; while [ ! -e {gate} ]; do sleep 0.05; done; exit 7", gpu_count=4))
    cluster.ask(lambda api: api.wait_for(job_id, "running"))
    pid = int(wait_until("it printed its pid", lambda: cluster.ask(lambda api: api.output(job_id)).split())[0])
    yield
    assert is_alive(pid)
    gate.touch()
    job = cluster.ask(lambda api: api.wait_for(job_id))
    assert (job["state"], job["exit_code"], job["attempts"]) == ("failed", 7, 1)


def test_every_replica_answers_every_client(cluster):
    for member in cluster.members.values():
        api = cluster.api(member)
        job_id = api.submit("exit 3", gpu_count=1)
        assert api.wait_for(job_id)["exit_code"] == 3
        status, _, _ = Api(member.ports["http"]).call("GET", "/api/v1/jobs")
        assert status == 401  # What is passed on comes from this machine, and is nobody's word.


def test_a_killed_leader_is_replaced_and_nothing_that_was_answered_is_lost(cluster):
    with running_job(cluster), writing(cluster) as writer:
        for _ in range(3):
            leader = cluster.leader()
            leader.kill()
            seen = len(writer.answered)
            wait_until("another one answers", lambda seen=seen: len(writer.answered) > seen + 5)
            assert cluster.leader() is not leader
            leader.launch()
            wait_until("it follows", lambda leader=leader: leader.events("leader_changed"))
    check_nothing_lost(cluster, writer)


def test_a_leader_that_stood_still_is_replaced_and_follows_when_it_goes_on(cluster):
    with running_job(cluster), writing(cluster) as writer:
        leader = cluster.leader()
        before = wait_until("the agent obeys it", cluster.obeyed_term)
        os.kill(leader.pid(), signal.SIGSTOP)
        try:
            seen = len(writer.answered)
            others = [member for member in cluster.members.values() if member is not leader]
            wait_until("another one leads", lambda: any(member.served_ports() for member in others))
            wait_until("another one answers", lambda: len(writer.answered) > seen + 5)
            wait_until("the agent obeys the new one only", lambda: cluster.obeyed_term() > before)
        finally:
            os.kill(leader.pid(), signal.SIGCONT)
        wait_until("it gave up", lambda: not leader.served_ports())
        assert leader.alive()
        wait_until("it follows", lambda: cluster.ask(lambda api: api.jobs(), leader))
    check_nothing_lost(cluster, writer)


def test_status_names_a_scheduler_that_is_away(cluster):
    away = cluster.followers()[0]
    number = next(number for number, member in cluster.members.items() if member is away)
    away.kill()

    def concerns():
        return cluster.ask(lambda api: api.get("/health"), cluster.leader()).get("concerns", [])

    wait_until("its absence is told", lambda: any(f"replica {number} of 3 is away" in text for text in concerns()))
    away.launch()
    wait_until("it is back", lambda: not concerns())


def test_a_leader_that_is_stopped_hands_over_first(cluster):
    with running_job(cluster), writing(cluster) as writer:
        leader = cluster.leader()
        assert leader.stop() == 0
        seen = len(writer.answered)
        wait_until("another one answers", lambda: len(writer.answered) > seen + 5)
        assert leader.events("lost_lead")
        leader.launch()
        wait_until("it follows", lambda: leader.events("leader_changed"))
    check_nothing_lost(cluster, writer)


def test_without_a_majority_nothing_is_answered(cluster):
    leader = cluster.leader()
    followers = cluster.followers()
    for follower in followers:
        follower.kill()
    status = None
    with contextlib.suppress(OSError, http.client.HTTPException):
        status, body, _ = cluster.api(leader).call("POST", "/api/v1/jobs", {"command": ["true"], "gpu_count": 1}, timeout_s=10)
        assert (status, body["code"]) == (503, "outcome_unknown") or status == 503, body
    assert status != 201
    for follower in followers:
        follower.launch()
    cluster.leader()
    cluster.ask(lambda api: api.jobs())


def test_a_replicas_folder_is_not_started_alone(cluster):
    leader = cluster.leader()
    member = next(follower for follower in cluster.followers() if follower is not leader)
    assert member.stop() == 0
    settings = member.settings
    member.settings = {name: value for name, value in settings.items() if not name.startswith("REPLICA_")}
    member.launch()
    assert member.ended() == 1
    assert "replica.peers" in member.log_since_start()
    member.settings = settings
    member.launch()
    wait_until("it follows", lambda: member.events("leader_changed"))
