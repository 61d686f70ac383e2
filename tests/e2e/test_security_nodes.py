"""Only agents with the token are nodes, and an agent obeys, and gpu-cli trusts, only its own scheduler."""

import json
import secrets
import shutil
import stat
import subprocess
import sys

import pytest
from harness import Api, program, read_bytes, wait_until
from ports import free_port
from security import NEEDS_ROOT, agent_as, as_user, public_programs, throw_away_users

NEEDS_GPUS = {"gpu_count": 8}


@pytest.fixture(name="users")
def users_fixture():
    with throw_away_users() as users:
        yield users


def settled(agent):
    """A registration, or the word that it was refused."""
    log = agent.log_since_start()
    return '"registered"' in log or '"scheduler_unreachable"' in log or not agent.alive()


@NEEDS_ROOT
def test_a_strangers_agent_is_no_node(users, new_world, monkeypatch):
    stranger = users.add()
    with public_programs(monkeypatch):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        word = secrets.token_hex(8)
        # A job that only the stranger's node could run, with a secret in it.
        job = world.api().submit("sleep 1000", environment={"SECRET": word}, **NEEDS_GPUS)
        agent = agent_as(world, stranger, "evil")
        agent.kill()
        agent.sim_gpus = "8xA100-SXM4-80GB"
        agent.launch()
        wait_until("the stranger's agent is settled", lambda: settled(agent))
        assert world.api().node("evil") is None, "a stranger is a node"
        assert world.api().job(job)["state"] == "pending"
        assert not any(word in read_bytes(path).decode("utf-8", "replace")
                       for path in agent.data_dir.rglob("*") if path.is_file())
        agent.kill()
        world.api().cancel(job)


@NEEDS_ROOT
def test_a_live_node_is_not_taken_over_by_its_name_and_boot(users, new_world, monkeypatch):
    stranger = users.add()
    with public_programs(monkeypatch):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        true = world.add_agent("n1").start()
        job = world.api().submit("sleep 1000")
        world.api().wait_for(job, "running")
        # What the stranger would have to know first.
        folder = world.folder / "false"
        folder.mkdir()
        shutil.copy(true.data_dir / "instance", folder / "instance")
        for path in [folder, *folder.iterdir()]:
            shutil.chown(path, stranger)
        false = agent_as(world, stranger, "n1", folder=folder)
        wait_until("the false agent is settled", lambda: settled(false))
        assert '"registered"' not in false.log_since_start(), "a stranger took a node over"
        assert '"scheduler_unreachable"' not in true.log_since_start()
        assert world.api().job(job)["state"] == "running"
        false.kill()
        # And what the stranger needed for it he cannot have.
        assert stat.S_IMODE((true.data_dir / "instance").stat().st_mode) == 0o600


@NEEDS_ROOT
def test_a_nodes_secret_is_in_no_name_that_others_see(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    agent = world.add_agent("n1").start()
    job = world.api().submit("env; cat /proc/self/cgroup; sleep 1000")
    world.api().wait_for(job, "running")
    wait_until("it printed", lambda: "GPU_SCHEDULER_ATTEMPT" in world.api().output(job))
    secret = agent.instance()
    assert len(secret) >= 16 and secret not in world.api().output(job)
    names = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert secret not in names


@NEEDS_ROOT
def test_a_plain_agent_obeys_no_stranger_who_has_the_port(users, new_world, monkeypatch):
    owner, stranger = users.add(), users.add()
    with public_programs(monkeypatch):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.folder.chmod(0o777)
        # The owner's scheduler is down, and somebody else has taken its port.
        world.scheduler.prefix = as_user(stranger)
        world.scheduler.start()
        agent = agent_as(world, owner, "n1")
        wait_until("the agent is settled", lambda: settled(agent))
        api = world.api()
        assert api.node("n1") is None, f"the agent obeys user {stranger}"
        assert not agent.alive() and "belongs to user" in agent.log_text()


SPY = """
import http.server, sys
class Spy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        open(sys.argv[2], "a").write(str(self.headers) + self.path + chr(10))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        body = sys.argv[3].encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Spy).serve_forever()
"""


@NEEDS_ROOT
@pytest.mark.parametrize("from_file", [True, False])
def test_gpu_cli_sends_a_token_to_no_stranger_who_has_the_port(users, new_world, monkeypatch, from_file):
    owner, stranger = users.add(), users.add()
    with public_programs(monkeypatch):
        world = new_world()
        world.folder.chmod(0o777)
        port, token = free_port(), secrets.token_hex(32)
        home = world.folder / "home"
        home.mkdir()
        (home / "token").write_text(token + "\n")
        (home / "token").chmod(0o600)
        (home / "ports.json").write_text(json.dumps({"http": port, "grpc": 1, "metrics": 0, "pid": 1}))
        for path in [home, *home.iterdir()]:
            shutil.chown(path, owner)
        seen = world.folder / "seen"
        answer = json.dumps({"status": "healthy", "token_file": str(home / "token"), "jobs": [], "total": 0})
        spy = subprocess.Popen(as_user(stranger, sys.executable, "-c", SPY, str(port), str(seen), answer),
                               env=world.environment(), cwd="/", stderr=subprocess.DEVNULL)
        try:
            wait_until("somebody listens there",
                       lambda: Api(port, "127.0.0.1") and _answers(port))
            words = ["--api-url", f"http://127.0.0.1:{port}"]
            words += ["--token-file", str(home / "token")] if from_file else []
            done = subprocess.run(as_user(owner, program("gpu-cli"), *words, "list"), capture_output=True, text=True,
                                  env=world.environment(), check=False, cwd="/")
            assert token not in seen.read_text(), "the token was sent to a stranger"
            if from_file:
                assert done.returncode == 2 and "belongs to user" in done.stderr, done
        finally:
            spy.kill()
            spy.wait()


def _answers(port):
    try:
        return Api(port, "127.0.0.1").call("GET", "/")[0] == 200
    except OSError:
        return False
